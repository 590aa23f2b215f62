"""`RowStore`: holds the rows of a live table; and how rows change when the columns of their table do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.errors import SchemaChangedError, UnsupportedContentError
from pypaimon.streaming.files.casts import CastError
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.paimon.internals import TableSchema

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of a table that rows show.

    Attributes:
        snapshot_id: The last snapshot whose changes are included; None: the table had none.
        commit_time: When it was committed (aware, UTC); None: there is no snapshot.
    """

    snapshot_id: int | None = None
    commit_time: datetime | None = None


class RowStore(Protocol):
    """Rows by key. One thread applies plans. Any thread may read meanwhile, and sees each plan as a whole or not."""

    @property
    def table_version(self) -> TableVersion: ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""

    def __len__(self) -> int: ...

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key, or None."""

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order; a row of nulls for a key without a row."""

    def to_arrow(self) -> pa.Table:
        """All rows, in no order."""

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection in which the rows are a view of this name."""

    def apply(self, batch: BlockingBatch, table_version: TableVersion | None) -> RowStore:
        """Apply a batch of a plan.

        Args:
            table_version: Publish the rows as this version. None: readers do not see the changes yet.
        """

    def publish(self, table_version: TableVersion) -> None:
        """Let readers see all that was applied, as a version of the table."""


def are_same_columns(names: list[str], old: TableSchema, new: TableSchema) -> bool:
    """Whether columns of these names are the same fields in two schemas, nested fields included."""
    if old.id == new.id:
        return True
    # Unlike the text of a type, its dictionary has the ids of nested fields.
    before, now = ({field.name: (field.id, field.type.to_dict()) for field in each.fields} for each in (old, new))
    return all(before.get(name) == now.get(name) for name in names)


def in_schema(rows: pa.Table, old: TableSchema, new: TableSchema, wanted: pa.Schema) -> pa.Table:
    """Convert rows to the columns of a newer schema, as a batch read does.

    Raises:
        SchemaChangedError: A value cannot be cast to the new type of its column, or other columns are read.
    """
    fields = {field.name: field for field in new.fields}
    names = {field.id: field.name for field in old.fields}
    for name in wanted.names:
        field = fields.get(name)
        if field is None or names.get(field.id, rows.schema.names[0]) not in rows.schema.names:
            raise SchemaChangedError(old.id, new.id, f"a live table cannot follow column {name!r}")
    try:
        columns = map_columns(
            rows.schema, old.fields, [fields[name] for name in wanted.names], exact=False, zone=zone_of(new.options)
        )
        batches = [
            pa.RecordBatch.from_arrays([column.read(batch) for column in columns], wanted.names)
            for batch in rows.to_batches()
        ]
        return pa.Table.from_batches(batches).cast(wanted) if batches else wanted.empty_table()
    except (CastError, UnsupportedContentError, pa.ArrowInvalid) as error:
        raise SchemaChangedError(old.id, new.id, f"a live table cannot follow: {error}") from error
