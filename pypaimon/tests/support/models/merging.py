"""Random sorted runs, and merging them row by row: what the columnar merge engines are compared with."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pypaimon.streaming.merge import MergeEngine, merge_batches

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
    """The records of a run as batches, cut at some rows."""
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
    """What `merge_batches` makes of the same runs."""
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
