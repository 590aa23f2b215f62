"""A table, queries that write it and may die anywhere, other writers and expiry: what the sink's tests are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import Assumption, CommitReport, CommitRequest
from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from pypaimon.streaming.errors import CommitUnknownError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.tables import written_rows
from support.tables.handles import batch_table

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
OTHER = -1


class World:
    """One table and what was done to it.

    Attributes:
        done: Whether the next batch is in the table already, though Spark has not logged it.
        next_batch: The batch that Spark will run, again or for the first time.
        unknown: How often it could not be known whether a batch was committed.
    """

    def __init__(self, directory: Path, *, keyed: bool = False, overwrite: bool = False) -> None:
        self.catalog = CatalogFactory.create({"warehouse": str(directory)})
        self.catalog.create_database("db", True)
        keys = {"primary_keys": ["id"], "options": {"bucket": "2"}} if keyed else {}
        self.catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, **keys), False)
        self.keyed, self.overwrite = keyed, overwrite
        self.path = Path(str(self.table().table_path))
        self.model: list[tuple[int, int]] = []
        self.next_batch, self.done = 0, False
        self.unknown = 0
        self._forced = False

    def table(self, file_io: MortalFileIO | None = None) -> Any:
        """A fresh handle, as a new process has it."""
        table = self.catalog.get_table("db.t")
        if file_io is not None:
            table.file_io = file_io
        return table

    def rows_of(self, batch: int) -> list[tuple[int, int]]:
        """What a batch holds: new rows, or new values of a few keys."""
        return [(batch % 3, batch), (10 + batch % 2, batch)] if self.keyed else [(batch, 0), (batch, 1)]

    def attempt(
        self, batch: int, file_io: MortalFileIO, user: str = "query", assumption: Assumption | None = None
    ) -> CommitReport:
        """Run a batch to the end: tasks, then commit."""
        messages = write(self.table(file_io), self.rows_of(batch), user, self.overwrite)
        return commit_once(
            CommitRequest(
                PaimonTable(self.table(file_io)),
                user,
                batch,
                messages,
                overwrite=self.overwrite,
                assumption=assumption or Assumption(),
                is_first_attempt=True,
            )
        )

    def run(
        self, steps: int | None = None, *, logged: bool = True, meanwhile: tuple[int, Callable[[], None]] | None = None
    ) -> None:
        """Run the next batch; the process may die at a request, or before Spark logs the batch."""
        file_io = MortalFileIO(steps)
        file_io.interruption = meanwhile
        try:
            self.attempt(self.next_batch, file_io)
        except Killed:
            self.observe()
            return
        except CommitUnknownError:
            assert self._forced, "nothing was deleted by force, and yet it is not known"
            self.unknown += 1
            batch = self.next_batch
            self.attempt(
                batch, MortalFileIO(), assumption=Assumption(batch, None) if self.done else Assumption(None, batch)
            )
        self.observe()
        assert self.done
        if logged:
            self.next_batch, self.done = self.next_batch + 1, False

    def observe(self) -> None:
        """See whether the next batch has come into the table. Nothing else may have."""
        rows = self.rows()
        if not self.done and rows == self.after(self.next_batch):
            self.model, self.done = rows, True
        assert rows == self.model, (rows, self.model, self.next_batch)

    def twin(self) -> None:
        """Another driver of the same query, which has not seen that the first one is dead, runs the next batch."""
        try:
            self.attempt(self.next_batch, MortalFileIO())
        except CommitUnknownError:
            assert self._forced

    def other(self) -> None:
        """Another writer appends a row, or changes a key of its own."""
        rows = [(OTHER, len(self.model))]
        commit_once(
            CommitRequest(PaimonTable(self.table()), "other", self.latest(), write(self.table(), rows, "other", False))
        )
        self.model = applied(self.model, rows, self.keyed)

    def after(self, batch: int) -> list[tuple[int, int]]:
        return applied([] if self.overwrite else self.model, self.rows_of(batch), self.keyed)

    def rows(self) -> list[tuple[int, int]]:
        data = batch_table(self.table())
        return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))

    def check(self) -> None:
        """No row too many, none too few, and no batch in two snapshots."""
        self.observe()
        commits = [
            (value["commitUser"], value["commitIdentifier"])
            for value in (json.loads(path.read_bytes()) for path in (self.path / "snapshot").glob("snapshot-*"))
        ]
        assert len(set(commits)) == len(commits)

    def latest(self) -> int:
        names = [path.name for path in (self.path / "snapshot").glob("snapshot-*")]
        return max((int(name.rpartition("-")[2]) for name in names), default=0)

    def expire(self, *, by_force: bool = False) -> None:
        """Delete all snapshots but the latest; consumers keep theirs, unless by force."""
        kept = self.latest()
        fence = ConsumerManager(self.table().file_io, str(self.path)).min_next_snapshot()
        if by_force:
            self._forced = True
            for name in (self.path / "consumer").glob("consumer-*"):
                name.unlink()
        elif fence is not None:
            kept = min(kept, fence)
        for number in range(1, kept):
            (self.path / "snapshot" / f"snapshot-{number}").unlink(missing_ok=True)

    def data_files(self) -> set[str]:
        return {name for _, _, names in os.walk(self.path) for name in names if name.startswith("data-")}

    def live_files(self) -> set[str]:
        plan = self.table().new_read_builder().new_scan().plan()
        return {file.file_name for split in plan.splits() for file in split.files}


def write(table: Any, rows: list[tuple[int, int]], user: str, overwrite: bool) -> list[Any]:
    """Commit messages of a task that writes rows."""
    kinds = [0] * len(rows) if table.is_primary_key_table else None
    return written_rows.write(table, written_rows.rows_of(COLUMNS, rows, kinds), user=user, overwrite=overwrite)


def applied(state: list[tuple[int, int]], rows: list[tuple[int, int]], keyed: bool) -> list[tuple[int, int]]:
    return sorted((dict(state) | dict(rows)).items() if keyed else [*state, *rows])
