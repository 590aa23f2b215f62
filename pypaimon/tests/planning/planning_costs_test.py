"""What plans cost: requests for the parts of a snapshot that limits cut, work for its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.predicate import Predicate

from pypaimon.streaming.formats import binary_row
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans
from support.stores.fault_file_io import FaultFileIO
from support.tables.crafted_table import CraftedTable
from support.tables.planner_drive import CraftedPlans, Drive
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

SCANS = ("full", "delta", "changelog", "overwrite")
Next = Callable[[ReadUnit | None], PlannedSplits]


class Costly(CraftedPlans):
    """A keyed table of many buckets, whose every snapshot has several manifests, and plans that keep no manifest."""

    def __init__(self, warehouse: Path, partitions: int = 4) -> None:
        super().__init__(CraftedTable(warehouse, keyed=True, partitioned=True, buckets=2, options={"bucket": "2"}))
        places = [(f"p{number:03}", bucket) for number in range(partitions) for bucket in range(2)]
        first = [self.file(place) for place in places]
        self.table.commit("APPEND", first)
        self.table.commit("APPEND", [self.file(place) for place in places])
        again = [self.file(place) for place in places]
        self.table.commit("OVERWRITE", again, first, changelog=[self.file(place) for place in places])

    @staticmethod
    def scan(plans: SnapshotPlans, name: str) -> Next:
        last, before = (plans.directory.snapshots.get(number) for number in (3, 2))
        if name == "overwrite":
            return lambda after: plans.overwrite(before, last, after)
        return lambda after: getattr(plans, name)(last, after)


def names(splits: list[StreamSplit]) -> list[Any]:
    return [
        (split.partition.values, split.bucket, [file.file_name for file in (*split.before_files, *split.files)])
        for split in splits
    ]


def parts(scan: Next, again: Callable[[], Next] | None = None) -> list[list[StreamSplit]]:
    found, last = [], None
    while not found or last is not None:
        planned = scan(last)
        found.append(planned.splits)
        last = planned.last
        scan = scan if again is None else again()
    return found


@pytest.mark.parametrize("scan", SCANS)
def test_a_snapshot_that_limits_cut_is_planned_once(tmp_path: Path, scan: str) -> None:
    costly, file_io = Costly(tmp_path), FaultFileIO()
    whole = costly.scan(costly.plans(file_io), scan)
    [wanted] = parts(whole)
    file_io.forget()
    whole(None)
    once = Counter(file_io.names())

    cut = costly.scan(costly.plans(file_io, limits=Limits(max_splits=1)), scan)
    file_io.forget()
    found = parts(cut)
    assert len(found) == 8
    assert names([split for part in found for split in part]) == names(wanted)
    assert Counter(file_io.names()) == once
    assert set(once.values()) == {1}


@pytest.mark.parametrize(
    ("gone", "options", "base"),
    [
        ([0], {}, 2),
        ([0, 3], {}, 3),
        ([0, 1, 2, 3], {}, 1),
        ([0], {"predicate": Predicate("equal", None, "p", ["p001"])}, 0),
        ([0], {"bucket_filter": lambda bucket: bucket == 1}, 0),
    ],
    ids=["a partition", "two partitions", "all files", "no partition of it", "no bucket of it"],
)
def test_an_overwrite_reads_only_manifests_of_files_that_stay_beside_it(
    tmp_path: Path, gone: list[int], options: dict[str, Any], base: int
) -> None:
    """The base list, and one manifest for each partition."""
    table = CraftedTable(tmp_path, keyed=True, partitioned=True, buckets=2, options={"bucket": "2"})
    costly, file_io = CraftedPlans(table), FaultFileIO()
    files = [costly.file((f"p{number:03}", 0)) for number in range(4)]
    for file in files:
        costly.table.commit("APPEND", [file])
    costly.table.commit("OVERWRITE", [], [files[number] for number in gone])
    plans = costly.plans(file_io, **options)
    before, last = (plans.directory.snapshots.get(number) for number in (4, 5))
    file_io.forget()
    plans.overwrite(before, last)
    read = [name for name in file_io.names("read") if name.startswith("manifest")]
    own = 1 if "predicate" in options else 2
    assert len(read) == own + base, read


@pytest.mark.parametrize("scan", SCANS)
def test_a_stream_that_continues_inside_a_snapshot_hands_out_the_same_parts(tmp_path: Path, scan: str) -> None:
    costly, file_io = Costly(tmp_path), FaultFileIO()
    limits = Limits(max_splits=3)
    found = parts(costly.scan(costly.plans(file_io, limits=limits), scan))
    anew = parts(
        costly.scan(costly.plans(file_io, limits=limits), scan),
        lambda: costly.scan(costly.plans(file_io, limits=limits), scan),
    )
    assert [names(part) for part in anew] == [names(part) for part in found]


@pytest.mark.parametrize(
    "options",
    [
        {"predicate": Predicate("greaterThan", None, "p", ["p001"])},
        {"predicate": Predicate("equal", None, "p", ["p002"]), "shard": (1, 2)},
        {"shard": (0, 2)},
        {"bucket_filter": lambda bucket: bucket == 1},
    ],
    ids=["partitions", "partitions of a shard", "shard", "buckets"],
)
def test_partitions_and_buckets_that_are_left_out_early_change_no_plan_and_no_position(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    costly = Costly(tmp_path)
    plans, whole = (costly.plans(FaultFileIO(), limits=Limits(max_splits=1), **options) for _ in range(2))
    last = plans.directory.snapshots.get(3)

    def late(after: ReadUnit | None) -> PlannedSplits:
        return whole._next_splits_of(last, "full", SplitMode.MERGE, after, lambda: whole.state(last), deletions_of=last)

    unit, count = None, 0
    while unit is not None or not count:
        found, wanted = plans.full(last, unit), late(unit)
        assert (names(found.splits), found.last) == (names(wanted.splits), wanted.last)
        unit, count = found.last, count + 1
        sizes = [each._kept_units._held for each in (plans, whole)]
        assert unit is None or sizes[0][1].units.entries.num_rows < sizes[1][1].units.entries.num_rows
    assert 1 <= count < 8


def test_what_was_planned_is_let_go_with_its_last_part(tmp_path: Path) -> None:
    costly, file_io = Costly(tmp_path), FaultFileIO()
    plans = costly.plans(file_io, limits=Limits(max_splits=5))
    scan = costly.scan(plans, "full")

    def asked(after: ReadUnit | None) -> int:
        file_io.forget()
        scan(after)
        return len(file_io.names())

    first = scan(None).last
    assert first is not None
    assert asked(first) == 0  # the last part
    assert asked(first) > 0
    assert asked(None) > 0
    assert asked(first) == 0
    assert scan(None).last == first
    fresh = costly.plans(FaultFileIO(), limits=Limits(max_splits=5))
    of_delta, wanted = (costly.scan(each, "delta")(None).splits for each in (plans, fresh))
    assert names(of_delta) == names(wanted)


def test_a_seek_drops_the_kept_units(tmp_path: Path) -> None:
    table = Table(tmp_path / "w")
    table.commit_files([1, 2, 3])
    drive = Drive.of(table, limits=Limits(max_splits=1))
    while drive.step().plan is None:
        pass
    kept = drive.planner._builder._kept_units
    assert kept._held is not None
    drive.planner.forget()
    assert kept._held is None


@pytest.mark.parametrize("filtered", [False, True])
def test_partitions_are_decoded_all_at_once(tmp_path: Path, filtered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    slots_of = binary_row._Slots.of

    def counted(rows: pa.Array, index: int) -> Any:
        decoded.append(len(rows))
        return slots_of(rows, index)

    predicate = Predicate("lessThan", None, "p", ["p002"]) if filtered else None
    found = []
    for partitions in (3, 30):
        costly = Costly(tmp_path / str(partitions), partitions)
        plans = costly.plans(FaultFileIO(), predicate=predicate)
        scan = costly.scan(plans, "full")
        decoded.clear()
        with monkeypatch.context() as patch:
            patch.setattr(binary_row._Slots, "of", counted)
            splits = scan(None).splits
            paths = [file.file_path for split in splits for file in split.files[:1]]
        assert len(set(paths)) == len(splits) == 2 * (2 if filtered else partitions)
        found.append(len(decoded))
    assert found[0] == found[1] > 0
