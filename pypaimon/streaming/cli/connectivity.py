"""Reports of requests that hang, while a command runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pypaimon.streaming.catalog_access import THREAD
from pypaimon.streaming.catalog_endpoint import Endpoint
from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.io.pool_registry import longest_wait

_HANG_SECONDS = 5.0


@contextmanager
def reporting_hangs(options: Mapping[str, str]) -> Iterator[None]:
    """Report on stderr each request that has not returned for some seconds, once, and its endpoint."""
    ended = threading.Event()

    def watch() -> None:
        is_reported = False
        while not ended.wait(_HANG_SECONDS / 5):
            waited = longest_wait()
            if waited < _HANG_SECONDS:
                is_reported = False
            elif not is_reported:
                is_reported = True
                place = Endpoint.of(options)
                text = f"waiting for {place}: a request has not returned for {waited:.0f} s{place.state()}"
                say(text)

    BackgroundThread(watch, "paimon-watch", ended.set).start()
    try:
        yield
    finally:
        ended.set()


def is_given_up() -> bool:
    """Whether a call of `reach` is still running: the interpreter would wait for it at its exit."""
    return any(thread.name == THREAD for thread in threading.enumerate())
