"""A table that live Java and this library write by turns, and what must be in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming.commit.idempotent_commit import commit_batch, commit_compaction
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.write_internals import CommitMessage
from support.java.live import LiveJava
from support.tables.handles import batch_table
from support.tables.written_rows import rows_of, write

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class Shared:
    def __init__(self, java: LiveJava, warehouse: Path, *, keyed: bool, **options: str) -> None:
        self.java, self.warehouse, self.keyed = java, warehouse, keyed
        self.model: list[tuple[int, str]] = []
        fields = [["id", "BIGINT NOT NULL"], ["name", "STRING"]]
        keys = {"primary_keys": ["id"], "options": {"bucket": "1", "write-only": "true", **options}}
        java.call(
            "create", warehouse=str(warehouse), fields=fields, partition_keys=[],
            **(keys if keyed else {"primary_keys": [], "options": {}}),
        )  # fmt: skip

    @property
    def table(self) -> Any:
        return CatalogFactory.create({"warehouse": str(self.warehouse)}).get_table("d.t")

    def written(self, *rows: tuple[int, str]) -> CommitMessage:
        batch = rows_of(COLUMNS, rows, [0] * len(rows) if self.keyed else None)
        (message,) = write(self.table, batch, user="ours")
        assert isinstance(message, CommitMessage)
        return message

    def ours(self, *rows: tuple[int, str]) -> CommitMessage:
        message = self.written(*rows)
        commit_batch(PaimonTable(self.table), [message], overwrite=False)
        self._now(rows)
        return message

    def javas(self, *rows: tuple[int, str]) -> None:
        self.java.call("write", flushes=[[["+I", *row] for row in rows]])
        self._now(rows)

    def _now(self, rows: tuple[tuple[int, str], ...]) -> None:
        self.model = sorted((dict(self.model) | dict(rows)).items() if self.keyed else [*self.model, *rows])

    def compacted(self, identifier: int, before: list[Any], after: list[Any]) -> None:
        latest = TableDirectory.of(self.table).snapshots.latest_id()
        assert latest is not None
        message = CommitMessage((), 0, [], compact_before=before, compact_after=after)
        commit_compaction(
            CommitRequest(PaimonTable(self.table), "our-compactor", identifier, [message]), planned_at=latest
        )

    def check(self) -> None:
        reply = self.java.call("read", options={"scan.mode": "latest-full"})
        assert reply["end"] == "waiting", reply
        rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
        assert sorted((int(row[-2]), row[-1]) for row in rows) == self.model
        data = batch_table(self.table)
        assert sorted(zip(data["id"].to_pylist(), data["name"].to_pylist(), strict=True)) == self.model

    def manifests(self) -> int:
        directory = TableDirectory.of(self.table)
        latest = directory.snapshots.get_latest_snapshot()
        assert latest is not None
        return directory.manifests.manifest_list(latest.base_manifest_list).num_rows
