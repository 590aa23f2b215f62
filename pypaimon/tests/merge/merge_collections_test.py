"""Aggregates that keep a first value, tables in a row, or sets, against plain Python on random records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from support.models.merging import Case, Function, check, unless_null
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ITEM = pa.struct([("id", pa.int32()), ("seq", pa.int32()), ("v", pa.string())])
TIMED = pa.struct([("v", pa.int32()), ("ts", pa.string())])
Item = dict[str, Any]

SMALL = st.none() | st.integers(0, 3)
ITEMS = st.none() | st.lists(
    st.fixed_dictionaries({"id": SMALL, "seq": SMALL, "v": st.none() | st.sampled_from("ab")}), max_size=3
)
TIMED_MAPS = st.none() | st.dictionaries(
    st.integers(0, 2),
    st.none() | st.fixed_dictionaries({"v": st.integers(0, 9), "ts": st.none() | st.sampled_from("abc")}),
    max_size=3,
).map(lambda value: list(value.items()))
BITMAPS = st.none() | st.sets(st.integers(0, 5)).map(lambda values: BitMap(values).serialize())


class First:
    """A first value that may be null, told from none at all."""

    def __init__(self, value: Any) -> None:
        self.value = value


def by_id(there: list[Item], new: list[Item], put: Callable[[dict[Any, Item], Item], None]) -> list[Item]:
    """Rows put into a table with the key `id`, one after the other."""
    table: dict[Any, Item] = {}
    for item in [*there, *new]:
        put(table, item)
    return list(table.values())


def replace(table: dict[Any, Item], item: Item) -> None:
    table[item["id"]] = item


def replace_in_sequence(table: dict[Any, Item], item: Item) -> None:
    there = table.get(item["id"])
    if there is None or (item["seq"] is not None, item["seq"] or 0) >= (there["seq"] is not None, there["seq"] or 0):
        table[item["id"]] = item


def fill(table: dict[Any, Item], item: Item) -> None:
    there = table.get(item["id"], dict.fromkeys(item))
    table[item["id"]] = {name: there[name] if value is None else value for name, value in item.items()}


def table_of(put: Callable[[dict[Any, Item], Item], None], retracts: bool = True) -> Function:
    def add(there: Any, new: Any) -> Any:
        return there if new is None else by_id(there or [], new, put)

    def retract(there: Any, new: Any) -> Any:
        if there is None or new is None:
            return there
        gone = {item["id"] for item in new}
        return [item for item in by_id(there, [], replace) if item["id"] not in gone]

    return Function(add, retract if retracts else None)


def list_of(limit: int) -> Function:
    def add(there: Any, new: Any) -> Any:
        return there if new is None else [*(there or []), *new[: max(0, limit - len(there or []))]]

    def retract(there: Any, new: Any) -> Any:
        return there if there is None or new is None else [item for item in there if item not in new]

    return Function(add, retract)


def newest_by_time(there: Any, new: Any) -> Any:
    result = dict(there)
    for key, item in new:
        if item is None:
            result.pop(key, None)
        elif item["ts"] is not None and (
            result.get(key) is None or result[key]["ts"] is None or item["ts"] > result[key]["ts"]
        ):
            result[key] = item
    return list(result.items())


def united(there: bytes, new: bytes) -> bytes:
    united = BitMap.deserialize(there) | BitMap.deserialize(new)
    # As Java does before it writes one.
    united.run_optimize()
    return united.serialize()  # type: ignore[no-any-return]


KEYED = {"nested-key": "id"}
CASES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any], Function, dict[str, str]]] = {
    "first_value": ("first_value", pa.int32(), SMALL, Function(lambda there, new: there or First(new)), {}),
    "first_non_null_value": (
        "first_non_null_value",
        pa.int32(),
        SMALL,
        Function(lambda there, new: new if there is None else there),
        {},
    ),
    "rbm32": ("rbm32", pa.binary(), BITMAPS, Function(unless_null(united)), {}),
    "rows": ("nested_update", pa.list_(ITEM), ITEMS, list_of(1 << 31), {}),
    "few rows": ("nested_update", pa.list_(ITEM), ITEMS, list_of(3), {"count-limit": "3"}),
    "rows by key": ("nested_update", pa.list_(ITEM), ITEMS, table_of(replace), KEYED),
    "rows by key in sequence": (
        "nested_update",
        pa.list_(ITEM),
        ITEMS,
        table_of(replace_in_sequence),
        KEYED | {"nested-sequence-field": "seq"},
    ),
    "partial rows": ("nested_partial_update", pa.list_(ITEM), ITEMS, table_of(fill, retracts=False), KEYED),
    "timed map": (
        "merge_map_with_keytime",
        pa.map_(pa.int32(), TIMED),
        TIMED_MAPS,
        Function(unless_null(newest_by_time)),
        {},
    ),
}


def in_order(value: Any) -> Any:
    """Tables, maps and the names in a row have no order."""
    value = value.value if isinstance(value, First) else value
    return sorted(map(text, value)) if isinstance(value, list) else value


def text(item: Any) -> str:
    if isinstance(item, tuple):
        return f"{item[0]}: {text(item[1])}"
    return repr(item and sorted(item.items()))


@pytest.mark.parametrize("case", CASES)
@given(data=st.data(), deletes=st.sampled_from(["retract", "ignore", "none"]))
@settings(max_examples=examples(40), deadline=None)
def test_function(case: str, deletes: str, data: st.DataObject) -> None:
    check(Case(*CASES[case]), deletes, data, in_order)
