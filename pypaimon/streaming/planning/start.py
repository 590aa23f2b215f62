"""Where a stream begins: at the configured start, at a saved position, or again after its position has expired.

Java's rules: docs/java-semantics.md#starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pypaimon.streaming.errors import (
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
)
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL, SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import OnExpired
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.chain_plans import ChainStarts
from pypaimon.streaming.planning.follow_up import Bounds, CommitKind
from pypaimon.streaming.planning.planner_state import ChainStart, Following, ReadingFull, SnapshotMark

# Java's identifier of commits of batch jobs, which compact fully whatever the number of commits is.
_BATCH_COMMIT = 2**63 - 1
_WALK = 16


class StartingScanner:
    """Finds the beginning of a stream. Each call sends requests.

    Args:
        must_stand: Whether a snapshot that has expired is an error, instead of a start at the earliest one.
    """

    def __init__(self, directory: TableDirectory, traits: TableTraits, start: Start, must_stand: bool = False) -> None:
        self._must_stand = must_stand
        self._snapshots = directory.snapshots
        self._checks = SnapshotRangeValidator(directory, traits.decoupled_changelog)
        self._directory = directory
        self._traits = traits
        self._start = start
        self._log = StreamLog.of(__name__, directory.table)

    def find(self, was_empty: bool = False, misses: int = 0) -> ReadingFull | Following | None:
        """The beginning, or None while the table holds no snapshot that it needs.

        If the table was empty at the poll before, only the first snapshot is requested. Every 16th poll lists the
        snapshots, because the first one may have expired meanwhile.

        Args:
            was_empty: The table was empty when the stream was started: `latest` then begins with the first commit.
            misses: Polls in a row that found it empty.

        Raises:
            PositionBeyondLatestError: The snapshot of a full plan does not exist yet.
            PositionExpiredError: The snapshot has expired, and must stand.
            StreamConfigError: There is no such tag.
        """
        if self._start.tag is not None:
            return self._from_tag(self._start.tag)
        latest = self._latest(misses)
        if latest is None:
            return None
        found = self.find_at(latest, was_empty)
        if isinstance(found, Following) and found.next_id == latest.id:
            # It was read to find the start.
            return replace(found, ahead=(latest,))
        return found

    def find_at(self, latest: Snapshot, was_empty: bool = False) -> ReadingFull | Following:
        """As `find`, for a caller that knows the latest snapshot. Not for a start at a tag."""
        if was_empty and self._start.after_latest:
            return Following(1)
        finder = _FINDERS.get(self._start.mode)
        if finder is None:
            raise StreamConfigError(f"start mode '{self._start.mode.value}' is not a start of its own")
        return finder(self, latest, self._start.number)

    def _latest(self, misses: int) -> Snapshot | None:
        if misses and (misses + 1) % RANGE_CHECK_INTERVAL:
            first = self._snapshots.refreshed(1)
            if first is None or self._snapshots.refreshed(2) is None:
                return first
        return self._snapshots.get_latest_snapshot()

    def _earliest_id(self, latest: Snapshot) -> int:
        """The first snapshot that can still be followed, long-lived changelogs included."""
        earliest = self._checks.earliest_id()
        return latest.id if earliest is None else earliest

    def _raised(self, wanted: int, earliest: int, latest: Snapshot) -> int:
        wanted = max(wanted, 1)
        if wanted < earliest:
            if self._must_stand:
                raise self._checks.diagnosed(PositionExpiredError(wanted, earliest, latest.id))
            text = "start at snapshot %(wanted)d, which has expired: starting at the earliest, %(earliest)d"
            self._log.warning("start_raised", text, wanted=wanted, earliest=earliest)
            return earliest
        return wanted

    def _full_at(self, latest: Snapshot, wanted: int) -> ReadingFull:
        if wanted > latest.id:
            raise self._checks.diagnosed(PositionBeyondLatestError(wanted, latest.id))
        earliest = self._snapshots.earliest_id()
        wanted = self._raised(wanted, latest.id if earliest is None else earliest, latest)
        found = self._snapshots.try_get(wanted)
        if found is None:
            self._checks.check_missing(Position(UNKNOWN_TABLE, wanted))
            # Or the table was rolled back since, so that this would be the next snapshot.
            raise self._checks.absent(wanted)
        return _full(found)

    def _newest_compacted(self, latest: Snapshot) -> Snapshot | None:
        # Java's `CompactedStartingScanner`; `FullCompactedStartingScanner` if the table compacts fully every
        # n commits.
        commits = self._traits.full_compaction_delta_commits
        only_full = self._traits.producer is ChangelogProducer.FULL_COMPACTION or commits is not None
        earliest = self._snapshots.earliest_id() or latest.id
        for top in range(latest.id, earliest - 1, -_WALK):
            ids = list(range(max(earliest, top - _WALK + 1), top + 1))
            found = self._snapshots.get_snapshots_batch(ids)
            for snapshot_id in reversed(ids):
                snapshot = found[snapshot_id]
                if snapshot is None or snapshot.commit_kind != CommitKind.COMPACT:
                    continue
                identifier = snapshot.commit_identifier
                if not only_full or identifier % (commits or 1) == 0 or identifier == _BATCH_COMMIT:
                    return snapshot
        return None

    def _first_since(self, millis: int, latest: Snapshot) -> int:
        """The snapshot after the last one committed before a time; the earliest if all were committed later."""
        before = self._snapshots.earlier_than_time_millis(millis, with_changelogs=self._traits.decoupled_changelog)
        return self._earliest_id(latest) if before is None else before.id + 1

    def _from_creation_timestamp(self, latest: Snapshot, millis: int) -> ReadingFull | Following:
        before = self._snapshots.earlier_than_time_millis(millis, with_changelogs=self._traits.decoupled_changelog)
        if before is not None and before.id < latest.id:
            return Following(before.id + 1)
        return _full(latest, millis)

    def _from_tag(self, tag: str) -> ReadingFull | Following:
        snapshot = self._directory.tag(tag)
        if snapshot is None:
            raise StreamConfigError(
                f"There is no tag '{tag}'. Tags: {', '.join(self._directory.tag_names()) or 'none'}."
            )
        if self._start.full:
            return _full(snapshot)
        latest = self._snapshots.get_latest_snapshot()
        if latest is None:
            return Following(snapshot.id + 1)
        return Following(self._raised(snapshot.id + 1, self._earliest_id(latest), latest))


def _full(snapshot: Snapshot, created_after: int | None = None) -> ReadingFull:
    return ReadingFull(snapshot, created_after=created_after)


_FINDERS: dict[StartMode, Callable[[StartingScanner, Snapshot, int], ReadingFull | Following]] = {
    StartMode.LATEST_FULL: lambda _, latest, number: _full(latest),
    StartMode.LATEST: lambda _, latest, number: Following(latest.id + 1),
    StartMode.COMPACTED_FULL: lambda scanner, latest, _: _full(scanner._newest_compacted(latest) or latest),
    StartMode.EARLIEST: lambda scanner, latest, _: Following(scanner._earliest_id(latest)),
    StartMode.FROM_SNAPSHOT: lambda scanner, latest, wanted: Following(
        scanner._raised(wanted, scanner._earliest_id(latest), latest)
    ),
    StartMode.FROM_SNAPSHOT_FULL: StartingScanner._full_at,
    StartMode.FROM_TIMESTAMP: lambda scanner, latest, millis: Following(scanner._first_since(millis, latest)),
    StartMode.FROM_FILE_CREATION_TIME: lambda _, latest, millis: _full(latest, millis),
    StartMode.FROM_CREATION_TIMESTAMP: StartingScanner._from_creation_timestamp,
}
"""How each start mode finds its snapshot, given the latest one and `Start.number`; a tag needs no latest snapshot."""


@dataclass(frozen=True, slots=True)
class PositionResolver:
    """Finds the state of a stream at a saved position, in the same table and after the same snapshot.

    Attributes:
        checks: Checks against the snapshots that are there.
        configured: The start that the stream was built with, which also decides what a resumed stream reads.
        chains: Of a chain table: finds what its first plan is made of.
    """

    directory: TableDirectory
    checks: SnapshotRangeValidator
    bounds: Bounds
    configured: Start
    chains: ChainStarts | None = None

    def resumed(self, position: Position, latest: Snapshot | None = None) -> ReadingFull | Following:
        """The state at a position. Requests the snapshot before it (inside a snapshot: that one), unless it is known.

        Args:
            latest: The latest snapshot, if it was just read, before the schema that gives the table's identity.

        Raises:
            TableChangedError: The position belongs to another table, or the table was rolled back.
            PositionExpiredError: The snapshot of the first full plan is gone.
            StreamConfigError: The position is inside a range that is one plan.
        """
        self.check_table(position)
        if position.phase is Phase.RANGE:
            raise StreamConfigError(
                f"The position is inside a range that is one plan: after snapshot {position.since}, up to snapshot "
                f"{position.snapshot}. Give the builder the range that it was made with, by the same ids, tags or "
                "times: with_range(...)."
            )
        created_after = self.configured.created_after(in_first_plan=position.phase is Phase.FULL)
        if position.phase is Phase.FULL:
            snapshot, chain = self._inside_first_plan(position)
            return ReadingFull(snapshot, position.unit, chain, created_after)
        inside, last = position.is_inside, position.last_read
        read = None if inside else position.fingerprint
        if latest is not None and latest.id == last and read and is_same_history(read, latest.fingerprint):
            # It was read before the schema of this table, and nothing had followed it.
            self.directory.snapshots.know(latest)
            return Following(
                position.snapshot,
                before=SnapshotMark.of(latest),
                created_after=created_after,
                verified=True,
                at_latest=True,
                ended=self.bounds.is_beyond(latest),
            )
        found = self.checks.check_before(last, position.fingerprint)
        before = None if position.fingerprint is None else SnapshotMark(last, position.fingerprint)
        return Following(
            position.snapshot,
            position.unit,
            before if found is None else SnapshotMark.of(found),
            (found,) if inside and found is not None else (),
            created_after,
            # The stream had reached its end, by a first full plan beyond that end.
            ended=found is not None and not inside and self.bounds.is_beyond(found),
        )

    def check_table(self, position: Position) -> None:
        """Check that a position belongs to this table.

        Raises:
            TableChangedError: It belongs to another table.
        """
        self.checks.check_table(position, "Choose another start with with_start(...).", "with_start")

    def _inside_first_plan(self, position: Position) -> tuple[Snapshot, ChainStart | None]:
        if self.chains is not None:
            return self.chains.again(position, self._inside_full(position) if position.snapshot else None)
        if position.base is not None:
            raise StreamConfigError(
                "The position is inside the first plan of a chain table, and this stream reads only one of its "
                "branches. Load the table without a branch to resume."
            )
        return self._inside_full(position), None

    def _inside_full(self, position: Position) -> Snapshot:
        snapshot = self.checks.check_before(position.snapshot, position.fingerprint)
        if snapshot is None and self.configured.tag is not None:
            snapshot = self.directory.tag(self.configured.tag)
        if snapshot is None or snapshot.id != position.snapshot:
            tag = self.configured.tag
            detail = "" if tag is None else f"Tag '{tag}' does not keep it: it is gone, or of another snapshot. "
            raise self.checks.expired(position.snapshot, detail)
        if not is_same_history(position.fingerprint, snapshot.fingerprint):
            raise self.checks.another(snapshot.id)
        return snapshot


def start_instead(
    policy: OnExpired, expired: PositionExpiredError, next_id: int | None, *, in_full: bool, of_chain: bool
) -> Start:
    """Where a stream starts again whose position has expired.

    Args:
        next_id: The snapshot at which the stream was; None if that does not say where to begin.
        in_full: Whether the stream was in a full plan, or had not begun. Then it is never at `next_id`.
        of_chain: Whether the table is a chain table, whose full plans are always of the latest snapshots.

    Raises:
        PositionExpiredError: The policy is to fail, or there is no other start.
    """
    at_earliest = not in_full and next_id == expired.earliest
    if at_earliest and policy in (OnExpired.FAIL, OnExpired.EARLIEST):
        raise PositionExpiredError(expired.wanted, expired.earliest, expired.latest, expired.detail, True) from expired
    if policy is OnExpired.FAIL or expired.wanted < 1:
        raise expired
    if policy is OnExpired.EARLIEST and in_full and of_chain:
        return Start(StartMode.LATEST_FULL)
    if policy is OnExpired.EARLIEST and in_full and expired.earliest is not None:
        return Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=expired.earliest)
    modes = {
        OnExpired.EARLIEST: StartMode.EARLIEST,
        OnExpired.LATEST: StartMode.LATEST,
        OnExpired.FULL: StartMode.LATEST_FULL,
    }
    return Start(modes[policy])
