"""Calls of pypaimon's managers and scanners, beside pypaimon's own answers."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pypaimon.consumer.consumer_manager import ConsumerManager as PaimonConsumerManager

from pypaimon.streaming import ConsumerManager, IncrementalDiffScanner, PaimonStreamError, SnapshotManager
from pypaimon.streaming.install import paimon_class
from pypaimon.streaming.stream_types import PlanKind
from support.tables.streamed_table import Table, expire

PaimonDiffScanner = paimon_class("pypaimon.read.scanner.incremental_diff_scanner")

pytestmark = pytest.mark.slow


def both(table: Table) -> tuple[SnapshotManager, Any]:
    handle = table.handle()
    return SnapshotManager(handle.file_io, handle.table_path), handle.snapshot_manager()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w", bucket="2", bucket_key="k").commit_each(range(1, 9))


def set_watermarks(table: Table, watermarks: list[int | None], first: int = 1) -> None:
    for number, watermark in enumerate(watermarks, first):
        content = table.snapshot(number)
        content["watermark"] = -(2**63) if watermark is None else watermark
        table.snapshot_path(number).write_text(json.dumps(content))


@pytest.mark.parametrize(
    "watermarks",
    [
        [10, 20, 30, 40, 50, 60, 70, 80],
        [None, None, None, 40, None, 60, None, None],
        [10, 10, 10, 20, 20, 20, 20, 30],
        [None] * 8,
    ],
)
def test_the_first_snapshot_with_a_watermark(table: Table, watermarks: list[int | None]) -> None:
    set_watermarks(table, watermarks)
    ours, _ = both(table)
    for wanted in (0, 10, 11, 20, 40, 41, 60, 61, 80, 81):
        first = next((i for i, each in enumerate(watermarks, 1) if each is not None and each >= wanted), None)
        found = ours.later_or_equal_watermark(wanted)
        assert (None if found is None else found.id) == first


def test_the_first_snapshot_with_a_watermark_wherever_others_have_none(table: Table) -> None:
    expire(table.path, keep_from=5)
    for marked in product([True, False], repeat=4):
        watermarks = [number if has else None for number, has in zip(range(5, 9), marked, strict=True)]
        set_watermarks(table, watermarks, first=5)
        ours, _ = both(table)
        for wanted in range(4, 10):
            found = ours.later_or_equal_watermark(wanted)
            expected = next((each for each in watermarks if each is not None and each >= wanted), None)
            assert (found and found.id) == expected


def test_of_a_table_without_gaps_it_is_pypaimons(table: Table) -> None:
    set_watermarks(table, [10, 20, 30, 40, 50, 60, 70, 80])
    ours, theirs = both(table)
    for wanted in (5, 10, 35, 80, 99):
        mine, other = (each.later_or_equal_watermark(wanted) for each in (ours, theirs))
        assert (mine and mine.id) == (other and other.id)
    for stop in (None, 1, 8):
        assert ours.try_get_earliest_snapshot(stop).id == theirs.try_get_earliest_snapshot(stop).id  # type: ignore[union-attr]
    assert ours.read_latest_file() == theirs.read_latest_file() == "8"
    (table.path / "snapshot" / "LATEST").unlink()
    assert ours.read_latest_file(max_retries=1) == theirs.read_latest_file(max_retries=1) == "8"


def test_the_earliest_snapshot_after_the_one_to_stop_at_is_none(table: Table) -> None:
    expire(table.path, keep_from=5)
    ours, _ = both(table)
    assert ours.try_get_earliest_snapshot(4) is None
    assert ours.try_get_earliest_snapshot(5).id == 5  # type: ignore[union-attr]


def test_an_empty_table_has_no_latest_file(tmp_path: Path) -> None:
    ours, _ = both(Table(tmp_path / "e"))
    with pytest.raises(PaimonStreamError, match="no snapshot yet"):
        ours.read_latest_file()
    assert ours.later_or_equal_watermark(0) is None


def test_another_branch_is_another_manager(table: Table) -> None:
    handle = table.handle()
    ours, theirs = both(table)
    branch = ours.copy_with_branch("b")
    assert branch.get_snapshot_path(1) == theirs.copy_with_branch("b").get_snapshot_path(1)
    assert branch.latest_id() is None
    assert SnapshotManager(handle.file_io, handle.table_path, "b").get_snapshot_path(1) == branch.get_snapshot_path(1)


def test_the_loader_goes_to_the_branch_too() -> None:
    class Loader:
        branches: list[str]

        def __init__(self) -> None:
            self.branches = []

        def copy_with_branch(self, branch: str) -> Any:
            self.branches.append(branch)
            return self

    loader = Loader()
    SnapshotManager(object(), "t", snapshot_loader=loader).copy_with_branch("b")
    assert loader.branches == ["b"]


@pytest.mark.parametrize("primary_key", [False, True])
def test_compute_diff_gives_pypaimons_entries(tmp_path: Path, primary_key: bool) -> None:
    table = Table(tmp_path / "d", primary_key=primary_key)
    for number in range(1, 7):
        table.commit([number, number + 100])
    handle = table.handle()
    snapshots = handle.snapshot_manager()
    start, end = snapshots.get_snapshot_by_id(2), snapshots.get_snapshot_by_id(5)
    theirs = PaimonDiffScanner(handle).compute_diff(start, end)
    scanner = IncrementalDiffScanner(handle)
    for ours in (scanner.compute_diff(start, end), scanner.compute_diff(2, 5)):
        assert sorted(map(_told, ours)) == sorted(map(_told, theirs))
        assert {type(each) for each in ours} == {type(each) for each in theirs}


def _told(entry: Any) -> tuple[Any, ...]:
    file = entry.file
    return (
        file.file_name,
        entry.kind,
        tuple(entry.partition.values),
        entry.bucket,
        entry.total_buckets,
        file.row_count,
        file.file_size,
        file.level,
        tuple(file.min_key.values),
        tuple(file.max_key.values),
        file.min_sequence_number,
        file.schema_id,
    )


def test_scan_takes_pypaimons_snapshots(table: Table) -> None:
    handle = table.handle()
    snapshots = handle.snapshot_manager()
    plan = IncrementalDiffScanner(handle).scan(snapshots.get_snapshot_by_id(3), snapshots.get_snapshot_by_id(6))
    assert (plan.kind, plan.snapshot_id) == (PlanKind.COLLAPSED, 6)
    theirs = PaimonDiffScanner(handle).scan(snapshots.get_snapshot_by_id(3), snapshots.get_snapshot_by_id(6))
    names = [{file.file_name for split in each.splits() for file in split.files} for each in (plan, theirs)]
    assert names[0] == names[1]


def test_the_prefix_of_consumer_files() -> None:
    assert ConsumerManager.CONSUMER_PREFIX == PaimonConsumerManager.CONSUMER_PREFIX
