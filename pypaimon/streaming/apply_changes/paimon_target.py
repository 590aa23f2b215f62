"""`PaimonTarget`: another Paimon table that follows a stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import DataField, PyarrowFieldParser
from pypaimon.streaming.model.position import Position

_WHOLE_TABLE = {"dynamic-partition-overwrite": "false"}


class PaimonTarget:
    """Another Paimon table that follows a stream, one commit per batch.

    With a primary key, to apply a batch twice is to apply it once; without one, rows come twice when a batch does.
    Deletes need a target with the option `rowkind.field`, whose column says what each row is. A full state replaces all
    rows of the table: its first batch overwrites them, if there are any.

    Args:
        table: pypaimon's table. Columns are matched by name and cast; those that a batch lacks become null.
        shared: Others write to the table too, such as the other shards of a stream. A full state is added then, and one
            in the midst of a stream is refused, for it would leave rows behind that are gone.

    Raises:
        UnsupportedTableError: pypaimon cannot write a column of the table.
    """

    def __init__(self, table: Any, *, shared: bool = False) -> None:
        self._table = table
        self._shared = shared
        self._keys: list[str] = list(table.primary_keys)
        self._kind: str | None = table.table_schema.options.get("rowkind.field")
        self._schema = pa.schema([_arrow_field(field) for field in table.fields])

    def position(self) -> Position | None:
        """None: the table does not say how far it is, so that `replicate` begins with the state each time."""
        return None

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch and commit it. What was written of one that fails before its commit is deleted.

        Raises:
            StreamConfigError: A key column is missing, the table lacks a column of the batch or cannot hold its values,
                or there are deletes that the table cannot take. Nothing was written.
        """
        sets, removals = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        self._check_columns(sets.schema)
        tables = [self._as_target(sets, "+I")]
        if removals is not None and removals.num_rows:
            if self._kind is None:
                raise StreamConfigError("there are deletes: the target table needs the option 'rowkind.field'")
            tables.append(self._as_target(removals, "-D"))
        replaces = batch.begins_state and self._replaces(batch)
        if batch.num_rows or replaces:
            self._commit(pa.concat_tables(tables), replaces)

    def _replaces(self, batch: AnyBatch) -> bool:
        """Whether the full state that begins has to take the place of rows."""
        if self._shared:
            if batch.plan_before is not None:
                raise StreamConfigError(
                    "a full state in the midst of a stream cannot replace its part of a table that is shared: empty "
                    "the target and begin all its streams anew"
                )
            return False
        latest = self._table.snapshot_manager().get_latest_snapshot()
        return latest is not None and latest.total_record_count != 0

    def _commit(self, rows: pa.Table, replaces: bool) -> None:
        table = self._table.copy(_WHOLE_TABLE) if replaces else self._table
        builder = table.new_batch_write_builder()
        if replaces:
            builder = builder.overwrite()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            try:
                write.write_arrow(rows)
                messages = write.prepare_commit()
            except BaseException:
                # No commit was tried, so that no snapshot names these files. Once one was, nobody can be sure.
                write.abort()
                raise
            commit.commit(messages)
        finally:
            write.close()
            commit.close()

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

    def _as_target(self, rows: pa.Table, kind: str) -> pa.Table:
        columns = []
        for field in self._schema:
            if field.name == self._kind:
                columns.append(pa.repeat(kind, rows.num_rows).cast(field.type))
            elif field.name in rows.schema.names:
                columns.append(_cast(rows[field.name], field))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


def _arrow_field(field: DataField) -> pa.Field:
    try:
        return PyarrowFieldParser.from_paimon_field(field)
    except ValueError as error:
        raise UnsupportedTableError(
            f"the target table has a column '{field.name}' of type {field.type}, which pypaimon cannot write ({error})"
        ) from error


def _cast(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StreamConfigError(
            f"values of {values.type} do not fit column {field.name} ({field.type}): {error}"
        ) from error
