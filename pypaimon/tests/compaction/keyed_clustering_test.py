"""Primary-key tables whose files are sorted by other columns than the key: what is due, and what files come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.compaction.live_files import LiveEntries, LiveFile, live_buckets
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.memory import peak_memory
from support.tables.handles import catalog_with_database, create_table, read_with

pytestmark = pytest.mark.slow

COLUMNS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        ("city", pa.string()),
        ("size", pa.int32()),
    ]
)
CLUSTERED = {"bucket": "1", "pk-clustering-override": "true", "clustering.columns": "size,city"}
VECTORS = CLUSTERED | {"deletion-vectors.enabled": "true"}
Row = tuple[str, str, int, str | None, int | None]


def created(directory: Path, **options: str) -> Any:
    keys, given = (
        ["day", "name", "number"],
        {key.replace("_", "-").replace("--", "."): each for key, each in options.items()},
    )
    catalog = catalog_with_database(directory)
    return create_table(catalog, "t", COLUMNS, partition_keys=["day"], primary_keys=keys, options=VECTORS | given)


def write(table: Any, *rows: Row, columns: pa.Schema = COLUMNS) -> None:
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        writer.write(pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], columns))
        writer.commit()


def rows(table: Any, filter: str | None = None) -> list[Row]:
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_include_row_kind(False)
    found = read_with(builder if filter is None else builder.with_filter(filter, unmatched="drop"))
    return sorted((tuple(row.values()) for row in found), key=repr)


def files(table: Any) -> list[LiveFile]:
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    buckets = live_buckets(PaimonTable(table), LiveEntries().look(directory, snapshot))
    return [file for bucket in buckets for file in bucket.files]


def sizes(first: int, last: int) -> list[Row]:
    """Rows whose sizes are from one to another, of which each is the key too."""
    return [("a", "n", size, "c", size) for size in range(first, last + 1)]


def test_files_are_sorted_and_say_so_as_those_of_java(tmp_path: Path) -> None:
    """Bounds are of the columns by which they are sorted, statistics of the key are of the key."""
    table = created(tmp_path)
    new: list[Row] = [
        ("a", "x", 1, "Rome", 7),
        ("a", "y", 2, None, 7),
        ("a", "a", 3, "Oslo", None),
        ("a", "b", 4, "Bonn", -1),
    ]
    write(table, *new, ("b", "z", 9, "Kiel", 1))
    compact(table)
    assert rows(table) == sorted([*new, ("b", "z", 9, "Kiel", 1)], key=repr)
    file = next(file for file in files(table) if file.read.row_count == 4)
    stored = pq.ParquetFile(str(file.read.file_path)).read()
    assert stored["number"].to_pylist() == [3, 4, 2, 1]
    fields = {field.name: field for field in table.fields}
    bounds = [decode(file.stored.file[name], [fields["size"], fields["city"]]) for name in ("_MIN_KEY", "_MAX_KEY")]
    assert bounds == [(None, "Oslo"), (7, "Rome")]
    least, greatest = (
        decode(file.stored.file["_KEY_STATS"][name], [fields["name"], fields["number"]])
        for name in ("_MIN_VALUES", "_MAX_VALUES")
    )
    assert (least, greatest) == (("a", 1), ("y", 4))
    assert (file.level, file.read.file_source, file.read.delete_row_count) == (1, 1, 0)
    assert rows(table, "number = 4") == [("a", "b", 4, "Bonn", -1)]
    assert rows(table, "size = 7 and city is null") == [("a", "y", 2, None, 7)]


def test_sorted_files_wait_until_enough_of_them_overlap(tmp_path: Path) -> None:
    table = created(tmp_path, **{"num-sorted-run--compaction-trigger": "3", "target-file-size": "1 b"})
    for first in (0, 10, 20):
        write(table, *sizes(first, first + 9))
        compact(table)
    # Each value has a file of its own, so that none overlap.
    assert len(files(table)) == 30
    assert not compact(table).compacted
    table = table.copy({"target-file-size": "2 kb"})
    for number, (least, greatest) in enumerate([(3, 26), (4, 25)]):
        write(table, ("a", "low", number, "c", least), ("a", "high", number, "c", greatest))
        compact(table)
        (bucket,) = table_files(table).buckets
        assert (bucket.levels[1].files, bucket.due.files) == (31 + number, [0, 24][number])
    before = rows(table)
    assert compact(table).new_snapshot_ids
    assert not compact(table).compacted
    assert rows(table) == before
    assert len(files(table)) < 12


def test_files_of_one_value_are_not_rewritten_again_and_again(tmp_path: Path) -> None:
    table = created(tmp_path, **{"target-file-size": "3 kb", "num-sorted-run--compaction-trigger": "1"})
    write(table, *(("a", f"{number * 7919**9}", number, "c", 1) for number in range(400)))
    assert compact(table).after.files > 2
    assert not compact(table).compacted
    assert not compact(table, full=True).compacted


def test_a_full_compaction_sorts_all_and_drops_what_is_marked(tmp_path: Path) -> None:
    # Bounds of fewer columns than the key.
    options = {"num-sorted-run--compaction-trigger": "9", "target-file-size": "1 b", "clustering--columns": "size"}
    table = created(tmp_path, **options)
    write(table, *sizes(1, 4))
    compact(table)
    write(table, ("a", "n", 2, "c", 9), ("a", "n", 7, "c", 0))
    compact(table)
    assert sum(int(file.read.row_count) for file in files(table)) == 6
    report = compact(table, full=True)
    assert (report.before.rows, report.after.rows) == (6, 5)
    assert [row[2] for row in sorted(rows(table), key=lambda row: row[4])] == [7, 1, 3, 4, 2]
    assert not compact(table, full=True).compacted


def test_postponed_rows_are_distributed_and_sorted(tmp_path: Path) -> None:
    table = created(tmp_path, **{"bucket": "-2", "postpone--default-bucket-num": "2"})
    for size in (3, 2):
        write(table, *(("a", "n", number, "c", size + number) for number in range(20)))
        compact(table)
    assert rows(table) == sorted((("a", "n", number, "c", 2 + number) for number in range(20)), key=repr)
    assert {(each.bucket, *each.levels) for each in table_files(table).buckets} == {(0, 1), (1, 1)}


def test_memory_is_bounded_by_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypaimon.streaming.compaction.file_reading._BATCH_ROWS", 2048)
    limit = 1 << 20
    # The keys are 3 MB in memory, the rows 8 MB. Both are sorted at the same time.
    assert peak(tmp_path, 70_000, limit) < 7 * limit // 2


def peak(directory: Path, count: int, limit: int) -> int:
    """The most bytes of Arrow and of Python that a full compaction takes which replaces half of the rows."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("s", pa.string())])
    options = VECTORS | {"clustering.columns": "a", "target-file-size": "256 kb", "sort-spill-buffer-size": str(limit)}
    table = create_table(catalog_with_database(directory), "t", columns, primary_keys=["id"], options=options)
    numbers = np.random.default_rng(1)
    for ids in (np.arange(count), np.arange(0, count, 2)):
        texts = [f"{each:.28f}" for each in numbers.random(len(ids))]
        with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
            writer.write(pa.table([ids, numbers.integers(0, 1 << 40, len(ids)), texts], schema=columns))
            writer.commit()
        if len(ids) == count:
            compact(table)
    report, most = peak_memory(lambda: compact(table, full=True))
    assert report.after.rows == count
    return most


@pytest.mark.parametrize("kind", ["BIGINT", "STRING"])
def test_files_whose_values_had_another_type(tmp_path: Path, kind: str) -> None:
    """They may overlap with all others."""
    table = created(tmp_path, **{"num-sorted-run--compaction-trigger": "3"})
    write(table, *sizes(-3, 5))
    compact(table)
    catalog = catalog_with_database(tmp_path)
    catalog.alter_table("db.t", [SchemaChange.update_column_type("size", AtomicType(kind))], False)
    table = catalog.get_table("db.t")
    type_ = pa.int64() if kind == "BIGINT" else pa.string()
    columns = COLUMNS.set(4, pa.field("size", type_))
    write(table, ("a", "n", 2, "c", 11 if kind == "BIGINT" else "11"), columns=columns)
    report = compact(table, full=True)
    assert (report.before.files, report.after.rows) == (2, 9)
    assert len(rows(table)) == 9


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"deletion-vectors.enabled": "false"}, "Set 'deletion-vectors.enabled'"),
        ({"merge-engine": "partial-update"}, "partial-update"),
        ({"merge-engine": "aggregation"}, "aggregation"),
        ({"changelog-producer": "lookup"}, "'changelog-producer' = 'lookup'"),
        ({"sequence.field": "size"}, "sequence.field"),
        ({"sequence.snapshot-ordering": "true"}, "sequence.snapshot-ordering"),
        ({"record-level.expire-time": "1 d", "record-level.time-field": "size"}, "record-level.expire-time"),
    ],
)
def test_what_java_does_not_cluster_is_refused_before_a_byte_is_written(
    tmp_path: Path, options: dict[str, str], named: str
) -> None:
    table = created(tmp_path)
    write(table, *sizes(1, 2))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match=f"pk-clustering-override.*{named}"):
        compact(table.copy_without_time_travel(options), full=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("columns", ["", "size,none", "day", "size,size"])
def test_columns_by_which_no_file_can_be_sorted(tmp_path: Path, columns: str) -> None:
    table = created(tmp_path)
    write(table, *sizes(1, 2))
    with pytest.raises(StreamConfigError, match=r"clustering\.columns"):
        compact(table.copy_without_time_travel({"clustering.columns": columns}))
