"""What is a key of a table, is one for `get` and for `get_many`: what its column holds without loss."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.live.arrow_row_store import VersionedRows
from pypaimon.streaming.live.row_store import TableVersion
from pypaimon.streaming.testing import SmallTable
from support.tables.live_tables import often

DAY, SUMMER = datetime(2024, 1, 1), timezone(timedelta(hours=2))
UTC_DAY = DAY.replace(tzinfo=timezone.utc)

CASES: list[tuple[pa.DataType, Any, list[Any], list[Any]]] = [
    (pa.int64(), 7, [7, 7.0, np.int8(7)], [True, "7", b"7", 7.5, Decimal(7), DAY, 2**63, -(2**63) - 1, 2**200, [7]]),
    (pa.int32(), -7, [-7, -7.0, np.int64(-7)], [2**31, -(2**31) - 1, 2**40, 2**70, np.int64(2**40), False]),
    (pa.int8(), 127, [127], [128, -129]),
    (pa.string(), "7", ["7"], [7, b"7", True, "\ud800", ["7"]]),
    (pa.binary(), b"7", [b"7"], ["7", 7]),
    (pa.binary(3), b"abc", [b"abc"], ["abc", 7]),
    (pa.bool_(), True, [True, np.bool_(True)], [1, 1.0, "true"]),
    (pa.decimal128(10, 2), Decimal("7.50"), [Decimal("7.5"), Decimal("7.500")], [7.5, "7.5", Decimal("7.505"), 10**9]),
    (pa.decimal128(38, 30), Decimal(7), [7, Decimal(7)], [10**9, True]),
    (pa.float64(), 7.0, [7, 7.0], [True, "7", 2**53 + 1]),
    (pa.float32(), 0.1, [0.1], ["0.1"]),
    (pa.date32(), DAY.date(), [DAY.date()], [DAY, "2024-01-01", 19723]),
    (pa.time32("ms"), time(1, 2), [time(1, 2)], [time(1, 2, 3, 4), 7, DAY]),
    (pa.timestamp("ms"), DAY, [DAY], [UTC_DAY, DAY.date(), 7, DAY + timedelta(microseconds=1)]),
    (pa.timestamp("us", "UTC"), UTC_DAY, [UTC_DAY, UTC_DAY.astimezone(SUMMER)], [DAY, date(2024, 1, 1), 7]),
]


@pytest.mark.parametrize(("kind", "held", "taken", "refused"), CASES, ids=[str(case[0]) for case in CASES])
def test_get_and_get_many_take_the_same_keys(
    kind: pa.DataType, held: Any, taken: list[Any], refused: list[Any]
) -> None:
    schema = pa.schema([("a", kind), ("value", pa.string())])
    rows = VersionedRows(schema, ["a"])
    rows.apply(pa.table([pa.array([held], kind), ["x"]], schema=schema), np.ones(1, np.bool_), TableVersion())
    for given in taken:
        found = rows.get(given)
        assert found is not None and found["value"] == "x", given
        assert rows.get_many([given, None])["value"].to_pylist() == ["x", None], given
        assert rows.get_many(pa.table({"a": [given]}))["value"].to_pylist() == ["x"], given
    assert rows.get(None) is None and rows.get({"a": None}) is None
    for given in refused:
        with pytest.raises(StreamConfigError, match="the key of the table is"):
            rows.get(given)
        with pytest.raises(StreamConfigError, match="the key of the table is"):
            rows.get_many([given])


def test_nanoseconds_of_pandas_are_not_cut() -> None:
    """Arrow takes a timestamp of pandas for microseconds, so that the key would be that of another row."""
    fine, coarse = pd.Timestamp(1577836800123456789), pd.Timestamp(1577836800123456000)
    for zone in (None, "UTC"):
        schema = pa.schema([("a", pa.timestamp("ns", zone)), ("value", pa.string())])
        keys = [each.tz_localize(zone) for each in (fine, coarse)]
        rows = VersionedRows(schema, ["a"])
        held = pa.table([pa.array(keys, schema.field("a").type), ["fine", "coarse"]], schema=schema)
        rows.apply(held, np.ones(2, np.bool_), TableVersion())
        for key, value in zip(keys, ["fine", "coarse"], strict=True):
            found = rows.get(key)
            assert found is not None and found["value"] == value
            assert rows.get_many([None, key])["value"].to_pylist() == [None, value]
        assert rows.get(keys[0] + pd.Timedelta(1)) is None
    rows = VersionedRows(pa.schema([("a", pa.timestamp("us"))]), ["a"])
    with pytest.raises(StreamConfigError, match="the key of the table is"):
        rows.get(fine)


def test_columns_of_arrow_are_cast() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("value", pa.string())])
    rows = VersionedRows(schema, ["a", "b"])
    rows.apply(pa.table([[1, 2], ["x", "y"], ["1x", "2y"]], schema=schema), np.ones(2, np.bool_), TableVersion())
    numbers, texts = pa.array([1, 2, 2, 2], pa.int32()), pa.array(["x", "x", "y", None])
    casts = [numbers.cast(kind) for kind in (pa.int8(), pa.uint64(), pa.int32(), pa.float32())]
    for of_a in (*casts, numbers.dictionary_encode()):
        for of_b in (texts, texts.cast(pa.large_string()), texts.dictionary_encode()):
            asked = pa.table({"b": of_b, "more": [0] * 4, "a": of_a})
            asked = pa.concat_tables([asked.slice(0, 1), asked.slice(1)])
            for given in (asked, asked.combine_chunks().to_batches()[0]):
                assert rows.get_many(given)["value"].to_pylist() == ["1x", None, "2y", None]
    dictionaries = pa.chunked_array([pa.array(["x"]).dictionary_encode(), pa.array(["y", "x"]).dictionary_encode()])
    asked = pa.table({"a": [1, 2, None], "b": dictionaries})
    assert rows.get_many(asked)["value"].to_pylist() == ["1x", "2y", None]
    assert rows.get((1, "x")) == rows.get({"b": "x", "a": 1}) == {"a": 1, "b": "x", "value": "1x"}
    assert rows.get((1, None)) is None


@pytest.mark.parametrize(
    "given",
    [
        pa.array([2**40]),
        pa.array([2**63], pa.uint64()),
        pa.array(["1"]),
        pa.array([1.5]),
        pa.array([True]),
        pa.array([1], pa.timestamp("us")),
        pa.array([[1]]),
        pa.table([[1], [2]], ["a", "a"]),
        pa.table({"b": [1]}),
        {"a": 1},
        "1",
        7,
    ],
)
def test_columns_that_do_not_fit_are_refused(given: Any) -> None:
    rows = VersionedRows(pa.schema([("a", pa.int32()), ("value", pa.string())]), ["a"])
    with pytest.raises(StreamConfigError, match=r"the key of the table is \(a int32\)"):
        rows.get_many(given)


def test_they_are_the_same_on_disk(tmp_path: Path) -> None:
    columns = pa.schema(
        [pa.field("a", pa.int32(), False), pa.field("b", pa.timestamp("ns"), False), ("value", pa.string())]
    )
    table = SmallTable(tmp_path, keys=("a", "b"), columns=columns)
    table.commit({"a": 1, "b": DAY, "value": "x"})
    with often(table.table).open_live_sync(memory_limit_bytes=0) as live:
        for given in ((1, DAY), (1.0, DAY), {"b": np.datetime64(DAY), "a": np.int64(1)}):
            found = live.get(given)
            assert found is not None and found["value"] == "x"
        days = pa.array([DAY, DAY]).cast(pa.timestamp("s"))
        assert live.get_many(pa.table({"b": days, "a": [1, 2]}))["value"].to_pylist() == ["x", None]
        assert live.get((1, None)) is None and live.get((2, DAY)) is None
        for refused in ((2**31, DAY), (1, UTC_DAY), (True, DAY), (1, 7)):
            with pytest.raises(StreamConfigError, match="the key of the table is"):
                live.get(refused)
            with pytest.raises(StreamConfigError, match="the key of the table is"):
                live.get_many(pa.table([[value] for value in refused], ["a", "b"]))
