"""Merge engine partial-update against Java's state machine, record by record: sequence groups, aggregates, deletes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge import PartialUpdate, SequenceGroup
from pypaimon.streaming.merge.functions.registry import field_aggregate
from support.models.merging import Record, java_key, merge_columns, merge_rows, sorted_runs_of
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TYPES = {
    "k": pa.int32(),
    "free": pa.int32(),
    "a": pa.int32(),
    "b": pa.int32(),
    "g1": pa.int32(),
    "g2": pa.string(),
    "c": pa.int32(),
    "t": pa.string(),
    "h": pa.int64(),
}
SMALL = st.none() | st.integers(0, 3)
VALUES = {name: SMALL for name in TYPES if name not in ("k", "g2", "t")} | {
    "g2": st.none() | st.sampled_from(["x", "y"]),
    "t": st.none() | st.sampled_from(["p", "q", " "]),
}
FUNCTIONS = ["sum", "max", "last_value", "last_non_null_value", "first_value", "first_non_null_value"]


class Cell:
    """An aggregate as Java has it: functions that keep the first value remember, per key, that they have one."""

    def __init__(self, function: str, ignore_retract: bool) -> None:
        self.function = function
        self.ignore_retract = ignore_retract
        self.initialized = False

    def agg(self, there: Any, new: Any) -> Any:
        if self.function == "last_value":
            return new
        if self.function == "last_non_null_value":
            return there if new is None else new
        if self.function in ("first_value", "first_non_null_value"):
            if not self.initialized and (new is not None or self.function == "first_value"):
                self.initialized = True
                return new
            return there
        if self.function == "listagg":
            if new is None or not new.strip():
                return there
            return new if there is None or not there.strip() else f"{there},{new}"
        if there is None or new is None:
            return new if there is None else there
        return there + new if self.function == "sum" else max(there, new)

    def retract(self, there: Any, new: Any) -> Any:
        if self.ignore_retract:
            return there
        if self.function == "last_value":
            return None
        if self.function == "last_non_null_value":
            return there if new is None else None
        if self.function == "sum":
            if there is None or new is None:
                return (None if new is None else -new) if there is None else there
            return there - new
        raise UnsupportedTableError(self.function)


class JavaRow:
    """One key's state in Java's PartialUpdateMergeFunction."""

    def __init__(self, engine: PartialUpdate, functions: dict[str, tuple[str, bool]]) -> None:
        self.engine = engine
        self.row: dict[str, Any] = dict.fromkeys(TYPES)
        self.cells = {name: Cell(*function) for name, function in functions.items()}
        self.met_insert = self.filled = self.deleted = False

    def add(self, record: Record) -> None:
        self.deleted = False
        values = record.values
        if record.retracts:
            if not self.filled:
                self.row, self.filled = dict(values), True
            if self.engine.ignore_delete:
                return
            if self.engine.groups:
                self.retract(record)
            elif not self.engine.remove_on_delete:
                raise UnsupportedTableError("delete")
            elif record.kind == 3:
                self.row, self.deleted = dict(values), True
            return
        for group in self.engine.groups:
            if all(values[name] is None for name in group.sequence):
                continue
            newest = self.newest(group, values)
            for name in group.fields:
                cell = self.cells.get(name)
                if newest:
                    self.row[name] = values[name] if cell is None else cell.agg(self.row[name], values[name])
                elif cell is not None:
                    self.row[name] = cell.agg(values[name], self.row[name])
            if newest:
                self.row.update({name: values[name] for name in group.sequence})
        grouped = {name for group in self.engine.groups for name in group.sequence + group.fields}
        self.row.update({name: value for name, value in values.items() if value is not None and name not in grouped})
        self.met_insert = self.filled = True

    def retract(self, record: Record) -> None:
        values = record.values
        touched = [group for group in self.engine.groups if any(values[name] is not None for name in group.sequence)]
        # Java comes to a removal group by group, and may meet an aggregate that takes nothing back before it.
        if record.kind == 3 and any(group.removes and self.newest(group, values) for group in touched):
            self.row, self.deleted = dict(values), True
            return
        for group in touched:
            newest = self.newest(group, values)
            for name in group.fields:
                cell = self.cells.get(name)
                if cell is not None:
                    self.row[name] = cell.retract(self.row[name], values[name])
                elif newest:
                    self.row[name] = None
            if newest:
                self.row.update({name: values[name] for name in group.sequence})

    def newest(self, group: SequenceGroup, values: dict[str, Any]) -> bool:
        return [java_key(values[name]) for name in group.sequence] >= [
            java_key(self.row[name]) for name in group.sequence
        ]


def by_rows(engine: PartialUpdate, functions: dict[str, tuple[str, bool]]) -> Any:
    def merge(records: list[Record]) -> tuple[int, Any]:
        state = JavaRow(engine, functions)
        for record in records:
            state.add(record)
        return (3 if state.deleted or not state.met_insert else 0), state.row

    return merge


@given(
    data=st.data(),
    runs=sorted_runs_of({"k": st.integers(0, 2)}, VALUES, max_runs=3, max_size=8),
    first=st.none() | st.tuples(st.sampled_from(FUNCTIONS), st.booleans()),
    second=st.none() | st.tuples(st.sampled_from(["listagg", "last_value", "first_value"]), st.booleans()),
    removes=st.sampled_from(["", "g", "h", "gh"]),
    deletes=st.booleans(),
)
@settings(max_examples=examples(400), deadline=None)
def test_sequence_groups(
    data: st.DataObject,
    runs: tuple[list[list[Record]], list[list[int]]],
    first: tuple[str, bool] | None,
    second: tuple[str, bool] | None,
    removes: str,
    deletes: bool,
) -> None:
    functions = {name: function for name, function in (("b", first), ("t", second)) if function is not None}
    ignore = not removes and data.draw(st.booleans())
    engine = PartialUpdate(
        ("k",),
        groups=(
            SequenceGroup(("g1", "g2"), ("a", "b"), "g" in removes),
            SequenceGroup(("h",), ("c", "t"), "h" in removes),
        ),
        aggregates={
            name: field_aggregate(function, name, TYPES[name], {f"fields.{name}.ignore-retract": str(ignores).lower()})
            for name, (function, ignores) in functions.items()
        },
        ignore_delete=ignore,
    )
    records, cuts = runs
    if not deletes:
        records = [[Record(0, item.sequence, item.values) for item in run] for run in records]
    compare(records, cuts, engine, functions)


@given(
    runs=sorted_runs_of({"k": st.integers(0, 2)}, VALUES, max_runs=3, max_size=8),
    mode=st.sampled_from(["ignore", "remove", "refuse"]),
)
@settings(max_examples=examples(150), deadline=None)
def test_rows_that_fill_up(runs: tuple[list[list[Record]], list[list[int]]], mode: str) -> None:
    engine = PartialUpdate(("k",), ignore_delete=mode == "ignore", remove_on_delete=mode == "remove")
    compare(*runs, engine, {})


def compare(
    records: list[list[Record]], cuts: list[list[int]], engine: PartialUpdate, functions: dict[str, tuple[str, bool]]
) -> None:
    try:
        expected = merge_rows(records, ["k"], by_rows(engine, functions), keep_deletes=True)
    except UnsupportedTableError:
        with pytest.raises(UnsupportedTableError):
            merge_columns(records, TYPES, engine, cuts, keep_deletes=True)
        return
    assert merge_columns(records, TYPES, engine, cuts, keep_deletes=True) == expected


def test_a_value_of_an_older_sequence_goes_with_the_retraction_of_a_newer_one() -> None:
    engine = PartialUpdate(
        ("k",),
        groups=(SequenceGroup(("h",), ("c",)),),
        aggregates={"c": field_aggregate("last_non_null_value", "c", pa.int32(), {})},
    )
    nothing = dict.fromkeys(TYPES)
    steps = [(0, 5, None), (0, 3, 1), (1, 5, 2), (0, 4, None), (0, 2, 7)]
    records = [
        Record(kind, number, nothing | {"k": 1, "h": age, "c": value})
        for number, (kind, age, value) in enumerate(steps)
    ]
    for count, left in ((2, 1), (3, None), (4, None), (5, 7)):
        compare([records[:count]], [[]], engine, {"c": ("last_non_null_value", False)})
        ((_, row),) = merge_columns([records[:count]], TYPES, engine, [[]])
        assert row["c"] == left


def test_the_first_value_may_come_with_an_older_sequence() -> None:
    """Where the newest record of a key has none. Other keys of the batch do not matter."""
    engine = PartialUpdate(
        ("k",),
        groups=(SequenceGroup(("h",), ("c",)),),
        aggregates={"c": field_aggregate("first_non_null_value", "c", pa.int32(), {})},
    )
    steps = [(1, 5, None), (1, 3, 1), (2, 5, 4), (2, 3, 9)]
    values = ({"k": key, "h": age, "c": value} for key, age, value in steps)
    records = [Record(0, number, dict.fromkeys(TYPES) | each) for number, each in enumerate(values)]
    compare([records], [[]], engine, {"c": ("first_non_null_value", False)})
    assert [row["c"] for _, row in merge_columns([records], TYPES, engine, [[]])] == [1, 9]
