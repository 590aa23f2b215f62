"""`paimon-stream files` and `table_files`: counts, files that are due, and tables that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder, table_files
from pypaimon.streaming.compaction import FileCount
from support.docs.cli_runs import Program
from support.tables.handles import catalog_with_database, create_table

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])


def created(warehouse: Path, keys: list[str], **options: str) -> Any:
    catalog = catalog_with_database(warehouse)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return create_table(catalog, "t", COLUMNS, partition_keys=["day"], primary_keys=keys or None, options=given)


def write(table: Any, day: str, commits: int) -> None:
    with stream_write_builder(table).with_commit_user("load").open_sync() as writer:
        for commit in range(commits):
            writer.write(pa.table({"id": [commit, commit + 1], "day": [day, day]}, schema=COLUMNS))
            writer.commit()


def test_a_table_with_keys_before_and_after_a_compaction(tmp_path: Path, program: Program) -> None:
    table = created(tmp_path, ["day", "id"], bucket="1")
    write(table, "a", 6)
    write(table, "b", 1)
    first, second = program("files", "db.t", "--format", "json").records
    assert (first["partition"], first["files"], first["records"], first["sorted_runs"]) == ({"day": "a"}, 6, 12, 6)
    assert first["due"] == {key: first[key] for key in ("files", "bytes", "records")}
    assert first["levels"].keys() == {"0"} and first["snapshot"] == 7
    assert (second["due"]["files"], second["sorted_runs"]) == (0, 1)
    (only,) = program("files", "db.t", "--format", "json", "--where", "day = 'b'", "--full").records
    assert (only["partition"], only["due"]["files"]) == ({"day": "b"}, 1)

    found = table_files(table)
    report = compact(table)
    assert (found.due, found.files) == (report.before, report.before + found.buckets[1].files)
    after = table_files(table)
    assert after.due == FileCount() and after.files.files == 2
    assert dict(after.buckets[0].levels) == {5: report.after}
    lines = program("files", "db.t").lines
    assert lines[0].split() == ["partition", "bucket", "files", "size", "records", "levels", "sorted", "runs", "due"]
    assert lines[1].split()[0] == "day=a" and lines[1].split()[-3:] == ["5:1", "1", "0"]
    assert lines[-1].startswith("db.t: 2 files") and lines[-1].endswith("in 2 buckets at snapshot 8; nothing is due")


def test_a_table_that_is_not_compacted_is_counted_all_the_same(tmp_path: Path, program: Program) -> None:
    table = created(tmp_path, [], data_evolution__row_sidecar__enabled="true")
    write(table, "a", 2)
    (record,) = program("files", "db.t", "--format", "json").records
    assert (record["files"], record["sorted_runs"], record["due"]) == (2, None, None)
    assert "data-evolution.row-sidecar.enabled" in record["not_compacted"]
    assert "data-evolution.row-sidecar.enabled" in program("files", "db.t").lines[-1]
    assert "data-evolution.row-sidecar.enabled" in table_files(table)._repr_html_()


def test_partitions_of_null_have_the_name_that_the_table_gives_them(tmp_path: Path, program: Program) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string())])
    options = {"partition.default-name": "no day", "bucket": "1", "bucket-key": "id"}
    table = create_table(catalog_with_database(tmp_path), "t", columns, partition_keys=["day"], options=options)
    with stream_write_builder(table).open_sync() as writer:
        for _ in range(5):
            writer.write(pa.table({"id": [1], "day": [None]}, schema=columns))
            writer.commit()
    assert program("files", "db.t").lines[1].startswith("day=no day")
    assert program("compact", "db.t").lines[1].startswith("day=no day")


def test_a_table_without_files(tmp_path: Path, program: Program) -> None:
    created(tmp_path, [])
    outcome = program("files", "db.t")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "db.t has no such data files\n")


def test_the_picture_begins_with_what_is_due_and_takes_names_as_text(tmp_path: Path) -> None:
    table = created(tmp_path, ["day", "id"], bucket="1")
    write(table, "<b>", 5)
    with stream_write_builder(table).with_commit_user("days").open_sync() as writer:
        writer.write(pa.table({"id": range(45), "day": [f"{day:02}" for day in range(45)]}, schema=COLUMNS))
        writer.commit()
    drawn = table_files(table)._repr_html_()
    assert "<b>," not in drawn
    assert drawn.index("day=&lt;b&gt;, bucket 0") == drawn.index("day=")
    assert drawn.count("<tr>") == 40 and "6 more buckets" in drawn
    assert "5 files" in drawn and "5 to compact" in drawn
