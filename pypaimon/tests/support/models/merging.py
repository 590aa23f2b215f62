"""Random sorted runs, merged and aggregated row by row: what the columnar merge engines are compared with."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge import Aggregation, MergeEngine, merge_batches
from pypaimon.streaming.merge.functions.registry import field_aggregate

KIND_NAMES = ("+I", "-U", "+U", "-D")
KINDS = st.integers(0, 3)
SEQUENCES = st.integers(0, 20)
Row = dict[str, Any]
MergeRows = Callable[[list["Record"]], "tuple[int, Row] | None"]


@dataclass(frozen=True)
class Record:
    """One row as a data file holds it."""

    kind: int
    sequence: int
    values: Row

    @property
    def retracts(self) -> bool:
        return self.kind in (1, 3)


def java_key(value: Any) -> Any:
    """A value as something that Python sorts as Java does: nulls first, -0.0 before 0.0, NaN last, bytes unsigned."""
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        if math.isnan(value):
            return (2, 0)
        return (1, (value, math.copysign(1.0, value)))
    return (1, value.encode() if isinstance(value, str) else value)


def merge_rows(
    runs: Sequence[Sequence[Record]],
    keys: Sequence[str],
    merge: MergeRows,
    *,
    sequence: Sequence[str] = (),
    ascending: bool = True,
    keep_deletes: bool = False,
) -> list[tuple[str, Row]]:
    """Every key's records in order of age, merged one after the other; a single record stays as it is."""
    by_key: dict[Any, list[Record]] = {}
    for run in runs:
        for record in run:
            by_key.setdefault(tuple(java_key(record.values[key]) for key in keys), []).append(record)
    result = []
    for key in sorted(by_key):
        records = by_key[key]
        records.sort(key=lambda record: (record.sequence, not record.retracts))
        for name in reversed(sequence):
            nulls = [record for record in records if record.values[name] is None]
            rest = [record for record in records if record.values[name] is not None]
            # Python keeps the order of equal values when it sorts in reverse, too.
            rest.sort(key=lambda record: java_key(record.values[name]), reverse=not ascending)
            records = nulls + rest
        merged = (records[0].kind, records[0].values) if len(records) == 1 else merge(records)
        if merged is not None and (keep_deletes or merged[0] in (0, 2)):
            result.append((KIND_NAMES[merged[0]], merged[1]))
    return result


def to_batches(
    records: Sequence[Record], types: dict[str, pa.DataType], cuts: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([*types.items(), ("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8())])
    rows = [{**record.values, "_SEQUENCE_NUMBER": record.sequence, "_VALUE_KIND": record.kind} for record in records]
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    for begin, end in itertools.pairwise(bounds):
        yield pa.RecordBatch.from_pylist(rows[begin:end], schema=schema)


def merge_columns(
    runs: Sequence[Sequence[Record]],
    types: dict[str, pa.DataType],
    engine: MergeEngine,
    cuts: Sequence[Sequence[int]],
    *,
    keep_deletes: bool = False,
) -> list[tuple[str, Row]]:
    batches = [to_batches(run, types, cut) for run, cut in zip(runs, cuts, strict=True)]
    rows = []
    for batch in merge_batches(batches, engine, keep_deletes=keep_deletes):
        assert batch.num_rows
        rows += [(KIND_NAMES[row.pop("_VALUE_KIND")], row) for row in batch.to_pylist()]
    return rows


def comparable(rows: list[tuple[str, Row]]) -> list[tuple[str, Any]]:
    """Rows in which NaN equals NaN and -0.0 differs from 0.0."""
    return [(kind, _comparable(row)) for kind, row in rows]


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    return value


@st.composite
def sorted_runs_of(
    draw: st.DrawFn,
    key_values: dict[str, st.SearchStrategy[Any]],
    values: dict[str, st.SearchStrategy[Any]],
    *,
    kinds: st.SearchStrategy[int] = KINDS,
    sequences: st.SearchStrategy[int] = SEQUENCES,
    max_runs: int = 4,
    max_size: int = 12,
) -> tuple[list[list[Record]], list[list[int]]]:
    """Runs sorted by key and sequence number, and where to cut each into batches."""
    record = st.builds(
        lambda kind, sequence, row: Record(kind, sequence, row),
        kinds,
        sequences,
        st.fixed_dictionaries({**key_values, **values}),
    )
    runs = draw(st.lists(st.lists(record, max_size=max_size), max_size=max_runs))
    for run in runs:
        run.sort(key=lambda item: ([java_key(item.values[key]) for key in key_values], item.sequence))
    cuts = [draw(st.lists(st.integers(0, max_size), max_size=6)) for _ in runs]
    return runs, cuts


DECIMALS = st.integers(-(10**6), 10**6).map(lambda number: Decimal(number).scaleb(-2))


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
