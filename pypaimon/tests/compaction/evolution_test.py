"""Tables with data evolution: compaction joins the files of rows, and keeps their ids and what was deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, maintain, stream_read_builder, table_files
from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import current_files, read_with, write_by_stream
from support.tables.streamed_table import Table


@pytest.fixture
def table(tmp_path: Path) -> EvolvingTable:
    return EvolvingTable(tmp_path, compaction__min__file_num="3")


def marked(table: EvolvingTable) -> dict[str, int | None]:
    """How many rows the deletion vector of each file marks."""
    directory = TableDirectory.of(table.handle)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None and snapshot.index_manifest is not None
    entries = directory.manifests.index_entries(snapshot.index_manifest)
    return {found.data_file: found.cardinality for entry in entries for found in entry.ranges}


def test_the_columns_of_one_range_become_one_file(table: EvolvingTable) -> None:
    table.numbered(4)
    table.update({1: {"a": "new"}, 2: {"a": "newer"}})
    assert not compact(table.handle).compacted, "two files"
    table.update({0: {"b": 10}})
    assert table_files(table.handle).due.files == 3
    assert compact(table.handle).new_snapshot_ids == (4,)
    (file,) = current_files(table.handle)
    assert (file.first_row_id, file.row_count, file.write_cols) == (0, 4, None)
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 3)
    assert (file.file_source, file.level, file.write_cols_sequences) == (1, 0, None)
    table.check()
    assert not compact(table.handle, full=True).compacted
    table.update({3: {"a": "after"}})
    table.numbered(1)
    table.check()
    assert compact(table.handle).new_snapshot_ids == (7,)
    assert [(each.first_row_id, each.row_count) for each in current_files(table.handle)] == [(0, 5)]
    table.check()
    table.numbered(2)
    assert max(table.model) == 6
    table.check()


def test_deleted_rows_stay_deleted_in_a_joined_file(table: EvolvingTable) -> None:
    for _ in range(3):
        table.numbered(3)
    table.delete(1, 4, 5)
    table.update({3: {"a": "updated"}, 6: {"a": "too"}})
    assert len(marked(table)) == 2
    assert compact(table.handle).compacted
    (file,) = current_files(table.handle)
    assert marked(table) == {file.file_name: 3} and file.row_count == 9
    table.check()
    table.delete(0, 8)
    table.numbered(2)
    table.update({9: {"b": 1}})
    assert compact(table.handle).compacted
    (file,) = current_files(table.handle)
    assert marked(table) == {file.file_name: 5} and file.row_count == 11
    table.check()
    table.delete(2)
    table.check()


def test_vectors_of_other_files_stay(table: EvolvingTable) -> None:
    table.numbered(3)
    table.delete(0)
    table.update({1: {"a": "x"}})
    table.update({2: {"a": "y"}})
    assert compact(table.handle).compacted
    (old,) = marked(table)
    table.numbered(3)
    table.update({4: {"a": "z"}})
    table.update({5: {"b": 3}})
    table.delete(3)
    large = table.handle.copy({"target-file-size": "1 b"})
    assert compact(large).compacted
    assert len(current_files(table.handle)) == 2
    assert marked(table)[old] == 1 and len(marked(table)) == 2
    table.check()


def test_vectors_of_64_bits(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path, deletion_vectors__bitmap64="true")
    table.numbered(3)
    table.numbered(3)
    table.delete(1, 4)
    assert compact(table.handle, full=True).compacted
    (count,) = marked(table).values()
    assert count == 2
    # pypaimon does not read such vectors.
    assert table.rows() == table.model


def test_a_stream_gets_nothing_of_a_compaction(table: EvolvingTable) -> None:
    for number in range(3):
        table.numbered(2)
        table.update({number: {"a": "x"}})
    builder = stream_read_builder(table.handle).with_start(snapshot_id=1).with_end(latest=True)
    before = read_with(builder)
    assert compact(table.handle).compacted
    assert read_with(builder) == before


def test_replaced_files_expire(table: EvolvingTable) -> None:
    for number in range(3):
        table.numbered(2)
        table.update({number: {"a": "x"}})
    table.delete(1)
    assert compact(table.handle).compacted
    data = table.at.path / "bucket-0"
    assert len(list(data.iterdir())) == 7
    maintain(table.handle.copy({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}))
    assert len(list(data.iterdir())) == 1
    table.check()


def test_columns_note_their_newest_update_if_indexes_ask_for_it(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path, compaction__min__file_num="2", global_index__column_update_action="ignore")
    table.numbered(2)
    table.update({0: {"a": "x"}})
    compact(table.handle)
    table.update({0: {"b": 5}})
    compact(table.handle)
    (file,) = current_files(table.handle)
    assert file.write_cols_sequences == [1, 2, 4]
    table.check()


@pytest.mark.parametrize("while_running", ["update", "update of another", "delete", "append"])
@pytest.mark.parametrize("joined", [False, True])
def test_what_is_committed_meanwhile_is_not_lost(table: EvolvingTable, while_running: str, joined: bool) -> None:
    table.numbered(4)
    if joined:
        table.numbered(4)
        table.numbered(4)
    else:
        table.update({0: {"a": "x"}})
        table.update({0: {"b": 6}})

    def meanwhile(done: int, total: int) -> None:
        if while_running == "update":
            table.update({2: {"a": "meanwhile"}})
        elif while_running == "update of another":
            table.update({1: {"b": 99}})
        elif while_running == "delete":
            table.delete(3)
        else:
            table.numbered(2)

    report = compact(table.handle, on_progress=meanwhile)
    table.check()
    # A newer file of the very range that was compacted fits to the new file.
    survives = while_running == "append" or (not joined and while_running != "delete")
    assert bool(report.compacted) == survives and bool(report.conflicts) != survives
    assert compact(table.handle).compacted or survives
    table.check()
    assert compact(table.handle, full=True).new_snapshot_ids or len(current_files(table.handle)) == 1
    assert len(current_files(table.handle)) == 1
    table.check()


def test_ranges_are_committed_without_the_one_that_was_updated_meanwhile(tmp_path: Path) -> None:
    # Two files of 4 MB, as which small ones count, exceed the target.
    options = {"target_file_size": "6 mb", "compaction__min__file_num": "2"}
    table = EvolvingTable(tmp_path, deletion_vectors__enabled="false", **options)
    for _ in range(6):
        table.numbered(2)
    report = compact(table.handle, on_progress=lambda done, total: done < total or table.update({5: {"a": "new"}}))
    assert len(report.compacted) == 2 and len(report.conflicts) == 1 and len(report.new_snapshot_ids) == 1
    assert len(current_files(table.handle)) == 5 and len(list((table.at.path / "bucket-0").iterdir())) == 9
    table.check()
    assert compact(table.handle).compacted
    table.check()


def test_two_compactions_at_once(table: EvolvingTable) -> None:
    for _ in range(3):
        table.numbered(2)
    table.delete(1)
    inner = []
    report = compact(table.handle, on_progress=lambda done, total: inner.append(compact(table.handle)))
    assert inner[0].compacted and report.conflicts and not report.compacted
    table.check()


@pytest.mark.parametrize("joined", [False, True])
def test_an_update_that_was_prepared_before_is_not_lost(table: EvolvingTable, joined: bool) -> None:
    table.numbered(3)
    if joined:
        table.numbered(3)
        table.numbered(3)
    else:
        table.update({0: {"a": "x"}})
        table.update({1: {"a": "y"}})
    builder = table.handle.new_batch_write_builder()
    update = builder.new_update().with_update_type(["b"])
    messages = update.update_by_arrow_with_row_id(
        pa.table({"_ROW_ID": pa.array([2], pa.int64()), "b": pa.array([77], pa.int32())})
    )
    assert compact(table.handle).compacted
    commit = builder.new_commit()
    try:
        commit.commit(messages)
        table.model[2]["b"] = 77
    except RuntimeError:
        # pypaimon refuses it: to be repeated by its user.
        table.update({2: {"b": 77}})
    finally:
        commit.close()
    table.check()
    compact(table.handle, full=True)
    table.check()


def test_a_damaged_file_is_named_and_nothing_changes(table: EvolvingTable) -> None:
    table.numbered(3)
    table.update({0: {"a": "x"}})
    table.update({1: {"a": "y"}})
    path = Path(current_files(table.handle)[0].file_path)
    whole, listed = path.read_bytes(), sorted(table.at.path.rglob("*"))
    path.write_bytes(whole[:-20])
    with pytest.raises(CorruptTableError, match=path.name):
        compact(table.handle)
    assert sorted(table.at.path.rglob("*")) == listed
    path.write_bytes(whole)
    table.check()


def test_files_without_row_ids_are_refused_and_counted_all_the_same(tmp_path: Path) -> None:
    before = Table(tmp_path, columns=pa.schema([("id", pa.int64())]))
    write_by_stream(before.handle(), pa.table({"id": [1]}))
    table = before.handle().copy_without_time_travel({"row-tracking.enabled": "true", "data-evolution.enabled": "true"})
    with pytest.raises(UnsupportedTableError, match="has no row ids"):
        compact(table)
    found = table_files(table)
    assert found.files.files == 1 and found.due.files == 0 and "has no row ids" in str(found.not_compacted)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"data_evolution__row_sidecar__enabled": "true"}, "row-sidecar"),
        ({"data_evolution__compaction__rewrite_row_ids": "true"}, "rewrite-row-ids"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    table = EvolvingTable(tmp_path, **options)
    table.numbered(1)
    with pytest.raises(UnsupportedTableError, match=name):
        compact(table.handle)
