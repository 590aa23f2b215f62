"""`SnapshotCommit`: one snapshot, published once, whatever other writers do and whichever answers are lost.

Each attempt drafts the snapshot that follows the latest one, and publishes it if no other one of that id is there.
Before that it looks at every snapshot that has come since somebody looked last: they cannot change any more. So if
another writer of the same user has published the commit meanwhile, that is found, and nothing is published.

Where nobody arbitrates between writers, a snapshot of another one that has come meanwhile ends the commit: the next
one might replace it.

An attempt whose answer was lost, or says that it failed, may have taken effect all the same. So the snapshot of that
id is read: it is ours, or it tells that the attempt surely failed, or (if it is missing, or the store does not
arbitrate between writers) nobody knows yet. While nobody knows, nothing that it names is deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import OR_REPLACED, BatchOrderError, KeyIndexConflictError, PaimonStreamError
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.commit.commit_plan import Plan
from pypaimon.streaming.writing.commit.file_changes import COMPACT
from pypaimon.streaming.writing.commit.manifest_files import ManifestOptions
from pypaimon.streaming.writing.commit.new_snapshot import CommitFacts
from pypaimon.streaming.writing.commit.partition_statistics import partition_statistics
from pypaimon.streaming.writing.commit.publishing import NotPublishedError, TakenError, publisher_of
from pypaimon.streaming.writing.commit.snapshot_draft import Draft, SnapshotDrafts
from pypaimon.streaming.writing.commit.strict_mode import StrictMode
from pypaimon.streaming.writing.commit.table_state import TableState


class GaveUpError(Exception):
    """A commit did not get through, for a reason that may pass."""


class RolledBackError(GaveUpError):
    """The snapshot that the commit was to follow is not there any more, or is another one; nothing was committed."""


class NoConditionalCommitError(GaveUpError):
    """Another program commits at the same time, in a store where one commit may replace another unseen."""

    def __init__(self, number: int, user: str, why: str) -> None:
        super().__init__(
            f"'{user}' has committed snapshot {number} meanwhile, and nothing in this store keeps one commit from "
            f"replacing another ({why}): let one program write at a time, which opens its writer when the others have "
            "ended, or use a REST catalog, which commits by itself, or an S3-like store that heeds If-None-Match, with "
            "keys and the extra 'fast'"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a commit.

    Attributes:
        snapshot: The snapshot that holds it; None: there was nothing to commit.
        ours: Whether this call has published it.
    """

    snapshot: Snapshot | None
    ours: bool

    @property
    def number(self) -> int | None:
        """Id of the snapshot."""
        return None if self.snapshot is None else self.snapshot.id


def backoff_of(table: Any) -> Backoff:
    """How often a commit is tried, and how long it pauses in between, by the options of a table."""
    options = OptionValues(table.options.options.to_map())

    def seconds(key: str, default: float) -> float:
        millis = options.duration_millis(key)
        return default if millis is None else millis / 1000

    retries = options.integer("commit.max-retries", least=0)
    return Backoff(
        attempts=1 + (10 if retries is None else retries),
        first_pause=seconds("commit.min-retry-wait", 0.01),
        longest_pause=seconds("commit.max-retry-wait", 10.0),
        # As Java's RetryWaiter: the configured wait, and up to a fifth more.
        jitter=(1.0, 1.2),
        timeout=seconds("commit.timeout", float("inf")),
    )


def check_commit_options(table: Any) -> None:
    """Read the options of a table's commits, for callers that are about to write files.

    Raises:
        UnsupportedTableError: Its manifests are not Avro files.
        StreamConfigError: An option cannot be read, or is out of its range.
    """
    ManifestOptions.of(table)
    backoff_of(table)
    StrictMode.of(table)


class SnapshotCommit:
    """One commit of one user.

    Args:
        table: pypaimon's table, under the schema that the files were written with.
        directory: Where it lies.
        plan: What is to be changed.
        facts: What the snapshot says.
        latest: The latest snapshot, as it was seen a moment ago; None: there was none.
        examined: Snapshots up to this one do not hold the commit.
        mark: Fingerprint of that one; None: it is not known.
        ordered: Whether the user's commits follow each other by their identifiers, so that none may follow a later one.
        stale: Whether other snapshots have probably come since, so that it is better to look first.
        own: Fingerprint of a snapshot that this process has published.
        strict: What the user's commits before this one have found safe; None: nothing is known of them.
        anchored: Whether nothing is committed where the snapshot that was examined last is gone.

    Attributes:
        looks_back: Whether it sees, before it publishes, that the snapshot that it follows is there still.
        uncertain: Whether the snapshot may be there, or come to be there, although no attempt is known to have
            succeeded.
    """

    def __init__(
        self,
        table: Any,
        directory: TableDirectory,
        plan: Plan,
        facts: CommitFacts,
        latest: Snapshot | None,
        *,
        examined: int,
        mark: str | None,
        ordered: bool,
        stale: bool = False,
        own: str | None = None,
        anchored: bool = False,
        strict: StrictMode | None = None,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._facts = facts
        self._latest = latest
        self._examined = examined
        self._mark = mark
        self._stale = stale
        self._own = own
        self._anchored = anchored
        self._ordered = ordered
        self._strict = strict or StrictMode.of(table)
        self._drafts = SnapshotDrafts(table, self._strict)
        self._publisher = publisher_of(table, directory)
        self._paths = FilePaths.of(table.table_path, table.table_schema)
        self._backoff = backoff_of(table)
        self.looks_back = self._publisher.looks_back
        self._ours: set[str] = set()
        self._error: Exception | None = None
        self.uncertain = False

    @property
    def arbitrates(self) -> bool:
        """Whether nobody can replace its snapshot; known once it ran."""
        return self._publisher.arbitrates

    def run(self) -> Outcome:
        """Commit.

        Raises:
            CommitConflictError: The changes may not follow the latest state.
            StrictModeError: Others have changed the same partition since the last safe snapshot.
            BatchOrderError: A later commit of the user is there, and this one is not.
            GaveUpError: It did not get through. If it is `uncertain` by then, it may be there all the same.
            CorruptTableError: A file of the metadata is damaged.
            StoreError: The store failed.
        """
        self._publisher.prepare()
        for retry in self._backoff.tries():
            looks = bool(retry) or self._stale or not self._publisher.arbitrates
            if looks and not self._looks_again():
                continue
            outcome = self._settled() or self._attempt(has_looked=looks)
            if outcome is not None:
                if self._strict is not None and outcome.ours and outcome.number is not None:
                    self._strict.note_committed(outcome.number)
                return outcome
        raise GaveUpError(
            f"it did not get through after {retry} retries, for other writers were faster, or the store did not answer"
        ) from self._error

    def _looks_again(self) -> bool:
        """See which snapshot is the latest now; False: the store cannot tell at present."""
        snapshots = self._directory.snapshots
        snapshots.forget(self._examined)
        known = self._examined > 0 and self._mark is not None
        try:
            if known and self._publisher.looks_back and self._is_latest_still():
                return True
            self._latest = snapshots.get_latest_snapshot()
            there = snapshots.refreshed(self._examined) if known else None
        except PaimonStreamError as error:
            self._error = error
            return False
        rolled_back = there is not None and there.fingerprint != self._mark
        rolled_back = rolled_back or (self._anchored and there is None)
        if rolled_back or (0 if self._latest is None else self._latest.id) < self._examined:
            kind = GaveUpError if self.uncertain else RolledBackError
            raise kind(f"the table was rolled back behind snapshot {self._examined}. {OR_REPLACED}".rstrip("."))
        return True

    def _is_latest_still(self) -> bool:
        """Whether the snapshot that is known as the latest one is there, and no next one. Two requests."""
        if self._latest is None or (self._latest.id, self._latest.fingerprint) != (self._examined, self._mark):
            return False
        there = self._directory.snapshots.refreshed(self._examined)
        is_there = there is not None and there.fingerprint == self._mark
        return is_there and self._directory.snapshots.refreshed(self._examined + 1) is None

    def _settled(self) -> Outcome | None:
        """What the snapshots tell that have come since somebody looked."""
        latest = 0 if self._latest is None else self._latest.id
        for number in range(self._examined + 1, latest + 1):
            snapshot = self._directory.snapshots.try_get(number)
            if snapshot is None:
                # An earlier call with the files of this compaction may have committed them there.
                self.uncertain = self.uncertain or self._plan.kind == COMPACT
                raise GaveUpError(
                    f"snapshot {number}, which had to be looked at first, expired meanwhile, as when another job of "
                    "the same commit user goes on"
                )
            if self._is_ours(snapshot):
                return Outcome(snapshot, ours=True)
            if snapshot.commit_user == self._facts.user:
                if self._is_same(snapshot):
                    return Outcome(snapshot, ours=False)
                if self._ordered and snapshot.commit_identifier > self._facts.identifier:
                    raise BatchOrderError(self._facts.user, self._facts.identifier, snapshot.commit_identifier)
            elif not self._publisher.arbitrates:
                raise NoConditionalCommitError(number, snapshot.commit_user, self._publisher.why_not)
            self._examined, self._mark = number, snapshot.fingerprint
        return None

    def _attempt(self, *, has_looked: bool) -> Outcome | None:
        try:
            draft = self._drafts.draft(TableState(self._directory, self._latest), self._plan, self._facts)
        except KeyIndexConflictError:
            # It may be the state that is older than the index files.
            if has_looked or not self._looks_again():
                raise
            return self._settled() or self._attempt(has_looked=True)
        if draft is None:
            return Outcome(None, ours=True)
        try:
            draft.files.write(self._directory)
            moved = self._has_moved()
        except Exception:
            draft.files.delete(self._directory)
            raise
        if moved:
            draft.files.delete(self._directory)
            return None
        return self._publish(draft)

    def _has_moved(self) -> bool:
        """Whether the snapshot before is not there any more: then this id was given already, or is not the next one."""
        if self._latest is None or not self._publisher.looks_back:
            return False
        try:
            if self._latest.fingerprint != self._own:
                self._publisher.settle(self._latest.id)
            there = self._directory.snapshots.refreshed(self._latest.id)
        except (PaimonStreamError, OSError) as error:
            # That the store fails must not pass for an expiry: look again.
            self._error = error
            return True
        return there is None or there.fingerprint != self._latest.fingerprint

    def _publish(self, draft: Draft) -> Outcome | None:
        before, self.uncertain = self.uncertain, True
        self._ours.add(draft.snapshot["deltaManifestList"])
        base = None if self._latest is None else self._latest.uuid
        statistics = partial(partition_statistics, draft.changes.files, self._paths)
        try:
            done = self._publisher.publish(base, draft.snapshot, statistics)
        except NotPublishedError as error:
            self.uncertain = before
            draft.files.delete(self._directory)
            raise GaveUpError("its snapshot could not be written") from error.__cause__
        except TakenError:
            self.uncertain = before
            draft.files.delete(self._directory)
            return None
        except Exception as error:  # noqa: BLE001 (whatever went wrong, the snapshot may be there)
            done, self._error = False, error
        there = None if done and not self._publisher.rewrites else self._at(draft.snapshot["id"])
        if done and there is None:
            there = Snapshot.from_json(json.dumps(draft.snapshot))
        if there is not None and self._is_ours(there):
            return Outcome(there, ours=True)
        if there is not None and self._publisher.arbitrates:
            self.uncertain = before
            draft.files.delete(self._directory)
        return None

    def _is_ours(self, snapshot: Snapshot) -> bool:
        return snapshot.delta_manifest_list in self._ours

    def _is_same(self, snapshot: Snapshot) -> bool:
        """Whether it is this commit: of one identifier there may be two, the second one a compaction."""
        compaction = self._plan.kind == COMPACT
        same = snapshot.commit_identifier == self._facts.identifier
        return same and (snapshot.commit_kind == COMPACT) == compaction

    def _at(self, number: int) -> Snapshot | None:
        """The snapshot of an id as it is in the store now; None too if that cannot be found out."""
        try:
            self._publisher.settle(number)
            return self._directory.snapshots.refreshed(number)
        except (PaimonStreamError, OSError):
            return None
