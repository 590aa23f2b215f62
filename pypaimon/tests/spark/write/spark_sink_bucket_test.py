"""The buckets of the sink are those of pypaimon, which are Java's."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon import Schema

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.routing import BucketKeys
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "b": (pa.bool_(), st.booleans()),
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "d": (pa.date32(), st.dates()),
    "s": (pa.string(), st.text(max_size=30)),
    "t": (pa.string(), st.text(st.sampled_from("aß漢😀"), max_size=9)),
}


def _table(warehouse: Any, columns: dict[str, pa.DataType], buckets: int = 7) -> Any:
    name = f"db.t{abs(hash((tuple(columns), buckets)))}"
    options = {"bucket": str(buckets), "bucket-key": ",".join(columns)}
    warehouse.create_table(name, Schema.from_pyarrow_schema(pa.schema(columns.items()), options=options), True)
    return warehouse.get_table(name)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_as_pypaimon_hashes(warehouse: Any, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    rows = data.draw(st.lists(st.tuples(*(st.none() | TYPES[name][1] for name in names)), min_size=1, max_size=20))
    table = _table(warehouse, {name: TYPES[name][0] for name in names})
    columns = [pa.array([row[index] for row in rows], TYPES[name][0]) for index, name in enumerate(names)]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    keys = BucketKeys.of(PaimonTable(table))
    assert keys is not None
    wanted = table.create_row_key_extractor()._extract_buckets_batch(batch)
    assert keys.buckets_of(columns).tolist() == wanted
    cut = batch.slice(len(rows) // 2)
    assert keys.buckets_of(cut.columns).tolist() == wanted[len(rows) // 2 :]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.float64(), [0.0, -1.5, None]),
        (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-3.00"), None]),
        (pa.timestamp("us"), [0, -1, 1_600_000_000_123_456]),
        (pa.timestamp("ms", "UTC"), [0, -1, None]),
        (pa.decimal128(30, 5), [Decimal("1.25"), Decimal("-3.00"), Decimal(0), Decimal(10) ** 20]),
        (pa.time32("ms"), [0, 86_399_999, None]),
        (pa.binary(), [b"", b"12345678", None]),
    ],
)
def test_other_types_are_hashed_as_pypaimon_does(warehouse: Any, type_: pa.DataType, values: list[Any]) -> None:
    table = _table(warehouse, {"k": type_})
    column = pa.array(values, type_)
    keys = BucketKeys.of(PaimonTable(table))
    assert keys is not None
    wanted = table.create_row_key_extractor()._extract_buckets_batch(pa.RecordBatch.from_arrays([column], names=["k"]))
    assert keys.buckets_of([column]).tolist() == wanted


def test_narrower_types_are_hashed_as_the_tables(warehouse: Any) -> None:
    keys = BucketKeys.of(PaimonTable(_table(warehouse, {"k": pa.int64()})))
    assert keys is not None
    numbers = [-5, 0, 77]
    assert (keys.buckets_of([pa.array(numbers, pa.int32())]) == keys.buckets_of([pa.array(numbers, pa.int64())])).all()
