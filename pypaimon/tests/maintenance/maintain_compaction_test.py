"""Compaction as a part of maintenance: before anything expires, and without what expires anyway."""

from __future__ import annotations

import queue
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from pypaimon.streaming import MaintenancePolicy, StreamConfigError, UnsupportedTableError, maintain
from pypaimon.streaming.maintenance import Maintainer, MaintenanceReport
from pypaimon.streaming.maintenance.plan import CompactedFiles
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, snapshot_age=0, compact=True)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of ten small files."""
    table = Table(tmp_path, "t", primary_key=True)
    for key in range(10):
        table.commit([key])
    return table


def test_what_is_compacted_expires_in_the_same_run(table: Table) -> None:
    planned = maintain(table.handle(), LATEST_ONLY, dry_run=True).plan
    assert planned.compaction is not None and planned.compaction.files > 2 and planned.compaction.bytes > 0
    assert table.ids() == list(range(1, 11)), "a dry run writes nothing"
    report = maintain(table.handle(), LATEST_ONLY)
    assert report.plan.compaction == CompactedFiles(planned.compaction.files, planned.compaction.bytes, (11,))
    assert report.plan.snapshot_ids == tuple(range(1, 11)) and table.ids() == [11]
    assert report.plan.file_counts["data"] == planned.compaction.files
    assert files_of(table.path) == needed_files(table.path) and len(table.rows()) == 10
    assert maintain(table.handle(), LATEST_ONLY).plan.is_empty


def test_a_table_that_cannot_be_compacted_is_left_alone(tmp_path: Path) -> None:
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = Table(tmp_path, "t", data_evolution__row_sidecar__enabled="true", **options)
    for key in range(3):
        table.commit([key])
    with pytest.raises(UnsupportedTableError, match="not compacted here"):
        maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [1, 2, 3]
    assert maintain(table.handle(), MaintenancePolicy(min_snapshots=1, snapshot_age=0)).plan.snapshot_ids == (1, 2)


def test_wrong_options_are_found_before_the_compaction(table: Table) -> None:
    with pytest.raises(StreamConfigError):
        maintain(table.handle(snapshot__num_retained__min="x"), LATEST_ONLY)
    assert table.latest() == 10


def test_partitions_that_expire_are_not_compacted(tmp_path: Path) -> None:
    """A compaction would count as a write, by which they would stay."""
    columns = pa.schema([("day", pa.string()), ("k", pa.int64())])
    options = {"partition__expiration_strategy": "update-time", "compaction__min__file_num": "2"}
    table = Table(tmp_path, "t", columns=columns, partition_keys=["day"], **options)
    for key in range(3):
        table.commit([("a", key)])
    policy = MaintenancePolicy(partition_age=0, compact=True)
    report = maintain(table.handle(), policy)
    assert report.dropped_partitions == ({"day": "a"},) and report.plan.compaction == CompactedFiles(0, 0)
    for key in range(3):
        table.commit([("a", key)])
    report = maintain(table.handle(), MaintenancePolicy(partition_age=timedelta(days=1), compact=True))
    assert report.dropped_partitions == () and report.plan.compaction is not None
    assert report.plan.compaction.files == 3 and len(table.rows()) == 3


def test_a_maintainer_compacts(table: Table) -> None:
    reports: queue.SimpleQueue[MaintenanceReport] = queue.SimpleQueue()
    with Maintainer(table.handle(), LATEST_ONLY, interval=3600, on_report=reports.put):
        compaction = reports.get(timeout=60).plan.compaction
    assert compaction is not None and compaction.snapshot_ids == (11,) and table.ids() == [11]
