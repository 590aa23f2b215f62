"""`SmallTable`: a real table in a directory, for tests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.schema.schema import Schema

from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.option_keys import BUCKET_KEY, CHANGELOG_PRODUCER
from pypaimon.streaming.paimon.internals import PyarrowFieldParser
from pypaimon.streaming.read_builder import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.targets.changes import key_columns
from pypaimon.streaming.writing.builder import stream_write_builder

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("number", pa.int32()),
        ("amount", pa.float64()),
    ]
)

Change = Mapping[str, Any] | tuple[str, Mapping[str, Any]]
"""An inserted row, or a row kind (`+I -U +U -D`) and a row."""


class SmallTable:
    """A real table of two buckets in a directory, for tests.

    A table with keys has the `changelog-producer` `input`: its changelog is what was written.

    Args:
        directory: The warehouse; it is made if it does not exist.
        keys: The column of the primary key, or several; empty: an append table.
        columns: Its columns; by default `id`, `name`, `number` and `amount`.
        name: Its name, after its database.
        options: More options of the table.

    Attributes:
        catalog: pypaimon's catalog of the table.
        name: The name of the table.
    """

    def __init__(
        self,
        directory: str | Path,
        keys: str | Sequence[str] = "id",
        columns: pa.Schema | None = None,
        name: str = "db.small",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog: Any = CatalogFactory.create({"warehouse": str(directory)})
        self.name = name
        columns = COLUMNS if columns is None else columns
        keys = key_columns(keys)
        option, value = (CHANGELOG_PRODUCER, "input") if keys else (BUCKET_KEY, columns.names[0])
        self._schema = Schema.from_pyarrow_schema(
            columns, primary_keys=keys or None, options={"bucket": "2", option.name: value, **(options or {})}
        )
        self.catalog.create_database(name.partition(".")[0], True)
        self.catalog.create_table(name, self._schema, False)
        # A table is known by the millisecond in which it was created, so the next one gets another.
        created = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == created:
            pass

    @property
    def table(self) -> Any:
        """pypaimon's table, with its newest schema."""
        return self.catalog.get_table(self.name)

    def builder(self) -> StreamReadBuilder:
        """A stream that ends at the latest snapshot and follows changes of the columns."""
        return stream_read_builder(self.table).with_on_schema_change("follow").with_end(latest=True)

    def commit(self, *changes: Change) -> int:
        """Commit changes, in order.

        Returns:
            The id of the snapshot.

        Raises:
            PaimonStreamError: A row does not fit the table.
        """
        given = [("+I", change) if isinstance(change, Mapping) else change for change in changes]
        rows = pa.Table.from_pylist([dict(row) for _, row in given], schema=self._columns())
        kinds = [kind for kind, _ in given]
        with stream_write_builder(self.table).open_sync() as writer:
            # A table without keys takes no row kinds, not even `+I`.
            writer.write(rows if {*kinds} == {"+I"} else rows.append_column(ROW_KIND, pa.array(kinds, pa.string())))
            snapshot = writer.commit().snapshot_id
        assert snapshot is not None
        return snapshot

    def alter(self, *changes: Any) -> None:
        """Change the columns.

        Args:
            changes: pypaimon's `SchemaChange`s.
        """
        self.catalog.alter_table(self.name, list(changes))

    def rows(self) -> list[dict[str, Any]]:
        with self.builder().with_start("latest-full").open_sync() as stream:
            return [row for batch in stream for row in batch.rows.to_pylist()]

    def expire(self) -> None:
        """Remove all snapshots but the latest one, as if they were older than the table keeps them."""
        folder = Path(self.table.table_path) / "snapshot"
        paths = {int(path.name.removeprefix("snapshot-")): path for path in folder.glob("snapshot-*")}
        for number, path in paths.items():
            if number < max(paths):
                path.unlink()
        (folder / "EARLIEST").write_text(str(max(paths)), encoding="utf-8")

    def make_anew(self) -> None:
        """Drop the table and create it again, with its first columns."""
        self.catalog.drop_table(self.name, False)
        self.catalog.create_table(self.name, self._schema, False)

    def _columns(self) -> pa.Schema:
        return pa.schema([PyarrowFieldParser.from_paimon_field(field) for field in self.table.fields])
