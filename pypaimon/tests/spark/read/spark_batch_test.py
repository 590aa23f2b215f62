"""Batch reads, native reads and reports on real Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pyspark.errors import AnalysisException, StreamingQueryException

from pypaimon.spark import LagListener, native_foreach_batch, native_read
from pypaimon.spark.lag_listener import lag_of
from pypaimon.streaming import UnsupportedTableError
from support.spark.queries import Collected, frame, options, spelled
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots of an append table."""
    table = Table(tmp_path / "warehouse")
    for number in range(3):
        table.commit([number * 2, number * 2 + 1])
    return table


@pytest.fixture
def changing(tmp_path: Path) -> Table:
    """A table with a primary key and four snapshots."""
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, changelog_producer="input")
    table.commit([("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "a")])
    table.commit([("+U", 1, "b")])
    table.commit([("-D", 2, "a"), ("+U", 3, "a")])
    table.commit([("+I", 4, "a")])
    return table


def read(spark: Any, table: Table, **more: str) -> list[tuple[Any, ...]]:
    found = spark.read.format("pypaimon").options(**options(table), **spelled(more)).load()
    return sorted(tuple(row) for row in found.collect())


def test_states_of_a_table(spark: Any, table: Table) -> None:
    table.handle().create_tag("two", 2)
    assert [row[0] for row in read(spark, table)] == [0, 1, 2, 3, 4, 5]
    assert [row[0] for row in read(spark, table, scan__snapshot_id="1")] == [0, 1]
    assert [row[0] for row in read(spark, table, scan__tag_name="two")] == [0, 1, 2, 3]
    millis = str(table.snapshot(2)["timeMillis"])
    assert [row[0] for row in read(spark, table, scan__timestamp_millis=millis, filter="k > 0")] == [1, 2, 3]
    path = spark.read.format("pypaimon").load(str(table.path))
    assert path.where("k = 5").select("v").collect()[0][0] == "v5"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scan__mode": "from-snapshot"}, "must set only one key in"),
        ({"scan__mode": "latest-full", "scan__snapshot_id": "1"}, "scan.snapshot-id must be null"),
    ],
)
def test_options_that_contradict_the_mode_are_refused(
    spark: Any, table: Table, given: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, table, **given)


def test_a_binlog_has_arrays(spark: Any, changing: Table) -> None:
    log = options(changing) | {"table": f"{changing.name}$binlog", "columns": "rowkind,k,v"}
    rows = spark.read.format("pypaimon").options(**log).load().collect()
    assert [row[1:] for row in sorted(rows, key=lambda row: row[1])] == [
        ([1], ["b"]),
        ([2], ["a"]),
        ([3], ["a"]),
        ([4], ["a"]),
    ]


def test_what_happened_between_snapshots_of_an_append_table(spark: Any, table: Table) -> None:
    assert [row[0] for row in read(spark, table, incremental_between="1,3")] == [2, 3, 4, 5]
    assert [row[0] for row in read(spark, table, incremental_between="2,3")] == [4, 5]
    assert [row[0] for row in read(spark, table, incremental_between="0,1")] == [0, 1]
    table.handle().create_tag("one", 1)
    table.handle().create_tag("three", 3)
    assert [row[0] for row in read(spark, table, incremental_between="one,three")] == [2, 3, 4, 5]


def test_what_happened_between_snapshots_of_a_primary_key_table(spark: Any, changing: Table) -> None:
    state = [(1, "b"), (3, "a"), (4, "a")]
    assert read(spark, changing, columns="k,v", mode="rows") == state
    rows = read(spark, changing, columns="k,v")
    assert sorted(row[1:] for row in rows) == state
    assert {row[0] for row in rows} <= {"+I", "+U"}
    changes = read(spark, changing, columns="k,v", incremental_between="1,3")
    assert ("-D", 2, "a") in changes and ("+U", 1, "b") in changes and len(changes) == 3
    delta = read(spark, changing, columns="k,v", incremental_between="1,3", incremental_between_scan_mode="delta")
    assert {row[1] for row in delta} == {1, 2, 3}
    diff = read(spark, changing, columns="k,v", incremental_between="1,4", incremental_between_scan_mode="diff")
    assert [row for row in diff if row[1] != 3 and row[0] != "-U"] == [("+I", 4, "a"), ("+U", 1, "b"), ("-D", 2, "a")]


@pytest.mark.parametrize("allowed", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_filter_of_one_query_is_not_one_of_the_next(spark: Any, tmp_path: Path, allowed: bool) -> None:
    """Spark has one reader for all queries of a DataFrame, and branches of one query, also where it pushes filters."""
    table = Table(tmp_path / "warehouse", metadata__stats_mode="full")
    for number in range(4):
        table.commit([number * 2, number * 2 + 1])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(allowed).lower())
    try:
        frame = spark.read.format("pypaimon").options(**options(table)).load()
        assert [row.k for row in frame.where("k = 2").collect()] == [2]
        assert frame.count() == 8
        assert frame.where("k = 2 or k = 7").count() == 2
        assert frame.where("k % 2 = 1").count() == 4
        assert sorted(row.k for row in frame.where("k = 2").union(frame.where("k = 7")).collect()) == [2, 7]
        frame.createOrReplaceTempView("of_pushed_filters")
        counts = [f"SELECT count(*) FROM of_pushed_filters{where}" for where in (" WHERE k < 3", "")]
        assert [spark.sql(each).first()[0] for each in counts] == [3, 8]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_version_is_read_with_its_schema(spark: Any, table: Table) -> None:
    table.handle().create_tag("two", 2)
    alter_and_append(table)
    for version in ({"scan.tag-name": "two"}, {"scan.version": "two"}, {"scan.version": "2"}):
        named = spark.read.format("pypaimon").options(**options(table), **version)
        assert named.load().columns == ["k", "v"]
        assert sorted(tuple(row) for row in named.load().where("k < 3").collect()) == [
            (0, "v0"), (1, "v1"), (2, "v2"),
        ]  # fmt: skip
        native = native_read(spark, {**options(table), **version})
        assert sorted(row.v for row in native.collect()) == ["v0", "v1", "v2", "v3"]
    assert read(spark, table, scan__snapshot_id="1") == [(0, "v0", None), (1, "v1", None)]


def test_an_alter_is_seen_by_the_next_load(spark: Any, table: Table) -> None:
    assert spark.read.format("pypaimon").options(**options(table)).load().columns == ["k", "v"]
    table.catalog.alter_table(table.name, [SchemaChange.add_column("w", AtomicType("INT"))], False)
    assert spark.read.format("pypaimon").options(**options(table)).load().columns == ["k", "v", "w"]


# ---- SQL ----


def test_tables_of_sparks_catalog(spark: Any, table: Table, tmp_path: Path) -> None:
    place = f"warehouse = '{table.path.parents[1]}', table = '{table.name}'"
    copy = Table(tmp_path / "warehouse", "copy")
    try:
        spark.sql(f"CREATE TABLE named USING pypaimon OPTIONS ({place}, filter = 'k > 1') COMMENT 'c'")
        spark.sql(f"CREATE TABLE other USING pypaimon LOCATION '{copy.path}'")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed USING pypaimon OPTIONS ({place})")
        assert [row.k for row in spark.sql("SELECT * FROM named ORDER BY k").collect()] == [2, 3, 4, 5]
        assert [row.k for row in spark.sql("SELECT k FROM named WITH (filter = 'k > 4')").collect()] == [5]
        into = f"INSERT INTO other WITH (path = '{copy.path}')"
        spark.sql(f"{into} SELECT * FROM named")
        spark.sql(f"{into} VALUES (9, 'x')")
        spark.sql("INSERT INTO viewed VALUES (6, 'y')")
        with pytest.raises(AnalysisException, match="INSERT INTO name WITH"):
            spark.sql("INSERT INTO other SELECT * FROM named")
        collected = Collected(tmp_path / "checkpoint")
        assert sorted(row[0] for row in collected.run(spark.readStream.table("other"))) == [2, 3, 4, 5, 9]
        assert [row[0] for row in read(spark, table)] == [0, 1, 2, 3, 4, 5, 6]
    finally:
        for name in ("TABLE named", "TABLE other", "VIEW viewed"):
            spark.sql(f"DROP {name}")
    assert copy.path.exists()


# ---- Spark's own reader ----


def alter_and_append(table: Table) -> None:
    changes = [
        SchemaChange.rename_column("v", "text"),
        SchemaChange.add_column("w", AtomicType("INT")),
        SchemaChange.update_column_type("k", AtomicType("DOUBLE")),
    ]
    table.catalog.alter_table(table.name, changes[:2], False)
    table._writer = table.handle()
    table.write(pa.table({"k": [9], "text": ["x"], "w": pa.array([7], pa.int32())}))


def test_native_read_follows_the_schema(spark: Any, table: Table) -> None:
    alter_and_append(table)
    native = native_read(spark, options(table))
    assert native.columns == ["k", "text", "w"]
    assert sorted(tuple(row) for row in native.collect()) == read(spark, table)
    assert "FileScan parquet" in native._jdf.queryExecution().executedPlan().toString()


def test_native_reads_of_what_must_be_merged_are_refused(spark: Any, changing: Table) -> None:
    with pytest.raises(UnsupportedTableError, match="merged"):
        native_read(spark, options(changing))
    changes = native_read(spark, {**options(changing), "incremental-between": "1,3", "columns": "k,v"})
    assert sorted(tuple(row) for row in changes.collect()) == read(
        spark, changing, columns="k,v", incremental_between="1,3"
    )


def test_a_native_stream(spark: Any, table: Table, tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    def keep(batch: Any, batch_id: int) -> None:
        seen.extend((batch_id, *row) for row in batch.collect())

    def run() -> None:
        writer = frame(spark, table, mode="files").writeStream.foreachBatch(native_foreach_batch(keep))
        query = writer.option("checkpointLocation", str(tmp_path / "files")).trigger(availableNow=True).start()
        query.awaitTermination(600)

    run()
    assert sorted(row[1] for row in seen) == [0, 1, 2, 3, 4, 5]
    alter_and_append(table)
    run()
    assert seen[6:] == [(1, 9, "x", 7)]


# ---- reports and errors ----


def test_lag_is_in_progress_and_in_the_log(
    spark: Any, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collected = Collected(tmp_path / "checkpoint")
    collected.run(frame(spark, table, start="earliest", maxRowsPerTrigger="2"))
    progress = [each for each in collected.query.recentProgress if each.numInputRows]
    lags = [lag_of(each.sources[0]) for each in progress]
    assert [lag and lag["snapshotsBehind"] for lag in lags] == [2, 1, 0]
    assert [lag and lag["rowsBehind"] for lag in lags] == [4, 2, 0]
    with caplog.at_level(logging.INFO, "pypaimon.spark"):
        for each in progress[:1]:
            event = type("Event", (), {"progress": each})
            LagListener().onQueryProgress(event)
    assert "2 snapshots, 4 rows" in caplog.text
    assert json.loads(progress[0].sources[0].endOffset)["snapshot"] == 2


def test_errors_reach_the_user_with_a_readable_line(spark: Any, table: Table, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as caught:
        frame(spark, table, tabel="x")
    lines = str(caught.value).splitlines()
    (index,) = (number for number, line in enumerate(lines) if "Unknown option 'tabel'. Did you mean 'table'" in line)
    assert sum(line.startswith("  File ") for line in lines[:index]) <= 2
    first = Collected(tmp_path / "checkpoint")
    first.run(frame(spark, table))
    table.recreate()
    table.commit_each(range(5))
    with pytest.raises(StreamingQueryException, match=r"PaimonSourceError: .*another table"):
        Collected(tmp_path / "checkpoint").run(frame(spark, table))


def test_secrets_are_in_no_plan(spark: Any, table: Table, tmp_path: Path) -> None:
    stream = frame(spark, table, **{"fs.s3.accessKeySecret": "hush-hush"})
    collected = Collected(tmp_path / "checkpoint")
    collected.run(stream)
    plan = collected.query._jsq.explainInternal(True)
    shown = [plan, stream._jdf.queryExecution().toString(), *(each.json for each in collected.query.recentProgress)]
    assert not any("hush-hush" in each for each in shown)
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files and not any(b"hush-hush" in path.read_bytes() for path in files)
