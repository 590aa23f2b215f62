"""`FollowedTable`: one table of a database that is followed: its own stream, what waits of it, and how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.builder.opened import OpenedChunks
from pypaimon.streaming.databases.lag import TableLag
from pypaimon.streaming.errors import EndOfScan, PaimonStreamError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position

_LONGEST_INTERVAL = 30.0
_SHARE_OF_QUIET = 8
_IDLE_SNAPSHOTS = 16
"""So many snapshots are kept of a table that has nothing to read."""
_POLL_COUNTS_SECONDS = 1.0
_LATEST_KNOWN_SECONDS = 10.0
"""While a table has more than is read of it, it is asked so often what its latest snapshot is."""


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A plan of which a part was handed out.

    Attributes:
        begin: Where it begins.
        behind: Position behind it.
        rows: How many were handed out.
    """

    begin: Position
    behind: Position
    rows: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was the latest snapshot, 0 without any, and when that was, on the engine's clock."""

    latest: int
    at: float


class FollowedTable:
    """One table. `look`, `look_for_latest` and `rest` are called by one thread at a time, `seen_lag` and `measured_lag`
    by any; the rest is guarded by the engine's lock.

    Args:
        name: Its name.
        identity: Which table it is.
        chunks: Its stream.
        now: The time, in seconds of a clock that never goes back.

    Attributes:
        name: See above.
        identity: See above.
        chunks: What was read and waits.
        failures: How often in a row it failed in a way that may pass.
        error: What it is parked for; None: it is not.
        suspicion: Why it may not be the table any more that it was: the next discovery decides. None: nothing.
        is_ended: Whether its stream has reached its end.
        schema: Of the last chunk that was handed out; None before the first.
        cut: The plan of which only a part was handed out; None: there is none.
    """

    def __init__(self, name: str, identity: str, chunks: OpenedChunks, now: float) -> None:
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

    @property
    def is_stalled(self) -> bool:
        """Whether what it has begun to hand out does not go on for now."""
        return bool(self.failures) or self.error is not None or self.suspicion is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing comes of it any more, for all that is known."""
        return self.error is not None or (self.is_ended and self.suspicion is None)

    def look(self, now: Callable[[], float]) -> BatchChunk | None:
        """What comes next of it; None: nothing new is there. Its threads have gone then, as after an error.

        Errors as `ChunkReader.look`.
        """
        try:
            # What was asked while its last rows were read is not asked again at once.
            chunk = self._reader.look(min(self.driver.poll_seconds, _POLL_COUNTS_SECONDS))
        except BaseException as error:
            if isinstance(error, EndOfScan):
                self._seen = _Seen(self._read_until(), now())
            self.rest()
            raise
        if chunk is None:
            self._seen = _Seen(self._read_until(), now())
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
        """Leave out what was handed out of the first plan under another name. Before the first look."""
        self._reader.resume_after(cut.behind, cut.rows)

    def rest(self) -> None:
        """Let its threads go until the next look."""
        self._reader.rest()

    def idle_seconds(self, now: float, chance: float) -> float:
        """Until when it is left alone, after a look that has found nothing.

        The longer it was quiet, the longer: an eighth of that time, at least its poll interval, at most 30 s or its
        poll interval, and a tenth more or less, so that tables do not come together.

        Args:
            now: The time.
            chance: A number from 0 to 1.
        """
        least = self.driver.poll_seconds
        quiet = (now - self._found_at) / _SHARE_OF_QUIET
        return max(least, min(quiet, _LONGEST_INTERVAL)) * (0.9 + 0.2 * chance)

    def look_for_latest(self, now: Callable[[], float]) -> None:
        """Ask what its latest snapshot is, unless that is known well enough, for the lag. Errors come with a look."""
        parts = self.driver.parts.known
        if parts is None or (self._seen is not None and now() - self._seen.at < _LATEST_KNOWN_SECONDS):
            return
        with suppress(PaimonStreamError):
            self._seen = _Seen(parts.directory.snapshots.latest_id() or 0, now())

    def seen_lag(self, position: Position | None, now: float, *, is_empty: bool) -> TableLag:
        """How far a position is behind what was seen of it. Asks for nothing; called by any thread.

        Args:
            position: Where it goes on; None: nobody knows.
            now: The time.
            is_empty: Whether it had no snapshot when it was looked at last: all of it is still to come then.
        """
        seen, parts = self._seen, self.driver.parts.known
        if seen is None or parts is None:
            return TableLag()
        latest, age = max(seen.latest, self._read_until()), max(0.0, now - seen.at)
        if position is not None:
            return TableLag(*parts.lag_meter.known_at(position, latest), age)
        return TableLag(0, 0, 0.0, age) if is_empty and not latest else TableLag(age=age)

    def measured_lag(self, position: Position | None, now: Callable[[], float], *, is_empty: bool) -> TableLag:
        """As `seen_lag`, but asks what its latest snapshot is.

        Raises:
            PaimonStreamError: That cannot be found out.
        """
        parts = self.driver.parts.get()
        try:
            if position is None:
                latest = parts.directory.snapshots.latest_id()
                return TableLag(0, 0, 0.0, 0.0) if is_empty and latest is None else TableLag(age=0.0)
            lag = parts.lag_meter.measure_at(position, None)
            self._seen = _Seen(lag.latest or 0, now())
            return TableLag(lag.snapshots, lag.rows, lag.seconds, 0.0)
        finally:
            parts.release()

    def _read_until(self) -> int:
        """The last snapshot that was read, perhaps in part; 0 without any."""
        position = self.driver.position
        if position is None:
            return 0
        return position.snapshot - (position.phase is Phase.FOLLOW and position.unit is None)

    def close(self) -> None:
        """Let go of everything, also of a look that another thread is at."""
        self._reader.close()

    def keep_alive(self, now: float) -> None:
        """Keep the files of its progress from expiring, while nobody reads it."""
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
    """Where the plan of a chunk begins; None: at the start of the stream, of several snapshots."""
    plan = chunk.plan
    if chunk.before is not None or plan.position.phase is Phase.RANGE:
        return chunk.before
    # Plans of other kinds do not name the first of their snapshots.
    phase = _PHASES.get(plan.kind)
    return None if phase is None else Position(plan.position.table, plan.snapshot_id, None, phase)
