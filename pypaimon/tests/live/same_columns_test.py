"""Which columns of two schemas hold the same values, so that a live table keeps its rows."""

from __future__ import annotations

from pypaimon.streaming.live.row_store import are_same_columns
from pypaimon.streaming.paimon.internals import AtomicType, DataField, RowType, TableSchema


def schema(schema_id: int, nested_id: int) -> TableSchema:
    fields = [
        DataField(0, "k", AtomicType("INT", False)),
        DataField(1, "s", RowType(True, [DataField(nested_id, "a", AtomicType("INT"))])),
    ]
    return TableSchema(TableSchema.CURRENT_VERSION, schema_id, fields, 9, [], ["k"], {})


def test_a_nested_field_that_was_dropped_and_added_again_is_another_one() -> None:
    assert are_same_columns(["k", "s"], schema(0, 2), schema(1, 2))
    assert not are_same_columns(["k", "s"], schema(0, 2), schema(1, 3))
    assert are_same_columns(["k"], schema(0, 2), schema(1, 3))
