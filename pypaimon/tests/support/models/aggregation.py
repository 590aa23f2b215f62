"""Aggregates record by record, as Java has them: what the columnar ones are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge import Aggregation
from pypaimon.streaming.merge.functions.registry import field_aggregate
from support.models.merging import Record, Row, comparable, merge_columns, merge_rows, sorted_runs_of

Combine = Callable[[Any, Any], Any]
DELETES = st.sampled_from(["retract", "ignore", "remove", "none"])
"""What deletes do: they retract, are ignored, remove the row, or there are none."""


class Refused(Exception):
    """The model says that the value cannot be computed."""


@dataclass(frozen=True)
class Function:
    """A function of an accumulator and a value; one without `retract` refuses deletes."""

    add: Combine
    retract: Combine | None = None


def unless_null(combine: Combine) -> Combine:
    """Null is passed over."""
    return lambda there, new: (new if there is None else there) if there is None or new is None else combine(there, new)


@dataclass(frozen=True)
class Case:
    """An aggregate function of one column.

    Attributes:
        name: Of the function.
        type: Of the column.
        values: What is in it.
        function: The model.
        options: Of the field, below `fields.v.`.
    """

    name: str
    type: pa.DataType
    values: st.SearchStrategy[Any]
    function: Function
    options: dict[str, str] = field(default_factory=dict)


def merged(function: Function, records: list[Record], *, ignores: bool, removes: bool) -> tuple[int, Row] | None:
    """The row that a key's records leave behind; whether deletes are ignored, or remove it.

    Raises:
        Refused: There is none.
    """
    refused = function.retract is None and not ignores
    if refused and any(record.retracts and not (removes and record.kind == 3) for record in records):
        raise Refused(records)
    if removes:
        # What a later delete removes cannot overflow any more; Java fails there.
        last = max((index for index, record in enumerate(records) if record.kind == 3), default=0)
        records = records[last:]
    value, kind = None, 0
    for record in records:
        kind = 0
        if removes and record.kind == 3:
            value, kind = record.values["v"], 3
        elif not record.retracts:
            value = function.add(value, record.values["v"])
        elif function.retract is not None and not ignores:
            value = function.retract(value, record.values["v"])
    return kind, {"k": records[-1].values["k"], "v": value}


def engine_of(name: str, kind: pa.DataType, options: dict[str, str], removes: bool = False) -> Aggregation:
    """An engine for rows of a key `k` and a field `v` with an aggregate function."""
    aggregates = {
        "k": field_aggregate("primary_key", "k", pa.int32(), {}),
        "v": field_aggregate(name, "v", kind, {f"fields.v.{key}": options[key] for key in options}),
    }
    return Aggregation(("k",), aggregates=aggregates, remove_on_delete=removes)


def check(case: Case, deletes: str, data: st.DataObject, in_order: Callable[[Any], Any]) -> None:
    """Compare both over random runs; `in_order` makes values comparable that have no order."""
    kinds = st.sampled_from([0, 2]) if deletes == "none" else st.integers(0, 3)
    keys, values = {"k": st.integers(0, 2)}, {"v": case.values}
    runs, cuts = data.draw(sorted_runs_of(keys, values, kinds=kinds, max_runs=3, max_size=8))
    ignores, removes = deletes == "ignore", deletes == "remove"
    engine = engine_of(case.name, case.type, case.options | ({"ignore-retract": "true"} if ignores else {}), removes)
    types = {"k": pa.int32(), "v": case.type}

    def by_rows(records: list[Record]) -> tuple[int, Row] | None:
        return merged(case.function, records, ignores=ignores, removes=removes)

    try:
        expected = merge_rows(runs, ["k"], by_rows, keep_deletes=True)
    except Refused:
        with pytest.raises(UnsupportedTableError):
            merge_columns(runs, types, engine, cuts, keep_deletes=True)
        return
    got = merge_columns(runs, types, engine, cuts, keep_deletes=True)
    ours, theirs = ([(kind, {**row, "v": in_order(row["v"])}) for kind, row in rows] for rows in (got, expected))
    assert comparable(ours) == comparable(theirs)


def aggregate(
    function: str, kind: pa.DataType, values: list[Any], kinds: list[int] | None = None, **options: str
) -> Any:
    """The value that a key's records leave behind."""
    records = [
        Record(row_kind, number, {"k": 1, "v": value})
        for number, (row_kind, value) in enumerate(zip(kinds or [0] * len(values), values, strict=True))
    ]
    engine = engine_of(function, kind, {key.replace("_", "-"): value for key, value in options.items()})
    ((_, row),) = merge_columns([records], {"k": pa.int32(), "v": kind}, engine, [[]])
    return row["v"]
