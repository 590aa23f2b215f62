"""Units of several snapshots planned together: each plan is that of its snapshot alone, errors are raised in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.common.predicate import Predicate

from pypaimon.streaming import CorruptTableError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans
from support.stores.fault_file_io import FaultFileIO
from support.tables.blob_tables import blob_table, rows
from support.tables.crafted_table import CraftedTable
from support.tables.planner_drive import CraftedPlans

pytestmark = pytest.mark.slow

SNAPSHOTS = range(1, 6)
READS: dict[str, dict[str, Any]] = {
    "all": {},
    "limits": {"limits": Limits(max_splits=1)},
    "shard": {"shard": (1, 2)},
    "buckets": {"bucket_filter": lambda bucket: bucket == 1, "limits": Limits(max_splits=1)},
    "partitions": {"predicate": Predicate("greaterThan", None, "p", ["p1"])},
    "keys": {"predicate": Predicate("greaterThan", None, "k", [9]), "limits": Limits(max_rows=1)},
}


class Window(CraftedPlans):
    """A table whose snapshots share partitions and buckets; some add nothing, or take away what others added."""

    def __init__(self, warehouse: Path, keyed: bool = True, bucket: str = "2") -> None:
        buckets = max(int(bucket), 0)
        super().__init__(
            CraftedTable(warehouse, keyed=keyed, partitioned=True, buckets=buckets, options={"bucket": bucket})
        )
        places = [("p1", 0), ("p0", buckets // 2), ("p2", 0)]
        self.table.commit("APPEND", [self.file(place) for place in places], changelog=[self.file(("p0", 0))])
        gone = [self.file(places[0]), self.file(places[0])]
        self.table.commit("APPEND", gone, changelog=[self.file(place) for place in (*places, *places)])
        self.table.commit("APPEND")
        self.table.commit(
            "COMPACT", [self.file(places[0]), self.file(places[0])], gone, changelog=[self.file(places[0])]
        )
        self.table.commit("APPEND", [self.file(place) for place in (*places, *places)])


def lists_of(plans: SnapshotPlans, scan: str) -> tuple[list[Snapshot], list[str]]:
    """The snapshots that have such a list, and the lists."""
    snapshots = [plans.directory.snapshots.get(number) for number in SNAPSHOTS]
    lists = [getattr(snapshot, f"{scan}_manifest_list") for snapshot in snapshots]
    return [s for s, each in zip(snapshots, lists, strict=True) if each], [each for each in lists if each]


def parts(scan: Callable[[Snapshot, ReadUnit | None], PlannedSplits], snapshot: Snapshot) -> list[Any]:
    """All that is handed out of a snapshot: its splits with all that a reader is told, and the positions between."""
    found, last = [], None
    while not found or last is not None:
        planned = scan(snapshot, last)
        last = planned.last
        found.append((last, [(repr(each), each.__getstate__(), each.row_count) for each in planned.splits]))
    return found


CASES = [*((read, "delta", "2") for read in READS), ("limits", "changelog", "2"), ("limits", "delta", "-1")]


@pytest.mark.parametrize(("read", "scan", "bucket"), CASES)
def test_what_is_prepared_together_is_planned_as_if_alone(tmp_path: Path, read: str, scan: str, bucket: str) -> None:
    window = Window(tmp_path, keyed=bucket != "-1", bucket=bucket)
    file_io = FaultFileIO()
    alone, ahead = window.plans(FaultFileIO(), **READS[read]), window.plans(file_io, **READS[read])
    snapshots, lists = lists_of(ahead, scan)
    wanted = [parts(getattr(alone, scan), snapshot) for snapshot in snapshots]
    assert any(splits for parts_of_one in wanted for _, splits in parts_of_one)
    ahead.prefetch(lists, scan)  # type: ignore[arg-type]
    file_io.forget()
    assert [parts(getattr(ahead, scan), snapshot) for snapshot in snapshots] == wanted
    # Nothing is kept of manifests here, so that a snapshot that is prepared alone would ask for them.
    assert file_io.names() == []
    # It is of use once.
    assert [parts(getattr(ahead, scan), snapshot) for snapshot in snapshots] == wanted
    assert file_io.names() != []


@pytest.mark.parametrize("limit", ["max_rows", "max_bytes", "max_splits"])
def test_files_that_hold_columns_of_the_same_rows_stay_together(tmp_path: Path, limit: str) -> None:
    """With data evolution several files of a snapshot hold the columns of a row. No limit separates them."""
    table = blob_table(tmp_path)
    written = [{"id": number, "name": f"n{number}", "b": b"blob"} for number in range(6)]
    for first in range(0, 6, 2):
        table.commit([(row["id"], row["name"], row["b"]) for row in written[first : first + 2]])
    assert rows(table.state_builder().with_start("earliest").with_limits(**{limit: 1})) == written


def test_a_damaged_manifest_is_an_error_in_its_turn(tmp_path: Path) -> None:
    window = Window(tmp_path)
    alone, ahead = window.plans(FaultFileIO()), window.plans(FaultFileIO())
    snapshots, lists = lists_of(ahead, "delta")
    [[name]] = [table["file_name"].to_pylist() for table in ahead.directory.manifests.manifest_lists([lists[3]])]
    path = window.table.path / "manifest" / name
    path.write_bytes(path.read_bytes()[:-3])
    ahead.prefetch(lists, "delta")
    for snapshot in (*snapshots[:3], snapshots[4]):
        assert parts(ahead.delta, snapshot) == parts(alone.delta, snapshot)
    with pytest.raises(CorruptTableError, match=name):
        ahead.delta(snapshots[3])


def test_no_more_is_prepared_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests are prepared up to a bound; a snapshot of whose manifests one is behind it is prepared alone."""
    window = Window(tmp_path)
    file_io = FaultFileIO()
    alone, ahead = window.plans(FaultFileIO()), window.plans(file_io)
    snapshots, lists = lists_of(ahead, "delta")
    monkeypatch.setattr("pypaimon.streaming.planning.planned_units._MOST_ENTRIES", 6)
    ahead.prefetch(lists, "delta")
    asked: list[bool] = []
    for snapshot in snapshots:
        file_io.forget()
        assert parts(ahead.delta, snapshot) == parts(alone.delta, snapshot)
        asked.append(bool(file_io.names()))
    assert asked == [False, False, False, True, True]
