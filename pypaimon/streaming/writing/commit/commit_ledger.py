"""`CommitLedger`: which commits of a user a table already holds, so that none is made twice and none is lost.

A commit carries its user and its identifier. Snapshots tell what was committed, but they expire. So two small files go
before commits: the *record*, which says which identifiers were found in the snapshots up to one of them and up to which
one commits may have been begun, and the *fence*, a consumer file, which keeps that snapshot and those from there on.
`CommitSession` tells how often they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import QueryReusedError
from pypaimon.streaming.io.conditional_writes import Seen
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.commit_ids import BatchIds
from pypaimon.streaming.writing.commit.ledger_record import Record

_WINDOW = 32
_MAX_RANGES = 4096
_RECORD_PREFIX = "sink-"


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What a table holds of a commit user.

    Attributes:
        batches: The identifiers that are in the table.
        unknown: Identifiers up to this one that are not among those may be in the table or not; None: none may.
        why: Why that is so.
        attempt: The greatest identifier whose commit was begun earlier, or reserved; -1 if none was.
        snapshot: The snapshot that holds the commit that was asked for; None if that is no longer known, or none does.
        examined: Snapshots up to this one were looked at, now or earlier; 0 if there is none.
        mark: Tells that snapshot from another one of its id; None if there is none.
        latest: The latest snapshot, None if there is none.
        seen: The record's file as it was read; None if there was none.
        origin: What counted the commits so far, where that is known.
        newest: The snapshot of the newest commit that was found since the record was written; None if none was.
    """

    batches: BatchIds
    unknown: int | None
    why: str
    attempt: int
    snapshot: Snapshot | None
    examined: int
    mark: str | None
    latest: Snapshot | None
    seen: Seen | None = None
    origin: str | None = None
    newest: int | None = None


class CommitLedger:
    """The ledger of one commit user in one table and branch. Calls block.

    Two writers of one user may be alive for a while, as when a cluster lost sight of the first, and jobs that
    name their commits may run side by side. Whoever finds that the other one has written the record meanwhile looks at
    the table again: what it had found may have been rolled back. Who publishes first wins, see
    `pypaimon.streaming.writing.commit.snapshot_commit`.

    Args:
        directory: The table.
        user: Commit user: the same for the same job, also after a restart on another machine.
        origin: What counts the commits, where that is known, as a streaming query that has an id.
    """

    def __init__(self, directory: TableDirectory, user: str, origin: str | None = None) -> None:
        self._directory = directory
        self._user = user
        self._origin = origin
        self._consumers = consumers_of(directory)

    @property
    def user(self) -> str:
        """The commit user, which is also the id of its consumer."""
        return self._user

    def status(self, batch: int) -> CommitStatus:
        """What the table holds of the user, asked before `batch` is committed.

        Costs a GET for the record, the latest snapshot, and a GET for each snapshot since the last commit was begun;
        of a user that is new to the table no more than the last 32 snapshots are looked at.

        Raises:
            QueryReusedError: The commits before it came from another origin.
            StoreError: The store failed.
        """
        record, seen = self._look()
        self._check_origin(batch, record)
        self._directory.snapshots.forget()
        latest = self._directory.snapshots.get_latest_snapshot()
        found = self._unrecorded(batch, latest) if record is None else self._recorded(batch, latest, record)
        if batch in found.batches and (record is None or record.origin is None):
            # Who put it there since may be another origin, which has recorded itself before.
            self._check_origin(batch, self._look()[0])
        return replace(found, seen=seen, origin=None if record is None else record.origin)

    def unchanged(self, status: CommitStatus, record: Record) -> CommitStatus | None:
        """A status that was found earlier, if the record is still the one that was written then. One GET.

        Returns:
            None: Another job has written it since.
        """
        found, seen = self._look()
        return replace(status, seen=seen, attempt=record.attempt) if found == record else None

    def begin(self, batch: int, status: CommitStatus, ahead: int = 0) -> Record:
        """Say that a commit is about to be tried, and keep the snapshots that will tell what became of it. Two PUTs.

        Must have returned before the commit is tried.

        Args:
            batch: Its identifier.
            status: As it was found.
            ahead: So many identifiers after it are reserved too.

        Returns:
            What was recorded.

        Raises:
            ChangedFileError: Another job has written the record since: ask for the status again.
            StoreError: The store failed.
        """
        return self._write(status, batch + ahead, status.batches)

    def assume(self, batch: int, status: CommitStatus) -> None:
        """Record that a commit is in the table, as a human has found out. Two PUTs.

        Raises:
            ChangedFileError: Another job has written the record since: ask for the status again.
            StoreError: The store failed.
        """
        self._write(status, batch, status.batches.union([batch]))

    def read(self) -> Record | None:
        """The record; None if no commit was ever begun here. One GET.

        Raises:
            CorruptTableError: The file is damaged.
        """
        return self._look()[0]

    def forget(self) -> None:
        """Delete what is kept of the user, under whom nothing will be committed any more. Two DELETEs."""
        # The consumer first: without the record it would keep snapshots that nobody needs.
        self._consumers.delete(ConsumerName(self._user))
        self._directory.store.delete(self._record_path)

    def _write(self, status: CommitStatus, batch: int, batches: BatchIds) -> Record:
        origin, attempt = self._origin or status.origin, max(batch, status.attempt)
        batches, left_out = batches.newest(_MAX_RANGES)
        unknown = _greatest(status.unknown, left_out)
        record = Record(status.examined + 1, batches, unknown, attempt, origin, status.mark)
        self._directory.store.replace(self._record_path, record.to_json(), status.seen)
        self._consumers.write(ConsumerName(self._user), Consumer(self._kept_from(status)))
        return record

    def _kept_from(self, status: CommitStatus) -> int:
        """The first snapshot to keep: that of the newest commit, which says where a copy stands.

        Thereby also the last that was examined, by which a rollback is told.
        """
        if status.newest is not None:
            return status.newest
        first = max(status.examined, 1)
        kept = None if status.seen is None else self._consumers.read(ConsumerName(self._user))
        return first if kept is None else min(first, kept.next_snapshot)

    def _check_origin(self, batch: int, record: Record | None) -> None:
        if record is not None and self._origin is not None and record.origin not in (None, self._origin):
            raise QueryReusedError(self._user, batch)

    def _look(self) -> tuple[Record, Seen] | tuple[None, None]:
        try:
            return self._directory.store.look(self._record_path, Record.from_json)
        except FileNotFoundError:
            return None, None

    @property
    def _record_path(self) -> str:
        # Not a consumer: Java takes every file with that prefix for one, and lets consumers expire.
        return f"{self._consumers.directory}/{_RECORD_PREFIX}{self._user}"

    def _unrecorded(self, batch: int, latest: Snapshot | None) -> CommitStatus:
        """Of a user without record. It is new, unless somebody removed that file: the last snapshots would show it."""
        last = 0 if latest is None else latest.id
        snapshots = self._backwards(last, max(1, last - _WINDOW + 1), window=_WINDOW)
        found = {each.commit_identifier: each for _, each in snapshots if each and each.commit_user == self._user}
        unknown = max(found, default=None)
        return self._status(batch, latest, found, Record(1, BatchIds(), unknown, -1), "its record was removed")

    def _recorded(self, batch: int, latest: Snapshot | None, record: Record) -> CommitStatus:
        """Of a user with a record: that, and the snapshots since it was written."""
        before = record.first - 1
        found: dict[int, Snapshot] = {}
        rolled_back = (0 if latest is None else latest.id) < before
        for number, snapshot in self._backwards(0 if latest is None else latest.id, max(before, 1)):
            if number == before:
                rolled_back = snapshot is not None and record.mark not in (None, snapshot.fingerprint)
            elif snapshot is None:
                return self._status(batch, latest, found, _uncertain(record), _gone(self._user, number))
            elif snapshot.commit_user == self._user:
                found[snapshot.commit_identifier] = snapshot
        if rolled_back:
            why = (
                f"the table was rolled back behind snapshot {before}, up to which it was looked through, or made anew, "
                "or another program's commit replaced that snapshot in a store that allows it"
            )
            forgotten = Record(record.first, BatchIds(), _uncertain(record).unknown, record.attempt)
            return self._status(batch, latest, found, forgotten, why)
        return self._status(batch, latest, found, record, "its record does not reach back so far")

    def _status(
        self, batch: int, latest: Snapshot | None, found: dict[int, Snapshot], record: Record, why: str
    ) -> CommitStatus:
        return CommitStatus(
            record.batches.union(found),
            record.unknown,
            why,
            record.attempt,
            found.get(batch),
            0 if latest is None else latest.id,
            None if latest is None else latest.fingerprint,
            latest,
            newest=max((each.id for each in found.values()), default=None),
        )

    def _backwards(self, latest: int, first: int, window: int = 1) -> Iterator[tuple[int, Snapshot | None]]:
        """Snapshots from the latest one down; asked for a few at a time."""
        while latest >= first:
            ids = range(latest, max(first, latest - window + 1) - 1, -1)
            found = self._directory.snapshots.get_snapshots_batch(ids)
            yield from ((each, found[each]) for each in ids)
            latest, window = ids[-1] - 1, min(window * 2, _WINDOW)


def _uncertain(record: Record) -> Record:
    """The record, where what became of commits that were begun can no longer be found out."""
    unknown = _greatest(record.unknown, record.attempt, record.batches.greatest)
    return Record(record.first, record.batches, unknown, record.attempt)


def _greatest(*ids: int | None) -> int | None:
    return max((each for each in ids if each is not None), default=None)


def _gone(user: str, snapshot: int) -> str:
    return (
        f"its commit may have been begun, and snapshot {snapshot}, which would have to be looked at, is gone, although "
        f"the consumer '{user}' keeps it: that file was removed, or snapshots were deleted by force"
    )
