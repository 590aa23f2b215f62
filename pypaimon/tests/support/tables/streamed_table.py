"""The tables of the tests: made in a catalog of pypaimon, written by any writer, read by streams."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    EndOfScan,
    Plan,
    StreamReadBuilder,
    StreamTableRead,
    StreamWriteBuilder,
    stream_write_builder,
)
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.fault_file_io import SCHEME
from support.tables.handles import (
    Write,
    catalog_with_database,
    create_table,
    option_names,
    sorted_rows,
    write_by_pypaimon,
)

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
_WITH_KIND = KEYED.append(pa.field("kind", pa.string()))
USER = "writer"
"""The commit user of our writers."""

Row = tuple[str, int, str]
"""Row kind, key, value."""


class Table:
    """A table of any kind, and what happens to it: commits, expiry, rollbacks.

    The columns are (k, v) by default. Commits are made by pypaimon's batch writer, by our stream writer (`writer`, or
    `write` with `by`), or file by file (`support.tables.crafted_table`).

    Args:
        warehouse: Its directory; not used if `catalog` is given.
        name: The table's name without its database.
        primary_key: Make `k` the primary key, with a column `kind` from which pypaimon takes the row kind.
        database: The database; it is created if it does not exist.
        catalog: pypaimon's catalog, if not one over `warehouse`.
        options: More options of the table, named as for `option_names`.

    Attributes:
        columns: Its columns, the one of the row kind included.
    """

    def __init__(
        self,
        warehouse: Path,
        name: str = "t",
        *,
        primary_key: bool = False,
        columns: pa.Schema | None = None,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        database: str = "db",
        catalog: Any = None,
        **options: str,
    ) -> None:
        self.primary_key = primary_key
        self.options = option_names(options)
        if primary_key:
            columns, primary_keys = _WITH_KIND, ["k"]
            self.options = {"bucket": "2", "rowkind.field": "kind", **self.options}
        self.columns = COLUMNS if columns is None else columns
        self._keys = {"primary_keys": list(primary_keys) or None, "partition_keys": list(partition_keys) or None}
        self.catalog = catalog_with_database(warehouse, database, catalog)
        self.name = f"{database}.{name}"
        self._database = database
        self.create()
        self.path = Path(self.handle().table_path)
        self._writer = self.handle()

    def create(self) -> None:
        """Create it, or create it again after `drop`."""
        name = self.name.removeprefix(f"{self._database}.")
        create_table(self.catalog, name, self.columns, database=self._database, options=self.options, **self._keys)

    def drop(self) -> None:
        self.catalog.drop_table(self.name, False)

    def recreate(self) -> None:
        self.drop()
        self.create()

    # ---- handles and streams ----

    def handle(self, file_io: Any = None, **options: str) -> Any:
        """A new handle, which shares no cache with others.

        Args:
            file_io: Read and write through this FileIO, as in an object store.
        """
        table = self.catalog.get_table(self.name)
        table = table.copy(option_names(options)) if options else table
        if file_io is not None:
            table.file_io, table.table_path = file_io, SCHEME + str(table.table_path)
        return table

    def builder(
        self, file_io: Any = None, clock: Any = None, io_timeout: float = 60.0, **options: str
    ) -> StreamReadBuilder:
        """A builder on a new handle whose retries do not pause."""
        handle = self.handle(file_io, **options)
        for timeout in (60.0, io_timeout):
            TableDirectory.of(handle, timeout).store._common.sleep = lambda _: None
        builder = StreamReadBuilder(handle).with_io_timeout(io_timeout)
        builder._clock = clock or builder._clock
        return builder

    def state_builder(self, file_io: Any = None, **options: str) -> StreamReadBuilder:
        """A builder of a stream that reads the current state and ends."""
        return self.builder(file_io, **options).with_start("latest-full").with_end(latest=True)

    def writer(self, user: str = USER, **options: str) -> StreamWriteBuilder:
        """A builder of our writers on a new handle."""
        return stream_write_builder(self.handle(**options)).with_commit_user(user)

    # ---- commits ----

    def commit(self, rows: Iterable[Any], *, overwrite: bool = False, table: Any = None) -> int:
        """Commit rows and return the id of the new snapshot.

        Args:
            rows: Tuples of values, or of a row kind and values. In a table of (k, v) a key alone is enough.
        """
        self.write(self.arrow_rows(rows), overwrite=overwrite, table=table)
        return self.latest()

    def commit_each(self, keys: Iterable[int]) -> Table:
        """Make a commit for each key; the table."""
        for key in keys:
            self.commit([key])
        return self

    def write(
        self, rows: pa.Table, *, overwrite: bool = False, table: Any = None, by: Write = write_by_pypaimon
    ) -> None:
        """Commit an Arrow table."""
        by(table or self._writer, rows, overwrite=overwrite)

    def commit_files(self, keys: Iterable[int]) -> None:
        """Commit one snapshot of an append table with a file for each key."""
        self.write_files(self.arrow_rows([key]) for key in keys)

    def write_files(self, files: Iterable[pa.Table]) -> None:
        write_by_pypaimon(self._writer, *files)

    def arrow_rows(self, rows: Iterable[Any]) -> pa.Table:
        """Rows as `commit` takes them, as an Arrow table."""
        kind = self.options.get("rowkind.field")
        names = [name for name in self.columns.names if name != kind]
        changes = [_change(row, len(names)) for row in rows]
        columns = {name: [values[place] for _, values in changes] for place, name in enumerate(names)}
        if kind is not None:
            columns[kind] = [each for each, _ in changes]
        return pa.table(columns, schema=self.columns)

    # ---- what it holds ----

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted_rows(self.handle())

    def ids(self) -> list[int]:
        folder = self.path / "snapshot"
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(int(name.removeprefix("snapshot-")) for name in names if name.startswith("snapshot-"))

    def latest(self) -> int:
        return self.ids()[-1]

    def found_ids(self) -> tuple[int, ...]:
        """The ids from the earliest to the latest snapshot, found as Java does: by its hints, or else by listing."""
        ids, hints = self.ids(), dict[str, int]()
        for name in ("EARLIEST", "LATEST"):
            with suppress(FileNotFoundError):
                hints[name] = int((self.path / "snapshot" / name).read_text())
        first, last = hints.get("EARLIEST", 0), hints.get("LATEST", 0)
        return tuple(range(first if first in ids else ids[0], (last if last and last + 1 not in ids else ids[-1]) + 1))

    def snapshot(self, snapshot_id: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.snapshot_path(snapshot_id).read_text())
        return content

    def snapshot_path(self, snapshot_id: int) -> Path:
        return self.path / "snapshot" / f"snapshot-{snapshot_id}"

    def files(self, suffix: str) -> list[Path]:
        """All files in its directory with a suffix."""
        return sorted(self.path.rglob(f"*{suffix}"))

    def data_files(self) -> list[Path]:
        return [path for path in self.files(".parquet") if path.parent.name.startswith("bucket")]

    # ---- what happens to it ----

    def expire(self, keep_from: int) -> None:
        """Remove the snapshots before one, as expiry does."""
        expire(self.path, keep_from)

    def rollback(self, snapshot_id: int) -> None:
        self.handle().rollback_to(snapshot_id)

    def copy(self, warehouse: Path) -> Table:
        """Copy its warehouse and return the copy of the table."""
        shutil.copytree(self.path.parents[1], warehouse)
        other = copy.copy(self)
        other.catalog = catalog_with_database(warehouse, self._database)
        other.path = Path(other.handle().table_path)
        other._writer = other.handle()
        return other


def expire(path: Path, keep_from: int, manifests: Path | None = None) -> None:
    """Remove the snapshots before one with their manifest lists, as expiry does. Data files stay.

    Args:
        path: The directory of the table or of a branch.
        manifests: The directory of the manifests, if it is not in `path`.
    """
    manifests = manifests or path / "manifest"
    for file in (path / "snapshot").glob("snapshot-*"):
        if int(file.name.removeprefix("snapshot-")) < keep_from:
            snapshot = json.loads(file.read_text())
            for kind in ("baseManifestList", "deltaManifestList", "changelogManifestList"):
                if snapshot.get(kind):
                    (manifests / snapshot[kind]).unlink(missing_ok=True)
            file.unlink()
    (path / "snapshot" / "EARLIEST").write_text(str(keep_from))


def _change(row: Any, width: int) -> tuple[str, tuple[Any, ...]]:
    """The row kind and the values of a row that is given to `commit`."""
    if isinstance(row, int):
        return "+I", (row, f"v{row}")
    if len(row) == width:
        return "+I", tuple(row)
    kind, *values = row
    return kind, tuple(values)


def rows(read: StreamTableRead, plan: Plan) -> list[Row]:
    """The rows of a plan, with +I if the read has no row kinds."""
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


def all_keys(builder: StreamReadBuilder) -> list[int]:
    """The keys of a stream until nothing new is there, or the end."""
    with builder.new_streaming_scan() as scan:
        return keys(builder.new_read(), available(scan))


def snapshots(plans: Sequence[Plan]) -> list[int]:
    return [plan.snapshot_id for plan in plans]


def at_every_change(monkeypatch: pytest.MonkeyPatch, look: Callable[[], object]) -> None:
    """Look at a table before and after each small file that this library writes or deletes."""
    for method in ("delete", "write_atomic"):
        original = getattr(Store, method)

        def change(self: Store, *args: Any, original: Any = original) -> Any:
            look()
            result = original(self, *args)
            look()
            return result

        monkeypatch.setattr(Store, method, change)
