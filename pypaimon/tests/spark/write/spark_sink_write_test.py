"""Writes of a real Spark: modes, kinds of tables, row kinds, what is refused, and batches that are run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pyspark.sql import Window
from pyspark.sql import functions as sql

from pypaimon.spark.source import register
from pypaimon.spark.write.bucketing import repartition_by_bucket
from support.tables.handles import batch_table

pytestmark = [pytest.mark.spark, pytest.mark.soak]


COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())])
DDL = "id long, v string, day string"


class Tables:
    """A session and a warehouse."""

    def __init__(self, spark: Any, catalog: Any, directory: Path) -> None:
        register(spark)
        self.spark, self.catalog, self.directory = spark, catalog, directory
        self.options = {"warehouse": str(directory / "warehouse")}

    def create(self, name: str, **arguments: Any) -> dict[str, str]:
        self.catalog.create_table(f"db.{name}", Schema.from_pyarrow_schema(COLUMNS, **arguments), False)
        return {**self.options, "table": f"db.{name}"}

    def frame(self, *rows: tuple[Any, ...], ddl: str = DDL) -> Any:
        return self.spark.createDataFrame(list(rows), ddl)

    def write(self, frame: Any, options: dict[str, str], mode: str = "append") -> None:
        frame.write.format("pypaimon").options(**options).mode(mode).save()

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        data = batch_table(self.catalog.get_table(f"db.{name}"))
        return sorted(zip(*(data[column].to_pylist() for column in data.schema.names), strict=True))

    def stream(self, frame: Any, options: dict[str, str], name: str, mode: str = "append") -> None:
        query = (
            frame.writeStream.format("pypaimon").options(**options).outputMode(mode)
            .option("checkpointLocation", str(self.directory / f"checkpoint-{name}"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    def forget_last_batch(self, name: str) -> None:
        """As if Spark had died after the commit, before its own log."""
        commits = self.directory / f"checkpoint-{name}" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)


@pytest.fixture
def tables(spark: Any, warehouse: Any, tmp_path: Path) -> Tables:
    return Tables(spark, warehouse, tmp_path)


def test_append_and_dynamic_overwrite_of_partitions(tables: Tables) -> None:
    options = tables.create("t", partition_keys=["day"])
    tables.write(tables.frame((1, "a", "mon"), (2, "b", "tue")), options)
    tables.write(tables.frame((3, "c", "mon")), options, "overwrite")
    assert tables.rows("t") == [(2, "b", "tue"), (3, "c", "mon")]
    tables.write(tables.frame((4, "d", "wed")), {**options, "dynamic-partition-overwrite": "false"}, "overwrite")
    assert tables.rows("t") == [(4, "d", "wed")]


@pytest.mark.parametrize("buckets", ["3", "-2"])
def test_upserts_and_deletes_by_bucket(tables: Tables, buckets: str) -> None:
    keys = {"primary_keys": ["day", "id"], "partition_keys": ["day"], "options": {"bucket": buckets}}
    options = tables.create("t", **keys)
    first = tables.frame(*((each, "old", f"d{each % 2}") for each in range(40)))
    tables.write(repartition_by_bucket(first, options), options)
    changes = tables.frame(
        *((("-D" if each % 4 == 0 else "+U"), each, "new", f"d{each % 2}") for each in range(20)),
        ddl="_row_kind string, id int, v string, day string",
    )
    tables.write(repartition_by_bucket(changes, options), options)
    if buckets == "-2":
        assert tables.catalog.get_table("db.t").snapshot_manager().get_latest_snapshot().total_record_count == 60
        return
    expected = [(each, "new" if each < 20 else "old", f"d{each % 2}") for each in range(40) if each >= 20 or each % 4]
    assert tables.rows("t") == expected


def test_rows_of_a_bucket_come_from_one_task(tables: Tables) -> None:
    options = tables.create("t", primary_keys=["id"], options={"bucket": "4"})
    tables.write(repartition_by_bucket(tables.frame(*((each, "v", "d") for each in range(200))), options), options)
    plan = tables.catalog.get_table("db.t").new_read_builder().new_scan().plan()
    files = [(split.bucket, file.file_name) for split in plan.splits() for file in split.files]
    assert sorted(bucket for bucket, _ in files) == [0, 1, 2, 3]


def test_a_batch_that_is_run_again_is_not_added_again(tables: Tables) -> None:
    options = tables.create("t")
    tables.frame((1, "a", "d"), (2, "b", "d")).write.parquet(str(tables.directory / "in"))
    source = tables.spark.readStream.schema(DDL).parquet(str(tables.directory / "in"))
    tables.stream(source, options, "t")
    expected = tables.rows("t")
    tables.forget_last_batch("t")
    tables.write(tables.frame((9, "other", "d")), options)
    tables.stream(source, options, "t")
    assert tables.rows("t") == sorted([*expected, (9, "other", "d")])


def test_complete_mode_replaces_the_table(tables: Tables) -> None:
    options = tables.create("t", partition_keys=["day"])
    tables.write(tables.frame((7, "gone", "old")), options)
    tables.frame((1, "a", "mon"), (2, "b", "mon"), (3, "c", "tue")).write.parquet(str(tables.directory / "in"))
    source = tables.spark.readStream.schema(DDL).parquet(str(tables.directory / "in"))
    counted = source.groupBy("day").count().selectExpr("count as id", "'n' as v", "day")
    tables.stream(counted, options, "t", mode="complete")
    assert tables.rows("t") == [(1, "n", "tue"), (2, "n", "mon")]
    tables.forget_last_batch("t")
    tables.stream(counted, options, "t", mode="complete")
    assert tables.rows("t") == [(1, "n", "tue"), (2, "n", "mon")]


def test_a_complete_batch_without_rows_or_partitions_empties_the_table_once(tables: Tables) -> None:
    """Spark gives it one task all the same, which names the query, so that the commit can be recognised."""
    options = tables.create("t")
    tables.write(tables.frame((7, "gone", "old")), options)
    tables.frame((1, "a", "mon")).write.parquet(str(tables.directory / "in"))
    source = tables.spark.readStream.schema(DDL).parquet(str(tables.directory / "in"))
    # The optimizer makes an empty relation of the limit, whose data has no partition.
    nothing = source.groupBy("day").count().selectExpr("count as id", "'n' as v", "day").limit(0)
    tables.stream(nothing, options, "t", mode="complete")
    assert tables.rows("t") == []
    tables.forget_last_batch("t")
    tables.write(tables.frame((9, "other", "d")), options)
    tables.stream(nothing, options, "t", mode="complete")
    assert tables.rows("t") == [(9, "other", "d")]


def test_a_batch_write_that_names_its_batch_happens_once(tables: Tables) -> None:
    options = {**tables.create("t"), "query-id": "q", "batch-id": "4"}
    for _ in range(2):
        tables.write(tables.frame((1, "a", "d")), options)
    assert tables.rows("t") == [(1, "a", "d")]


def test_a_new_checkpoint_under_the_name_of_another_query_is_refused(tables: Tables) -> None:
    options = {**tables.create("t"), "query-id": "q"}
    tables.frame((1, "a", "d")).write.parquet(str(tables.directory / "in"))
    source = tables.spark.readStream.schema(DDL).parquet(str(tables.directory / "in"))

    def each(frame: Any, batch: int) -> None:
        tables.write(frame, {**options, "batch-id": str(batch)})

    def run(name: str) -> None:
        stream = source.writeStream.foreachBatch(each).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tables.directory / f"checkpoint-{name}")).start().awaitTermination()

    run("first")
    tables.forget_last_batch("first")
    run("first")
    assert tables.rows("t") == [(1, "a", "d")]
    with pytest.raises(Exception, match="comes from another streaming query"):
        run("second")
    assert tables.rows("t") == [(1, "a", "d")]


def test_upserts_of_foreach_batch_that_are_run_again(tables: Tables) -> None:
    """A batch that Spark forgot it had run is upserted once more, behind what came since, and changes nothing."""
    keyed = {"primary_keys": ["id"], "options": {"bucket": "2", "changelog-producer": "input"}}
    source, target = tables.create("source", **keyed), tables.create("target", **keyed)
    ordered = {"include-snapshot-id": "true", "include-ordinal": "true"}

    def upsert(changes: Any, batch: int) -> None:
        newest = Window.partitionBy("id").orderBy(sql.desc("_snapshot_id"), sql.desc("_ordinal"))
        last = changes.withColumn("n", sql.row_number().over(newest)).where("n = 1")
        once = {**target, "query-id": "copy", "batch-id": str(batch)}
        tables.write(last.drop("n", "_snapshot_id", "_ordinal").coalesce(1), once)

    def run() -> None:
        changes = tables.spark.readStream.format("pypaimon").options(**source, **ordered, start="earliest").load()
        stream = changes.writeStream.foreachBatch(upsert).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tables.directory / "checkpoint-copy")).start().awaitTermination()

    tables.write(tables.frame((1, "a", "d"), (2, "b", "d")), source)
    kinds = "_row_kind string, " + DDL
    tables.write(tables.frame(("-D", 1, "a", "d"), ("+U", 2, "c", "d"), ddl=kinds).coalesce(1), source)
    run()
    assert tables.rows("target") == tables.rows("source") == [(2, "c", "d")]
    tables.forget_last_batch("copy")
    tables.write(tables.frame((2, "later", "d")), {**target, "query-id": "other", "batch-id": "0"})
    run()
    assert tables.rows("target") == [(2, "later", "d")]


def test_a_table_is_created_and_widened(tables: Tables) -> None:
    options = {**tables.options, "table": "fresh.t", "create-table": "true", "primary-key": "id", "bucket": "2"}
    tables.write(tables.frame((1, "a", "d")), options)
    wider = tables.frame((2, "b", "d", 5), ddl=DDL + ", extra int")
    tables.write(wider, {**tables.options, "table": "fresh.t", "merge-schema": "true"})
    data = batch_table(tables.catalog.get_table("fresh.t")).sort_by("id")
    assert data["extra"].to_pylist() == [None, 5]


@pytest.mark.parametrize(
    ("arguments", "ddl", "row", "message"),
    [
        ({}, "id string, v string, day string", ("1", "a", "d"), "column 'id' is string, and the table's is BIGINT"),
        ({}, "id long, w string, day string", (1, "a", "d"), "the table has no column 'w'"),
        ({}, "_row_kind string, " + DDL, ("-D", 1, "a", "d"), "has no primary key: rows can only be appended"),
        ({"primary_keys": ["id"], "options": {"bucket": "-1"}}, DDL, (1, "a", "d"), "dynamic buckets"),
        ({"primary_keys": ["id"], "partition_keys": ["day"]}, DDL, (1, "a", "d"), "cross-partition update"),
        (
            {"primary_keys": ["id"], "options": {"bucket": "-2", "sequence.snapshot-ordering": "true"}},
            DDL,
            (1, "a", "d"),
            "'sequence.snapshot-ordering'",
        ),
        ({"primary_keys": ["id"], "options": {"bucket": "1"}}, DDL, (None, "a", "d"), "'id' .* holds null"),
    ],
)
def test_refused(tables: Tables, arguments: dict[str, Any], ddl: str, row: tuple[Any, ...], message: str) -> None:
    options = tables.create("t", **arguments)
    with pytest.raises(Exception, match=message):
        tables.write(tables.frame(row, ddl=ddl), options)
    assert not list((tables.directory / "warehouse" / "db.db" / "t").rglob("data-*"))


def test_one_key_from_two_tasks_is_refused(tables: Tables) -> None:
    options = tables.create("t", primary_keys=["id"], options={"bucket": "1"})
    twice = tables.frame((1, "a", "d"), (1, "b", "d"))
    assert twice.rdd.getNumPartitions() == 2
    with pytest.raises(Exception, match="came from more than one task"):
        tables.write(twice, options)
    assert tables.rows("t") == []
    tables.write(repartition_by_bucket(twice, options), options)
    assert len(tables.rows("t")) == 1
