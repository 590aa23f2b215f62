"""`CommitLedger`: which batches of a query a table already holds, so that none is committed twice.

A commit carries its user (the query) and its identifier (the batch). Snapshots tell what was committed, but they
expire. So two small files go before each commit: the *record*, which says how far the snapshots were looked through and
which batch is about to be committed, and the *fence*, a consumer file, which keeps the snapshots from there on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pypaimon.streaming.consumers.consumer import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_WINDOW = 32
_RECORD_PREFIX = "sink-"


class CommitUnknownError(PaimonStreamError):
    """A commit was begun, and the snapshots that would tell whether it succeeded have been deleted.

    Attributes:
        user: Commit user of the query.
        batch: Batch whose commit was begun.
        missing: A snapshot that would have to be looked at and is gone.
        latest: The latest snapshot then; 0 if there was none.
    """

    def __init__(self, user: str, batch: int, missing: int, latest: int) -> None:
        self.user = user
        self.batch = batch
        self.missing = missing
        self.latest = latest
        super().__init__(
            f"Batch {batch} of '{user}' may be in the table or not: its commit was begun, but snapshot {missing}, "
            f"which would have to be looked at, is gone, although the consumer '{user}' keeps it: that file was "
            "removed, or snapshots were deleted by force. Nothing was committed. Look whether the rows of the batch "
            f"are in the table, then restart once with option 'assume-committed' = '{batch}' if they are, or "
            f"'assume-missing' = '{batch}' if they are not."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.user, self.batch, self.missing, self.latest)


@dataclass(frozen=True, slots=True)
class Record:
    """What the ledger remembers of a query in one table. True for ever once written, so an older one is no danger.

    Attributes:
        first: Snapshots before it hold no commit of the query after `committed`.
        committed: The last batch that was found in a snapshot; None if none was.
        attempt: The last batch whose commit was begun.
    """

    first: int
    committed: int | None
    attempt: int

    def to_json(self) -> bytes:
        """The file's text."""
        value = {"version": 1, "first": self.first, "committed": self.committed, "attempt": self.attempt}
        return json.dumps(value).encode()

    @staticmethod
    def from_json(data: bytes) -> Record:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is no record.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") != 1:
            raise ValueError("no record of version 1")
        first, committed, attempt = value.get("first"), value.get("committed"), value.get("attempt")
        if type(first) is not int or type(attempt) is not int or type(committed) not in (int, type(None)):
            raise ValueError(f"no numbers in {value!r}")
        return Record(first, committed, attempt)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a table holds of a query.

    Attributes:
        committed: The last batch that is in the table; None if none is.
        snapshot: The snapshot that holds it; None if that is no longer known.
        examined: Snapshots up to this one were looked at, now or earlier; 0 if there is none.
    """

    committed: int | None
    snapshot: Snapshot | None
    examined: int

    def holds(self, batch: int) -> bool:
        """Whether a batch, or a later one, is in the table: batches are committed in order."""
        return self.committed is not None and self.committed >= batch


class CommitLedger:
    """The ledger of one query in one table and branch. Calls block.

    Two drivers of the same query may be alive for a while, as when a cluster lost sight of the first. Each may
    overwrite the other's record: both are true. Who publishes first wins (`pypaimon.spark.publishing`).

    Args:
        directory: The table.
        user: Commit user: the same for the same query, also after a restart on another machine.
    """

    def __init__(self, directory: TableDirectory, user: str) -> None:
        self._directory = directory
        self._user = user
        self._consumers = ConsumerManager(
            directory.table.file_io, directory.table.table_path, directory.branch, store=directory.store
        )

    @property
    def user(self) -> str:
        """The query's commit user, which is also the id of its consumer."""
        return self._user

    def standing(self, batch: int) -> Standing:
        """What the table holds of the query, asked before `batch` is committed.

        Costs a GET for the record, the latest snapshot, and a GET for each snapshot since the last commit.

        Raises:
            CommitUnknownError: The commit of this batch was begun and cannot be found, but snapshots are missing.
            StoreError: The store failed.
        """
        record = self.read()
        self._directory.snapshots.forget()
        latest = self._directory.snapshots.latest_id() or 0
        first = record.first if record else 1
        missing: int | None = first if latest == 0 and first > 1 else None
        for snapshot_id, snapshot in self._backwards(latest, first):
            if snapshot is None:
                missing = snapshot_id
                break
            if snapshot.commit_user == self._user:
                return Standing(snapshot.commit_identifier, snapshot, latest)
        known = record.committed if record else None
        begun = record is not None and record.attempt >= batch and (known is None or known < batch)
        if missing is not None and begun:
            raise CommitUnknownError(self._user, batch, missing, latest)
        return Standing(known, None, latest)

    def begin(self, batch: int, standing: Standing) -> None:
        """Say that a batch is about to be committed, and keep the snapshots that will tell what became of it. Two PUTs.

        Must have returned before the commit is tried.
        """
        record = Record(standing.examined + 1, standing.committed, batch)
        self._directory.store.write_atomic(self._record_path, record.to_json())
        self._consumers.write(ConsumerName(self._user), Consumer(record.first))

    def read(self) -> Record | None:
        """The record; None if no commit was ever begun here. One GET.

        Raises:
            CorruptTableError: The file is damaged.
        """
        try:
            record: Record = self._directory.store.parse(self._record_path, Record.from_json)
        except FileNotFoundError:
            return None
        return record

    @property
    def _record_path(self) -> str:
        # Not a consumer: Java takes every file with that prefix for one, and lets consumers expire.
        return f"{self._consumers.directory}/{_RECORD_PREFIX}{self._user}"

    def _backwards(self, latest: int, first: int) -> Iterator[tuple[int, Snapshot | None]]:
        """Snapshots from the latest one down; asked for a few at a time."""
        window = 1
        while latest >= first:
            ids = range(latest, max(first, latest - window + 1) - 1, -1)
            found = self._directory.snapshots.get_snapshots_batch(ids)
            yield from ((each, found[each]) for each in ids)
            latest, window = ids[-1] - 1, min(window * 2, _WINDOW)
