"""Merge engines that pick a record: deduplicate and first-row; keys of every type, order of age, memory."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge import Deduplicate, FirstRow, UnsortedRunError, merge_batches
from pypaimon.streaming.merge import runs as sections
from support.models.merging import DECIMALS, Record, comparable, merge_columns, merge_rows, sorted_runs_of
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

# Few values, so that they meet; those whose order is easily wrong among them.
TEXTS = st.sampled_from(["", "a", "a\0", "a\0\0", "aa", "b", "é", "￮", "😀", "x" * 9, "x" * 40])
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.sampled_from([-128, -1, 0, 1, 127])),
    "smallint": (pa.int16(), st.sampled_from([-(2**15), -1, 0, 2**15 - 1])),
    "int": (pa.int32(), st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1])),
    "bigint": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "boolean": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")])),
    "double": (pa.float64(), st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")])),
    "decimal": (pa.decimal128(10, 2), DECIMALS.map(lambda value: value % 3)),
    "long decimal": (pa.decimal128(30, 2), DECIMALS.map(lambda value: value * 10**20)),
    "string": (pa.string(), TEXTS),
    "long string": (pa.string(), st.sampled_from(["", "a", "a\0", "a" * 300, "a" * 300 + "\0", "b" * 400])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"])),
    "fixed bytes": (pa.binary(2), st.sampled_from([b"\0\0", b"\0\x01", b"\x80\0", b"\xff\xff"])),
    "date": (
        pa.date32(),
        st.sampled_from([datetime.date(1900, 1, 1), datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]),
    ),
    "time": (pa.time32("ms"), st.sampled_from([datetime.time(0), datetime.time(12, 30, 1, 5000)])),
    "timestamp": (
        pa.timestamp("us"),
        st.sampled_from([datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 1, 1)]),
    ),
    "zoned": (
        pa.timestamp("ms", "UTC"),
        st.sampled_from([datetime.datetime(y, 1, 1, tzinfo=datetime.timezone.utc) for y in (1960, 2024)]),
    ),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {"v": st.integers(0, 10**6)}
VALUE_TYPES = {"v": pa.int64()}


def newest(records: list[Record]) -> tuple[int, dict[str, Any]]:
    return records[-1].kind, records[-1].values


def newest_addition(records: list[Record]) -> tuple[int, dict[str, Any]] | None:
    added = [record for record in records if not record.retracts]
    return (added[-1].kind, added[-1].values) if added else None


def oldest_addition(records: list[Record]) -> tuple[int, dict[str, Any]] | None:
    added = [record for record in records if not record.retracts]
    return (added[0].kind, added[0].values) if added else None


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data(), keep_deletes=st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_keys_of_every_type(kind: str, data: st.DataObject, keep_deletes: bool) -> None:
    arrow, strategy = KEYS[kind]
    runs, cuts = data.draw(sorted_runs_of({"k": strategy}, VALUES))
    got = merge_columns(runs, {"k": arrow, **VALUE_TYPES}, Deduplicate(("k",)), cuts, keep_deletes=keep_deletes)
    assert comparable(got) == comparable(merge_rows(runs, ["k"], newest, keep_deletes=keep_deletes))


@given(
    data=st.data(),
    names=st.lists(st.sampled_from(sorted(KEYS)), min_size=2, max_size=4, unique=True),
    nulls=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_composite_keys(data: st.DataObject, names: list[str], nulls: bool) -> None:
    values = {name: st.none() | KEYS[name][1] if nulls else KEYS[name][1] for name in names}
    runs, cuts = data.draw(sorted_runs_of(values, VALUES))
    types = {name: KEYS[name][0] for name in names} | VALUE_TYPES
    got = merge_columns(runs, types, Deduplicate(tuple(names)), cuts)
    assert comparable(got) == comparable(merge_rows(runs, names, newest))


@given(
    data=st.data(),
    ascending=st.booleans(),
    names=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True),
)
@settings(max_examples=examples(100), deadline=None)
def test_sequence_fields_of_every_type(data: st.DataObject, ascending: bool, names: list[str]) -> None:
    fields = {name: st.none() | KEYS[name][1] for name in names}
    runs, cuts = data.draw(sorted_runs_of({"k": st.integers(0, 3)}, VALUES | fields))
    types = {"k": pa.int32()} | VALUE_TYPES | {name: KEYS[name][0] for name in names}
    got = merge_columns(runs, types, Deduplicate(("k",), tuple(names), ascending), cuts)
    assert comparable(got) == comparable(merge_rows(runs, ["k"], newest, sequence=names, ascending=ascending))


@given(runs=sorted_runs_of({"k": st.integers(0, 5)}, VALUES), keep_deletes=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_ignore_delete(runs: tuple[list[list[Record]], list[list[int]]], keep_deletes: bool) -> None:
    records, cuts = runs
    types = {"k": pa.int32(), **VALUE_TYPES}
    for engine, merge in ((Deduplicate, newest_addition), (FirstRow, oldest_addition)):
        got = merge_columns(records, types, engine(("k",), ignore_delete=True), cuts, keep_deletes=keep_deletes)
        assert got == merge_rows(records, ["k"], merge, keep_deletes=keep_deletes)


def test_first_row_refuses_retractions_unless_they_stand_alone() -> None:
    engine = FirstRow(("k",))
    alone = [[Record(3, 0, {"k": 1, "v": 1})]]
    assert merge_columns(alone, {"k": pa.int32(), **VALUE_TYPES}, engine, [[]]) == []
    with pytest.raises(UnsupportedTableError, match="ignore-delete"):
        merge_columns([*alone, *alone], {"k": pa.int32(), **VALUE_TYPES}, engine, [[], []])


def test_a_run_of_one_key_over_many_batches_stays_together() -> None:
    run = [Record(0, number, {"k": 7, "v": number}) for number in range(10)]
    got = merge_columns([run], {"k": pa.int32(), **VALUE_TYPES}, Deduplicate(("k",)), [list(range(10))])
    assert got == [("+I", {"k": 7, "v": 9})]


@given(runs=sorted_runs_of({"k": TEXTS}, VALUES), limit=st.sampled_from([1, 100, 1000]))
@settings(max_examples=examples(100), deadline=None)
def test_large_chunks_are_cut(runs: tuple[list[list[Record]], list[list[int]]], limit: int) -> None:
    records, cuts = runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "CHUNK_BYTES", limit)
        got = merge_columns(records, {"k": pa.string(), **VALUE_TYPES}, Deduplicate(("k",)), cuts)
    assert got == merge_rows(records, ["k"], newest)


def test_few_batches_are_held() -> None:
    """A bucket of any size streams through: no run is ever more than two batches ahead of what was handed out."""
    rows, batches, count = 100, 50, 6
    read = [0] * count

    def run(index: int) -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            read[index] += rows
            keys = pa.array(np.arange(number * rows, (number + 1) * rows) * count + index)
            zeros = np.zeros(rows, dtype=np.int64)
            names = ["k", "_SEQUENCE_NUMBER", "_VALUE_KIND"]
            yield pa.RecordBatch.from_arrays([keys, pa.array(zeros), pa.array(zeros.astype(np.int8))], names=names)

    handed_out = 0
    for merged in merge_batches([run(index) for index in range(count)], Deduplicate(("k",))):
        handed_out += merged.num_rows
        assert sum(read) - handed_out <= 2 * count * rows
    assert handed_out == rows * batches * count


def test_nothing_is_copied_where_keys_are_single() -> None:
    values = pa.array(np.arange(10))
    batch = pa.record_batch(
        {"k": values, "_SEQUENCE_NUMBER": values, "_VALUE_KIND": pa.array(np.zeros(10, dtype=np.int8))}
    )
    merged, _last = merge_batches([iter([batch])], Deduplicate(("k",)))
    assert merged.column("k").buffers()[1].address == values.buffers()[1].address


def test_a_run_that_is_not_sorted_is_an_error_and_not_an_endless_loop() -> None:
    kinds = pa.array([0, 0], pa.int8())
    columns = {"k": pa.array([3, 1], pa.int32()), "_SEQUENCE_NUMBER": [0, 1], "_VALUE_KIND": kinds}
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(UnsortedRunError) as caught:
        list(merge_batches([iter([batch.slice(1)]), iter([batch, batch])], Deduplicate(("k",))))
    assert caught.value.run == 1
