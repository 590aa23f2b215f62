"""Files of postponed buckets: Java's compaction finds in their names and creation times what came after what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.handles import catalog_with_database, create_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Any:
    catalog = catalog_with_database(tmp_path, "d")
    options = {"bucket": "-2", "target-file-row-num": "1"}
    return create_table(catalog, "t", COLUMNS, primary_keys=["id"], options=options, database="d")


def written(table: Any, user: str, *names: str) -> None:
    with stream_write_builder(table).with_commit_user(user).open_sync() as writer:
        for name in names:
            writer.write(pa.Table.from_pylist([{"id": 1, "name": name}] * 5, COLUMNS))
            writer.commit()


def files(table: Any) -> list[dict[str, Any]]:
    directory = TableDirectory.of(table)
    found = TableState(directory, directory.snapshots.get_latest_snapshot()).files(None)
    return [dict(each.file) for each in found]


def test_each_file_was_made_later_than_those_before(table: Any) -> None:
    written(table, "job", "a", "b", "c")
    times = [each["_CREATION_TIME"] for each in files(table)]
    assert len(times) == 15
    assert times == sorted(set(times))


def test_one_number_for_all_files_of_a_commit_user(table: Any) -> None:
    written(table, "a-s-job", "a", "b")
    written(table, "a-s-job", "c")  # as after a restart
    written(table, "other", "d")
    # Java: the number behind the first `-s-`, up to the next dash.
    numbers = [int(each["_FILE_NAME"].split("-s-")[1].partition("-")[0]) for each in files(table)]
    assert len(set(numbers[:15])) == 1
    assert len(set(numbers)) == 2
    assert all(0 <= number < 1 << 31 for number in numbers)
