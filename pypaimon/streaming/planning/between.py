"""Ranges of a table's history: their snapshots, and whether a range is read snapshot by snapshot or as one plan.

Java's rules: docs/java-semantics.md#batch-ranges. Two ids a and b mean the changes after a, up to and with b; a may be
the snapshot just before the earliest. Two tags mean the difference of their states in every mode, and do not need their
snapshots. A time stands for the newest snapshot committed by then; before the earliest, for the one before that.
"""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.auto_tags import AutoTags
from pypaimon.streaming.options.between import Between, Ends
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_kinds import BetweenMode, ChangelogProducer
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.follow_up import (
    ChangelogOfRangeScanner,
    DeltaFollowUpScanner,
    FollowUpScanner,
)
from pypaimon.streaming.planning.planner_state import Begun, ReadingRange, Span
from pypaimon.streaming.planning.start import PositionResolver
from pypaimon.streaming.planning.units import rescaled

_BEFORE_ALL = 0


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """A range of snapshots that exist.

    Attributes:
        span: The range as one plan; None: it is read snapshot by snapshot.
    """

    first: int
    last: int
    span: Span | None = None

    @staticmethod
    def of(span: Span) -> SnapshotRange:
        """The range that this plan is."""
        return SnapshotRange(span.since + 1, span.last.id, span)


class RangeScanner:
    """Finds a range in the history of a table, and resumes inside of it.

    Attributes:
        follow_up: Which snapshots are read if the range is not one plan.
    """

    def __init__(self, directory: TableDirectory, traits: TableTraits, options: TableOptions, between: Between) -> None:
        self._directory = directory
        self._snapshots = directory.snapshots
        self._checks = SnapshotRangeValidator(directory, with_changelogs=False, is_batch=True)
        self._traits = traits
        self._options = options
        self._between = between
        mode = between.mode
        if mode is BetweenMode.AUTO:
            mode = BetweenMode.DELTA if traits.producer is ChangelogProducer.NONE else BetweenMode.CHANGELOG
        self._mode = mode
        changelog = mode is BetweenMode.CHANGELOG
        self.follow_up: FollowUpScanner = ChangelogOfRangeScanner() if changelog else DeltaFollowUpScanner()

    def find(self, *, resumes: bool = False) -> SnapshotRange | None:
        """The range; None if it is empty.

        Args:
            resumes: Whether a stream resumes inside the range, whose first snapshots may have expired since.

        Raises:
            StreamConfigError: An end does not exist, or the ends are the wrong way round.
            PositionExpiredError: A snapshot of it has expired.
            PositionBeyondLatestError: It ends after the latest snapshot.
            UnsupportedTableError: The states of such a table cannot be compared.
        """
        between = self._between
        if between.ends is Ends.AUTO_TAG:
            return self._to_auto_tag(str(between.end))
        start, end = between.start, between.end
        if between.ends is Ends.TIMES:
            return self._between_times(int(start or 0), int(end), resumes)
        if isinstance(start, str) and isinstance(end, str):
            first, last = self._directory.tag(start), self._directory.tag(end)
            if first is not None and last is not None:
                return self._between_tags(first, last, resumes)
        ids = [_id(each) for each in (start, end)]
        if None in ids:
            known = ", ".join(self._directory.tag_names()) or "none"
            raise StreamConfigError(
                f"{between.given}: these are neither two tags nor two snapshot ids; tags are: {known}."
            )
        return self._between_ids(ids[0] or 0, ids[1] or 0, resumes)

    def _between_ids(self, start: int, end: int, resumes: bool) -> SnapshotRange | None:
        if end < start:
            raise StreamConfigError(f"{self._between.given}: the start comes after the end; swap them.")
        if start == end:
            return None
        if self._snapshots.latest_id() is None:
            if start > _BEFORE_ALL:
                # There was such a snapshot, so the table is being dropped, or is another one.
                raise self._checks.absent(end)
            self._check_had_none()
            return None
        if self._mode is BetweenMode.DIFF:
            return self._diff(self._snapshot(start), self._snapshot(end))
        return self._changes(start, end, resumes)

    def _check_had_none(self) -> None:
        """Raise TableChangedError for a table without snapshots if a tag shows that there were some."""
        if self._directory.tag_names():
            raise self._checks.emptied()

    def _between_tags(self, start: Snapshot, end: Snapshot, resumes: bool) -> SnapshotRange | None:
        if self._between.tag_to_snapshot:
            return self._changes(start.id, end.id, resumes)
        if end.id < start.id:
            raise StreamConfigError(
                f"{self._between.given}: the first tag, of snapshot {start.id}, comes after the second, of snapshot "
                f"{end.id}; swap them."
            )
        return None if start.id == end.id else self._diff(start, end)

    def _between_times(self, start: int, end: int, resumes: bool) -> SnapshotRange | None:
        latest, earliest = self._snapshots.get_latest_snapshot(), self._snapshots.try_get_earliest_snapshot()
        if latest is None or earliest is None:
            self._check_had_none()
            return None
        if start == end or start > latest.time_millis or end < earliest.time_millis:
            return None
        first = self._snapshots.earlier_or_equal_time_mills(start)
        last = self._snapshots.earlier_or_equal_time_mills(end) or latest
        if self._mode is not BetweenMode.DIFF:
            return self._changes(earliest.id - 1 if first is None else first.id, last.id, resumes)
        # Before snapshot 1 the table was empty. The state before a later earliest snapshot has expired.
        if first is None and earliest.id == _BEFORE_ALL + 1:
            return SnapshotRange.of(Span(_BEFORE_ALL, last, is_diff=True))
        return self._diff(earliest if first is None else first, last)

    def _to_auto_tag(self, name: str) -> SnapshotRange | None:
        before = AutoTags(self._options).before(name, self._directory.tag_names())
        start, end = None if before is None else self._directory.tag(before), self._directory.tag(name)
        # As in Java, without a tag before it the range is empty.
        if start is None or end is None or start.id == end.id:
            return None
        return self._diff(start, end)

    def _changes(self, start: int, end: int, resumes: bool) -> SnapshotRange | None:
        """The changes of the snapshots after `start`, up to and with `end`, as each was committed."""
        earliest, latest = self._snapshots.earliest_id(), self._snapshots.latest_id()
        joined = self._traits.data_evolution and self._mode is BetweenMode.DELTA
        # A range that is read snapshot by snapshot may have lost those that the stream has read. One plan
        # needs them all.
        if (joined or not resumes) and (earliest is None or start < earliest - 1):
            raise self._checks.expired(start + 1)
        if latest is None or end > latest:
            raise self._checks.absent(end)
        if start >= end:
            return None
        if joined:
            # Later snapshots may hold columns of the rows that earlier ones appended, so all of them are one plan.
            return SnapshotRange.of(Span(start, self._snapshot(end), is_diff=False))
        return SnapshotRange(start + 1, end)

    def _diff(self, start: Snapshot, end: Snapshot) -> SnapshotRange | None:
        if self._traits.data_evolution:
            raise UnsupportedTableError(
                "Two states of a table with data evolution cannot be compared: its files hold columns of rows. Read "
                "the range with the mode 'delta' between two snapshots, or compare two reads with 'scan.snapshot-id'."
            )
        # Keys are in other buckets then, and states are compared bucket by bucket.
        if start.schema_id != end.schema_id and self._buckets(start) != self._buckets(end):
            raise rescaled("of the table", start, end)
        return None if start.id == end.id else SnapshotRange.of(Span(start.id, end, is_diff=True, before=start))

    def _buckets(self, snapshot: Snapshot) -> int:
        return TableTraits.of(self._directory.schema(snapshot.schema_id)).bucket

    def _snapshot(self, snapshot_id: int) -> Snapshot:
        found = self._snapshots.try_get(snapshot_id)
        if found is None:
            raise self._checks.absent(snapshot_id)
        return found

    # ---- resuming ----

    def resumed(self, found: SnapshotRange, position: Position, resolver: PositionResolver) -> Begun:
        """The state of a stream at a saved position in the range.

        Raises:
            StreamConfigError: The position is outside of the range, or where this range cannot be cut.
            TableChangedError: The position belongs to another table, or the table was rolled back.
            PositionExpiredError: The next snapshot has expired.
            PositionBeyondLatestError: The table ends before the position, which has no fingerprint.
        """
        resolver.check_table(position)
        span = found.span
        if position.phase is Phase.RANGE and span is not None:
            if (position.since, position.snapshot) != (span.since, span.last.id):
                # A range from the beginning needs the first snapshot.
                for number in (position.since or _BEFORE_ALL + 1, position.snapshot):
                    if not self._is_there(number) and self._directory.tagged(number) is None:
                        raise self._checks.absent(number)
                raise self._elsewhere(position, found)
            if not is_same_history(position.fingerprint, span.last.fingerprint):
                raise self._checks.another(span.last.id)
            return ReadingRange(span, position.unit)
        before_it = position.snapshot < found.first and self._is_there(position.snapshot)
        if position.phase is not Phase.FOLLOW or before_it:
            raise self._elsewhere(position, found)
        if span is not None and position.snapshot <= span.last.id:
            if position.snapshot != found.first or position.unit is not None:
                raise self._elsewhere(position, found)
            return ReadingRange(span)
        resumed = resolver.resumed(position)
        if position.last_read > found.last:
            self._checks.check_reached(position)
            raise self._elsewhere(position, found)
        return resumed

    def check_read(self, position: Position, resolver: PositionResolver) -> None:
        """Check that a stream at a saved position has read all of a range that is empty now.

        Raises:
            StreamConfigError: The position is outside of the range.
            TableChangedError: The position belongs to another table.
            PositionExpiredError: The next snapshot has expired.
            PositionBeyondLatestError: The table ends before the position, which has no fingerprint.
        """
        resolver.check_table(position)
        self._checks.check_reached(position)
        earliest = self._snapshots.earliest_id()
        if earliest is not None and position.snapshot < earliest:
            raise self._checks.expired(position.snapshot)
        if position.is_inside:
            raise self._elsewhere(position, None)

    def _is_there(self, snapshot_id: int) -> bool:
        return self._snapshots.try_get(snapshot_id) is not None

    def _elsewhere(self, position: Position, found: SnapshotRange | None) -> StreamConfigError:
        what = "is empty"
        if found is not None:
            how = "as one plan" if found.span is not None else "snapshot by snapshot"
            what = f"is read {how} from snapshot {found.first} to {found.last}"
        return StreamConfigError(
            f"{self._between.given}: the position, in phase '{position.phase.value}' at snapshot {position.snapshot}, "
            f"does not belong to this range, which {what}. Give the range that the position was made with."
        )


def _id(end: int | str | None) -> int | None:
    if isinstance(end, str):
        return int(end) if end.removeprefix("-").isdecimal() else None
    return end
