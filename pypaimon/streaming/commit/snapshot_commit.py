"""`SnapshotCommit`: publish one snapshot once, whatever other writers do and whichever answers are lost.

An attempt drafts the snapshot that follows the latest one, writes its manifests, and publishes it if no snapshot has
that id. Before that, every snapshot that has appeared since the last look is examined: they cannot change any more, so
if another writer of the same user has published this commit meanwhile, it is found, and nothing is published.

Where the store cannot arbitrate between writers, a new snapshot of another writer ends the commit: the next attempt of
either might replace the other's snapshot.

An attempt whose answer was lost, or that reports a failure, may have taken effect all the same. So the snapshot of that
id is read. If it is this commit's, the commit is done. If it is another one, the attempt surely failed. If it is
missing, or the store cannot arbitrate, the outcome is unknown (`uncertain`), and as long as it is, nothing that the
snapshot would name is deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from pypaimon.streaming.commit.changes import COMPACT
from pypaimon.streaming.commit.conflicts import StrictMode, TableState
from pypaimon.streaming.commit.draft import Draft, Drafter
from pypaimon.streaming.commit.manifests import ManifestOptions
from pypaimon.streaming.commit.publishing import NotPublishedError, TakenError, partition_statistics, publisher_of
from pypaimon.streaming.commit.request import CommitPlan, CommitRequest
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import OR_REPLACED, BatchOrderError, KeyIndexConflictError, PaimonStreamError
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions


class GaveUpError(Exception):
    """A commit did not get through, for a reason that may be temporary."""


class RolledBackError(GaveUpError):
    """The snapshot that the commit was to follow is gone or is another one; nothing was committed."""


class NoConditionalCommitError(GaveUpError):
    """Another program commits at the same time, in a store where one commit may silently replace another."""

    def __init__(self, number: int, user: str, why: str) -> None:
        super().__init__(
            f"'{user}' has committed snapshot {number} meanwhile, and nothing in this store keeps one commit from "
            f"replacing another ({why}): let one program write at a time, which opens its writer when the others have "
            "ended, or use a REST catalog, which commits by itself, or an S3-like store that heeds If-None-Match, with "
            "keys and the extra 'fast'"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a commit."""

    snapshot: Snapshot | None  # The snapshot that holds it; None: there was nothing to commit
    ours: bool

    @property
    def number(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.id


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """What is known about the table's snapshots when a commit starts."""

    latest: Snapshot | None
    examined: int
    fingerprint: str | None
    # Whether others have probably committed since, so that it is better to look before the first attempt
    outdated: bool = False
    own_fingerprint: str | None = None
    must_exist: bool = False  # Whether nothing is committed if snapshot `examined` is gone

    @staticmethod
    def up_to(latest: Snapshot | None) -> KnownHistory:
        """What is known if no earlier attempt can have made this commit: all snapshots so far count as examined."""
        examined, fingerprint = (0, None) if latest is None else (latest.id, latest.fingerprint)
        return KnownHistory(latest, examined, fingerprint)


def commit_backoff(options: TableOptions) -> Backoff:
    """How often a commit is tried, and how long it pauses in between, by the options of a table."""
    timeout = option_keys.COMMIT_TIMEOUT.of(options)
    return Backoff(
        attempts=1 + option_keys.COMMIT_MAX_RETRIES.of(options),
        first_pause=option_keys.COMMIT_MIN_RETRY_WAIT.of(options) / 1000,
        longest_pause=option_keys.COMMIT_MAX_RETRY_WAIT.of(options) / 1000,
        # As Java's RetryWaiter: the configured wait, and up to a fifth more.
        jitter=(1.0, 1.2),
        timeout=float("inf") if timeout is None else timeout / 1000,
    )


def check_commit_options(table: PaimonTable) -> None:
    """Read the options of a table's commits, so that a bad one is found before files are written."""
    ManifestOptions.of(table)
    commit_backoff(table.options)
    StrictMode.of(table)


class SnapshotCommit:
    """One commit of one user: attempts until one is published or the commit fails.

    Args:
        plan: What is changed: the data increments of the request, or its compact increments.
        strict: The table's strict mode after the user's earlier commits; None: as the table's options say.
        drafter: Drafts the snapshot; None: the usual one.
    """

    def __init__(
        self,
        directory: TableDirectory,
        request: CommitRequest,
        plan: CommitPlan,
        known: KnownHistory,
        strict: StrictMode | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        table = request.table
        self.request = request
        self.directory = directory
        self._plan = plan
        self._known = known
        self._latest = known.latest
        self._examined = known.examined
        self._fingerprint = known.fingerprint
        self._strict = strict or StrictMode.of(table)
        self._drafter = drafter or Drafter(table, self._strict)
        self._publisher = publisher_of(table, directory)
        self._paths = table.paths
        self._backoff = commit_backoff(table.options)
        # Whether it checks, before it publishes, that the snapshot it follows is still there
        self.checks_previous = self._publisher.checks_previous
        self._delta_lists: set[str] = set()
        self._error: Exception | None = None
        # Whether the snapshot may be there, or may still appear, although no attempt is known to have succeeded: an
        # earlier call with the same files may have committed them since, or may still do so
        self.uncertain = not request.is_first_attempt or (
            plan.kind == COMPACT and known.latest is not None and known.examined < known.latest.id
        )

    @property
    def conditional(self) -> bool:
        """Whether no other program can replace its snapshot. Known after `run`."""
        return self._publisher.conditional

    def run(self) -> Outcome:
        """Commit. Raises GaveUpError if it did not get through; if it is `uncertain` then, it may be there."""
        self._publisher.prepare()
        for retry in self._backoff.tries():
            # The first attempt trusts what is known. If that is outdated, publishing finds out, at the price of the
            # manifests that were written in vain: it looks for the snapshot before and for the next one.
            looks = bool(retry) or self._known.outdated
            if looks and not self._look():
                continue
            outcome = self._examine_new_snapshots() or self._attempt(has_looked=looks)
            if outcome is not None:
                if self._strict is not None and outcome.ours and outcome.number is not None:
                    self._strict.note_committed(outcome.number)
                return outcome
        raise GaveUpError(
            f"it did not get through after {retry} retries, because other writers were faster, or the store did not "
            "answer"
        ) from self._error

    def _look(self) -> bool:
        """Find the latest snapshot again. False: the store cannot say at present. Raises GaveUpError if the table was
        rolled back.
        """
        snapshots = self.directory.snapshots
        snapshots.forget(self._examined)
        is_known = self._examined > 0 and self._fingerprint is not None
        try:
            if is_known and self._publisher.checks_previous and self._is_still_latest():
                return True
            self._latest = snapshots.get_latest_snapshot()
            there = snapshots.refreshed(self._examined) if is_known else None
        except PaimonStreamError as error:
            self._error = error
            return False
        rolled_back = there is not None and not is_same_history(self._fingerprint, there.fingerprint)
        rolled_back = rolled_back or (self._known.must_exist and there is None)
        if rolled_back or (0 if self._latest is None else self._latest.id) < self._examined:
            kind = GaveUpError if self.uncertain else RolledBackError
            raise kind(f"the table was rolled back to before snapshot {self._examined}. {OR_REPLACED}".rstrip("."))
        return True

    def _is_still_latest(self) -> bool:
        """Whether the snapshot that was the latest one is there, and no next one. Two requests."""
        latest = self._latest
        if latest is None or latest.id != self._examined or not is_same_history(self._fingerprint, latest.fingerprint):
            return False
        there = self.directory.snapshots.refreshed(self._examined)
        is_there = there is not None and there.is_same_commit(latest)
        return is_there and self.directory.snapshots.refreshed(self._examined + 1) is None

    def _examine_new_snapshots(self) -> Outcome | None:
        """Examine the snapshots since the last look. Returns the outcome if one of them decides it."""
        latest = 0 if self._latest is None else self._latest.id
        for number in range(self._examined + 1, latest + 1):
            snapshot = self.directory.snapshots.try_get(number)
            if snapshot is None:
                # An earlier call with the files of this compaction may have committed them there.
                self.uncertain = self.uncertain or self._plan.kind == COMPACT
                raise GaveUpError(
                    f"snapshot {number}, which must be examined first, expired meanwhile, as happens when another job "
                    "of the same commit user continues"
                )
            if self._is_ours(snapshot):
                return Outcome(snapshot, ours=True)
            if snapshot.commit_user == self.request.user:
                if self._is_same_commit(snapshot):
                    return Outcome(snapshot, ours=False)
                if self.request.ordered and snapshot.commit_identifier > self.request.identifier:
                    raise BatchOrderError(self.request.user, self.request.identifier, snapshot.commit_identifier)
            elif not self._publisher.conditional:
                raise NoConditionalCommitError(number, snapshot.commit_user, self._publisher.why_unconditional)
            self._examined, self._fingerprint = number, snapshot.fingerprint
        # Nothing was sent to the store yet that could still appear, and no snapshot up to the latest is ours.
        if self.request.is_first_attempt and not self._delta_lists:
            self.uncertain = False
        return None

    def _attempt(self, *, has_looked: bool) -> Outcome | None:
        """Draft, write the manifests, publish. None: try again."""
        try:
            draft = self._drafter.draft(TableState(self.directory, self._latest), self._plan, self.request)
        except KeyIndexConflictError:
            # The writer may have read index files that are newer than the state that is known here.
            if has_looked or not self._look():
                raise
            return self._examine_new_snapshots() or self._attempt(has_looked=True)
        if draft is None:
            return Outcome(None, ours=True)
        try:
            draft.files.write(self.directory)
            is_gone = self._previous_is_gone()
        except BaseException:
            draft.files.delete(self.directory)
            raise
        if is_gone:
            draft.files.delete(self.directory)
            return None
        return self._publish(draft)

    def _previous_is_gone(self) -> bool:
        if self._latest is None or not self._publisher.checks_previous:
            return False
        try:
            # Its own snapshot was settled when it was published.
            if self._latest.fingerprint != self._known.own_fingerprint:
                self._publisher.settle(self._latest.id)
            there = self.directory.snapshots.refreshed(self._latest.id)
        except (PaimonStreamError, OSError) as error:
            # A failure of the store must not be taken for an expiry: look again.
            self._error = error
            return True
        # The id of the draft was used already then and has expired, or is not the next one: a file of that id
        # could be created although it must not.
        return there is None or not there.is_same_commit(self._latest)

    def _publish(self, draft: Draft) -> Outcome | None:
        """Publish. None: try again."""
        # From here on the commit is uncertain until something proves the contrary.
        before, self.uncertain = self.uncertain, True
        self._delta_lists.add(draft.snapshot["deltaManifestList"])
        base = None if self._latest is None else self._latest.uuid
        statistics = partial(partition_statistics, draft.changes.files, self._paths)
        try:
            done = self._publisher.publish(base, draft.snapshot, statistics)
        except NotPublishedError as error:
            self.uncertain = before
            draft.files.delete(self.directory)
            raise GaveUpError("its snapshot could not be written") from error.__cause__
        except TakenError:
            self.uncertain = before
            draft.files.delete(self.directory)
            return None
        except Exception as error:  # noqa: BLE001 (whatever went wrong, the snapshot may be there)
            done, self._error = False, error
        there = None if done and not self._publisher.rewrites else self._stored(draft.snapshot["id"])
        if done and there is None:
            there = Snapshot.from_json(json.dumps(draft.snapshot))
        if there is not None and self._is_ours(there):
            return Outcome(there, ours=True)
        if there is not None and self._publisher.conditional:
            # Another snapshot has the id for good, so the attempt has failed for good.
            self.uncertain = before
            draft.files.delete(self.directory)
        return None

    def _is_ours(self, snapshot: Snapshot) -> bool:
        # Not by `uuid`: a catalog with Java 1.x does not store it. The names of manifest lists are random.
        return snapshot.delta_manifest_list in self._delta_lists

    def _is_same_commit(self, snapshot: Snapshot) -> bool:
        # An identifier may have two snapshots: data and compaction.
        compaction = self._plan.kind == COMPACT
        same = snapshot.commit_identifier == self.request.identifier
        return same and (snapshot.commit_kind == COMPACT) == compaction

    def _stored(self, number: int) -> Snapshot | None:
        try:
            self._publisher.settle(number)
            return self.directory.snapshots.refreshed(number)
        except (PaimonStreamError, OSError):
            return None
