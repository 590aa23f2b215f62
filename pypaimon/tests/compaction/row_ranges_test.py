"""Which data files of data evolution become one: Java's rule, case by case."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.row_ranges import range_packs
from pypaimon.streaming.files.row_id_groups import RowIdGroup
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.tables.evolving_table import EvolvingTable

Group = tuple[int, int, list[int]]
"""First row id, rows, and the sizes of its files."""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> CompactionOptions:
    table = EvolvingTable(tmp_path_factory.mktemp("t"))
    return replace(CompactionOptions.of(PaimonTable(table.handle)), target_bytes=100, open_bytes=10, min_files=3)


def packs(options: CompactionOptions, groups: list[Group], *, full: bool = False, left_out: int = -1) -> Any:
    """First row ids of the groups of each pack that is due."""
    made = [
        RowIdGroup(first, rows, tuple(SimpleNamespace(file_size=size) for size in sizes))  # type: ignore[arg-type]
        for first, rows, sizes in groups
    ]
    found = range_packs(made, options, full=full, is_merged=lambda group: group.first_row_id != left_out)
    return [[group.first_row_id for group in pack] for pack, is_due in found if is_due]


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ([(0, 5, [10, 10, 10])], [[0]]),
        ([(0, 5, [10, 10])], []),
        ([(0, 5, [10]), (5, 5, [10]), (10, 1, [10])], [[0, 5, 10]]),
        # A gap ends a pack.
        ([(0, 5, [10]), (5, 5, [10]), (11, 1, [10])], []),
        ([(0, 5, [10]), (6, 5, [10, 10]), (11, 1, [10])], [[6, 11]]),
        # A pack is closed with the group that makes it larger than a file.
        ([(0, 1, [50]), (1, 1, [50]), (2, 1, [1]), (3, 1, [90])], [[0, 1, 2]]),
        ([(0, 1, [50]), (1, 1, [50]), (2, 1, [9])], [[0, 1, 2]]),
        ([(0, 1, [99]), (1, 1, [1]), (2, 1, [1]), (3, 1, [1])], []),
        # A larger group is a pack of its own, and what follows begins another one.
        ([(0, 1, [10]), (1, 1, [101]), (2, 1, [10])], []),
        ([(0, 1, [10, 10]), (1, 1, [99, 1, 1]), (2, 1, [10, 10, 10])], [[1], [2]]),
        # Small files count as much as it costs to open them.
        ([(first, 1, [1]) for first in range(12)], [list(range(11))]),
        ([(0, 1, []), (1, 1, [1, 1, 1])], [[1]]),
    ],
)
def test_packs(options: CompactionOptions, groups: list[Group], wanted: Any) -> None:
    assert packs(options, groups) == wanted


def test_two_files_are_enough_for_a_full_compaction(options: CompactionOptions) -> None:
    groups: list[Group] = [(0, 1, [1]), (1, 1, [1]), (3, 1, [1])]
    assert packs(options, groups, full=True) == [[0, 1]]
    assert packs(replace(options, min_files=1), groups) == [[0, 1]]


def test_a_group_that_is_left_out_is_a_gap(options: CompactionOptions) -> None:
    groups: list[Group] = [(0, 1, [1, 1, 1]), (1, 1, [1]), (2, 1, [1, 1])]
    assert packs(options, groups, left_out=1) == [[0]]
