"""Rows are divided into partitions and buckets, in their order."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.routing import BucketKeys, Router, key_hashes
from pypaimon.streaming.writing.writable_tables import check_writable
from support.tables.handles import create_table
from support.tables.written_rows import rows_of

COLUMNS = pa.schema([("f", pa.float64()), ("s", pa.string()), ("k", pa.int64()), ("n", pa.int64())])
ROW = st.tuples(
    st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(ROW, max_size=30),
    partition=st.sampled_from([[], ["s"], ["f"], ["s", "f"]]),
    function=st.sampled_from([None, "default", "mod"]),
    buckets=st.sampled_from([1, 3]),
)
def test_each_row_comes_once_with_its_partition_and_bucket_in_order(
    warehouse: Any, rows: list[Any], partition: list[str], function: str | None, buckets: int
) -> None:
    options = {"bucket": f"{buckets}", "bucket-key": "k", "bucket-function.type": function} if function else {}
    name = f"db.t_{'_'.join(partition)}_{function}_{buckets}"
    if name not in {f"db.{name}" for name in warehouse.list_tables("db")}:
        create_table(warehouse, name[3:], COLUMNS, partition_keys=partition, options=options)
    table = warehouse.get_table(name)
    batch = rows_of(COLUMNS, [(*row, number) for number, row in enumerate(rows)])
    seen, places = [], set()
    for values, bucket, part in Router(PaimonTable(table)).parts(batch):
        place = (repr(values), bucket)
        assert place not in places
        places.add(place)
        numbers = part["n"].to_pylist()
        assert numbers == sorted(numbers)
        seen += numbers
        for number, key in zip(numbers, part["k"].to_pylist(), strict=True):
            row = dict(zip(COLUMNS.names, rows[number], strict=False))
            assert repr(tuple(row[each] for each in partition)) == repr(values)
            if function == "mod":
                assert bucket == (key or 0) % buckets
            elif function:
                (key_hash,) = key_hashes([pa.array([key], pa.int64())], BucketKeys.of(PaimonTable(table)).fields)
                assert bucket == abs(math.fmod(key_hash, buckets))
            else:
                assert bucket == 0
    assert sorted(seen) == list(range(len(rows)))


@pytest.mark.parametrize(
    ("function", "key", "message"),
    [("hive", "k", "got 'hive'"), ("mod", "s", "needs a bucket key of one INT or BIGINT")],
)
def test_other_bucket_functions_are_refused(warehouse: Any, function: str, key: str, message: str) -> None:
    options = {"bucket": "3", "bucket-key": key, "bucket-function.type": function}
    table = create_table(warehouse, "t", COLUMNS, options=options)
    with pytest.raises(UnsupportedTableError, match=message):
        check_writable(PaimonTable(table), False)
