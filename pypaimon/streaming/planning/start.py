"""Resolves the start of a stream against the snapshots of the table.

Java's rules: docs/java-semantics.md#starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pypaimon.streaming.errors import PositionBeyondLatestError, PositionExpiredError, StreamConfigError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL, SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.follow_up import CommitKind
from pypaimon.streaming.planning.planner_state import ChainStart

_BATCH_COMMIT = 2**63 - 1
_WALK = 16


@dataclass(frozen=True, slots=True)
class ResolvedStart:
    """A start that was found: a full plan of `full`, or changes from snapshot `next_id` on.

    Attributes:
        full: The snapshot whose state is handed out first, or None.
        next_id: The first snapshot to follow; after a full plan the one after it.
        created_after: Only files created at this time or later, in the first plan and in follow-ups.
        first: The snapshot `next_id`, if it was read to find the start.
        chain: Of a chain table: what the full plan reads in addition to `full`.
    """

    next_id: int
    full: Snapshot | None = None
    created_after: int | None = None
    first: Snapshot | None = None
    chain: ChainStart | None = None


class StartingScanner:
    """Finds the beginning of a stream. Each call sends requests.

    Args:
        traits: Its kind.
        start: The start to find.
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

    def find(self, was_empty: bool = False, misses: int = 0) -> ResolvedStart | None:
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
        return replace(found, first=latest) if found.full is None and found.next_id == latest.id else found

    def find_at(self, latest: Snapshot, was_empty: bool = False) -> ResolvedStart:
        """As `find`, for a caller that knows the latest snapshot. Not for a start at a tag."""
        if was_empty and self._start.after_latest:
            return ResolvedStart(1)
        finder = _FINDERS.get(self._start.mode)
        if finder is None:
            raise StreamConfigError(f"start mode '{self._start.mode.value}' is not a start of its own")
        return finder(self, latest)

    def _latest(self, misses: int) -> Snapshot | None:
        if misses and (misses + 1) % RANGE_CHECK_INTERVAL:
            first = self._snapshots.refreshed(1)
            if first is None or self._snapshots.refreshed(2) is None:
                return first
        return self._snapshots.get_latest_snapshot()

    def _wanted_id(self) -> int:
        assert self._start.snapshot_id is not None
        return self._start.snapshot_id

    def _wanted_millis(self) -> int:
        assert self._start.millis is not None
        return self._start.millis

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

    def _full_at(self, latest: Snapshot) -> ResolvedStart:
        wanted = self._wanted_id()
        if wanted > latest.id:
            raise self._checks.diagnosed(PositionBeyondLatestError(wanted, latest.id))
        earliest = self._snapshots.earliest_id()
        wanted = self._raised(wanted, latest.id if earliest is None else earliest, latest)
        return _full(self._snapshots.get(wanted))

    def _newest_compacted(self, latest: Snapshot) -> Snapshot | None:
        """Newest COMPACT snapshot; if the table compacts fully every n commits, the newest full compaction.

        Java's `CompactedStartingScanner` and `FullCompactedStartingScanner`.
        """
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

    def _from_creation_timestamp(self, latest: Snapshot) -> ResolvedStart:
        millis = self._wanted_millis()
        before = self._snapshots.earlier_than_time_millis(millis, with_changelogs=self._traits.decoupled_changelog)
        if before is not None and before.id < latest.id:
            return ResolvedStart(before.id + 1)
        return _full(latest, millis)

    def _from_compacted(self, latest: Snapshot) -> ResolvedStart:
        return _full(self._newest_compacted(latest) or latest)

    def _from_earliest(self, latest: Snapshot) -> ResolvedStart:
        return ResolvedStart(self._earliest_id(latest))

    def _from_snapshot(self, latest: Snapshot) -> ResolvedStart:
        return ResolvedStart(self._raised(self._wanted_id(), self._earliest_id(latest), latest))

    def _from_timestamp(self, latest: Snapshot) -> ResolvedStart:
        return ResolvedStart(self._first_since(self._wanted_millis(), latest))

    def _from_file_creation_time(self, latest: Snapshot) -> ResolvedStart:
        return _full(latest, self._wanted_millis())

    def _from_tag(self, tag: str) -> ResolvedStart:
        snapshot = self._directory.tag(tag)
        if snapshot is None:
            raise StreamConfigError(
                f"There is no tag '{tag}'. Tags: {', '.join(self._directory.tag_names()) or 'none'}."
            )
        if self._start.full:
            return _full(snapshot)
        latest = self._snapshots.get_latest_snapshot()
        if latest is None:
            return ResolvedStart(snapshot.id + 1)
        return ResolvedStart(self._raised(snapshot.id + 1, self._earliest_id(latest), latest))


def _full(snapshot: Snapshot, created_after: int | None = None) -> ResolvedStart:
    return ResolvedStart(snapshot.id + 1, snapshot, created_after)


_FINDERS: dict[StartMode, Callable[[StartingScanner, Snapshot], ResolvedStart]] = {
    StartMode.LATEST_FULL: lambda _, latest: _full(latest),
    StartMode.LATEST: lambda _, latest: ResolvedStart(latest.id + 1),
    StartMode.COMPACTED_FULL: StartingScanner._from_compacted,
    StartMode.EARLIEST: StartingScanner._from_earliest,
    StartMode.FROM_SNAPSHOT: StartingScanner._from_snapshot,
    StartMode.FROM_SNAPSHOT_FULL: StartingScanner._full_at,
    StartMode.FROM_TIMESTAMP: StartingScanner._from_timestamp,
    StartMode.FROM_FILE_CREATION_TIME: StartingScanner._from_file_creation_time,
    StartMode.FROM_CREATION_TIMESTAMP: StartingScanner._from_creation_timestamp,
}
"""How each start mode finds its snapshot, given the latest one; a tag needs no latest snapshot."""
