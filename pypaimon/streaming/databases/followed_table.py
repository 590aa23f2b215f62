"""`FollowedTable`: one table of a database: its stream, its buffered chunks and its lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.databases.lag import TableLag
from pypaimon.streaming.errors import EndOfScan, PaimonStreamError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.spec.openers import OpenedChunks

_LONGEST_INTERVAL = 30.0
_SHARE_OF_QUIET = 8
_IDLE_SNAPSHOTS = 16
"""Snapshots that are kept in memory for a table that has nothing to read."""
_POLL_COUNTS_SECONDS = 1.0
_LATEST_KNOWN_SECONDS = 10.0
"""While a table has more rows than are read, its latest snapshot is asked for this often."""


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A plan that was only partly handed out.

    Attributes:
        begin: Where the plan begins.
        after: The position after the plan.
        rows: The number of rows that were handed out.
    """

    begin: Position
    after: Position
    rows: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """The latest snapshot (0 without any) at a time of the engine's clock."""

    latest: int
    at: float


class FollowedTable:
    """One table of a database.

    One thread at a time calls `look`, `refresh_latest` and `rest`. Any thread calls `seen_lag` and `measured_lag`. The
    engine's lock guards everything else.

    Args:
        name: Name of the table.
        identity: Identity of the table.
        chunks: The stream of the table.
        now: The current time of a monotonic clock.
        latest: The latest snapshot when the table was opened, if it was read.
        opened_at: The time at which it was requested.

    Attributes:
        name: Name of the table.
        identity: Identity of the table.
        chunks: Chunks that were read ahead.
        failures: The number of retriable failures in a row.
        error: The error that the table is parked for, if any.
        suspicion: The error for which it may be a different table by now, if any; the next discovery decides.
        is_ended: Whether the stream has reached its end.
        schema: The schema of the last chunk that was handed out, None before the first.
        cut: The plan that was only partly handed out, if any.
    """

    def __init__(
        self,
        name: str,
        identity: str,
        chunks: OpenedChunks,
        now: float,
        latest: Snapshot | None = None,
        opened_at: float = 0.0,
    ) -> None:
        self.name = name
        self.identity = identity
        self.scan, self.driver, self._reader = chunks
        self.chunks: deque[BatchChunk] = deque()
        self.failures = 0
        self.error: Exception | None = None
        self.suspicion: Exception | None = None
        self.is_ended = False
        self.schema: TableSchema | None = None
        self.cut: CutPlan | None = None
        self._handed_out: BatchChunk | None = None
        self._found_at = now
        self._seen: _Seen | None = None
        self._opened_with = None if latest is None else _Seen(latest.id, opened_at)

    @property
    def is_stalled(self) -> bool:
        """Whether the rest of a plan will not come soon."""
        return bool(self.failures) or self.error is not None or self.suspicion is not None

    @property
    def is_over(self) -> bool:
        """Whether the table is parked or its stream has ended."""
        return self.error is not None or (self.is_ended and self.suspicion is None)

    def is_known_idle(self, put_off: float) -> bool:
        """Whether `look` finds nothing without a request."""
        age = self._reader.idle_age
        return age is not None and age < self._poll_counts(put_off)

    def _poll_counts(self, put_off: float) -> float:
        return max(put_off, min(self.driver.poll_seconds, _POLL_COUNTS_SECONDS))

    def look(self, now: Callable[[], float], put_off: float = 0.0) -> BatchChunk | None:
        """The next chunk, None if there is nothing new. Drops prefetched plans then, as after an error.

        A poll that was made while the last rows were read is not repeated at once.

        Args:
            now: Seconds of a monotonic clock.
            put_off: For how long the next poll is put off.

        Raises:
            PaimonStreamError: See `ChunkReader.look`.
        """
        age = (self._reader.idle_age or 0.0) if self.is_known_idle(put_off) else 0.0
        try:
            chunk = self._reader.look(self._poll_counts(put_off), in_background=True)
        except BaseException as error:
            if isinstance(error, EndOfScan):
                self._seen = _Seen(self._read_until(), now())
            self.rest()
            raise
        if chunk is None:
            self._seen = _Seen(self._read_until(), now() - age)
            self.keep_alive(now())
            parts = self.driver.parts.known
            if parts is not None and not self.chunks:
                parts.directory.snapshots.let_go(_IDLE_SNAPSHOTS)
            self.rest()
        else:
            self._found_at = now()
        return chunk

    def was_handed_out(self, chunk: BatchChunk) -> None:
        """A chunk has reached the caller. Idempotent."""
        if chunk is self._handed_out:
            return
        self._handed_out = chunk
        begin = begin_of(chunk)
        if chunk.last or begin is None:
            self.cut = None
        else:
            before = 0 if self.cut is None or chunk.first else self.cut.rows
            rows = 0 if chunk.data is None else chunk.data.num_rows
            self.cut = CutPlan(begin, chunk.plan.position, before + rows)

    def resume_in(self, cut: CutPlan) -> None:
        """Skip the rows of the first plan that were handed out under another name. Called before the first `look`."""
        self._reader.resume_after(cut.after, cut.rows)

    def rest(self) -> None:
        """Drop prefetched plans, until the next `look`."""
        self._reader.rest()

    def idle_seconds(self, now: float, chance: float) -> float:
        """Seconds until the next poll, after one that found nothing.

        It is an eighth of the time for which the table was quiet, at least the poll interval, and at most 30 s or the
        poll interval. A random tenth more or less keeps the polls of many tables apart.

        Args:
            now: The current time.
            chance: A random number from 0 to 1.
        """
        least = self.driver.poll_seconds
        quiet = (now - self._found_at) / _SHARE_OF_QUIET
        return max(least, min(quiet, _LONGEST_INTERVAL)) * (0.9 + 0.2 * chance)

    def refresh_latest(self, now: Callable[[], float]) -> None:
        """Ask for the latest snapshot, for the lag, unless that was done recently. Errors are left to the next poll."""
        parts = self.driver.parts.known
        if parts is None:
            return
        self._seen = self._seen or self._opened_with
        if self._seen is not None and now() - self._seen.at < _LATEST_KNOWN_SECONDS:
            return
        with suppress(PaimonStreamError):
            self._seen = _Seen(parts.directory.snapshots.latest_id() or 0, now())

    def seen_lag(self, position: Position | None, now: float, *, is_empty: bool) -> TableLag:
        """The lag of a position, by the latest snapshot that the stream has seen. No IO.

        Args:
            position: Where the stream continues, None if that is unknown.
            now: The current time.
            is_empty: Whether the last poll found no snapshot, so that all rows are still to come.
        """
        seen, parts = self._seen, self.driver.parts.known
        if seen is None or parts is None:
            return TableLag()
        latest, age = max(seen.latest, self._read_until()), max(0.0, now - seen.at)
        if position is not None:
            return TableLag(*parts.lag_meter.known_at(position, latest), age)
        return TableLag(0, 0, 0.0, age) if is_empty and not latest else TableLag(age=age)

    def measured_lag(self, position: Position | None, now: Callable[[], float], *, is_empty: bool) -> TableLag:
        """As `seen_lag`, after asking for the latest snapshot.

        Raises:
            PaimonStreamError: The request failed.
        """
        parts = self.driver.parts.get()
        if position is None:
            latest = parts.directory.snapshots.latest_id()
            return TableLag(0, 0, 0.0, 0.0) if is_empty and latest is None else TableLag(age=0.0)
        lag = parts.lag_meter.measure_at(position, None)
        self._seen = _Seen(lag.latest or 0, now())
        return TableLag(lag.snapshots, lag.rows, lag.seconds, 0.0)

    def _read_until(self) -> int:
        """The last snapshot that was read, perhaps partly; 0 without any."""
        position = self.driver.position
        return 0 if position is None else position.last_read

    def close(self) -> None:
        """Release everything; ends a `look` on another thread too."""
        self._reader.close()

    def keep_alive(self, now: float) -> None:
        """Keep the files of its saved progress from expiring while it is not read."""
        parts = self.driver.parts.known
        if parts is not None and parts.progress is not None:
            parts.progress.keep_alive(now)


_PHASES = {
    PlanKind.FULL: Phase.FULL,
    PlanKind.DELTA: Phase.FOLLOW,
    PlanKind.CHANGELOG: Phase.FOLLOW,
    PlanKind.OVERWRITE: Phase.FOLLOW,
}


def begin_of(chunk: BatchChunk) -> Position | None:
    """Where the plan of a chunk begins; None if it begins at the start of the stream and spans several snapshots."""
    plan = chunk.plan
    if chunk.before is not None or plan.position.phase is Phase.RANGE:
        return chunk.before
    # Plans of other kinds do not say which snapshot they begin with.
    phase = _PHASES.get(plan.kind)
    return None if phase is None else Position(plan.position.table, plan.snapshot_id, None, phase)
