"""The columns that the system tables of a table add to it: `$audit_log`, `$row_tracking`, `$ro`."""

from __future__ import annotations

from typing import Literal

from pypaimon.streaming.internals import AtomicType, DataField, SpecialFields, TableSchema
from pypaimon.streaming.option_values import OptionValues

View = Literal["audit_log", "row_tracking", "ro"]

VIEWS: tuple[View, ...] = ("audit_log", "row_tracking", "ro")

ROWKIND = "rowkind"
ROWKIND_FIELD = DataField(2147483643, ROWKIND, AtomicType("STRING"))


def fields(schema: TableSchema, view: View | None) -> list[DataField]:
    """All columns of a view, as Java's `AuditLogTable`, `RowTrackingTable` and `ReadOptimizedTable` have them.

    Args:
        schema: The table's schema.
        view: The view, or None for the table itself.
    """
    if view == "audit_log":
        numbered = OptionValues(schema.options).boolean("table-read.sequence-number.enabled", False)
        added = [ROWKIND_FIELD, SpecialFields.SEQUENCE_NUMBER] if numbered else [ROWKIND_FIELD]
        return [*added, *schema.fields]
    if view == "row_tracking":
        return [*schema.fields, SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER]
    return list(schema.fields)
