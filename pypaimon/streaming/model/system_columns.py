"""Columns that Paimon adds to those of a table, in files and in the rows of a stream."""

from __future__ import annotations

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.plan import Plan

SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
"""int64: the newer of two records of a key has the greater number."""
VALUE_KIND = "_VALUE_KIND"
"""int8: what a record does to its key, see `row_kinds`."""
ROW_ID = "_ROW_ID"
"""int64: the id of a row in tables with row tracking."""
WRITTEN_NUMBER = "_WRITTEN_NUMBER"
"""int64: the sequence number that a record was written with, if another one replaces it; only for merging."""
LEVEL = "_LEVEL"
"""int32: level of the record's file in the merge tree; never stored, only for merging."""
PLACE = "_PLACE"
"""int64: the place of a record that may have to be found again, else -1; never stored, only for merging."""
KEY_PREFIX = "_KEY_"
"""Prefix of the copies of the key columns in files of primary-key tables."""
ROW_KIND = "_row_kind"
"""string: the kind of a row, `+I`, `-U`, `+U` or `-D`, as users see it."""
SYSTEM_TYPES = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8(), ROW_ID: pa.int64()}
"""Arrow types of the system columns in files."""
_COMMIT_FIELDS = (pa.field("_snapshot_id", pa.int64()), pa.field("_commit_time", pa.timestamp("ms", "UTC")))


def with_commit_fields(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns `_snapshot_id` and `_commit_time`, the commit of each row, after the row kind.

    Raises:
        StreamConfigError: The table has a column of that name.
    """
    for field in _COMMIT_FIELDS:
        if field.name in schema.names:
            raise StreamConfigError(f"commit columns: the table has a column {field.name!r}, so leave one of them out")
    at = _place(schema)
    return pa.schema([*list(schema)[:at], *_COMMIT_FIELDS, *list(schema)[at:]], schema.metadata)


def with_commit_columns(rows: pa.Table, plan: Plan) -> pa.Table:
    """The rows of a plan with both columns, of the last snapshot of the plan. Raises as `with_commit_fields`."""
    schema, at = with_commit_fields(rows.schema), _place(rows.schema)
    commit = zip((plan.snapshot_id, plan.commit_time), _COMMIT_FIELDS, strict=True)
    added = [pa.repeat(pa.scalar(value, field.type), rows.num_rows) for value, field in commit]
    return pa.Table.from_arrays([*rows.columns[:at], *added, *rows.columns[at:]], schema=schema)


def _place(schema: pa.Schema) -> int:
    return int(schema.names[:1] == [ROW_KIND])
