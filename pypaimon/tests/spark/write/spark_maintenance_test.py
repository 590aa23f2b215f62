"""Tables that Spark maintains: in a call, in tasks, and after the commits of a sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pypaimon.spark import maintain, register
from pypaimon.streaming import MaintenancePolicy, StreamConfigError, stream_write_builder
from pypaimon.streaming.errors import TablesFailedError
from support.tables.named_files import files_of, needed_files

pytestmark = pytest.mark.spark

SOON = {"snapshot.num-retained.min": "2", "snapshot.time-retained": "0 s"}


def created(catalog: Any, name: str, commits: int) -> Path:
    schema = Schema.from_pyarrow_schema(pa.schema([("v", pa.int64())]), options=SOON)
    catalog.create_table(f"db.{name}", schema, False)
    table = catalog.get_table(f"db.{name}")
    with stream_write_builder(table).open_sync() as writer:
        for number in range(commits):
            writer.write(pa.table({"v": [number]}))
            writer.commit()
    return Path(str(table.table_path))


def ids(table: Path) -> list[int]:
    return sorted(int(each.name.removeprefix("snapshot-")) for each in table.glob("snapshot/snapshot-*"))


def test_tables_are_maintained_by_tasks(spark: Any, warehouse: Any) -> None:
    tables = [created(warehouse, name, commits) for name, commits in (("a1", 5), ("a2", 3), ("b", 4))]
    options = {"warehouse": str(tables[0].parents[1]), "table": "db.a*"}
    dry = maintain(spark, options, dry_run=True)
    assert [each.plan.snapshot_ids for each in dry] == [(1, 2, 3), (1,)] and ids(tables[0]) == [1, 2, 3, 4, 5]
    assert [each.plan for each in maintain(spark, options)] == [each.plan for each in dry]
    assert [ids(each) for each in tables] == [[4, 5], [2, 3], [1, 2, 3, 4]]
    assert files_of(tables[0]) == needed_files(tables[0])
    (single,) = maintain(spark, {"path": str(tables[2])}, MaintenancePolicy(min_snapshots=3))
    assert single.plan.snapshot_ids == (1,)
    assert maintain(spark, {**options, "table": "db.z*"}) == []


def test_a_table_that_fails_does_not_hold_up_the_others(spark: Any, warehouse: Any) -> None:
    good, bad = (created(warehouse, name, 4) for name in ("a", "b"))
    (bad / "tag").mkdir()
    (bad / "tag" / "tag-t").write_text("{")
    with pytest.raises(TablesFailedError, match=r"not maintained.*tag-t") as caught:
        maintain(spark, {"warehouse": str(good.parents[1]), "table": "db.*"})
    assert list(caught.value.errors) == ["db.b"]
    assert (ids(good), ids(bad)) == ([3, 4], [1, 2, 3, 4])


def test_the_sink_maintains_after_its_commits(spark: Any, warehouse: Any, tmp_path: Path) -> None:
    register(spark)
    table = created(warehouse, "t", 0)
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=2, numPartitions=1).load()

    def run(batches: int) -> None:
        query = (
            source.selectExpr("value as v").writeStream.format("pypaimon")
            .options(path=str(table), maintain="auto", checkpointLocation=str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        try:
            while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batches):
                query.awaitTermination(1)
        finally:
            query.stop()

    run(25)
    assert len(ids(table)) < 20 and needed_files(table) <= files_of(table)


def test_a_write_maintains_and_an_error_of_it_fails_no_write(
    spark: Any, warehouse: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    register(spark)
    table = created(warehouse, "t", 15)

    def write(**options: str) -> None:
        frame = spark.createDataFrame([(1,)], "v long")
        frame.write.format("pypaimon").options(path=str(table), **options).mode("append").save()

    (table / "tag").mkdir()
    (table / "tag" / "tag-t").write_text("{")
    write(maintain="auto")
    assert len(ids(table)) == 16
    (table / "tag" / "tag-t").unlink()
    write()
    assert len(ids(table)) == 17
    write(maintain="auto")
    assert ids(table) == [17, 18]
    with pytest.raises(Exception, match="maintain"):
        write(maintain="sometimes")
    with pytest.raises(StreamConfigError):
        maintain(spark, {"path": str(table), "maintain": "sometimes"})
