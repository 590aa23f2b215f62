"""Where a stream begins: start modes resolved against the snapshots that are there.

Java's rules: docs/java-semantics.md#starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pypaimon.streaming.errors import PositionBeyondLatestError, PositionExpiredError, StreamConfigError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.table_traits import ChangelogProducer, TableTraits
from pypaimon.streaming.planning.follow_up import CommitKind
from pypaimon.streaming.planning.planner_state import ChainStart

_BATCH_COMMIT = 2**63 - 1
_WALK = 16


@dataclass(frozen=True, slots=True)
class ResolvedStart:
    """A start that was found: a full plan at `full`, or changes from snapshot `next_id` on.

    Attributes:
        full: The snapshot whose state is handed out first, or None.
        next_id: The first snapshot to follow; after a full plan the one after it.
        created_after: Only files created at this time or later, in the first plan and in follow-ups.
        first: The snapshot `next_id`, where it was read to find the start.
        chain: What the full plan reads beside `full`, of a chain table.
    """

    next_id: int
    full: Snapshot | None = None
    created_after: int | None = None
    first: Snapshot | None = None
    chain: ChainStart | None = None


class StartingScanner:
    """Finds the beginning of a stream. Asks the store at each call until there is one.

    Args:
        directory: The table.
        traits: Its kind.
        start: What was asked for.
        must_stand: A snapshot that has expired is an error, instead of a start at the earliest one.
    """

    def __init__(self, directory: TableDirectory, traits: TableTraits, start: Start, must_stand: bool = False) -> None:
        self._must_stand = must_stand
        self._snapshots = directory.snapshots
        self._directory = directory
        self._traits = traits
        self._start = start
        self._log = StreamLog.of(__name__, directory.table)

    def find(self, was_empty: bool = False, misses: int = 0) -> ResolvedStart | None:
        """The beginning, or None while the table holds no snapshot that it needs.

        Of a table that was empty at the poll before, only the first snapshot is asked for, which is one request; every
        16th poll looks for any snapshot, since the first one may have expired meanwhile.

        Args:
            was_empty: The table was empty when the stream was started: `latest` then begins with the first commit.
            misses: Polls in a row that found it empty.

        Raises:
            PositionBeyondLatestError: A full plan is wanted of a snapshot that is not there yet.
            PositionExpiredError: The snapshot has expired, and must stand.
            StreamConfigError: There is no such tag.
        """
        if self._start.mode is StartMode.FROM_TAG:
            return self._from_tag()
        latest = self._latest(misses)
        if latest is None:
            return None
        found = self.find_at(latest, was_empty)
        return replace(found, first=latest) if found.full is None and found.next_id == latest.id else found

    def find_at(self, latest: Snapshot, was_empty: bool = False) -> ResolvedStart:
        """As `find`, for who knows the latest snapshot, and of any start but that at a tag."""
        mode = self._start.mode
        if mode is StartMode.LATEST_FULL:
            return _full(latest)
        if mode is StartMode.LATEST:
            return ResolvedStart(1 if was_empty else latest.id + 1)
        if mode is StartMode.COMPACTED_FULL:
            return _full(self._newest_compacted(latest) or latest)
        if mode is StartMode.EARLIEST:
            return ResolvedStart(self._earliest_id(latest))
        if mode is StartMode.FROM_SNAPSHOT:
            return ResolvedStart(self._raised(self._wanted_id(), self._earliest_id(latest), latest))
        if mode is StartMode.FROM_SNAPSHOT_FULL:
            return self._full_at(latest)
        if mode is StartMode.FROM_TIMESTAMP:
            return ResolvedStart(self._first_since(self._wanted_millis(), latest))
        if mode is StartMode.FROM_FILE_CREATION_TIME:
            return _full(latest, self._wanted_millis())
        if mode is StartMode.FROM_CREATION_TIMESTAMP:
            return self._from_creation_timestamp(latest)
        raise StreamConfigError(f"start mode {mode.value} is no start of its own")

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
        earliest = self._snapshots.earliest_id()
        if self._traits.decoupled_changelog:
            changelog = self._snapshots.earliest_changelog_id()
            if changelog is not None and (earliest is None or changelog < earliest):
                return changelog
        return latest.id if earliest is None else earliest

    def _raised(self, wanted: int, earliest: int, latest: Snapshot) -> int:
        wanted = max(wanted, 1)
        if wanted < earliest:
            if self._must_stand:
                raise PositionExpiredError(wanted, earliest, latest.id)
            text = "start at snapshot %(wanted)d, which has expired: starting at the earliest, %(earliest)d"
            self._log.warning("start_raised", text, wanted=wanted, earliest=earliest)
            return earliest
        return wanted

    def _full_at(self, latest: Snapshot) -> ResolvedStart:
        wanted = self._wanted_id()
        if wanted > latest.id:
            raise PositionBeyondLatestError(wanted, latest.id)
        earliest = self._snapshots.earliest_id()
        wanted = self._raised(wanted, latest.id if earliest is None else earliest, latest)
        return _full(self._snapshots.get(wanted))

    def _newest_compacted(self, latest: Snapshot) -> Snapshot | None:
        """Newest COMPACT snapshot; with full compactions every n commits, the newest one of those."""
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

    def _from_tag(self) -> ResolvedStart:
        assert self._start.tag is not None
        snapshot = self._directory.tag(self._start.tag)
        if snapshot is None:
            raise StreamConfigError(
                f"There is no tag '{self._start.tag}'. Tags: {', '.join(self._directory.tag_names()) or 'none'}."
            )
        if self._start.full:
            return _full(snapshot)
        latest = self._snapshots.get_latest_snapshot()
        if latest is None:
            return ResolvedStart(snapshot.id + 1)
        return ResolvedStart(self._raised(snapshot.id + 1, self._earliest_id(latest), latest))


def _full(snapshot: Snapshot, created_after: int | None = None) -> ResolvedStart:
    return ResolvedStart(snapshot.id + 1, snapshot, created_after)
