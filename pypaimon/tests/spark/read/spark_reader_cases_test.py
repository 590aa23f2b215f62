"""Where other connectors fail: tables that begin with nothing, overwrites, pruning, checkpoints of another table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import TableChangedError
from support.corpus.cases import load
from support.spark.driver import Driver
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


def files_of(driver: Driver) -> list[str]:
    """The files that the first batch reads."""
    start = driver.initial()
    tasks = driver.reader.partitions(start, driver.latest(start))
    return [file.file_name for task in tasks for part in task.parts for file in part.split.files]


def test_a_lookup_table_with_level_0_only_is_an_empty_first_batch_and_then_continues() -> None:
    warehouse = load("java-2.1", "pk_dedup_lookup").warehouse
    (snapshots,) = warehouse.glob("*.db/*/snapshot")
    name = f"{snapshots.parents[1].name.removesuffix('.db')}.{snapshots.parents[0].name}"
    place = {"warehouse": str(warehouse), "table": name}
    first = Driver(place, **{"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"})
    start = first.initial()
    end = first.latest(start, first.limit)
    rows = first.rows(start, end)
    later = Driver(place).batches(end)
    changes = Driver(place, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}).batches()
    assert changes
    assert [*rows, *(row for batch in later for row in batch)] == [row for batch in changes for row in batch]


@pytest.mark.parametrize("keyed", [True, False])
def test_overwrites_are_changes_where_the_table_says_so(tmp_path: Path, keyed: bool) -> None:
    key = "streaming-read-overwrite" if keyed else "streaming-read-append-overwrite"
    table = Table(tmp_path / "warehouse", primary_key=keyed)
    table.commit([("+I", 1, "a"), ("+I", 2, "a")] if keyed else [1, 2])
    driver = Driver(table, start="latest", **{key: "true"})
    start = driver.initial()
    table.write(overwriting(keyed), overwrite=True)
    rows = driver.rows(start, driver.latest(start))
    if keyed:
        assert sorted(row[:3] for row in rows) == [("+I", 3, "b"), ("-D", 1, "a"), ("-D", 2, "a")]
    else:
        assert rows == [(3, "b")]


def overwriting(keyed: bool) -> Any:
    rows = {"k": pa.array([3], pa.int64()), "v": ["b"]}
    return pa.table({**rows, "kind": ["+I"]} if keyed else rows)


def test_a_filter_prunes_files_before_they_are_read(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", metadata__stats_mode="full").commit_each(range(5))
    assert len(files_of(Driver(table))) == 5
    assert len(files_of(Driver(table, filter="k = 3"))) == 1
    assert len(files_of(Driver(table, start="earliest", filter="k >= 3"))) == 2


def test_a_checkpoint_of_another_table_fails(tmp_path: Path) -> None:
    # Tables are told apart by the millisecond in which they were made: the other one is made behind two commits.
    one = Table(tmp_path / "warehouse", "one").commit_each((1, 2))
    driver = Driver(one)
    end = driver.latest(driver.initial())
    other = Table(tmp_path / "warehouse", "other").commit_each((1, 2))
    with pytest.raises(TableChangedError, match="another table"):
        Driver(other).latest(end)
