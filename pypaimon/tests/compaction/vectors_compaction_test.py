"""Append tables with deletion vectors: what Java has deleted stays deleted, whatever is compacted here meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pypaimon.streaming import compact, stream_read_builder, table_files
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.metadata.index_manifests import IndexEntry
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.java.live import LiveJava
from support.java.shared_table import Shared
from support.tables.handles import read_with

pytestmark = pytest.mark.java

VECTORS = {"deletion-vectors.enabled": "true", "target-file-size": "4 kb", "compaction.delete-ratio-threshold": "1"}


class Deleted(Shared):
    """Such a table: what is in it, Java says before each compaction."""

    def __init__(self, java: LiveJava, warehouse: Path, bitmap64: str = "false", buckets: int = 0) -> None:
        super().__init__(java, warehouse, keyed=False)
        places = {"bucket": str(buckets), "bucket-key": "id"} if buckets else {}
        java.call(
            "create", warehouse=str(warehouse / "vectors"), fields=[["id", "BIGINT NOT NULL"], ["name", "STRING"]],
            partition_keys=[], primary_keys=[],
            options={**VECTORS, **places, "write-only": "true", "deletion-vectors.bitmap64": bitmap64},
        )  # fmt: skip
        self.warehouse = warehouse / "vectors"

    def delete(self, seed: int) -> None:
        self.java.call("delete", seed=seed, flushes=[])
        self.model = self.java_rows()
        assert self.model

    def java_rows(self) -> list[tuple[int, str]]:
        reply = self.java.call("read", options={"scan.mode": "latest-full"})
        assert reply["end"] == "waiting", reply
        rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
        return sorted((int(row[-2]), row[-1]) for row in rows)

    def check(self) -> None:
        assert self.java_rows() == self.model
        assert sorted(self.ours()) == self.model

    def ours(self) -> list[tuple[int, str]]:
        """What we read, bucket by bucket; not pypaimon's reader, which knows no vectors of 64 bits."""
        return [(row["id"], row["name"]) for row in read_with(stream_read_builder(self.table).with_end(latest=True))]

    def index(self) -> dict[str, IndexEntry]:
        directory = TableDirectory.of(self.table)
        snapshot = directory.snapshots.get_latest_snapshot()
        assert snapshot is not None
        entries = directory.manifests.index_entries(snapshot.index_manifest) if snapshot.index_manifest else ()
        return {found.data_file: entry for entry in entries for found in entry.ranges}

    def large(self, first: int) -> None:
        self.javas(*((number, f"{number * 7919 % 10007}") for number in range(first, first + 2000)))


@pytest.mark.parametrize(
    ("bitmap64", "buckets"),
    [
        ("false", 0),
        ("true", 2),
        pytest.param("true", 0, marks=pytest.mark.nightly),
        pytest.param("false", 2, marks=pytest.mark.nightly),
    ],
)
def test_what_was_deleted_stays_deleted(java: LiveJava, tmp_path: Path, bitmap64: str, buckets: int) -> None:
    shared = Deleted(java, tmp_path, bitmap64, buckets)
    kept = 0
    for turn in range(3):
        shared.large(10000 * turn)
        for number in range(3):
            shared.javas(*((100 * turn + 10 * number + each, "small") for each in range(4)))
        shared.delete(turn)
        marked = shared.index()
        assert marked
        report = compact(shared.table, full=turn == 2)
        assert len(report.new_snapshot_ids) == 1
        shared.check()
        left = shared.index()
        assert left.keys() < marked.keys()
        # Java goes on with what was kept of an index file that was written anew.
        kept += sum(left[name].file_name != marked[name].file_name for name in left)
    assert kept
    shared.delete(4)
    shared.check()


def test_rows_of_a_bucket_stay_in_order_and_nothing_is_written_twice(java: LiveJava, tmp_path: Path) -> None:
    shared = Deleted(java, tmp_path, buckets=2)
    shared.large(0)
    for number in range(5):
        shared.javas(*((20000 - 10 * number - each, "small") for each in range(4)))
    shared.delete(0)
    rows = shared.ours()
    assert shared.index()
    assert compact(shared.table, full=True).new_snapshot_ids
    assert shared.ours() == rows
    shared.check()
    assert not shared.index()
    assert not compact(shared.table, full=True).compacted


def test_large_files_with_many_deleted_rows_are_due(java: LiveJava, tmp_path: Path) -> None:
    shared = Deleted(java, tmp_path)
    shared.large(0)
    shared.delete(0)
    assert not compact(shared.table).compacted
    assert not table_files(shared.table).due.files
    strict = shared.table.copy({"compaction.delete-ratio-threshold": "0"})
    due = table_files(strict).due
    report = compact(strict)
    assert report.before == due
    assert report.before.rows - report.after.rows == 2000 - len(shared.model) > 0
    shared.check()
    assert not shared.index()


def test_rows_that_are_deleted_meanwhile_stay_deleted(java: LiveJava, tmp_path: Path) -> None:
    shared = Deleted(java, tmp_path)
    for number in range(6):
        shared.javas(*((10 * number + each, "small") for each in range(8)))
    seeds = iter([7])

    def meanwhile() -> None:
        for seed in seeds:
            shared.delete(seed)

    report = Compaction(PaimonTable(shared.table), full=True).run(check=meanwhile)
    assert report.conflicts
    assert not report.new_snapshot_ids
    shared.check()
    files = set((shared.warehouse / "d.db" / "t").glob("*/data-*"))
    assert len(files) == 6, "the files of the compaction that gave up are deleted"
    assert compact(shared.table, full=True).new_snapshot_ids
    shared.check()
    assert not shared.index()


def test_files_without_a_row_left_go(java: LiveJava, tmp_path: Path) -> None:
    shared = Deleted(java, tmp_path)
    for number in range(6):
        shared.javas((number, "alone"))
    shared.delete(0)
    shared.delete(2)
    report = compact(shared.table)
    emptied = [each.before.rows for each in report.compacted if not each.after.files]
    assert sum(emptied) == 6 - len(shared.model) > 0
    shared.check()
    assert not shared.index()


def test_an_index_file_that_cannot_be_read_ends_the_compaction(java: LiveJava, tmp_path: Path) -> None:
    shared = Deleted(java, tmp_path)
    for number in range(3):
        shared.javas(*((10 * number + each, "small") for each in range(8)))
    shared.delete(0)
    (index,) = {entry.file_name for entry in shared.index().values()}
    (shared.warehouse / "d.db" / "t" / "index" / index).unlink()
    with pytest.raises(CorruptTableError, match=index):
        compact(shared.table, full=True)
