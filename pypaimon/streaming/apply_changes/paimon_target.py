"""`PaimonTarget`: another Paimon table that follows a stream exactly once."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.paimon_table import PaimonRows
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.internals import AtomicType, DataField, DataType, PyarrowFieldParser, TableSchema
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.options.arguments import needed
from pypaimon.streaming.writing.table_writer import TableWriter
from pypaimon.streaming.writing.writer_settings import WriterSettings

_USER = "pypaimon-copy"


class PaimonTarget:
    """Another Paimon table that follows a stream exactly once, one commit per plan, or per `commit_interval_seconds`.

    The rows of a plan and the position after it are one commit: a program that dies goes on at `position()` with
    nothing lost and nothing twice, also without a primary key. `replicate(builder, target)` begins there. What a plan
    that was left in its midst has written is deleted.

    A table with a primary key takes deletes and updates with their kinds; one with the option `rowkind.field` notes the
    kind of each row in that column. A full state replaces all rows of the table, in the commit of its first plan.

    A table whose own options would make other rows of the changes is refused, unless it is shared: a merge engine other
    than `deduplicate`, `sequence.field`, `ignore-delete`, `record-level.expire-time`.

    Args:
        table: pypaimon's table. Columns are matched by name and cast; those that a batch lacks become null.
        shared: Others write to the table too, such as the other shards of a stream. A full state is added then, and one
            in the midst of a stream is refused, for it would leave rows behind that are gone.
        commit_user: Under whom the table notes the position: the same after each restart, another one for each stream.
            Default: `pypaimon-copy`; where the table is shared there is none, and a new target begins anew:
            `close` this one then.
        replace: The state of the source may replace rows that another stream, or somebody else, has written.

    Raises:
        StreamConfigError: `table` is no table.
        UnsupportedTableError: pypaimon cannot write a column of the table.
    """

    _follows_columns = False

    def __init__(
        self, table: Any, *, shared: bool = False, commit_user: str | None = None, replace: bool = False
    ) -> None:
        needed("PaimonTarget: table", table, "a table of a catalog of pypaimon", "table_schema", "identifier")
        self._table = table
        self._resumes = commit_user is not None or not shared
        self._user = commit_user or (f"{_USER}-{uuid4()}" if shared else _USER)
        self._kind: str | None = table.table_schema.options.get("rowkind.field")
        self._schema = pa.schema([_arrow_field(field) for field in table.fields])
        self._rows = PaimonRows(
            table, self._open_writer, self._fitted, shared=shared, follows_columns=self._follows_columns
        )
        self._plans = PlanTransactions(self._rows, replace)

    def position(self) -> Position | None:
        """Where to go on; None: the table holds nothing of the stream yet, or is shared and has no commit user."""
        return self._plans.position() if self._resumes else None

    def apply(self, batch: AnyBatch) -> None:
        """Write a batch, and commit it with the last one of its plan. A plan that the table holds is passed over.

        An error takes back what was written of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: The table lacks a column of the batch or cannot hold its values, it has no primary key
                and there are deletes, or the batch does not go on where the table stands.
            TableChangedError: One of both tables was rolled back, dropped or made anew.
            PaimonStreamError: As the writer of the table says.
        """
        self._plans.apply(batch)

    def close(self) -> None:
        """End. What was written of a plan that is not at its end is deleted. Idempotent.

        A table that is shared, without commit user, keeps the snapshots behind the target's newest commit until then.
        A batch that comes later opens the target again.
        """
        self._plans.leave()
        self._rows.close()

    def _open_writer(self) -> TableWriter:
        return TableWriter(self._table, WriterSettings(self._user, is_named=self._resumes))

    def _fitted(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        kinds = rows[ROW_KIND] if ROW_KIND in rows.schema.names and ROW_KIND not in self._schema.names else None
        values = rows if kinds is None else rows.drop_columns([ROW_KIND])
        self._check_columns(values.schema)
        types = {field.name: field.type for field in schema.fields}
        columns = [
            self._cast(values[field.name], field, types.get(field.name))
            if field.name in values.schema.names
            else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        fitted = pa.Table.from_arrays(columns, schema=self._schema)
        return fitted if kinds is None else fitted.append_column(ROW_KIND, kinds)

    def _cast(self, values: pa.ChunkedArray, field: pa.Field, source: DataType | None) -> pa.ChunkedArray:
        target = next(each.type for each in self._table.fields if each.name == field.name)
        if isinstance(source, AtomicType) and isinstance(target, AtomicType) and not _are_same(source, target):
            try:
                convert = cast(source, target, exact=True, zone=zone_of(self._table.table_schema.options))
                chunks = [convert(chunk) for chunk in values.chunks]
            except CastError as error:
                raise StreamConfigError(f"values do not fit column {field.name} ({field.type}): {error}") from error
            return pa.chunked_array(chunks, field.type)
        return _as_arrow(values, field)

    def _check_columns(self, given: pa.Schema) -> None:
        missing = [name for name in given.names if name not in self._schema.names]
        if missing:
            raise StreamConfigError(
                f"the target table has no column {', '.join(missing)}: add it and load the table again, or leave it "
                "out of the stream with with_projection(...)"
            )
        needed = [field.name for field in self._schema if not field.nullable and field.name != self._kind]
        if lacking := [name for name in needed if name not in given.names]:
            raise StreamConfigError(f"the target table needs {', '.join(lacking)}, which the batch lacks")


def _arrow_field(field: DataField) -> pa.Field:
    try:
        return PyarrowFieldParser.from_paimon_field(field)
    except ValueError as error:
        raise UnsupportedTableError(
            f"the target table has a column '{field.name}' of type {field.type}, which pypaimon cannot write ({error})"
        ) from error


def _are_same(one: AtomicType, other: AtomicType) -> bool:
    return str(one.type).upper() == str(other.type).upper()


def _as_arrow(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StreamConfigError(
            f"values of {values.type} do not fit column {field.name} ({field.type}): {error}"
        ) from error
