"""A user's program, which knows the format by name only. Arguments: `classic` or `connect`, and a directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.spark.session import ATTEMPTS, FEW_ROWS, NO_WORKER

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.python.authenticate.socketTimeout": "120s",
    **FEW_ROWS,
}


def session(kind: str, directory: Path) -> Any:
    """A session of its own Spark, on this machine."""
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(directory / "spark-warehouse"))
    # Classic over Unix sockets, which docs/spark.md advises; Connect over TCP, as Spark does by itself.
    more = {} if kind == "connect" else {"spark.python.unix.domain.socket.enabled": "true"}
    for key, value in {**CONFIGURATION, **more}.items():
        builder = builder.config(key, value)
    return (builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")).getOrCreate()


def run(writer: Any) -> None:
    """Run a query to its end."""
    for attempt in range(ATTEMPTS):
        try:
            writer.start().awaitTermination()
            return
        except StreamingQueryException as error:  # noqa: PERF203
            if NO_WORKER not in str(error) or attempt == ATTEMPTS - 1:
                raise


def main(kind: str, directory: Path) -> None:
    """Write a table, copy it by a stream, read the copy."""
    spark = session(kind, directory)
    place = {"warehouse": str(directory / "warehouse"), "create-table": "true"}
    rows = spark.range(3).selectExpr("id", "concat('v', id) as v")
    rows.write.format("pypaimon").options(**place, table="db.t").mode("append").save()
    del place["create-table"]
    stream = spark.readStream.format("pypaimon").options(**place, table="db.t").load()
    writer = stream.writeStream.format("pypaimon").options(**place, **{"table": "db.copy", "create-table": "true"})
    run(writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True))
    if kind == "connect":
        from pypaimon.spark import register

        print("pipeline", run_pipeline(spark, directory, place))
        # Behind the pipeline: a session that has registered a source runs none.
        register(spark)
    copy = spark.read.format("pypaimon").options(**place, table="db.copy", filter="id > 0").load()
    print(type(spark).__module__, sorted(tuple(row) for row in copy.collect()))
    spark.stop()


PIPELINE = """
name: pipeline
storage: {storage}
libraries:
  - glob:
      include: definitions/**
"""
DEFINITIONS = """
from pyspark import pipelines
from pyspark.sql import SparkSession

place = {place!r}

@pipelines.table
def staged():
    spark = SparkSession.active()
    return spark.readStream.format("pypaimon").options(**place, table="db.t").load()

pipelines.create_sink("out", "pypaimon", dict(place, **{{"table": "db.piped", "create-table": "true"}}))

@pipelines.append_flow(target="out")
def copied():
    return SparkSession.active().readStream.table("staged").where("id = 2")
"""


def run_pipeline(spark: Any, directory: Path, place: dict[str, str]) -> list[tuple[Any, ...]]:
    """Run a Declarative Pipeline as `spark-pipelines run` does, in this session; the rows that it writes."""
    from pyspark.pipelines import cli, spark_connect_pipeline
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    specification, definitions = directory / "spark-pipeline.yml", directory / "definitions"
    definitions.mkdir()
    specification.write_text(PIPELINE.format(storage=f"file://{directory / 'storage'}"))
    (definitions / "flows.py").write_text(DEFINITIONS.format(place=place))
    given = cli.load_pipeline_spec(specification)
    graph = spark_connect_pipeline.create_dataflow_graph(spark, None, None, {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    cli.register_definitions(specification, registry, given, spark, graph)
    events = spark_connect_pipeline.start_run(spark, graph, [], False, [], False, given.storage)
    spark_connect_pipeline.handle_pipeline_events(events)
    written = spark.read.format("pypaimon").options(**place, table="db.piped").load()
    return sorted(tuple(row) for row in written.collect())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
