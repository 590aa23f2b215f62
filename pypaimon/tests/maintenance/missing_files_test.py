"""Data files that are gone from the store, and are removed from the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pypaimon.streaming import StoreError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import remove_missing_files
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
