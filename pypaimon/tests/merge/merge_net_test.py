"""Net changes between two states, and rows in which they differ, against comparing dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.merge import differing_rows, net_changes
from support.models.merging import KIND_NAMES, Record, comparable, java_key, to_batches
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TYPES = {
    "k": pa.string(),
    "n": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "d": pa.decimal128(30, 0),
    "l": pa.list_(pa.float64()),
    "r": pa.struct([("a", pa.int32()), ("b", pa.string())]),
}
FLOATS = st.sampled_from([0.0, -0.0, float("nan"), 1.5])
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 1),
        "x": st.none() | FLOATS,
        "s": st.none() | st.sampled_from(["", "a"]),
        "d": st.none(),
        "l": st.none() | st.lists(st.none() | FLOATS, max_size=1),
        "r": st.none() | st.fixed_dictionaries({"a": st.none() | st.just(1), "b": st.none()}),
    }
)
STATES = st.dictionaries(st.sampled_from(["", "a", "a\0", "b", "é", "long" * 20]), ROWS)
CUTS = st.lists(st.integers(0, 6), max_size=3)


KINDS = st.dictionaries(st.sampled_from(["", "a", "b"]), st.sampled_from([0, 2, 3]))


def batches(state: dict[str, Any], cuts: list[int], kinds: Mapping[str, int] = MappingProxyType({})) -> Any:
    records = [Record(kinds.get(key, 0), 0, {"k": key, **state[key]}) for key in sorted(state, key=java_key)]
    for batch in to_batches(records, TYPES, cuts):
        yield batch.drop_columns(["_SEQUENCE_NUMBER"])


@given(before=STATES, after=STATES, cuts=st.tuples(CUTS, CUTS), kept=st.booleans(), only_n=st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_net_changes(
    before: dict[str, Any], after: dict[str, Any], cuts: tuple[list[int], list[int]], kept: bool, only_n: bool
) -> None:
    if kept:
        after = {**before, **dict(list(after.items())[:2])}
    expected = []
    for key in sorted(before.keys() | after.keys(), key=java_key):
        old, new = before.get(key), after.get(key)
        rows = [(kind, {"k": key, **row}) for kind, row in (("-U", old), ("+U", new)) if row is not None]
        if len(rows) == 1:
            expected.append(("+I" if old is None else "-D", rows[0][1]))
        elif any(
            comparable([("", {n: old[n]})]) != comparable([("", {n: new[n]})]) for n in (["n"] if only_n else ROW_NAMES)
        ):
            expected += rows
    got = []
    for batch in net_changes(batches(before, cuts[0]), batches(after, cuts[1]), ["k"], ["n"] if only_n else None):
        assert batch.num_rows
        got += [(KIND_NAMES[row.pop("_VALUE_KIND")], row) for row in batch.to_pylist()]
    assert comparable(got) == comparable(expected)


@given(before=STATES, after=STATES, kinds=st.tuples(KINDS, KINDS), cuts=st.tuples(CUTS, CUTS), kept=st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_differing_rows(
    before: dict[str, Any],
    after: dict[str, Any],
    kinds: tuple[dict[str, int], dict[str, int]],
    cuts: tuple[list[int], list[int]],
    kept: bool,
) -> None:
    """Java's difference: a stored delete is a record like others, and is told where it was not there before."""
    if kept:
        after = {**before, **dict(list(after.items())[:2])}
    expected = []
    for key in sorted(before.keys() | after.keys(), key=java_key):
        old, new = before.get(key), after.get(key)
        was_row, kind = kinds[0].get(key, 0) != 3, kinds[1].get(key, 0)
        if new is None:
            assert old is not None
            expected += [("-D", {"k": key, **old})] if was_row else []
        elif old is None or was_row != (kind != 3) or comparable([("", old)]) != comparable([("", new)]):
            expected.append((KIND_NAMES[kind], {"k": key, **new}))
    got = []
    for batch in differing_rows(batches(before, cuts[0], kinds[0]), batches(after, cuts[1], kinds[1]), ["k"]):
        assert batch.num_rows
        got += [(KIND_NAMES[row.pop("_VALUE_KIND")], row) for row in batch.to_pylist()]
    assert comparable(got) == comparable(expected)


ROW_NAMES = [name for name in TYPES if name != "k"]
