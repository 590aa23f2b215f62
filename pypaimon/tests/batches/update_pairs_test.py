"""Updates as pairs, however their rows are cut into batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon import Schema

from pypaimon.streaming import StreamConfigError, stream_read_builder
from pypaimon.streaming.batches.batch import paired
from pypaimon.streaming.batches.chunks import pairs_unbroken
from pypaimon.streaming.reading.read_layout import DEFAULT_BATCH_SIZE
from support.samples import examples
from support.tables.handles import write_by_stream
from support.tables.orders import COLUMNS, catalog, orders

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROWS = pa.schema([("_row_kind", pa.string()), ("id", pa.float64()), ("n", pa.int64())])
RECORDS = st.lists(
    st.tuples(st.sampled_from(["+I", "-U", "+U", "-D"]), st.sampled_from([1.0, 2.0, float("nan")])), max_size=12
)


def table(records: list[tuple[str, float]]) -> pa.Table:
    kinds, ids = [kind for kind, _ in records], [key for _, key in records]
    return pa.table({"_row_kind": kinds, "id": ids, "n": list(range(len(records)))}, schema=ROWS)


def model(records: list[tuple[str, float]]) -> list[tuple[str, int | None, int | None]]:
    """Kind, and which record is before and after."""
    found: list[tuple[str, int | None, int | None]] = []
    for place, (kind, key) in enumerate(records):
        before = records[place - 1] if place else ("", 0.0)
        if kind == "+U" and before[0] == "-U" and repr(before[1]) == repr(key):
            found[-1] = ("+U", place - 1, place)
        else:
            found.append((kind, place, None) if kind in ("-U", "-D") else (kind, None, place))
    return found


def pairs(rows: pa.Table) -> list[tuple[str, int | None, int | None]]:
    found = paired(rows.drop_columns(["_row_kind"]), rows["_row_kind"], ["id"])
    sides = ([each and each["n"] for each in found[side].to_pylist()] for side in ("before", "after"))
    return list(zip(found["_row_kind"].to_pylist(), *sides, strict=True))


@settings(max_examples=examples(100))
@given(RECORDS)
def test_each_record_is_in_one_row_and_an_update_is_one(records: list[tuple[str, float]]) -> None:
    assert pairs(table(records)) == model(records)


@settings(max_examples=examples(100))
@given(RECORDS, st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_pairs_do_not_depend_on_where_rows_are_cut(records: list[tuple[str, float]], cuts: list[int]) -> None:
    batches = []
    whole = table(records).to_batches()[0] if records else pa.RecordBatch.from_pylist([], schema=ROWS)
    for rows_of_one in cuts:
        batches.append(whole.slice(0, rows_of_one))
        whole = whole.slice(rows_of_one)
    unbroken = list(pairs_unbroken(iter([each for each in batches if each.num_rows])))
    assert all(each.num_rows for each in unbroken)
    assert pa.Table.from_batches(unbroken, ROWS)["n"].to_pylist() == list(range(len(records)))
    assert [each for batch in unbroken for each in pairs(pa.Table.from_batches([batch]))] == model(records)


def test_a_pair_over_two_schemas_is_not_joined() -> None:
    narrow = pa.RecordBatch.from_pylist([{"_row_kind": "-U", "id": 1}])
    wide = pa.RecordBatch.from_pylist([{"_row_kind": "+U", "id": 1, "more": 2}])
    assert list(pairs_unbroken(iter([narrow, wide]))) == [narrow, wide]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("changelog", [("-U", (1, "placed"), None), ("+U", None, (1, "paid")), ("-D", (2, "placed"), None)]),
        ("diff", [("+U", (1, "placed"), (1, "paid")), ("-D", (2, "placed"), None)]),
    ],
)
def test_batches_of_a_stream_say_what_has_a_partner(tmp_path: Path, mode: str, expected: list[Any]) -> None:
    """In the changelog the two rows of the update are of two snapshots."""
    builder = stream_read_builder(orders(catalog(tmp_path / "warehouse"))).with_projection(COLUMNS)
    with builder.with_range(1, 4, mode).open_sync() as stream:
        rows = [row for batch in stream for row in batch.update_pairs().to_pylist()]
    sides = [[side and (side["id"], side["status"]) for side in (row["before"], row["after"])] for row in rows]
    assert [(row["_row_kind"], *each) for row, each in zip(rows, sides, strict=True)] == expected


def test_a_stream_cuts_no_update_in_two(tmp_path: Path) -> None:
    """An insert before the updates moves every pair across the batches that files are read in."""
    tables = catalog(tmp_path / "warehouse")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
    options = {"bucket": "1", "changelog-producer": "input"}
    tables.create_table("db.t", Schema.from_pyarrow_schema(schema, primary_keys=["id"], options=options), False)
    keys = [0, *(key for key in range(1, DEFAULT_BATCH_SIZE) for _ in "-+")]
    kinds = ["+I", *["-U", "+U"] * (DEFAULT_BATCH_SIZE - 1)]
    write_by_stream(tables.get_table("db.t"), pa.table({"_row_kind": kinds, "id": keys, "n": keys}))
    builder = stream_read_builder(tables.get_table("db.t")).with_start("earliest").with_end(latest=True)
    with builder.open_sync(batch_bytes=1) as stream:
        batches = list(stream)
    told = pa.concat_tables(batch.update_pairs() for batch in batches)
    assert len(batches) > 1
    assert told["_row_kind"].combine_chunks().equals(pa.array(["+I", *kinds[2::2]]))
    assert told["before"].null_count + told["after"].null_count == 1


def test_without_kinds_rows_are_inserts_and_without_keys_they_are_refused(tmp_path: Path) -> None:
    builder = stream_read_builder(orders(catalog(tmp_path / "warehouse"))).with_start(snapshot_id=1, full=True)
    with builder.with_projection(["status"]).open_sync() as stream:
        batch = next(stream)
    with pytest.raises(StreamConfigError, match="lack id: add it to with_projection"):
        batch.update_pairs()
    with builder.with_projection(["status"]).with_include_row_kind(False).open_sync() as stream:
        changes = next(stream).update_pairs()
    assert (changes["_row_kind"].unique().to_pylist(), changes["before"].null_count) == (["+I"], changes.num_rows)
