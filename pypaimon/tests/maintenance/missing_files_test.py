"""Data files that are gone from the store, and are removed from the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pypaimon.streaming import StoreError, compact, table_files
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import remove_missing_files
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import current_files, write_by_stream
from support.tables.streamed_table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    columns = pa.schema([("p", pa.string()), ("k", pa.int64())])
    table = Table(tmp_path, "t", columns=columns, partition_keys=["p"])
    for key, partition in enumerate(["a", "b c", None, "a"]):
        table.commit([(partition, key)])
    return table


def test_only_what_is_missing_is_removed(table: Table) -> None:
    assert remove_missing_files(table.handle()).paths == () and table.latest() == 4
    for lost in [path for path in table.data_files() if "p=b c" in str(path) or "DEFAULT" in str(path)]:
        lost.unlink()
    dry = remove_missing_files(table.handle(), dry_run=True)
    assert len(dry.paths) == dry.rows == 2 and dry.snapshot_id is None and table.latest() == 4
    report = remove_missing_files(table.handle())
    assert report.snapshot_id == 5 and report.paths == dry.paths
    assert table.rows() == [("a", 0), ("a", 3)] and table.snapshot(5)["totalRecordCount"] == 2
    assert remove_missing_files(table.handle()).snapshot_id is None


def test_a_listing_is_believed_only_if_a_second_one_says_the_same(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, seen = Store.list_names, set[str]()

    def incomplete(self: Store, directory: str) -> list[str]:
        if directory in seen or "bucket-" not in directory:
            return original(self, directory)
        seen.add(directory)
        return []

    monkeypatch.setattr(Store, "list_names", incomplete)
    assert remove_missing_files(table.handle()).paths == () and len(seen) == 3


def test_a_listing_that_fails_removes_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.data_files()[0].unlink()

    def fails(self: Store, directory: str) -> list[str]:
        raise StoreError("the store does not answer")

    monkeypatch.setattr(Store, "list_names", fails)
    with pytest.raises(StoreError):
        remove_missing_files(table.handle())
    assert table.latest() == 4


def test_a_file_with_deleted_rows_is_removed_with_its_deletion_vector(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "target-file-size": "1 b"}
    table = Table(tmp_path, "t", columns=columns, primary_keys=["k"], **options)
    for keys in ([0, 1, 2, 3], [1], [2]):
        table.write(pa.table({"k": keys, "v": [len(keys)] * len(keys)}, columns), by=write_by_stream)
        compact(table.handle())
    # One row is in a file, and those of 1 and 2 have a deleted one.
    expected = [(0, 4), (1, 1), (2, 1), (3, 4)]
    assert table.rows() == expected and table_files(table.handle()).files.files == 6
    lost = min(
        (file for file in current_files(table.handle()) if file.min_key.values == [1]),
        key=lambda file: file.creation_time,
    )
    (path,) = table.path.rglob(lost.file_name)
    path.unlink()
    report = remove_missing_files(table.handle())
    assert (report.paths, report.rows) == ((str(path),), 1) and table_files(table.handle()).files.files == 5
    assert table.rows() == expected
    compact(table.handle(), full=True)
    assert table.rows() == expected


@pytest.mark.parametrize("lost", ["the rows", "an update"])
def test_rows_of_data_evolution_go_whole(tmp_path: Path, lost: str) -> None:
    """Without one of its files a row would have nulls, or values from before an update."""
    table = EvolvingTable(tmp_path)
    table.numbered(3)
    first = set(table.at.data_files())
    table.numbered(3)
    others = set(table.at.data_files())
    table.update({1: {"a": "new"}})
    table.delete(2, 4)
    (path,) = first if lost == "the rows" else set(table.at.data_files()) - others
    path.unlink()
    report = remove_missing_files(table.handle)
    assert report.paths == (str(path),) and report.rows == 3
    table.model = {row_id: row for row_id, row in table.model.items() if row_id > 2}
    table.check()
