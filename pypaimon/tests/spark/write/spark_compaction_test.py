"""Tables that tasks of Spark compact: the same rows in fewer files, and what of a compaction that fails is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pypaimon.spark import compact, materialize_deletion_vectors, register, rescale, rewrite_file_index
from pypaimon.streaming import (
    CorruptTableError,
    UnsupportedTableError,
    stream_read_builder,
    stream_write_builder,
    table_files,
)
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import create_table, current_files, read_with

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string()), ("v", pa.int64())])


def created(catalog: Any, keys: list[str], **options: str) -> Any:
    given = {"write-only": "true"} | {key.replace("_", "-"): value for key, value in options.items()}
    return create_table(catalog, "t", COLUMNS, partition_keys=["day"], primary_keys=keys or None, options=given)


def write(table: Any, commits: int) -> None:
    with stream_write_builder(table).with_commit_user("load").open_sync() as writer:
        for commit in range(commits):
            rows = {"id": [*range(6)] * 2, "day": ["a"] * 6 + ["b"] * 6, "v": [commit] * 12}
            writer.write(pa.table(rows, schema=COLUMNS))
            writer.commit()


def rows(table: Any, start: str = "latest-full") -> list[tuple[Any, ...]]:
    builder = stream_read_builder(table).with_start(start).with_end(latest=True)
    return sorted(tuple(row.values()) for row in read_with(builder))


def options_of(table: Any) -> dict[str, str]:
    return {"path": str(table.table_path)}


@pytest.mark.parametrize("keyed", [True, False])
def test_the_rows_stay_and_the_files_become_fewer(spark: Any, warehouse: Any, keyed: bool) -> None:
    table = created(warehouse, ["day", "id"], bucket="2") if keyed else created(warehouse, [])
    write(table, 6)
    before = rows(table)
    dry = compact(spark, options_of(table), dry_run=True)
    report = compact(spark, options_of(table), where="day = 'a'")
    assert [each.partition for each in report.compacted] == [{"day": "a"}] * (2 if keyed else 1)
    rest = compact(spark, options_of(table))
    assert report.before + rest.before == dry.before
    assert (report.new_snapshot_ids, rest.new_snapshot_ids) == ((7,), (8,))
    assert table_files(table).files == report.after + rest.after
    assert rows(table) == before
    assert compact(spark, options_of(table)).compacted == ()


@pytest.mark.parametrize("clustered", [True, False])
def test_rows_are_sorted_in_tasks(spark: Any, warehouse: Any, clustered: bool) -> None:
    clustering = {"clustering.incremental": "true", "clustering.columns": "id,v"} if clustered else {}
    table = created(warehouse, [], **clustering)
    write(table, 6)
    before = rows(table)
    arguments: dict[str, Any] = {"full": True} if clustered else {"order_by": ["id", "v"], "strategy": "hilbert"}
    report = compact(spark, options_of(table), **arguments)
    assert (report.before.files, report.after.files) == (12, 2)
    assert rows(table) == before
    assert [dict(each.levels).keys() for each in table_files(table).buckets] == [{5 if clustered else 0}] * 2


def test_postponed_rows_are_distributed_over_buckets(spark: Any, warehouse: Any) -> None:
    table = created(warehouse, ["day", "id"], bucket="-2", **{"postpone.default-bucket-num": "2"})
    write(table, 3)
    report = compact(spark, options_of(table))
    assert {each.bucket for each in report.compacted} == {-2, 0, 1}
    assert rows(table) == sorted(("+I", key, day, 2) for key in range(6) for day in "ab")


def test_files_of_keys_are_sorted_by_other_columns(spark: Any, warehouse: Any) -> None:
    clustering = {"pk-clustering-override": "true", "clustering.columns": "v", "deletion-vectors.enabled": "true"}
    table = created(warehouse, ["day", "id"], bucket="2", **clustering)
    write(table, 3)
    report = compact(spark, options_of(table))
    assert (report.before.rows, report.after.rows, len(report.new_snapshot_ids)) == (36, 12, 1)
    assert rows(table) == sorted(("+I", key, day, 2) for key in range(6) for day in "ab")
    assert {level for each in table_files(table).buckets for level in each.levels} == {1}


@pytest.mark.parametrize("kind", ["deduplicate", "postponed", "append"])
def test_rows_are_divided_into_another_number_of_buckets(spark: Any, warehouse: Any, kind: str) -> None:
    given = {"bucket-key": "id"} if kind == "append" else {}
    given |= {"bucket": "-2", "postpone.default-bucket-num": "2"} if kind == "postponed" else {"bucket": "2"}
    table = created(warehouse, [] if kind == "append" else ["day", "id"], **given)
    write(table, 3)
    before = rows(table) if kind != "postponed" else sorted(("+I", key, day, 2) for key in range(6) for day in "ab")
    dry = rescale(spark, options_of(table), 5, dry_run=True)
    assert len(dry.compacted) == (0 if kind == "postponed" else 4) and not dry.new_snapshot_ids
    report = rescale(spark, options_of(table), 5, where="day = 'a'")
    assert {tuple(each.partition.items()) for each in report.compacted} == {(("day", "a"),)}
    report = rescale(spark, options_of(table), 5)
    assert len(report.new_snapshot_ids) == 1 and not report.conflicts and not report.skipped
    assert 2 < max(each.bucket for each in table_files(table).buckets) < 5
    assert rows(table) == before
    assert rescale(spark, options_of(table), 5).compacted == ()


def test_a_partition_that_cannot_be_rescaled_stays_and_the_error_names_the_file(spark: Any, warehouse: Any) -> None:
    table = created(warehouse, ["day", "id"], bucket="2")
    write(table, 2)
    root = Path(str(table.table_path))
    damaged = sorted(root.glob("day=b/bucket-1/*.parquet"))[1]
    damaged.write_bytes(b"no such file")
    files = {path for path in root.rglob("*") if path.is_file()}
    with pytest.raises(CorruptTableError, match=damaged.name):
        rescale(spark, options_of(table), 3)
    assert {path for path in root.rglob("*") if path.is_file()} == files


def test_files_of_columns_become_one_and_row_ids_stay(spark: Any, tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path, compaction__min__file_num="3")
    table.numbered(4)
    table.numbered(4)
    table.update({1: {"a": "x"}, 6: {"a": "y"}})
    table.delete(2)
    assert len(compact(spark, options_of(table.handle)).new_snapshot_ids) == 1
    assert len(current_files(table.handle)) == 1
    table.check()
    assert len(materialize_deletion_vectors(spark, options_of(table.handle)).new_snapshot_ids) == 1
    assert list(table.rows().values()) == list(table.model.values()) and min(table.rows()) == 8
    with pytest.raises(UnsupportedTableError, match=r"deletion-vectors.enabled"):
        materialize_deletion_vectors(spark, {**options_of(table.handle), "deletion-vectors.enabled": "false"})


def test_files_get_the_indexes_of_the_options(spark: Any, warehouse: Any) -> None:
    table = created(warehouse, ["day", "id"], bucket="2")
    write(table, 2)
    before = rows(table)
    options = {**options_of(table), "file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "0 b"}
    report = rewrite_file_index(spark, options, where="day = 'a'")
    assert (len(report.compacted), report.before.files, len(report.new_snapshot_ids)) == (2, 4, 1)
    assert rewrite_file_index(spark, options).before.files == 4 and not rewrite_file_index(spark, options).compacted
    assert all(len(file.extra_files) == 1 for file in current_files(table))
    assert rows(table) == before


def test_changes_that_a_compaction_makes(spark: Any, warehouse: Any) -> None:
    vectors = {"deletion-vectors.enabled": "true", "target-file-size": "1 b"}
    table = created(warehouse, ["day", "id"], bucket="2", changelog_producer="lookup", **vectors)
    write(table, 1)
    compact(spark, options_of(table))
    write(table.copy({}), 2)
    compact(spark, options_of(table))
    kinds = [row[0] for row in rows(table, "earliest")]
    assert sorted(kinds) == ["+I"] * 12 + ["+U"] * 12 + ["-U"] * 12
    with stream_write_builder(table.copy({})).with_commit_user("load").open_sync() as writer:
        writer.write(pa.table({"id": [0], "day": ["a"], "v": [9]}, schema=COLUMNS))
        writer.commit()
    compact(spark, options_of(table))
    wanted = sorted((key, day, 1 if (key, day) != (0, "a") else 9) for key in range(6) for day in "ab")
    assert [row[1:] for row in rows(table)] == wanted
    # The row of before is marked, in a file that stays.
    assert list(Path(str(table.table_path)).glob("index/index-*"))


def test_of_a_damaged_bucket_nothing_is_left_and_the_error_names_the_file(spark: Any, warehouse: Any) -> None:
    table = created(warehouse, ["day", "id"], bucket="2")
    write(table, 6)
    root = Path(str(table.table_path))
    damaged = sorted(root.glob("day=a/bucket-1/*.parquet"))[2]
    damaged.write_bytes(b"no such file")
    files = set(root.rglob("*"))
    with pytest.raises(CorruptTableError, match=damaged.name):
        compact(spark, options_of(table))
    assert set(root.rglob("*")) == files


def test_next_to_a_query_that_writes(spark: Any, warehouse: Any, tmp_path: Path) -> None:
    register(spark)
    table = created(warehouse, ["day", "id"], bucket="2")
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=6, numPartitions=1).load()
    query = (
        source.selectExpr("value % 6 as id", "'a' as day", "value as v").writeStream.format("pypaimon")
        .options(**options_of(table), checkpointLocation=str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    compacted = 0
    try:
        while compacted < 2:
            query.awaitTermination(1)
            compacted += len(compact(spark, options_of(table), full=True).new_snapshot_ids)
    finally:
        query.stop()
    found = rows(table)
    newest = max(row[-1] for row in found)
    assert [row[-1] for row in found] == [*range(newest - 5, newest + 1)]
