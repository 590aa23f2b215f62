"""Paimon in, a stateful aggregation, Paimon out: `python examples/spark_pipeline.py [directory]`.

Orders arrive in a Paimon table, change and are deleted. A query keeps each customer's total by the changes and merges
it into another Paimon table. Run it again with the same directory, and it continues where it ended.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import pypaimon.spark

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.string()),
        ("amount", pa.int64()),
        ("kind", pa.string()),
    ]
)
TOTALS = pa.schema([pa.field("customer", pa.string(), nullable=False), ("total", pa.int64()), ("orders", pa.int64())])


def create_tables(warehouse: str) -> Any:
    """Both tables, unless they are there."""
    catalog = CatalogFactory.create({"warehouse": warehouse})
    catalog.create_database("shop", True)
    # Updates come as -U and +U, so that sums can be kept by adding and taking away.
    changes = {"bucket": "2", "changelog-producer": "input", "rowkind.field": "kind"}
    orders = Schema.from_pyarrow_schema(ORDERS, primary_keys=["id"], options=changes)
    totals = Schema.from_pyarrow_schema(TOTALS, primary_keys=["customer"], options={"bucket": "1"})
    catalog.create_table("shop.orders", orders, True)
    catalog.create_table("shop.totals", totals, True)
    return catalog


def take_orders(catalog: Any, first: int, count: int) -> None:
    """New orders in one commit, and the loss of one of them in another."""
    customers = ("ada", "bob", "eve")
    rows = [(number, random.choice(customers), random.randint(1, 100), "+I") for number in range(first, first + count)]
    write(catalog, rows)
    number, customer, amount, _ = rows[0]
    write(catalog, [(number, customer, amount, "-D")])


def write(catalog: Any, rows: list[tuple[int, str, int, str]]) -> None:
    """One commit."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    builder = catalog.get_table("shop.orders").new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.Table.from_arrays([pa.array(column) for column in columns], schema=ORDERS))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def totals_of(orders: Any) -> Any:
    """Each customer's total: what came less what went."""
    sign = sql.when(sql.col("_row_kind").isin("+I", "+U"), 1).otherwise(-1)
    signed = orders.select("customer", (sql.col("amount") * sign).alias("amount"), sign.alias("one"))
    return signed.groupBy("customer").agg(sql.sum("amount").alias("total"), sql.sum("one").alias("orders"))


def upsert(place: dict[str, str]) -> Callable[[Any, int], None]:
    """A function for `foreachBatch` that writes each batch once, also if Spark runs it again."""

    def write_batch(batch: Any, batch_id: int) -> None:
        once = {"query-id": "totals", "batch-id": str(batch_id)}
        writer = batch.coalesce(1).write.format("pypaimon").options(**place, **once)
        writer.option("table", "shop.totals").mode("append").save()

    return write_batch


def main(directory: Path) -> None:
    """Take orders, run the query until nothing is new, twice, and compare."""
    # Spark's workers take the first `python3` of the path, which is not this one where no environment is activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse, checkpoint = str(directory / "warehouse"), str(directory / "checkpoint")
    catalog = create_tables(warehouse)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    pypaimon.spark.register(spark)
    place = {"warehouse": warehouse}
    for _ in range(2):
        latest = catalog.get_table("shop.orders").snapshot_manager().get_latest_snapshot()
        take_orders(catalog, first=(latest.id if latest else 0) * 100, count=20)
        orders = spark.readStream.format("pypaimon").options(**place, table="shop.orders").load()
        writer = totals_of(orders).writeStream.outputMode("update").foreachBatch(upsert(place))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    read = spark.read.format("pypaimon").options(**place, mode="rows")
    state = read.option("table", "shop.orders").load()
    expected = state.groupBy("customer").agg(sql.sum("amount").alias("total"), sql.count("*").alias("orders"))
    found = read.option("table", "shop.totals").load().where("orders > 0")
    assert sorted(expected.collect()) == sorted(found.collect())
    found.orderBy("customer").show()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
