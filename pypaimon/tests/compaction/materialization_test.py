"""Deletion vectors of data evolution are materialized: the rows that are left get new ids, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.globalindex.create_global_index import GlobalIndexBuilder

from pypaimon.streaming import CorruptTableError, UnsupportedTableError, compact, maintain, stream_read_builder
from pypaimon.streaming.compaction import CompactionReport, materialize_deletion_vectors
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.materialization import MaterializationTaskPicker
from pypaimon.streaming.compaction.tasks import CompactionTask, Done, TaskPicker
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.corpus.cases import copy_warehouse, load
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.docs.cli_runs import Program
from support.java.live import LiveJava
from support.samples import SOAK, sample_seed
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import create_table, current_files, read_with, write_by_stream
from support.tables.named_files import needed_files

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LAST, STEP = 200, 1 if SOAK else 17


@pytest.fixture
def table(tmp_path: Path) -> EvolvingTable:
    return EvolvingTable(tmp_path)


def filled(table: EvolvingTable) -> None:
    """Three ranges of four rows, of which the first and the last have deleted ones."""
    for _ in range(3):
        table.numbered(4)
    table.update({1: {"a": "new"}, 2: {"a": "newer"}})
    table.delete(0, 2, 9)


def materialized(table: EvolvingTable, **arguments: Any) -> CompactionReport:
    """What the model says afterwards: rows of files with deleted rows get the next ids, in their order."""
    report = materialize_deletion_vectors(table.handle, **arguments)
    if report.new_snapshot_ids:
        table.renumber()
    return report


def snapshot_of(table: EvolvingTable) -> Any:
    return TableDirectory.of(table.handle).snapshots.get_latest_snapshot()


def vectors(table: EvolvingTable) -> set[str]:
    snapshot = snapshot_of(table)
    if snapshot.index_manifest is None:
        return set()
    entries = TableDirectory.of(table.handle).manifests.index_entries(snapshot.index_manifest)
    return {found.data_file for entry in entries for found in entry.ranges}


def test_rows_get_new_ids_and_the_vectors_go(table: EvolvingTable) -> None:
    filled(table)
    dry = materialize_deletion_vectors(table.handle, dry_run=True)
    assert dry.before.files == 3 and not dry.new_snapshot_ids
    builder = stream_read_builder(table.handle).with_start(snapshot_id=1).with_end(latest=True)
    before = read_with(builder)
    report = materialized(table)
    assert report.before == dry.before and len(report.new_snapshot_ids) == 1
    assert snapshot_of(table).commit_kind == "COMPACT" and not vectors(table)
    assert sorted(table.model) == [4, 5, 6, 7, 12, 13, 14, 15, 16]
    assert [(file.row_count, file.file_source) for file in current_files(table.handle) if file.first_row_id > 7] == [
        (2, 0), (3, 0),
    ]  # fmt: skip
    assert {file.max_sequence_number for file in current_files(table.handle) if file.first_row_id > 7} == {
        snapshot_of(table).id
    }
    table.check()
    assert read_with(builder) == before
    assert not materialize_deletion_vectors(table.handle).compacted
    # The table goes on.
    table.update({12: {"a": "after"}})
    table.delete(13)
    table.numbered(2)
    table.check()
    assert compact(table.handle, full=True).compacted
    materialized(table)
    table.check()


class FromTheEnd:
    """`Workers` whose tasks end in the opposite order."""

    commit_bytes = 1 << 30

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        for each in reversed(tasks):
            done(each, picker.execute(each))


def test_new_ids_are_in_the_order_of_the_old_ones_however_tasks_end(table: EvolvingTable) -> None:
    filled(table)
    Compaction(PaimonTable(table.handle), workers=FromTheEnd(), new_picker=MaterializationTaskPicker).run()
    table.renumber()
    table.check()


def test_rows_that_are_all_deleted_leave_no_file(table: EvolvingTable) -> None:
    table.numbered(3)
    table.numbered(3)
    table.delete(0, 1, 2)
    materialized(table)
    assert [file.first_row_id for file in current_files(table.handle)] == [3]
    table.check()
    table.numbered(1)
    table.check()


def test_adjacent_files_become_one_up_to_the_target(tmp_path: Path) -> None:
    # Each small file counts 4 MB.
    for name, target, files in (("one", "100 mb", 1), ("two", "6 mb", 2)):
        table = EvolvingTable(tmp_path / name, target_file_size=target)
        for _ in range(4):
            table.numbered(2)
        table.delete(0, 2, 4, 6)
        materialized(table)
        assert len(current_files(table.handle)) == files
        table.check()


def test_blobs_are_written_with_the_rows_that_are_left(tmp_path: Path) -> None:
    fields = {"id": pa.int64(), "a": pa.string(), "x": pa.large_binary(), "l": pa.list_(pa.large_binary())}
    table = EvolvingTable(tmp_path, fields=fields)
    for number in range(2):
        rows = [
            {
                "id": each,
                "a": "a",
                "x": None if each == 2 else bytes([number, each]) * 50,
                "l": [b"", None, b"%d" % each],
            }
            for each in range(5)
        ]
        table.append(*rows)
    table.update({1: {"x": b"new"}, 2: {"x": b"no more null"}})
    table.delete(0, 3, 7)
    materialized(table)
    assert len(current_files(table.handle)) == 3
    table.check()
    maintain(table.handle.copy({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}))
    table.check()
    assert len(list((table.at.path / "bucket-0").iterdir())) == 3


def test_large_blobs_are_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pypaimon.streaming.compaction import blob_rewrite

    monkeypatch.setattr(blob_rewrite, "_FETCHED_BYTES", 100)
    table = EvolvingTable(tmp_path, fields={"id": pa.int64(), "x": pa.large_binary(), "y": pa.large_binary()})
    table.append(*({"id": each, "x": bytes([each]) * 80 * each, "y": b"y" * each} for each in range(6)))
    table.delete(2)
    materialized(table)
    table.check()


def test_only_chosen_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = EvolvingTable(tmp_path)
    filled(table)
    program = Program(tmp_path, capsys)
    dry = json.loads(program("materialize-deletion-vectors", table.at.name, "--dry-run", "--json").out)
    assert [each["before"]["files"] for each in dry["compacted"]] == [2, 1]
    assert "3 files" in program("materialize-deletion-vectors", table.at.name).out
    table.renumber()
    table.check()
    assert "nothing is due" in program("materialize-deletion-vectors", table.at.name).out


@pytest.mark.parametrize("while_running", ["update", "delete", "append", "compact", "materialize", "update elsewhere"])
def test_what_is_committed_meanwhile_is_not_lost(table: EvolvingTable, while_running: str) -> None:
    filled(table)
    others: list[CompactionReport] = []

    def meanwhile(done: int, total: int) -> None:
        if done < total:
            return
        if while_running == "update":
            table.update({3: {"a": "meanwhile"}})
        elif while_running == "update elsewhere":
            table.update({5: {"a": "meanwhile"}})
        elif while_running == "delete":
            table.delete(3)
        elif while_running == "append":
            table.numbered(2)
        elif while_running == "compact":
            others.append(compact(table.handle, full=True))
        else:
            others.append(materialized(table))

    report = materialize_deletion_vectors(table.handle, on_progress=meanwhile)
    survives = while_running in ("append", "update elsewhere")
    assert bool(report.new_snapshot_ids) == survives and bool(report.conflicts) != survives
    assert all(each.new_snapshot_ids for each in others)
    if survives:
        table.renumber()
    table.check()
    materialized(table)
    table.check()
    assert not vectors(table)
    assert {path.name for path in (table.at.path / "bucket-0").iterdir()} <= needed_files(table.at.path)


def test_the_other_partitions_are_committed(warehouse: Any) -> None:
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    columns = pa.schema([("p", pa.int32()), ("id", pa.int64())])
    table = create_table(warehouse, "parts", columns, partition_keys=["p"], options=options)
    write_by_stream(table, pa.table({"p": [0, 0, 0, 1, 1, 1], "id": [*range(6)]}, columns))
    builder = table.new_batch_write_builder()

    def change(messages: Any) -> None:
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()

    change(builder.new_update().delete_by_row_id([1, 4]))

    def meanwhile(done: int, total: int) -> None:
        if done == total:
            rows = pa.table({"_ROW_ID": pa.array([5], pa.int64()), "id": pa.array([50], pa.int64())})
            change(builder.new_update().with_update_type(["id"]).update_by_arrow_with_row_id(rows))

    report = materialize_deletion_vectors(table, on_progress=meanwhile)
    assert [each.partition for each in report.compacted] == [{"p": 0}]
    assert [each.partition for each in report.conflicts] == [{"p": 1}]
    assert sorted(row["id"] for row in read_with(stream_read_builder(table).with_end(latest=True))) == [0, 2, 3, 50]
    assert materialize_deletion_vectors(table, partition={"p": 1}).compacted
    assert sorted(row["id"] for row in read_with(stream_read_builder(table).with_end(latest=True))) == [0, 2, 3, 50]


def test_an_update_that_was_prepared_before_is_refused(table: EvolvingTable) -> None:
    filled(table)
    builder = table.handle.new_batch_write_builder()
    update = builder.new_update().with_update_type(["b"])
    messages = update.update_by_arrow_with_row_id(
        pa.table({"_ROW_ID": pa.array([1], pa.int64()), "b": pa.array([77], pa.int32())})
    )
    materialized(table)
    commit = builder.new_commit()
    with pytest.raises(RuntimeError):
        commit.commit(messages)
    commit.close()
    table.check()


@pytest.mark.parametrize("made", ["before", "meanwhile"])
def test_global_indexes_of_row_ids_are_dropped(table: EvolvingTable, made: str) -> None:
    filled(table)

    def index(done: int = 1, total: int = 1) -> None:
        if done == total:
            assert table.handle.create_global_index("id")

    if made == "before":
        index()
    assert found_by_index(table, 9) == [] and found_by_index(table, 3) == [{"id": 3, "a": "a3", "b": 3}]
    assert materialized(table, on_progress=index if made == "meanwhile" else None).new_snapshot_ids
    assert snapshot_of(table).index_manifest is None
    assert found_by_index(table, 3) == [{"id": 3, "a": "a3", "b": 3}]
    index()
    assert found_by_index(table, 3) == [{"id": 3, "a": "a3", "b": 3}]
    # A compaction that keeps row ids keeps the index.
    assert compact(table.handle, full=True).new_snapshot_ids
    assert snapshot_of(table).index_manifest is not None
    assert found_by_index(table, 3) == [{"id": 3, "a": "a3", "b": 3}]
    table.check()


@pytest.mark.parametrize("change", ["materialized", "compacted"])
def test_a_global_index_that_was_begun_before(table: EvolvingTable, change: str) -> None:
    filled(table)
    messages = GlobalIndexBuilder(table.handle, "id").build()
    if change == "materialized":
        assert materialized(table).new_snapshot_ids
    else:
        assert compact(table.handle, full=True).new_snapshot_ids
    commit = table.handle.new_batch_write_builder().new_commit()
    if change == "materialized":
        # pypaimon and Java 2 compare the ids of an index with those of the data files.
        with pytest.raises(RuntimeError, match="row ID existence conflict"):
            commit.commit(messages)
        assert snapshot_of(table).index_manifest is None
    else:
        commit.commit(messages)
    commit.close()
    for key in range(13):
        found = found_by_index(table, key)
        assert found == [row for row in table.model.values() if row["id"] == key]
    table.check()


def found_by_index(table: EvolvingTable, key: int) -> list[dict[str, Any]]:
    """What pypaimon's batch reader finds by a global index, if the table has one."""
    builder = table.handle.new_read_builder()
    builder = builder.with_filter(builder.new_predicate_builder().equal("id", key))
    rows: list[dict[str, Any]] = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return [row for row in rows if row["id"] == key]


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(1 + sample_seed() % STEP, LAST, STEP):
        table = EvolvingTable(tmp_path / str(steps))
        filled(table)
        dying = table.handle.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            materialize_deletion_vectors(dying)
        except Killed:
            if not vectors(table):
                table.renumber()
            table.check()
            materialized(table)
            assert not vectors(table)
            table.check()
            continue
        break
    assert STEP < steps < LAST - STEP


def test_a_damaged_file_is_named_and_nothing_changes(table: EvolvingTable) -> None:
    filled(table)
    path = Path(current_files(table.handle)[0].file_path)
    whole, listed = path.read_bytes(), sorted(table.at.path.rglob("*"))
    path.write_bytes(whole[:-20])
    with pytest.raises(CorruptTableError, match=path.name):
        materialize_deletion_vectors(table.handle)
    assert sorted(table.at.path.rglob("*")) == listed


@pytest.mark.parametrize(("scenario", "snapshot"), [("evolution_dv_materialize", 9), ("blob_deletion_vectors", 8)])
def test_java_makes_the_same_files(tmp_path: Path, scenario: str, snapshot: int) -> None:
    javas, ours = (
        latest_is(copy_warehouse(load("java-2.1-more", scenario), tmp_path / str(number)), number)
        for number in (snapshot, snapshot - 1)
    )
    assert materialize_deletion_vectors(ours).new_snapshot_ids == (snapshot,)
    assert layout(ours) == layout(javas)
    latest, other = (TableDirectory.of(each).snapshots.get_latest_snapshot() for each in (ours, javas))
    assert latest is not None and other is not None
    assert (latest.next_row_id, latest.total_record_count) == (other.next_row_id, other.total_record_count)
    assert tracked(ours) == tracked(javas) != []


def latest_is(warehouse: Path, snapshot: int) -> Any:
    """A table without its later snapshots."""
    home = warehouse / "d.db" / "t" / "snapshot"
    for path in home.glob("snapshot-*"):
        if int(path.name.partition("-")[2]) > snapshot:
            path.unlink()
    (home / "LATEST").write_text(str(snapshot))
    return CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")


def layout(table: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (
            str(file.file_name).endswith(".blob"), file.first_row_id, file.row_count, file.min_sequence_number,
            file.max_sequence_number, file.file_source, file.schema_id, file.level, tuple(file.write_cols or ()),
        )
        for file in current_files(table)
    )  # fmt: skip


def tracked(table: Any) -> list[str]:
    builder = stream_read_builder(table, view="row_tracking").with_end(latest=True)
    return sorted(map(str, read_with(builder)))


@pytest.mark.java
@pytest.mark.parametrize("blobs", [False, True])
def test_java_reads_the_rows_that_are_left(java: LiveJava, tmp_path: Path, blobs: bool) -> None:
    fields = [["k", "BIGINT"], ["v", "STRING"], *([["b", "BLOB"]] if blobs else [])]
    # Java 1.4 has no deletion vectors of data evolution, so only ours knows that there were some.
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    java.call("create", warehouse=str(tmp_path), fields=fields, partition_keys=[], primary_keys=[], options=options)
    rows = [["+I", each, f"v{each}", *(["YmxvYg==" if each % 2 else None] if blobs else [])] for each in range(6)]
    java.call("write", flushes=[rows[:3]])
    java.call("write", flushes=[rows[3:]])
    java.call("evolve", columns=["v"], rows=[["+I", "new"]], range=1)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    table = table.copy({"deletion-vectors.enabled": "true"})
    builder = table.new_batch_write_builder()
    commit = builder.new_commit()
    commit.commit(builder.new_update().delete_by_row_id([1, 3]))
    commit.close()
    assert materialize_deletion_vectors(table).new_snapshot_ids == (5,)
    reply = java.call("read", options={"scan.mode": "latest-full"}, system_table="row_tracking")
    assert reply["end"] == "waiting", reply
    found = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    kept = [(number, "new" if number > 2 else f"v{number}") for number in (0, 2, 4, 5)]
    assert sorted((int(row[-2]), int(row[1]), row[2]) for row in found) == [
        (6 + place, *each) for place, each in enumerate(kept)
    ]
    assert {int(row[-1]) for row in found} == {5}
    java.call("write", flushes=[rows[:1]])
    java.call("compact", full=True, options={"compaction.min.file-num": "2"})
    assert len(tracked(table)) == 5


@pytest.mark.parametrize("options", [{"row-tracking.enabled": "true", "deletion-vectors.enabled": "true"}, {}])
def test_refused(warehouse: Any, options: dict[str, str]) -> None:
    table = create_table(warehouse, "t", pa.schema([("id", pa.int64())]), options=options)
    with pytest.raises(UnsupportedTableError, match=r"data-evolution.enabled"):
        materialize_deletion_vectors(table)
