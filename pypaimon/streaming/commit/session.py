"""What a writer knows about its own commits: `progress_of` finds it out when it starts, `CommitSession` keeps it.

A session makes the next commit cheaper. The record of the ledger says which snapshots must be examined after a restart,
and up to which identifier commits may have been tried. Neither has to be exact as long as it errs on the safe side: a
consumer that points further back keeps more snapshots, and an identifier that was only reserved may be asked for again.
So a session reserves identifiers ahead, twice as many each time up to `MOST_AHEAD`. It writes record and consumer again
only when those are used up, when the consumer is `MOST_SNAPSHOTS` back, or after `MOST_SECONDS`, because consumers that
are not written for a long time expire too. After a restart the snapshots since then are examined as usual.

What a session knows about the table is what its last commit left: that snapshot is the one before the next, unless
others have committed since, which publishing the next one finds out. A rollback is found out by reading that snapshot
again before publishing. Any other failure makes the session forget, and the ledger is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pypaimon.streaming.commit.conflicts import StrictMode
from pypaimon.streaming.commit.ledger import CommitLedger, CommitStatus, LedgerRecord, newest_first
from pypaimon.streaming.commit.snapshot_commit import SnapshotCommit
from pypaimon.streaming.errors import TableChangedError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

MOST_AHEAD = 64
MOST_SNAPSHOTS = 64
MOST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The newest commit of a writer."""

    identifier: int
    snapshot: int
    properties: Mapping[str, Any]

    @staticmethod
    def of(snapshot: Snapshot) -> LastCommit:
        return LastCommit(snapshot.commit_identifier, snapshot.id, snapshot.properties)

    def is_in(self, directory: TableDirectory, user: str) -> bool:
        """Whether the table still holds it, that is, was not rolled back. One request."""
        found = directory.snapshots.refreshed(self.snapshot)
        return found is not None and (found.commit_user, found.commit_identifier) == (user, self.identifier)


@dataclass(frozen=True, slots=True)
class CommitProgress:
    """How far a commit user has got in a table."""

    last: LastCommit | None  # Its newest commit; None: there is none
    next: int  # Identifier of the next commit: greater than that of the newest one, and than all that were rolled back
    new_since: int = 0  # For a user that is new: the latest snapshot when that was found out; otherwise 0


def progress_of(directory: TableDirectory, user: str) -> CommitProgress:
    """How far a commit user has got. Costs the record, and the snapshots since its newest commit.

    For a user that never committed, at most the last 32 snapshots are read. Raises TableChangedError if it is unknown,
    because the snapshots that would show it are gone.
    """
    ledger = CommitLedger(directory, user)
    status = ledger.status(0)
    record = None if status.seen is None else ledger.read()
    if record is not None:
        last = _newest(directory, user, status.latest, record)
    else:
        last = None if status.newest is None else LastCommit.of(directory.snapshots.get(status.newest))
    first = 0 if last is None else last.identifier + 1
    known = [each for each in (status.unknown, status.batches.greatest) if each is not None]
    is_new = status.seen is None and status.newest is None
    return CommitProgress(last, max([first, *(each + 1 for each in known)]), status.examined if is_new else 0)


def _newest(directory: TableDirectory, user: str, latest: Snapshot | None, record: LedgerRecord) -> LastCommit | None:
    for number, snapshot in newest_first(directory, 0 if latest is None else latest.id, 1):
        if snapshot is None:
            if number >= record.first or record.batches.ranges:
                raise _lost(directory, user, number)
            return None
        if snapshot.commit_user == user:
            return LastCommit.of(snapshot)
    return None


def _lost(directory: TableDirectory, user: str, snapshot: int) -> TableChangedError:
    return TableChangedError(
        f"Snapshot {snapshot} of {directory.table.identifier.get_full_name()} is gone, and the newest commit of "
        f"'{user}' is not among those after it, although the consumer '{user}' keeps it: that file was removed or "
        "expired, or snapshots were deleted by force.",
        advice="Find out what the table holds, and continue under another commit user.",
    )


class CommitSession:
    """The commits of one user, made one after the other in one process. Not for several threads. `new_since` is that of
    `CommitProgress`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, new_since: int = 0) -> None:
        self._clock = clock
        self.new_since = new_since
        self._ahead = 0
        # Whether nobody else committed between the last two commits. Then the next one need not look first.
        self.alone = True
        self.last_fingerprint: str | None = None  # Of the newest snapshot that was published
        self._record: LedgerRecord | None = None
        self._written_at = 0.0
        self._checks_previous = False
        self._strict: tuple[StrictMode | None] | None = None
        # Whether no other program can have replaced its last commit, see `Publisher.conditional`
        self.conditional = True
        self.forget()

    def strict_mode(self, table: PaimonTable) -> StrictMode | None:
        """The table's strict mode, with the options that the first commit found; None: it is off."""
        if self._strict is None:
            self._strict = (StrictMode.of(table),)
        return self._strict[0]

    @property
    def first_kept(self) -> int | None:
        """The first snapshot that the consumer of the user keeps from expiring; None: it is not known.

        If others have committed between, it keeps some more.
        """
        # The consumer is at the last snapshot that was examined, and the one before a consumer stays too.
        return None if self._record is None else max(0, self._record.first - 2)

    def forget(self) -> None:
        """Forget what is known of the table. The next commit asks the ledger."""
        self._status: CommitStatus | None = None

    def reserved(self, identifier: int) -> CommitStatus | None:
        """What the table holds of the user, if a commit can start from that without any request.

        It can if the identifier was reserved, and if publishing will check that the snapshot of the last commit is
        still there: then the table has not been recreated or rolled back.
        """
        status, record = self._status, self._record
        if status is None or record is None or not self._checks_previous or not _is_later(status, identifier):
            return None
        return status if self._is_reserved(record, status, identifier) else None

    def begin(self, ledger: CommitLedger, identifier: int) -> CommitStatus | None:
        """Start a commit from what is known. Returns what the table holds of the user; it does not hold the identifier.
        None: ask the ledger. Raises ChangedFileError if another job has written the record since.
        """
        status, record = self._status, self._record
        if status is None or record is None or not _is_later(status, identifier):
            return None
        if self._is_reserved(record, status, identifier):
            return status
        fresh = ledger.unchanged(status, record)
        if fresh is None:
            return None
        self.note_begun(ledger.begin(identifier, fresh, ahead=self._ahead))
        return fresh

    def note_begun(self, record: LedgerRecord) -> None:
        self._record, self._written_at = record, self._clock()
        self._ahead = min(2 * self._ahead + 1, MOST_AHEAD - 1)

    def note_committed(self, status: CommitStatus, commit: SnapshotCommit, snapshot: Snapshot, count: int) -> None:
        self.conditional = commit.conditional
        self._checks_previous = commit.checks_previous
        self.alone = snapshot.id == status.examined + count
        self.last_fingerprint = snapshot.fingerprint
        self._status = replace(
            status,
            batches=status.batches.union([commit.request.identifier]),
            snapshot=None,
            examined=snapshot.id,
            fingerprint=snapshot.fingerprint,
            latest=snapshot,
            seen=None,
            newest=snapshot.id,
        )

    def _is_reserved(self, record: LedgerRecord, status: CommitStatus, identifier: int) -> bool:
        near = status.examined - record.first < MOST_SNAPSHOTS
        return identifier <= record.attempt and near and self._clock() - self._written_at < MOST_SECONDS


def _is_later(status: CommitStatus, identifier: int) -> bool:
    later = [each for each in (status.batches.greatest, status.unknown) if each is not None]
    return identifier > max(later, default=-1)
