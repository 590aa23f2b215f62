"""`last_commit`: the newest commit of a commit user that a table holds, from which its next writer goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import TableChangedError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.commit_ledger import CommitLedger
from pypaimon.streaming.writing.commit.ledger_record import Record

_WINDOW = 32


@dataclass(frozen=True, slots=True)
class LastCommit:
    """A commit of a writer.

    Attributes:
        identifier: Its commit identifier.
        snapshot: Id of its snapshot.
        properties: What it notes beside.
    """

    identifier: int
    snapshot: int
    properties: Mapping[str, Any]

    @staticmethod
    def of(snapshot: Snapshot) -> LastCommit:
        """That of a snapshot."""
        return LastCommit(snapshot.commit_identifier, snapshot.id, snapshot.properties)

    def is_in(self, directory: TableDirectory, user: str) -> bool:
        """Whether the table holds it still: it was not rolled back. One request."""
        found = directory.snapshots.refreshed(self.snapshot)
        return found is not None and (found.commit_user, found.commit_identifier) == (user, self.identifier)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a commit user stands in a table.

    Attributes:
        last: Its newest commit; None: there is none.
        next: Identifier of the next one: one more, or more than all that were rolled back.
    """

    last: LastCommit | None
    next: int


def standing(directory: TableDirectory, user: str) -> Standing:
    """Where a commit user stands. Costs the record, and the snapshots since its newest commit.

    A user that never committed costs no more than the last 32 snapshots.

    Raises:
        TableChangedError: That cannot be known, for snapshots are gone that would tell.
        StoreError: The store failed.
    """
    ledger = CommitLedger(directory, user)
    record = ledger.read()
    directory.snapshots.forget()
    last = _newest(directory, user, record)
    first = 0 if last is None else last.identifier + 1
    status = ledger.status(first)
    known = [each for each in (status.unknown, status.batches.greatest) if each is not None]
    return Standing(last, max([first, *(each + 1 for each in known)]))


def _newest(directory: TableDirectory, user: str, record: Record | None) -> LastCommit | None:
    latest = directory.snapshots.get_latest_snapshot()
    newest = 0 if latest is None else latest.id
    first = max(1, newest - _WINDOW + 1) if record is None else 1
    for number, snapshot in _backwards(directory, newest, first):
        if snapshot is None:
            if record is not None and (number >= record.first or record.batches.ranges):
                raise _lost(directory, user, number)
            return None
        if snapshot.commit_user == user:
            return LastCommit.of(snapshot)
    return None


def _backwards(directory: TableDirectory, latest: int, first: int) -> Iterator[tuple[int, Snapshot | None]]:
    """Snapshots from the latest one down: one, two, four, at most 32 at a time."""
    window = 1
    while latest >= first:
        ids = range(latest, max(first, latest - window + 1) - 1, -1)
        found = directory.snapshots.get_snapshots_batch(ids)
        yield from ((each, found[each]) for each in ids)
        latest, window = ids[-1] - 1, min(window * 2, _WINDOW)


def _lost(directory: TableDirectory, user: str, snapshot: int) -> TableChangedError:
    return TableChangedError(
        f"Snapshot {snapshot} of {directory.table.identifier.get_full_name()} is gone, and the newest commit of "
        f"'{user}' is not among those after it, although the consumer '{user}' keeps it: that file was removed or "
        "expired, or snapshots were deleted by force.",
        advice="Find out what the table holds, and go on under another commit user.",
    )
