"""`CommitLedger`: which batches of a query a table already holds, so that none is committed twice and none is lost.

A commit carries its user (the query) and its identifier (the batch). Snapshots tell what was committed, but they
expire. So two small files go before each commit: the *record*, which says which batches were found in the snapshots up
to one of them and which batch is about to be committed, and the *fence*, a consumer file, which keeps that snapshot
and those from there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.io.conditional_writes import Seen
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.commit_ids import BatchIds
from pypaimon.streaming.writing.commit.ledger_record import Record

_WINDOW = 32
_MAX_RANGES = 4096
_RECORD_PREFIX = "sink-"


class CommitUnknownError(PaimonStreamError):
    """Nobody can tell whether a batch is in the table: what would tell has been deleted, or was never recorded.

    Attributes:
        user: Commit user of the query.
        batch: The batch.
        why: What would tell, and why it does not.
    """

    def __init__(self, user: str, batch: int, why: str) -> None:
        self.user = user
        self.batch = batch
        self.why = why
        super().__init__(
            f"Batch {batch} of '{user}' may be in the table or not: {why}. Nothing was committed. Look whether its "
            f"rows are in the table, then restart once with option 'assume-committed' = '{batch}' if they are, or "
            f"'assume-missing' = '{batch}' if they are not."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.user, self.batch, self.why)


class BatchOrderError(PaimonStreamError):
    """A batch of a stream came after a later one of the same stream was committed; nothing was committed."""

    def __init__(self, user: str, batch: int, later: int) -> None:
        self.user = user
        self.batch = batch
        self.later = later
        super().__init__(
            f"Batch {batch} of '{user}' is not in the table, and batch {later}, which is later, is. A stream commits "
            "in order: this driver was replaced by another one, or its checkpoint was set back and it reads other rows "
            "than before. Nothing was committed. Start the query with a new checkpoint, or write these rows by "
            "themselves (spark.write)."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.user, self.batch, self.later)


class QueryReusedError(PaimonStreamError):
    """Batches of two streams came under one `query-id`, so that their numbers mean nothing; nothing was committed."""

    def __init__(self, user: str, batch: int) -> None:
        self.user = user
        self.batch = batch
        super().__init__(
            f"Batch {batch} of '{user}' comes from another streaming query than the batches before it: with a new "
            "checkpoint Spark counts anew, so that this batch cannot be told from an earlier one of the same number. "
            "Nothing was committed. Give the new query a 'query-id' of its own."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.user, self.batch)


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What a table holds of a query.

    Attributes:
        batches: Those that are in the table.
        unknown: Batches up to this one that are not among those may be in the table or not; None: there are none such.
        why: Why that is so.
        attempt: The greatest batch whose commit was begun earlier; -1 if none was.
        snapshot: The snapshot that holds the batch that was asked for; None if that is no longer known, or none does.
        examined: Snapshots up to this one were looked at, now or earlier; 0 if there is none.
        mark: Tells that snapshot from another one of its id; None if there is none.
        latest: The latest snapshot, None if there is none.
        seen: The record's file as it was read; None if there was none.
        origin: What counted the batches so far, where that is known.
        newest: The snapshot of the newest batch that was found since the record was written; None if none was.
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
    """The ledger of one query in one table and branch. Calls block.

    Two drivers of the same query may be alive for a while, as when a cluster lost sight of the first, and jobs that
    name their batches may run side by side. Whoever finds that the other one has written the record meanwhile looks at
    the table again: what it had found may have been rolled back. Who publishes first wins, see
    `pypaimon.streaming.writing.commit.snapshot_commit`.

    Args:
        directory: The table.
        user: Commit user: the same for the same query, also after a restart on another machine.
        origin: What counts the batches, where that is known: Spark's id of the streaming query.
    """

    def __init__(self, directory: TableDirectory, user: str, origin: str | None = None) -> None:
        self._directory = directory
        self._user = user
        self._origin = origin
        self._consumers = consumers_of(directory)

    @property
    def user(self) -> str:
        """The query's commit user, which is also the id of its consumer."""
        return self._user

    def status(self, batch: int) -> CommitStatus:
        """What the table holds of the query, asked before `batch` is committed.

        Costs a GET for the record, the latest snapshot, and a GET for each snapshot since the last commit was begun;
        of a query that is new to the table no more than the last 32 snapshots are looked at.

        Raises:
            QueryReusedError: The batches before it came from another streaming query.
            StoreError: The store failed.
        """
        record, seen = self._look()
        self._check_origin(batch, record)
        self._directory.snapshots.forget()
        latest = self._directory.snapshots.get_latest_snapshot()
        found = self._unrecorded(batch, latest) if record is None else self._recorded(batch, latest, record)
        if batch in found.batches and (record is None or record.origin is None):
            # Who put it there since may be another query, which has recorded itself before.
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
        """Say that a batch is about to be committed, and keep the snapshots that will tell what became of it. Two PUTs.

        Must have returned before the commit is tried.

        Args:
            batch: It.
            status: As it was found.
            ahead: So many batches after it are about to be committed too.

        Returns:
            What was recorded.

        Raises:
            ChangedFileError: Another job has written the record since: ask for the status again.
            StoreError: The store failed.
        """
        return self._write(status, batch + ahead, status.batches)

    def assume(self, batch: int, status: CommitStatus) -> None:
        """Record that a batch is in the table, as a human has found out. Two PUTs.

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

    def _write(self, status: CommitStatus, batch: int, batches: BatchIds) -> Record:
        origin, attempt = self._origin or status.origin, max(batch, status.attempt)
        batches, left_out = batches.newest(_MAX_RANGES)
        unknown = _greatest(status.unknown, left_out)
        record = Record(status.examined + 1, batches, unknown, attempt, origin, status.mark)
        self._directory.store.replace(self._record_path, record.to_json(), status.seen)
        self._consumers.write(ConsumerName(self._user), Consumer(self._kept_from(status)))
        return record

    def _kept_from(self, status: CommitStatus) -> int:
        """The first snapshot to keep: that of the newest batch, which says where a copy stands.

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
        """Of a query without record. It is new, unless somebody removed that file: the last snapshots would show it."""
        last = 0 if latest is None else latest.id
        snapshots = self._backwards(last, max(1, last - _WINDOW + 1), window=_WINDOW)
        found = {each.commit_identifier: each for _, each in snapshots if each and each.commit_user == self._user}
        unknown = max(found, default=None)
        return self._status(batch, latest, found, Record(1, BatchIds(), unknown, -1), "its record was removed")

    def _recorded(self, batch: int, latest: Snapshot | None, record: Record) -> CommitStatus:
        """Of a query with a record: that, and the snapshots since it was written."""
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
            why = f"the table was rolled back behind snapshot {before}, up to which it was looked through, or made anew"
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
