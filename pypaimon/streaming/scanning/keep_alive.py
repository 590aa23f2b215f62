"""`KeepAlive`: rewrites the files of a reader in time while its caller is busy with a plan."""

from __future__ import annotations

import queue
import threading
import weakref
from dataclasses import dataclass, field

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.errors import PaimonStreamError

_LOOKS_PER_REWRITE = 2
_LEAST_PAUSE, _LONGEST_PAUSE = 0.1, 86_400.0


@dataclass(slots=True, eq=False)
class _Watch:
    """Tells a thread to end, and wakes it for that."""

    woken: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)
    ended: bool = False

    def end(self) -> None:
        self.ended = True
        self.woken.put(None)


class KeepAlive:
    """Calls `Progress.keep_alive` on its own daemon thread, between `begin` and `end`.

    It confirms nothing. A conflict or a damaged file ends the thread, because the reader's own next call raises the
    same error. A failing store is tried again later. The thread also ends when this object is garbage collected. Both
    methods return at once and may be called from any thread, `end` also from a signal handler or the garbage collector.

    Args:
        progress: The progress whose files are kept. Without an expiration of consumers there is no thread.
        clock: How to wait.
    """

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread if none runs. A forked process needs its own."""
        after = self._progress.keep_alive_after
        if after is None or (self._watch is not None and self._thread is not None and self._thread.is_alive()):
            return
        watch = self._watch = _Watch()
        pause = min(max(after / _LOOKS_PER_REWRITE, _LEAST_PAUSE), _LONGEST_PAUSE)
        arguments = watch, weakref.ref(self._progress), self._clock, pause
        self._thread = threading.Thread(target=_run, args=arguments, name="paimon-keep-alive", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the thread end, without waiting for it. Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def __del__(self) -> None:
        self.end()


def _run(watch: _Watch, reader: weakref.ref[Progress], clock: Clock, pause: float) -> None:
    while not watch.ended:
        clock.wait(watch.woken, pause)
        progress = reader()
        if watch.ended or progress is None:
            return
        try:
            progress.keep_alive(clock.monotonic())
        except PaimonStreamError as error:
            if not error.retriable:
                return
        del progress
