"""Canonical order, units, limits, and going on inside a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming import TableChangedError
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.planned_units import PlannedUnits
from pypaimon.streaming.planning.units import Units, each_file, in_canonical_order, whole_buckets, whole_row_id_groups

pytestmark = pytest.mark.slow

COLUMNS = pa.schema(
    [
        ("partition", pa.binary()),
        ("bucket", pa.int32()),
        ("file_name", pa.string()),
        ("file_size", pa.int64()),
        ("row_count", pa.int64()),
        ("min_sequence_number", pa.int64()),
        ("first_row_id", pa.int64()),
    ]
)


def texts(partitions: pa.Array) -> list[tuple[str | None, ...]]:
    return [(None if partition == b"-" else partition.decode(),) for partition in partitions.to_pylist()]


def entry(name: str, partition: str = "p", bucket: int = 0, **values: Any) -> dict[str, Any]:
    defaults = {"file_size": 100, "row_count": 10, "min_sequence_number": 0, "first_row_id": None}
    return {"partition": partition.encode(), "bucket": bucket, "file_name": name, **defaults, **values}


def units_of(*entries: dict[str, Any], unit: Any = each_file, by_sequence: bool = False) -> Units:
    table = pa.Table.from_pylist(list(entries), COLUMNS)
    return in_canonical_order(table, texts, by_sequence=by_sequence, unit=unit)


def names(units: Units, chosen: Any = None) -> list[str]:
    if chosen is not None and chosen.dtype == bool:
        chosen = np.flatnonzero(chosen)
    entries = units.entries if chosen is None else units.chosen(chosen)
    found: list[str] = entries["file_name"].to_pylist()
    return found


def row_by_row_after(units: Units, last: ReadUnit) -> Any:
    """Which entries come after a unit, each looked at by itself."""
    places = zip(units.partition, units.bucket, units.index, strict=True)
    each = (ReadUnit(units.partitions[rank], int(bucket), "", int(index)) for rank, bucket, index in places)
    return np.array([unit.order() > last.order() for unit in each], dtype=bool)


def row_by_row(units: Units, rest: Any, limits: Limits) -> tuple[list[int], ReadUnit | None]:
    """The next part of what is left to read, by looking at one entry after the other."""
    chosen: list[int] = []
    taken = [0, 0, 0]
    for number in sorted(set(units.of_entry[rest].tolist())):
        inside = np.flatnonzero(units.of_entry == number)
        read = [int(entry) for entry in inside if rest[entry]]
        if limits.until is not None:
            if units.unit_at(read[-1]).order() > limits.until.order():
                return chosen, limits.until
        else:
            part = units.entries.take(pa.array(read))
            sizes = (1, sum(part["row_count"].to_pylist()), sum(part["file_size"].to_pylist()))
            added = [before + size for before, size in zip(taken, sizes, strict=True)]
            bounds = (limits.max_splits, limits.max_rows, limits.max_bytes)
            if chosen and any(bound is not None and size > bound for bound, size in zip(bounds, added, strict=True)):
                return chosen, units.unit_at(int(np.flatnonzero(units.of_entry == units.of_entry[chosen[-1]])[-1]))
            taken = added
        chosen += read
    return chosen, limits.until


def everything(units: Units) -> Any:
    return np.ones(len(units.bucket), dtype=bool)


def test_partitions_by_text_null_first_and_bucket_minus_two_last() -> None:
    units = units_of(
        entry("f", "b", 0),
        entry("e", "a", -2),
        entry("d", "a", 10),
        entry("c", "a", 2),
        entry("b", "", 0),
        entry("a", "-", 0),
    )
    assert names(units) == ["a", "b", "c", "d", "e", "f"]


def test_files_of_a_bucket_stand_as_in_the_manifests_or_by_sequence() -> None:
    entries = [entry("x", min_sequence_number=7), entry("y", min_sequence_number=3), entry("z", min_sequence_number=3)]
    assert names(units_of(*entries)) == ["x", "y", "z"]
    assert names(units_of(*entries, by_sequence=True)) == ["y", "z", "x"]


def test_nothing_has_no_units() -> None:
    units = units_of()
    chosen, last = PlannedUnits(units, everything(units)).part(None, Limits(max_splits=1))
    assert (len(chosen), last) == (0, None)
    assert units.first_after(ReadUnit(("p",), 0, "x", 0)) == 0


def test_whole_buckets_but_for_bucket_minus_two() -> None:
    entries = [entry("a"), entry("b"), entry("c", bucket=1), entry("d", bucket=-2), entry("e", bucket=-2)]
    assert units_of(*entries, unit=whole_buckets).of_entry.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ranges", "groups"),
    [
        ([(0, 10), (10, 5)], [0, 1]),
        ([(0, 10), (0, 10), (10, 5)], [0, 0, 1]),
        ([(0, 3), (0, 10), (3, 3), (6, 4), (10, 1)], [0, 0, 0, 0, 1]),
        ([(0, 10), (2, 2), (9, 5), (13, 1), (14, 1)], [0, 0, 0, 0, 1]),
        ([(None, 10), (None, 10), (0, 5)], [0, 1, 2]),
    ],
)
def test_files_whose_row_ids_overlap_are_one_unit(ranges: list[tuple[int | None, int]], groups: list[int]) -> None:
    entries = [entry(str(first), first_row_id=first, row_count=count) for first, count in ranges]
    assert units_of(*entries, unit=whole_row_id_groups).of_entry.tolist() == groups


def test_row_ids_of_another_partition_overlap_nothing() -> None:
    entries = [entry("a", "p", first_row_id=0), entry("b", "q", first_row_id=5)]
    assert units_of(*entries, unit=whole_row_id_groups).of_entry.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        (Limits(max_splits=2), ["a", "b"]),
        (Limits(max_rows=25), ["a", "b"]),
        (Limits(max_rows=1), ["a"]),
        (Limits(max_bytes=300), ["a", "b", "c"]),
        (Limits(max_bytes=399), ["a", "b", "c"]),
        (Limits(max_bytes=400), ["a", "b", "c", "d"]),
        (Limits(max_splits=3, max_rows=10), ["a"]),
    ],
)
def test_a_limit_cuts_between_units_and_lets_one_pass(limits: Limits, wanted: list[str]) -> None:
    units = units_of(*(entry(name) for name in "abcd"))
    chosen, last = PlannedUnits(units, everything(units)).part(None, limits)
    assert names(units, chosen) == wanted
    assert (last is None) == (len(wanted) == 4)
    if last is not None:
        assert last.file_name == wanted[-1]


def test_the_place_of_a_unit_counts_files_that_are_not_read() -> None:
    units = units_of(*(entry(name) for name in "abcd"))
    _, last = PlannedUnits(units, np.array([False, True, True, True])).part(None, Limits(max_splits=1))
    assert last == ReadUnit(("p",), 0, "b", 1)


def test_another_file_in_the_place_of_a_unit_is_an_error_only_where_that_is_read() -> None:
    units = units_of(entry("a"), entry("b"), entry("c", "q"))
    handed_out = ReadUnit(("p",), 0, "x", 1)
    with pytest.raises(TableChangedError, match="file x"):
        units.check_holds(handed_out, everything(units))
    units.check_holds(handed_out, np.array([True, False, True]))
    units.check_holds(ReadUnit(("p",), 0, "b", 1), everything(units))
    units.check_holds(ReadUnit(("p",), 1, "x", 1), everything(units))


def test_after_a_partition_that_is_not_there_come_those_whose_text_is_greater() -> None:
    units = units_of(entry("a", "p"), entry("b", "r"), entry("c", "s"))
    for partition, wanted in (("o", "abc"), ("q", "bc"), ("t", ""), (None, "abc")):
        assert names(units)[units.first_after(ReadUnit((partition,), 7, "x", 7)) :] == list(wanted)


@given(
    buckets=st.lists(st.tuples(st.sampled_from("-pq"), st.sampled_from([-2, 0, 1, 7])), max_size=30),
    whole=st.booleans(),
    data=st.data(),
)
def test_plans_cut_by_any_limits_hold_every_unit_once_in_order(
    buckets: list[tuple[str, int]], whole: bool, data: st.DataObject
) -> None:
    """Also if what is read changes on the way: each reader gets what it reads of the rest."""
    entries = [entry(str(number), *bucket) for number, bucket in enumerate(buckets)]
    units = units_of(*entries, unit=whole_buckets if whole else each_file)
    wanted, found = [], []
    last = None
    while True:
        kept = everything(units)
        if data.draw(st.booleans()):
            kept &= np.array(
                data.draw(st.lists(st.booleans(), min_size=len(entries), max_size=len(entries))), dtype=bool
            )
        rest = kept if last is None else kept & row_by_row_after(units, last)
        limits = Limits(max_splits=data.draw(st.integers(1, 4)))
        chosen, last = PlannedUnits(units, kept).part(last, limits)
        found += names(units, chosen)
        wanted += [name for name in names(units, rest) if last is None or name in names(units, chosen)]
        if last is None:
            break
        units.check_holds(last, everything(units))
    assert found == wanted
    assert found == [name for name in names(units) if name in set(found)]


_drawn_entry = st.builds(
    entry,
    st.sampled_from("abcdef"),
    st.sampled_from("-pqr"),
    st.sampled_from([-2, -1, 0, 1, 7]),
    row_count=st.integers(0, 20),
    file_size=st.integers(0, 50),
)
_drawn_limits = st.builds(
    Limits,
    max_splits=st.none() | st.integers(1, 4),
    max_rows=st.none() | st.integers(1, 40),
    max_bytes=st.none() | st.integers(1, 90),
)


@given(
    drawn=st.lists(_drawn_entry, max_size=30),
    whole=st.booleans(),
    limits=_drawn_limits,
    place=st.builds(
        ReadUnit,
        st.sampled_from([(None,), ("p",), ("q",), ("zz",)]),
        st.integers(-2, 8),
        st.just("a"),
        st.integers(0, 3),
    ),
    until=st.booleans(),
    data=st.data(),
)
def test_parts_are_those_that_are_found_row_by_row(
    drawn: list[dict[str, Any]], whole: bool, limits: Limits, place: ReadUnit, until: bool, data: st.DataObject
) -> None:
    units = units_of(*drawn, unit=whole_buckets if whole else each_file)
    size = len(drawn)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool)
    parts = PlannedUnits(units, kept)
    assert (np.arange(size) >= units.first_after(place)).tolist() == row_by_row_after(units, place).tolist()
    if until and not whole:
        limits = Limits(until=place)
    last = data.draw(st.none() | (st.sampled_from(range(size)).map(units.unit_at) if size else st.none()))
    for _ in range(size + 1):
        rest = kept if last is None else kept & row_by_row_after(units, last)
        chosen, following = parts.part(last, limits)
        wanted, wanted_last = row_by_row(units, rest, limits)
        assert (chosen.tolist(), following) == (wanted, wanted_last)
        if following is None or limits.until is not None:
            break
        last = following


@given(
    drawn=st.lists(_drawn_entry, max_size=30),
    last=st.builds(
        ReadUnit,
        st.sampled_from([(None,), ("p",), ("q",), ("zz",)]),
        st.integers(-2, 8),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    data=st.data(),
)
def test_the_place_of_a_unit_is_found_as_row_by_row(
    drawn: list[dict[str, Any]], last: ReadUnit, data: st.DataObject
) -> None:
    units = units_of(*drawn)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn))), dtype=bool)
    all_units = [units.unit_at(entry) for entry in range(len(drawn))]
    here = [
        unit
        for unit in all_units
        if (unit.partition, unit.bucket, unit.index) == (last.partition, last.bucket, last.index)
    ]
    read = [unit for unit, is_kept in zip(all_units, kept, strict=True) if is_kept]

    def refuses(check: Any) -> bool:
        try:
            check(last, kept)
        except TableChangedError:
            return True
        return False

    assert refuses(units.check_holds) == any(unit.file_name != last.file_name for unit in here if unit in read)
    inside = any(unit.partition == last.partition for unit in read)
    assert refuses(units.check_in_place) == (inside and all(unit.file_name != last.file_name for unit in here))
