"""`ScanParts`: what a scan works with once it knows its table; `Opening`: where it stands before that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pypaimon.streaming.concurrency.clock import Clock, until_done
from pypaimon.streaming.concurrency.deferred import Deferred
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Position
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.scanning.keep_alive import KeepAlive
from pypaimon.streaming.scanning.lag import LagMeter
from pypaimon.streaming.scanning.prefetch import Prefetcher
from pypaimon.streaming.scanning.worker import Advance, Advancing, Segment, Worker


@dataclass(frozen=True, slots=True, eq=False)
class ScanParts:
    """The parts of one scan; to make them asks for nothing.

    Attributes:
        directory: The table.
        planner: Decides what comes next.
        options: The stream's settings.
        progress: Saved progress, or None without a consumer id.
        prefetcher: Takes the planner's steps.
        worker: What a worker does between two plans.
        lag_meter: Tells how far behind.
        keep_alive: Keeps the files of progress; None without a consumer id.
    """

    directory: TableDirectory
    planner: Planner
    options: StreamOptions
    progress: Progress | None
    prefetcher: Prefetcher
    worker: Worker
    lag_meter: LagMeter
    keep_alive: KeepAlive | None

    @staticmethod
    def of(
        directory: TableDirectory, planner: Planner, options: StreamOptions, progress: Progress | None, clock: Clock
    ) -> ScanParts:
        """Put them together."""
        prefetcher = Prefetcher(planner.step, steps_ahead(options), clock.monotonic, planner.known_idle)
        return ScanParts(
            directory,
            planner,
            options,
            progress,
            prefetcher,
            Worker(planner, prefetcher, options, progress, clock.monotonic),
            LagMeter(directory, planner, clock),
            None if progress is None else KeepAlive(progress, clock),
        )

    def release(self) -> None:
        """Let the threads end; they come back when they are needed."""
        self.prefetcher.release()
        self.planner.release()
        self.directory.store.pool.release()


class Opening:
    """States of a scan, also of one that does not know its table yet.

    Args:
        parts: What the scan works with.
        start: The start that the builder was told, None where the table's options say.
    """

    def __init__(self, parts: Deferred[ScanParts], start: Start | None) -> None:
        self._parts = parts
        self._start = start
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-table")

    def initial(self) -> PlannerState:
        """The state before the configured start."""
        parts = self._parts.known
        return PlannerState(self._start) if parts is None else parts.planner.initial()

    def at(self, position: Position | int) -> PlannerState:
        """The state at a saved position, or at a saved snapshot id."""
        sought = position if isinstance(position, Position) else Position(UNKNOWN_TABLE, position)
        parts = self._parts.known
        return PlannerState.at(sought) if parts is None else parts.planner.at(sought)

    def position(self, state: PlannerState) -> Position | None:
        """The position of a state; None before the start is found."""
        parts = self._parts.known
        if parts is not None:
            return parts.planner.position(state)
        return None if state.start is None else state.start.position

    def resolved(self, state: PlannerState, planner: Planner) -> PlannerState:
        """A state that may have been made before the table was known, as it is of the planner's."""
        if state.start is not None and state.start is self._start:
            return planner.initial()
        if _is_resolved(state):
            return state
        position = None if state.start is None else state.start.position
        return planner.initial() if position is None else planner.at(position)

    def advancing(self, state: PlannerState, parts: ScanParts | None) -> Advancing:
        """What makes an advance from a state: the worker, or what finds the table first."""
        return self._open if parts is None or not _is_resolved(state) else parts.worker.advance

    def _open(self, segment: Segment, state: PlannerState, max_age: float, stopping: Callable[[], bool]) -> Advance:
        """Wait for the table, and take no step."""
        if not (stopping() or segment.left):
            parts = self._pool.submit(self._parts.get)
            if until_done(parts, lambda: stopping() or segment.left):
                state = self.resolved(state, parts.result().planner)
                return Advance(state, self.position(state))
        return Advance(state, self.position(state), ended=stopping())

    def release(self) -> None:
        """Let the thread end; it comes back when it is needed."""
        self._pool.release()


def _is_resolved(state: PlannerState) -> bool:
    """Whether a state says where the stream stands: not "as configured", nor at a snapshot of whichever table."""
    if state.start is None:
        return state.next_id is not None
    return state.start.position is None or state.start.position.table != UNKNOWN_TABLE


def steps_ahead(options: StreamOptions) -> int:
    """Steps to take ahead of the caller."""
    bound = options.max_unconfirmed
    return options.prefetch if bound is None else min(options.prefetch, bound)
