"""Manifests that are merged on request: the table stays as it is, and a second time there is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.maintenance import drop_partitions, rewrite_manifests
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64())])


def partitioned(warehouse: Path, commits: int, **options: str) -> Table:
    table = Table(warehouse, "t", columns=COLUMNS, partition_keys=["p"], **options)
    for number in range(commits):
        table.commit([("ab"[number % 2], number)])
    return table


@pytest.mark.slow
def test_a_snapshot_with_merged_manifests_says_what_the_one_before_said(tmp_path: Path) -> None:
    table = partitioned(tmp_path, 4)
    drop_partitions(table.handle(), {"p": "b"})
    path = table.snapshot_path(5)
    said = {"watermark": 17, "properties": {"a": "b"}, "nextRowId": 9, "statistics": "stat-1"}
    path.write_text(json.dumps({**table.snapshot(5), **said}))
    rows = table.rows()
    assert rewrite_manifests(table.handle(), dry_run=True).merged == 5 and table.latest() == 5
    report = rewrite_manifests(table.handle())
    assert report.snapshot_id == table.latest() == 6 and report.merged == 5 and table.rows() == rows
    after = table.snapshot(6)
    assert {name: after[name] for name in said} == said
    assert (after["commitKind"], after["deltaRecordCount"], after["totalRecordCount"]) == ("COMPACT", 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1 b", "3 kb", "8 mb"])
def test_a_second_time_there_is_nothing_to_merge(tmp_path: Path, size: str) -> None:
    table = partitioned(tmp_path, 6, manifest__target_file_size=size)
    for _ in range(2):
        rewrite_manifests(table.handle())
        latest = table.latest()
        assert rewrite_manifests(table.handle()).snapshot_id is None and table.latest() == latest
        drop_partitions(table.handle(), {"p": "a"})
    assert needed_files(table.path) <= files_of(table.path) and len(table.rows()) == 3


def test_an_empty_table_has_nothing_to_merge(tmp_path: Path) -> None:
    assert rewrite_manifests(partitioned(tmp_path, 0).handle()).merged == 0
    table = partitioned(tmp_path / "one", 1)
    assert rewrite_manifests(table.handle()).merged == 0 and table.latest() == 1


def test_a_run_of_maintenance_merges_them_if_asked(tmp_path: Path) -> None:
    table = partitioned(tmp_path, 3)
    asked = MaintenancePolicy(rewrite_manifests=True, min_snapshots=1, max_snapshots=1)
    dry = maintain(table.handle(), asked, dry_run=True)
    report = maintain(table.handle(), asked)
    assert report.plan == dry.plan and dry.plan.rewritten_manifests == 3
    assert table.ids() == [3, 4] and len(table.rows()) == 3
    maintain(table.handle(), asked)
    assert table.ids() == [4] and files_of(table.path) == needed_files(table.path)
