"""Which files of append tables become one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.compaction.tasks import neighbours, packs
from support.tables.manifest_entries import OPTIONS, live_file

FEW = replace(OPTIONS, min_files=3)


def files(*sizes: int) -> list[LiveFile]:
    return [live_file(f"f{index}", size=size, sequence=index) for index, size in enumerate(sizes)]


def names(found: list[list[LiveFile]]) -> list[list[str]]:
    return [[file.name for file in pack] for pack in found]


def test_small_files_wait_until_they_are_enough() -> None:
    assert packs(files(1, 2), FEW, full=False) == []
    assert names(packs(files(3, 1, 2), FEW, full=False)) == [["f1", "f2", "f0"]]
    assert names(packs(files(1, 2), FEW, full=True)) == [["f0", "f1"]]
    assert packs(files(1), FEW, full=True) == []


def test_a_file_alone_is_never_due() -> None:
    alone = replace(FEW, min_files=1)
    assert packs(files(1), alone, full=False) == []
    assert neighbours(files(1), alone, full=False) == []
    assert names(neighbours(files(1, 1, 1), alone, full=False)) == [["f0", "f1"]]


def test_neighbours_that_would_become_no_fewer_are_never_due() -> None:
    pairs = replace(FEW, min_files=2)
    assert neighbours(files(900, 900), pairs, full=False) == []
    assert names(neighbours(files(900, 900, 50, 40), pairs, full=False)) == [["f0", "f1", "f2"]]


def test_large_files_stay() -> None:
    assert names(packs(files(700, 1, 699, 2), FEW, full=False)) == [["f1", "f3", "f2"]]
    assert packs(files(700, 800, 900), FEW, full=True) == []


def test_a_pack_ends_at_twice_the_size_of_a_file() -> None:
    # Two of 699, and what opening them costs, are below 2,000; three are above.
    assert names(packs(files(*[699] * 5), FEW, full=False)) == [["f0", "f1", "f2"]]
    assert names(packs(files(*[699] * 5), FEW, full=True)) == [["f0", "f1", "f2"], ["f3", "f4"]]


def test_only_neighbours_of_a_bucket_become_one() -> None:
    assert names(neighbours(files(1, 2, 3, 4, 5), FEW, full=False)) == [["f0", "f1", "f2"]]
    assert names(neighbours(files(2000, 1, 1, 1), FEW, full=False)) == [["f1", "f2", "f3"]]


def test_a_full_compaction_of_a_bucket_begins_at_its_first_small_file() -> None:
    assert names(neighbours(files(900, 1, 2, 800, 3), FEW, full=True)) == [["f1", "f2", "f3", "f4"]]
    assert neighbours(files(900, 1, 2), FEW, full=True) == []  # fewer than three
    assert neighbours(files(1, 900, 900), FEW, full=True) == []  # more large ones than small
    assert names(neighbours(files(900), replace(FEW, force_rewrite=True), full=True)) == [["f0"]]


@given(st.lists(st.integers(1, 1500), max_size=30), st.booleans())
def test_packs_of_a_bucket_follow_each_other(sizes: list[int], full: bool) -> None:
    given_ = files(*sizes)
    found = [given_.index(file) for pack in neighbours(given_, FEW, full=full) for file in pack]
    assert found == sorted(set(found))
    for pack in neighbours(given_, FEW, full=full):
        first = given_.index(pack[0])
        assert pack == given_[first : first + len(pack)]


@given(st.lists(st.integers(1, 1500), max_size=30), st.booleans())
def test_a_file_is_in_one_pack_at_most(sizes: list[int], full: bool) -> None:
    taken = [file.name for pack in packs(files(*sizes), FEW, full=full) for file in pack]
    assert len(taken) == len(set(taken))
