"""The columns of a table's system tables: `$audit_log`, `$binlog`, `$row_tracking`, `$ro`.

Java's rules: docs/java-semantics.md#system-tables.
"""

from __future__ import annotations

from typing import Literal

from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import AtomicType, DataField, SpecialFields, TableSchema

View = Literal["audit_log", "binlog", "row_tracking", "ro"]

VIEWS: tuple[View, ...] = ("audit_log", "binlog", "row_tracking", "ro")
LOGS: tuple[View, ...] = ("audit_log", "binlog")
"""Views that have the row kind in a column."""

ROWKIND = "rowkind"
ROWKIND_FIELD = DataField(2147483643, ROWKIND, AtomicType("STRING"))


def fields(schema: TableSchema, view: View | None) -> list[DataField]:
    """All columns of a view, as Java's `AuditLogTable`, `RowTrackingTable` and `ReadOptimizedTable` have them.

    The columns of `binlog` are those of `audit_log`, which a filter uses. They come out as arrays.

    Args:
        view: The view, or None for the table itself.
    """
    if view in LOGS:
        numbered = option_keys.TABLE_READ_SEQUENCE_NUMBER_ENABLED.of(schema.options)
        added = [ROWKIND_FIELD, SpecialFields.SEQUENCE_NUMBER] if numbered else [ROWKIND_FIELD]
        return [*added, *schema.fields]
    if view == "row_tracking":
        return [*schema.fields, SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER]
    return list(schema.fields)
