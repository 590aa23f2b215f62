"""The first contact with a catalog and its store: bounded, and with a word about what is being waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.errors import IOTimeoutError
from pypaimon.streaming.io.io_pool import longest_wait

T = TypeVar("T")

_THREAD = "paimon-contact"
_SILENT_SECONDS = 3.0
_LOOK_SECONDS = 2.0
_HANG_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


def reach(options: Mapping[str, str], seconds: float, call: Callable[[], T], patiently: bool = False) -> T:
    """The result of a call on another thread. After three seconds stderr says whom it waits for.

    Clients of stores repeat what fails for a minute and more, and tell nobody meanwhile.

    Args:
        options: Of the catalog.
        seconds: How long to wait.
        call: Asks the catalog.
        patiently: Whether to wait on, and say so each time. A second call would wait for the first one: Arrow makes no
            client of S3 while a request of another one hangs.

    Raises:
        IOTimeoutError: No answer in time; names the endpoint, and what a connection to it comes to.
    """
    future: Future[T] = Future()
    threading.Thread(target=_fulfil, args=(future, call), name=_THREAD, daemon=True).start()
    if not wait((future,), min(seconds, _SILENT_SECONDS)).done:
        place = Endpoint.of(options)
        problem = place.problem()
        if seconds > _SILENT_SECONDS:
            say(f"waiting for {place} (at most {seconds:g} s){problem}")
        left = max(0.0, seconds - _SILENT_SECONDS)
        while not wait((future,), left).done:
            text = f"no answer from {place} within {seconds:g} s{problem}"
            if not patiently:
                raise IOTimeoutError(text)
            say(f"{text}; waiting on")
            left, problem = seconds, place.problem()
    return future.result()


@contextmanager
def telling_what_hangs(options: Mapping[str, str]) -> Iterator[None]:
    """Say on stderr, once for each, that a request within has not come back for some seconds, and whose it is.

    Args:
        options: Of the catalog.
    """
    ended = threading.Event()

    def watch() -> None:
        told = False
        while not ended.wait(_HANG_SECONDS / 5):
            waited = longest_wait()
            if waited < _HANG_SECONDS:
                told = False
            elif not told:
                told = True
                place = Endpoint.of(options)
                text = f"waiting for {place}: a request has not come back for {waited:.0f} s{place.problem()}"
                say(text)

    threading.Thread(target=watch, name="paimon-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def is_given_up() -> bool:
    """Whether a call of `reach` goes on though nobody waits for it: the interpreter would wait for it at its end."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who has to answer.

    Attributes:
        key: The option of the catalog that names it.
        address: As people read it; without user and password.
        host: Its host; None if there is none to connect to.
        port: Of that host.
    """

    key: str
    address: str
    host: str | None
    port: int

    @staticmethod
    def of(options: Mapping[str, str]) -> Endpoint:
        """The endpoint of a catalog: of its store, or of its server; else the warehouse."""
        keys = [key for key in options if key.endswith(".endpoint")] + ["uri", "warehouse"]
        key = next(key for key in keys if key in options or key == "warehouse")
        text = options.get(key, "")
        if key.endswith(".endpoint") and "://" not in text:
            text = f"https://{text}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            return Endpoint(key, text, None, 0)
        if parts.scheme not in _PORTS or host is None:
            return Endpoint(key, text, None, 0)
        address = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
        return Endpoint(key, address, host, port or _PORTS[parts.scheme])

    def __str__(self) -> str:
        return f"{self.address} ({self.key})"

    def problem(self) -> str:
        """What a connection to it comes to: `: Connection refused`; empty if that cannot be told."""
        if self.host is None or (self.key == "uri" and getproxies()):
            return ""
        try:
            socket.create_connection((self.host, self.port), _LOOK_SECONDS).close()
        except OSError as error:
            return f": {error.strerror or error}"
        return ": it takes connections, and does not answer"
