"""`Lag`: the distance of a stream from the latest snapshot; `LagMeter`: measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.html_tables import html_dataclass
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import Following, PlannerState, ReadingFull, ReadingRange, Starting

# Half of what the cache of snapshots holds: more would push out what streams need.
_MOST_KNOWN = 2048
_MOST_FETCHED = 256


@dataclass(frozen=True, slots=True)
class Lag:
    """Distance from a position to the latest snapshot. Unknown values are None, never zero.

    Attributes:
        snapshots: Snapshots from the next one to the latest, both included; None for a position beyond the next one.
        rows: Records that a stream would get for them, before filter and shard: exact, or None. None inside a
            snapshot, in a range that is one plan, and while not all of them are known (see `LagMeter`).
        bytes: Bytes of their files; unknown until they are planned.
        seconds: Age of the first snapshot that was not read yet; 0 when caught up.
        earliest: Id of the earliest snapshot, or long-lived changelog, that can be followed, or None.
        latest: Id of the latest snapshot, or None.
        committed: Next snapshot that was saved under the consumer id; None without one.
    """

    snapshots: int | None
    rows: int | None
    bytes: int | None
    seconds: float | None
    earliest: int | None
    latest: int | None
    committed: int | None

    def _repr_html_(self) -> str:
        return html_dataclass("Lag", self)


class LagMeter:
    """Measures lag: one listing of the snapshots, and a request for each unread one that is not known yet.

    The records of a snapshot for a stream are known only after it was fetched, because totals also count compactions
    and overwrites. One measurement fetches at most 256 snapshots, the newest first, so a stream with more unread ones
    knows `rows` after several measurements. For a stream that is more than 2,048 snapshots behind only the next
    snapshot is fetched, and `rows` is unknown. Long-lived changelogs, if the table keeps any, are listed too.

    Args:
        planner: Knows which snapshots a stream reads.
    """

    def __init__(self, directory: TableDirectory, planner: Planner, clock: Clock) -> None:
        self._snapshots = directory.snapshots
        self._with_changelogs = planner.traits.decoupled_changelog
        self._planner = planner
        self._clock = clock

    def measure(self, state: PlannerState, committed: int | None) -> Lag:
        """The lag of a state; before the start that of the position where it would begin now, which has to be found."""
        match self._planner.begun(state):
            case Starting():
                return self._measured(None, None, committed, is_cut=False)
            case ReadingFull() as reading:
                return self._measured(reading.next_id, reading.snapshot, committed, is_cut=reading.unit is not None)
            case ReadingRange(span):
                # A range that is one plan counts as a whole until its last part was handed out.
                return self._measured(span.since + 1, None, committed, is_cut=True)
            case Following(next_id, unit):
                return self._measured(next_id, None, committed, is_cut=unit is not None)

    def measure_at(self, position: Position, committed: int | None) -> Lag:
        """The lag of a position that a stream has reached."""
        if position.phase is Phase.RANGE:
            return self._measured((position.since or 0) + 1, None, committed, is_cut=True)
        full = self._snapshots.try_get(position.snapshot) if position.phase is Phase.FULL else None
        next_id = position.snapshot if full is None else full.id + 1
        return self._measured(next_id, full, committed, is_cut=position.unit is not None)

    def known_at(self, position: Position, latest: int) -> tuple[int, int | None, float | None]:
        """Snapshots, rows and seconds of the `Lag` of a position that a stream has reached.

        Sends no requests: without the cached snapshots rows and seconds are unknown.

        Args:
            latest: Id of the snapshot that was the latest when it was last requested; 0: no snapshot.
        """
        is_cut = position.unit is not None or position.phase is Phase.RANGE
        first = (position.since or 0) + 1 if position.phase is Phase.RANGE else position.snapshot
        if first > latest:
            return 0, 0, 0.0
        wanted = range(first, latest + 1) if latest - first < _MOST_KNOWN else range(first, first + 1)
        known = self._snapshots.get_snapshots_batch(wanted, most=0)
        found = {number: snapshot for number, snapshot in known.items() if snapshot is not None}
        oldest = found.get(first)
        count = latest - first + 1
        rows = None
        if not is_cut and len(found) == count:
            full = found.pop(first) if position.phase is Phase.FULL else None
            rows = self._rows(full, found)
        return count, rows, None if oldest is None else self._age(oldest)

    def _age(self, snapshot: Snapshot) -> float:
        return max(0.0, (self._clock.time_millis() - snapshot.time_millis) / 1000)

    def _measured(self, next_id: int | None, full: Snapshot | None, committed: int | None, *, is_cut: bool) -> Lag:
        """The lag before snapshot `next_id`, and before the full state if there is one. `is_cut`: rows are unknown."""
        ids = self._snapshots.list_ids()
        changelogs = self._snapshots.list_changelog_ids() if self._with_changelogs else []
        earliest = min((*changelogs[:1], *ids[:1]), default=None)
        latest = ids[-1] if ids else None
        next_id = 1 if next_id is None and latest is None else next_id
        if next_id is None or next_id > (latest or 0) + 1:
            return Lag(None, None, None, None, earliest, latest, committed)
        if full is None and next_id > (latest or 0):
            return Lag(0, 0, 0, 0.0, earliest, latest, committed)
        # The delta branch of a chain table may be empty while its first plan is still to come.
        count = (latest or 0) - next_id + 1
        found = self._found(next_id, ids, changelogs)
        rows = None if is_cut or len(found) < count else self._rows(full, found)
        oldest = found.get(next_id) if full is None else full
        seconds = None if oldest is None else self._age(oldest)
        return Lag(count + (full is not None), rows, None, seconds, earliest, latest, committed)

    def _found(self, first: int, ids: Sequence[int], changelogs: Sequence[int]) -> dict[int, Snapshot]:
        """The snapshots from the first one on, or their changelogs, that are cached or may be fetched now."""
        of_changelogs = set(changelogs) - set(ids)
        unread = sorted(number for number in (*ids, *of_changelogs) if number >= first)
        # The first one is needed for its time, so it is among the requested ones.
        unread = [*unread[1:], *unread[:1]] if len(unread) <= _MOST_KNOWN else unread[:1]
        wanted = [number for number in unread if number not in of_changelogs]
        older = [number for number in unread if number in of_changelogs]
        unknown = sum(each is None for each in self._snapshots.get_snapshots_batch(wanted, most=0).values())
        # The first one may be a changelog.
        most = min(unknown, _MOST_FETCHED - bool(older))
        found = self._snapshots.get_snapshots_batch(wanted, most=most)
        found |= self._snapshots.get_changelogs_batch(older, most=_MOST_FETCHED - most)
        return {number: snapshot for number, snapshot in found.items() if snapshot is not None}

    def _rows(self, full: Snapshot | None, unread: dict[int, Snapshot]) -> int | None:
        """Rows of the full state and of the changes after it; None if any are unknown."""
        counts = [self._planner.records_of(snapshot) for snapshot in unread.values()]
        if full is not None:
            counts.append(full.total_record_count)
        if None in counts:
            return None
        return sum(count for count in counts if count is not None)
