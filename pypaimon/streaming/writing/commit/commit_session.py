"""`CommitSession`: what a writer that goes on knows from its last commit, so that the next one costs fewer requests.

The record of the ledger says two things: which snapshots have to be looked at after a restart, and up to which
identifier commits may have been begun. Neither has to be exact, as long as it errs on one side: a fence that lies
further back keeps more snapshots, and an identifier that was only reserved may be asked for again. So a writer that
goes on reserves identifiers ahead, twice as many each time up to `MOST_AHEAD`, and writes record and fence again only
when they are used up, when `MOST_SNAPSHOTS` lie behind the fence, or after `MOST_SECONDS`, for fences that are not
written for long expire too. After a restart the snapshots since then are looked at, as ever.

What is known of the table is what the last commit of the session left: its snapshot is the one before the next, unless
others have come since, which the publishing of the next one finds out. A rollback is found out by looking at that
snapshot again before publishing; whatever else goes wrong ends the session, and the ledger is asked anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.writing.commit.commit_ledger import CommitLedger, CommitStatus
from pypaimon.streaming.writing.commit.ledger_record import Record
from pypaimon.streaming.writing.commit.strict_mode import StrictMode

MOST_AHEAD = 64
MOST_SNAPSHOTS = 64
MOST_SECONDS = 600.0


class CommitSession:
    """The commits of one user, made one after the other in one process. Not for several threads.

    Args:
        clock: Seconds, never falling.

    Attributes:
        arbitrates: Whether nobody can have replaced its last commit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ahead = 0
        self._alone = True
        self._own: str | None = None
        self._record: Record | None = None
        self._written = 0.0
        self._looks_back = False
        self.arbitrates = True
        self._strict: tuple[StrictMode | None] | None = None
        self.forget()

    @property
    def alone(self) -> bool:
        """Whether nobody else committed between the last two commits: then the next one need not look first."""
        return self._alone

    @property
    def own(self) -> str | None:
        """Fingerprint of the newest snapshot that was published; None: there is none."""
        return self._own

    def strict(self, table: Any) -> StrictMode | None:
        """What forbids commits to this table, as the first one found its options; None: nothing does."""
        if self._strict is None:
            self._strict = (StrictMode.of(table),)
        return self._strict[0]

    def forget(self) -> None:
        """Know nothing: the next commit asks the ledger."""
        self._status: CommitStatus | None = None

    def covered(self, identifier: int) -> CommitStatus | None:
        """What the table holds of the user, if a commit can begin on that without a request.

        Also if it will be seen before it is published that the snapshot of the last commit is there still: then the
        table is the one that it was.
        """
        status, record = self._status, self._record
        if status is None or record is None or not self._looks_back or not self._is_later(status, identifier):
            return None
        return status if self._is_covered(record, status, identifier) else None

    def begin(self, ledger: CommitLedger, identifier: int) -> CommitStatus | None:
        """Begin a commit on what is known.

        Returns:
            What the table holds of the user: the identifier is surely not there. None: ask the ledger.

        Raises:
            ChangedFileError: Another job has written the record since.
            StoreError: The store failed.
        """
        status, record = self._status, self._record
        if status is None or record is None:
            return None
        if not self._is_later(status, identifier):
            return None
        if self._is_covered(record, status, identifier):
            return status
        fresh = ledger.unchanged(status, record)
        if fresh is None:
            return None
        self.note_begun(ledger.begin(identifier, fresh, ahead=self._ahead))
        return fresh

    def note_begun(self, record: Record) -> None:
        """The record was written just now."""
        self._record, self._written = record, self._clock()
        self._ahead = min(2 * self._ahead + 1, MOST_AHEAD - 1)

    def note_committed(
        self, status: CommitStatus, identifier: int, snapshot: Snapshot, count: int, *, looks_back: bool,
        arbitrates: bool,
    ) -> None:  # fmt: skip
        """A commit was published.

        Args:
            status: What was known when it began.
            identifier: It.
            snapshot: Its snapshot, the last one if there are two.
            count: How many there are.
            looks_back: As `SnapshotCommit.looks_back`.
            arbitrates: As `SnapshotCommit.arbitrates`.
        """
        self.arbitrates = arbitrates
        self._looks_back = looks_back
        self._alone = snapshot.id == status.examined + count
        self._own = snapshot.fingerprint
        self._status = replace(
            status,
            batches=status.batches.union([identifier]),
            snapshot=None,
            examined=snapshot.id,
            mark=snapshot.fingerprint,
            latest=snapshot,
            seen=None,
            newest=snapshot.id,
        )

    def _is_later(self, status: CommitStatus, identifier: int) -> bool:
        """Whether an identifier is surely not in the table."""
        later = [each for each in (status.batches.greatest, status.unknown) if each is not None]
        return identifier > max(later, default=-1)

    def _is_covered(self, record: Record, status: CommitStatus, identifier: int) -> bool:
        """Whether record and fence serve this commit as they are."""
        near = status.examined - record.first < MOST_SNAPSHOTS
        return identifier <= record.attempt and near and self._clock() - self._written < MOST_SECONDS
