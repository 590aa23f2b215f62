"""What counts as a change of what is read, and which schema a snapshot is read with."""

from __future__ import annotations

from typing import Any

import pytest
from pypaimon.schema.data_types import ArrayType, AtomicType, DataField, MapType, RowType
from pypaimon.schema.table_schema import TableSchema

from pypaimon.streaming import SchemaChangedError
from pypaimon.streaming.options.stream_options import OnSchemaChange
from pypaimon.streaming.planning.schema_change import SchemaPolicy, difference, read_field_ids

INT, BIGINT, STRING = AtomicType("INT"), AtomicType("BIGINT"), AtomicType("STRING")


def row(*fields: DataField) -> RowType:
    return RowType(True, list(fields))


def schema(schema_id: int, *fields: DataField, **options: str) -> TableSchema:
    return TableSchema(
        id=schema_id,
        fields=list(fields),
        highest_field_id=9,
        partition_keys=[],
        primary_keys=[],
        options=options,
        comment=f"version {schema_id}",
    )


K, V = DataField(0, "k", INT), DataField(1, "v", STRING)
R = DataField(2, "r", row(DataField(3, "x", INT), DataField(4, "y", STRING)))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ([K, V, R], None),
        ([DataField(0, "k", INT, "a comment"), V, R], None),
        ([K, V, DataField(2, "r", row(DataField(3, "x", INT, "a comment"), DataField(4, "y", STRING)))], None),
        ([K, R], "column 'v' was dropped"),
        ([K, DataField(1, "w", STRING), R], "column 'v' was renamed to 'w'"),
        ([DataField(0, "k", BIGINT), V, R], "column 'k' changed from INT to BIGINT"),
        ([DataField(0, "k", AtomicType("INT", False)), V, R], "column 'k' changed"),
        ([V, K, R], "columns were reordered"),
        ([K, V, R, DataField(5, "n", INT)], "columns were added: n"),
        ([K, V, DataField(2, "r", row(DataField(3, "x", BIGINT), DataField(4, "y", STRING)))], "column 'r' changed"),
        ([K, V, DataField(2, "r", row(DataField(5, "x", INT), DataField(4, "y", STRING)))], "column 'r' changed"),
        ([K, DataField(5, "v", STRING), R], "column 'v' was dropped"),
    ],
)
def test_what_counts_as_a_change(fields: list[DataField], wanted: str | None) -> None:
    found = difference(schema(0, K, V, R), schema(1, *fields, some="option"), None)
    assert found is None if wanted is None else wanted in str(found)


def test_comments_deep_in_a_type_are_not_a_change() -> None:
    def deep(comment: str | None) -> DataField:
        inner = row(DataField(6, "z", INT, comment))
        return DataField(2, "r", ArrayType(True, MapType(True, STRING, inner)))

    assert difference(schema(0, K, deep(None)), schema(1, K, deep("a comment")), None) is None


def test_columns_that_are_not_read_trigger_nothing() -> None:
    read = read_field_ids(schema(0, K, V, R), {"k", "r.x"})
    assert read == {(0,), (2, 3)}
    fewer = DataField(2, "r", row(DataField(3, "x", INT), DataField(6, "z", INT)))
    assert difference(schema(0, K, V, R), schema(1, fewer, K, DataField(5, "n", INT)), read) is None
    assert "column 'k' was dropped" in str(difference(schema(0, K, V, R), schema(1, V, R), read))
    renamed = DataField(2, "r", row(DataField(3, "w", INT)))
    assert "'r.x' was renamed to 'r.w'" in str(difference(schema(0, K, R), schema(1, K, renamed), read))


class TestPolicy:
    def policy(self, on_change: OnSchemaChange, *later: Any, names: set[str] | None = None) -> SchemaPolicy:
        first = schema(1, K, V, mine="option")
        schemas = {each.id: each for each in (first, *later)}
        return SchemaPolicy(schemas.__getitem__, first, on_change, read_field_ids(first, names))

    def test_an_older_schema_is_read_with_the_streams(self) -> None:
        assert self.policy(OnSchemaChange.FAIL).for_snapshot(None, 0) is None

    def test_a_change_fails_by_name(self) -> None:
        with pytest.raises(SchemaChangedError, match="'v' was dropped") as caught:
            self.policy(OnSchemaChange.FAIL, schema(2, K)).for_snapshot(None, 2)
        assert (caught.value.old, caught.value.new) == (1, 2)

    def test_an_ignored_change_is_not_even_looked_up(self) -> None:
        assert self.policy(OnSchemaChange.IGNORE).for_snapshot(None, 7) is None

    def test_following_continues_from_the_schema_in_use_and_never_back(self) -> None:
        wider = DataField(1, "v", STRING), DataField(5, "n", INT)
        policy = self.policy(OnSchemaChange.FOLLOW, schema(2, K, *wider, its="own"), schema(3, K, *wider))
        assert policy.for_snapshot(None, 2) == 2
        assert policy.for_snapshot(2, 3) == 2
        assert policy.for_snapshot(2, 1) == 2
        assert policy.of(2).options == {"its": "own"}

    def test_a_read_column_that_is_gone_cannot_be_followed(self) -> None:
        policy = self.policy(OnSchemaChange.FOLLOW, schema(2, K), names={"v"})
        with pytest.raises(SchemaChangedError, match="dropped"):
            policy.for_snapshot(None, 2)


@pytest.mark.parametrize("nullable", [False, True], ids=["never null", "null itself"])
def test_a_field_may_become_null_with_the_row_around_it(nullable: bool) -> None:
    """Then its column may, though its own type says as before; unless it could be null already."""
    x = DataField(3, "x", AtomicType("INT", nullable))
    inside, around = (K, DataField(2, "r", RowType(False, [x]))), (K, DataField(2, "r", RowType(True, [x])))
    for old, new in ((inside, around), (around, inside)):
        fields = read_field_ids(schema(0, *old), {"r.x"})
        found = difference(schema(0, *old), schema(1, *new), fields)
        assert found == (None if nullable else "column 'r.x' is in a row that may be null in one schema only")
