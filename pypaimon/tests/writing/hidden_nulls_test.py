"""Nulls within rows that are null: Parquet takes them, and nobody sees what stands in their place."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.writing.files.hidden_nulls import without_hidden_nulls
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROW = pa.struct([pa.field("n", pa.int32(), False), pa.field("b", pa.binary(), False), pa.field("s", pa.string())])
OUTER = pa.struct([pa.field("row", ROW, False), pa.field("rows", pa.list_(ROW)), pa.field("d", pa.date32(), False)])
TYPES = {"row": ROW, "outer": OUTER, "list": pa.list_(OUTER), "map": pa.map_(pa.string(), ROW)}


def values(kind: pa.DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        found = st.fixed_dictionaries({field.name: values(field.type, field.nullable) for field in kind})
    elif pa.types.is_map(kind):
        found = st.dictionaries(st.sampled_from("ab"), values(kind.item_type), max_size=2).map(
            lambda each: [*each.items()]
        )
    elif pa.types.is_list(kind):
        found = st.lists(values(kind.value_type), max_size=3)
    elif pa.types.is_date(kind):
        found = st.dates()
    else:
        of = {pa.int32(): st.integers(-9, 9), pa.binary(): st.binary(max_size=3), pa.string(): st.text(max_size=3)}
        found = of[kind]
    return st.none() | found if nullable else found


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_what_is_taken_out_of_rows_is_written_as_it_is(name: str, data: st.DataObject) -> None:
    kind = TYPES[name]
    rows = pa.array(data.draw(st.lists(values(kind), max_size=6)), kind)
    picked = data.draw(st.lists(st.none() | st.integers(0, max(0, len(rows) - 1)), max_size=8)) if len(rows) else [None]
    taken = rows.take(pa.array(picked, pa.int64())) if len(rows) else pa.nulls(2, kind)
    column = pa.chunked_array([taken, pa.nulls(1, kind), taken.slice(1)], kind)
    table = pa.table({"c": column})
    file = io.BytesIO()
    pq.write_table(without_hidden_nulls(table), file)
    assert without_hidden_nulls(table).to_pylist() == table.to_pylist()
    assert pq.read_table(file)["c"].to_pylist() == column.to_pylist()


def test_a_null_that_is_seen_stays() -> None:
    rows = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32()), pa.array([b"", b""]), pa.array(["", ""])], fields=list(ROW)
    )
    table = pa.table({"c": rows})
    assert without_hidden_nulls(table)["c"].to_pylist() == rows.to_pylist()
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(without_hidden_nulls(table), io.BytesIO())
