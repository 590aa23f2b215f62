"""The columns `_snapshot_id` and `_commit_time`: the commit of each row."""

from __future__ import annotations

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.system_columns import ROW_KIND

_FIELDS = (pa.field("_snapshot_id", pa.int64()), pa.field("_commit_time", pa.timestamp("ms", "UTC")))


def with_fields(schema: pa.Schema) -> pa.Schema:
    """The schema with both columns after the row kind.

    Raises:
        StreamConfigError: The table has a column of that name.
    """
    for field in _FIELDS:
        if field.name in schema.names:
            raise StreamConfigError(f"commit columns: the table has a column {field.name!r}, so leave one of them out")
    at = _place(schema)
    return pa.schema([*list(schema)[:at], *_FIELDS, *list(schema)[at:]], schema.metadata)


def with_columns(rows: pa.Table, plan: Plan) -> pa.Table:
    """The rows of a plan with both columns, of the last snapshot of the plan. Raises as `with_fields`."""
    schema, at = with_fields(rows.schema), _place(rows.schema)
    commit = zip((plan.snapshot_id, plan.commit_time), _FIELDS, strict=True)
    added = [pa.repeat(pa.scalar(value, field.type), rows.num_rows) for value, field in commit]
    return pa.Table.from_arrays([*rows.columns[:at], *added, *rows.columns[at:]], schema=schema)


def _place(schema: pa.Schema) -> int:
    return int(schema.names[:1] == [ROW_KIND])
