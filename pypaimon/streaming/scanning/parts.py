"""`ScanParts`: the parts of a scan once it knows its table; `ScanOpening`: its states before that; `KeepAlive`."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.clock import Clock, until_done
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Position
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.scanning.lag import LagMeter
from pypaimon.streaming.scanning.prefetch import Prefetcher
from pypaimon.streaming.scanning.worker import Advance, Advancing, Segment, Unopened, Worker

_LOOKS_PER_REWRITE = 2
_LEAST_PAUSE, _LONGEST_PAUSE = 0.1, 86_400.0


@dataclass(slots=True, eq=False)
class _Watch:
    """Ends a thread, and wakes it for that."""

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
    """

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._watch: _Watch | None = None
        self._thread: BackgroundThread | None = None

    def begin(self) -> None:
        """Start the thread if none runs. A forked process needs its own."""
        after = self._progress.keep_alive_after
        if after is None or (self._watch is not None and self._thread is not None and self._thread.is_alive()):
            return
        watch = self._watch = _Watch()
        pause = min(max(after / _LOOKS_PER_REWRITE, _LEAST_PAUSE), _LONGEST_PAUSE)
        arguments = watch, weakref.ref(self._progress), self._clock, pause
        self._thread = BackgroundThread(_run, "paimon-keep-alive", watch.end, *arguments)
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
        # While it waits, the thread must not keep its reader alive.
        del progress


class ScanParts:
    """The parts of one scan. Making them sends no requests.

    Args:
        progress: Saved progress, or None without a consumer id.
        latest_at: When the latest snapshot that the planner was given was requested.

    Attributes:
        keep_alive: Keeps the files of progress; None without a consumer id.
    """

    def __init__(
        self,
        directory: TableDirectory,
        planner: Planner,
        options: StreamOptions,
        progress: Progress | None,
        clock: Clock,
        latest_at: float = float("-inf"),
    ) -> None:
        self.directory = directory
        self.planner = planner
        self.options = options
        self.progress = progress
        self.prefetcher = Prefetcher(planner.step, steps_ahead(options), clock.monotonic, planner.known_idle, latest_at)
        self.worker = Worker(planner, self.prefetcher, options, progress, clock.monotonic)
        self.lag_meter = LagMeter(directory, planner, clock)
        self.keep_alive = None if progress is None else KeepAlive(progress, clock)


class ScanOpening:
    """The states of a scan, also before it knows its table.

    Args:
        start: The start of the builder, or None for that of the table's options.
    """

    def __init__(self, parts: Lazy[ScanParts], start: Start | None) -> None:
        self._parts = parts
        self._start = start
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-table")

    def initial(self) -> PlannerState | Unopened:
        """The state before the configured start."""
        parts = self._parts.known
        return Unopened() if parts is None else parts.planner.initial()

    def at(self, position: Position | int) -> PlannerState | Unopened:
        """The state at a saved position, or at a saved snapshot id."""
        sought = position if isinstance(position, Position) else Position(UNKNOWN_TABLE, position)
        parts = self._parts.known
        return Unopened(sought) if parts is None else parts.planner.at(sought)

    def position(self, state: PlannerState | Unopened) -> Position | None:
        """The position of a state; None before the start is found."""
        if not isinstance(state, Unopened):
            return self._parts.get().planner.position(state)
        return state.sought or (None if self._start is None else self._start.position)

    def opened(self, state: PlannerState | Unopened, planner: Planner) -> PlannerState:
        """The planner's state for a state that may have been made before the table was known."""
        if not isinstance(state, Unopened):
            return state
        return planner.initial() if state.sought is None else planner.at(state.sought)

    def advancing(self, state: PlannerState | Unopened, max_age: float) -> Advancing:
        """The function that advances from a state: the worker's, or one that finds the table first."""
        if isinstance(state, Unopened):
            return partial(self._open, state)
        return partial(self._parts.get().worker.advance, state, max_age)

    def _open(self, state: Unopened, segment: Segment, stopping: Callable[[], bool]) -> Advance:
        """Wait for the table without taking a step."""
        if not (stopping() or segment.left):
            parts = self._pool.submit(self._parts.get)
            if until_done(parts, lambda: stopping() or segment.left):
                opened = self.opened(state, parts.result().planner)
                return Advance(opened, self.position(opened))
        return Advance(state, self.position(state), ended=stopping())


def steps_ahead(options: StreamOptions) -> int:
    """The number of steps to prefetch."""
    bound = options.max_unconfirmed
    return options.prefetch if bound is None else min(options.prefetch, bound)
