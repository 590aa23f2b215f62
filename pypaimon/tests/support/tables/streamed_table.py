"""Real tables for tests of streams, written by pypaimon, and what may happen to their directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import AsyncStreamingTableScan, EndOfScan, Plan, StreamReadBuilder, StreamTableRead
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.fault_file_io import SCHEME

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
_PRIMARY = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("kind", pa.string())])

Row = tuple[str, int, str]
"""Row kind, key, value."""


class Table:
    """A table `db.<name>` of (k, v); with a primary key `k` also `kind`, from which pypaimon takes the row kind.

    Attributes:
        catalog: Where it lies.
        name: Its full name.
        path: Its directory.
    """

    def __init__(
        self, warehouse: Path, name: str = "t", *, primary_key: bool = False, catalog: Any = None, **options: str
    ) -> None:
        self.catalog = catalog or CatalogFactory.create({"warehouse": str(warehouse)})
        self.catalog.create_database("db", True)
        self.name = f"db.{name}"
        self.primary_key = primary_key
        self.options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        if primary_key:
            self.options = {"bucket": "2", "rowkind.field": "kind", **self.options}
        self.create()
        self.path = Path(self.handle().table_path)
        self._writer = self.handle()

    def create(self) -> None:
        """Create it, again after `drop`."""
        keys = ["k"] if self.primary_key else None
        columns = _PRIMARY if self.primary_key else COLUMNS
        self.catalog.create_table(
            self.name, Schema.from_pyarrow_schema(columns, primary_keys=keys, options=self.options), False
        )

    def drop(self) -> None:
        """Remove it."""
        self.catalog.drop_table(self.name, False)

    def handle(self, file_io: Any = None, **options: str) -> Any:
        """A fresh handle, which shares no cache with others; through a FileIO as in an object store."""
        table = self.catalog.get_table(self.name)
        table = table.copy(options) if options else table
        if file_io is not None:
            table.file_io, table.table_path = file_io, SCHEME + str(table.table_path)
        return table

    def builder(
        self, file_io: Any = None, clock: Any = None, io_timeout: float = 60.0, **options: str
    ) -> StreamReadBuilder:
        """A builder on a fresh handle whose retries do not pause."""
        handle = self.handle(file_io, **options)
        for timeout in (60.0, io_timeout):
            TableDirectory.of(handle, timeout).store._common.sleep = lambda _: None
        return StreamReadBuilder(handle, clock=clock).with_io_timeout(io_timeout)

    def commit(self, rows: Iterable[Any], *, overwrite: bool = False, table: Any = None) -> int:
        """Commit keys, (key, value) or (kind, key, value); the id of the new snapshot."""
        changes = [_row(each) for each in rows]
        arrays = {"k": [key for _, key, _ in changes], "v": [value for _, _, value in changes]}
        columns = COLUMNS
        if self.primary_key:
            arrays["kind"], columns = [kind for kind, _, _ in changes], _PRIMARY
        self.write(pa.table(arrays, schema=columns), overwrite=overwrite, table=table)
        return self.latest()

    def write(self, rows: pa.Table, *, overwrite: bool = False, table: Any = None) -> None:
        """Commit an Arrow table."""
        builder = (table or self._writer).new_batch_write_builder()
        if overwrite:
            builder = builder.overwrite()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def commit_files(self, keys: Iterable[int]) -> None:
        """One snapshot of an append table with a file for each key."""
        builder = self._writer.new_batch_write_builder()
        messages = []
        for key in keys:
            writer = builder.new_write()
            writer.write_arrow(pa.table({"k": [key], "v": [f"v{key}"]}))
            messages += writer.prepare_commit()
            writer.close()
        builder.new_commit().commit(messages)

    def ids(self) -> list[int]:
        """Ids of the snapshots that are there."""
        names = (path.name for path in (self.path / "snapshot").glob("snapshot-*"))
        return sorted(int(name.removeprefix("snapshot-")) for name in names)

    def latest(self) -> int:
        """Id of the latest snapshot."""
        return self.ids()[-1]

    def snapshot(self, snapshot_id: int) -> dict[str, Any]:
        """The content of a snapshot file."""
        content: dict[str, Any] = json.loads(self.snapshot_path(snapshot_id).read_text())
        return content

    def snapshot_path(self, snapshot_id: int) -> Path:
        """Where a snapshot lies."""
        return self.path / "snapshot" / f"snapshot-{snapshot_id}"

    def expire(self, keep_from: int) -> None:
        """Remove snapshots before one, as expiry does."""
        expire(self.path, keep_from)

    def rollback(self, snapshot_id: int) -> None:
        """Roll back with pypaimon."""
        self.handle().rollback_to(snapshot_id)

    def copy(self, warehouse: Path) -> Table:
        """The same table in another warehouse."""
        shutil.copytree(self.path.parents[1], warehouse)
        other: Table = object.__new__(Table)
        other.__dict__.update(self.__dict__)
        other.catalog = CatalogFactory.create({"warehouse": str(warehouse)})
        other.path = Path(other.handle().table_path)
        other._writer = other.handle()
        return other


def expire(path: Path, keep_from: int) -> None:
    """Remove the snapshots of a table before one, as expiry does: their lists and snapshot files; their data lives on.

    Args:
        path: The table's directory.
        keep_from: The earliest snapshot that is left.
    """
    for file in (path / "snapshot").glob("snapshot-*"):
        if int(file.name.removeprefix("snapshot-")) < keep_from:
            snapshot = json.loads(file.read_text())
            for kind in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
                if snapshot.get(kind):
                    (path / "manifest" / snapshot[kind]).unlink(missing_ok=True)
            file.unlink()
    (path / "snapshot" / "EARLIEST").write_text(str(keep_from))


def _row(value: Any) -> Row:
    if isinstance(value, int):
        return "+I", value, f"v{value}"
    if len(value) == 2:
        return "+I", value[0], value[1]
    kind, key, text = value
    return kind, key, text


def rows(read: StreamTableRead, plan: Plan) -> list[Row]:
    """The rows of a plan; +I where the read does not say."""
    table = read.to_arrow(plan.splits())
    kinds = table["_row_kind"].to_pylist() if "_row_kind" in table.column_names else ["+I"] * table.num_rows
    return list(zip(kinds, table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def keys(read: StreamTableRead, plans: Iterable[Plan]) -> list[int]:
    """The keys of plans, in their order."""
    return [key for plan in plans for _, key, _ in rows(read, plan)]


def available(scan: AsyncStreamingTableScan) -> list[Plan]:
    """All plans until nothing new is there, or the end."""
    plans = []
    try:
        while (plan := scan.plan()) is not None:
            plans.append(plan)
    except EndOfScan:
        pass
    return plans


def snapshots(plans: Sequence[Plan]) -> list[int]:
    """Their snapshots."""
    return [plan.snapshot_id for plan in plans]
