"""Rows of a live table by another column and by ranges of the key, compared with a search through all rows."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.live.arrow_row_store import VersionedRows
from pypaimon.streaming.live.row_order import RowOrder, RowRange, rows_between, rows_equal_to
from pypaimon.streaming.live.row_store import TableVersion
from pypaimon.streaming.testing import SmallTable
from support.samples import SOAK, seeded
from support.tables.live_tables import KEYS, columns_of, in_order, keyed_changes, often

pytestmark = [pytest.mark.slow, pytest.mark.soak]

IN_MEMORY, ON_DISK = 1 << 30, 0


def key_of(row: dict[str, Any], keys: list[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


# DuckDB holds no keys of floats.
PLACES = [(kind, limit) for kind in KEYS for limit in (IN_MEMORY, ON_DISK) if (kind, limit) != ("double", ON_DISK)]


@pytest.mark.parametrize(("kind", "memory_limit_bytes"), PLACES)
def test_lookups_are_those_of_a_search(tmp_path: Path, kind: str, memory_limit_bytes: int) -> None:
    random = seeded(f"lookups {kind}")
    keys = list(KEYS[kind][0])
    table = SmallTable(tmp_path, keys=tuple(keys), columns=columns_of(kind))
    with often(table.table).open_live_sync(memory_limit_bytes=memory_limit_bytes) as live:
        for step in range(12 if SOAK else 4):
            live.wait_for(table.commit(*keyed_changes(kind, step, random)))
            rows = live.to_arrow().to_pylist()
            for value in {row["number"] for row in rows} - {None}:
                expected = [row for row in rows if row["number"] == value]
                assert in_order(live.find("number", value).to_pylist()) == in_order(expected)
            for row in rows[:3]:
                given = (row["money"], row["number"])
                expected = [each for each in rows if (each["money"], each["number"]) == given and None not in given]
                assert in_order(live.find(["money", "number"], given).to_pylist()) == in_order(expected)
            assert live.find("number", -1).num_rows == 0
            assert live.find("number", None).num_rows == 0
            ordered = sorted(rows, key=lambda row: key_of(row, keys))
            assert live.get_range().to_pylist() == ordered
            for _ in range(4):
                low, high = (key_of(random.choice(rows), keys) if rows else KEYS[kind][1](random) for _ in range(2))
                expected = [row for row in ordered if low <= key_of(row, keys) < high]
                given_low, given_high = (each if len(keys) > 1 else each[0] for each in (low, high))
                assert live.get_range(given_low, given_high).to_pylist() == expected
                if len(keys) > 1:
                    expected = [row for row in ordered if low[0] <= row[keys[0]] < high[0]]
                    assert live.get_range(low[:1], high[:1]).to_pylist() == expected


@pytest.mark.parametrize("memory_limit_bytes", [IN_MEMORY, ON_DISK], ids=["memory", "disk"])
def test_what_cannot_be_looked_up_is_refused(tmp_path: Path, memory_limit_bytes: int) -> None:
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("tags", pa.list_(pa.string())), ("n", pa.int32())]
    )
    table = SmallTable(tmp_path, columns=columns)
    table.commit({"id": 1, "n": 1})
    with often(table.table).open_live_sync(memory_limit_bytes=memory_limit_bytes) as live:
        for given, words in [
            (("missing", 1), "no column 'missing'; columns: id, tags, n"),
            (("tags", ["a"]), "'tags' is list.* no order"),
            (("n", "x"), r"looked up by \(n int32\)"),
            ((["n", "n"], (1, 1)), "several different ones"),
            (([], ()), "give a column"),
            ((["n", "id"], 1), r"looked up by \(n int32, id int64\), and not 1: give a tuple or a dict"),
        ]:
            with pytest.raises(StreamConfigError, match=words):
                live.find(*given)
        with pytest.raises(StreamConfigError, match="the key of the table is"):
            live.get_range("x")
        assert live.find(["n", "id"], {"id": 1, "n": 1})["id"].to_pylist() == [1]
    with pytest.raises(StreamConfigError, match="closed"):
        live.find("n", 1)


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [-math.inf, -2.5, -1e-300, 0.0, 1e-300, 2.5, math.inf, math.nan]),
    (pa.float32(), [-math.inf, -2.5, 0.0, 2.5, math.inf, math.nan]),
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.string(), ["", "a", "ab", "é", "￿", "\U0001f600"]),
    (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
    (pa.decimal128(20, 2), [Decimal("-5.00"), Decimal("0.00"), Decimal("0.01")]),
    (pa.bool_(), [False, True]),
    (pa.timestamp("us"), [datetime(1960, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1)]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=str)
def test_values_of_each_type_are_in_their_order(kind: pa.DataType, values: list[Any]) -> None:
    random = seeded(f"order {kind}")
    shuffled = random.sample([*values, *values, None, None], 2 * len(values) + 2)
    column = pa.array(shuffled, kind)
    order = RowOrder([column])
    found = [shuffled[row] for row in order.rows(RowRange(("c",), None, None))]
    assert repr(found) == repr([value for value in values for _ in range(2)])
    for number, value in enumerate(values):
        bound = [pa.array([value], kind)]
        same = order.rows(RowRange(("c",), bound, bound, includes_high=True))
        assert repr([shuffled[row] for row in same]) == repr([value, value])
        assert len(order.rows(RowRange(("c",), None, bound))) == 2 * number


def test_zeros_of_both_signs_are_equal() -> None:
    order = RowOrder([pa.array([1.0, -0.0, 0.0, -1.0])])
    zero = [pa.array([-0.0])]
    assert sorted(order.rows(RowRange(("c",), zero, zero, includes_high=True))) == [1, 2]


def test_the_order_of_other_batches_is_kept_when_rows_come() -> None:
    """Only new batches are ordered; and nothing is, unless somebody looks up."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])

    def batch(begin: int, count: int) -> pa.Table:
        ids = range(begin, begin + count)
        return pa.table({"id": ids, "n": [number % 7 for number in ids]}, schema)

    rows = VersionedRows(schema, ["id"])

    def apply(begin: int, count: int) -> None:
        rows.apply(batch(begin, count), np.ones(count, np.bool_), TableVersion(1))

    apply(0, 100_000)
    before = rows.nbytes
    assert [list(known) for known in rows._version.chunks._orders] == [[]]
    assert rows.between(rows_equal_to(schema, "n", 3)).num_rows == len([n for n in range(100_000) if n % 7 == 3])
    assert rows.nbytes == before + 4 * 100_000
    (first,) = rows._version.chunks._orders
    order = first[("n",)]
    apply(200_000, 10)
    orders = rows._version.chunks._orders
    assert orders[0][("n",)] is order
    assert [list(known) for known in orders] == [[("n",)], [("n",)]]
    found = rows.between(rows_between(schema, ["id"], 99_999, 200_003))
    assert found["id"].to_pylist() == [99_999, 200_000, 200_001, 200_002]
