"""Tables written by Java through the Spark source: the rows that the core reads, whatever the batches.

A third of the tables; in the long form all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder
from support.corpus.cases import load
from support.samples import some
from support.spark.driver import Driver
from support.spark.queries import Collected

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SAMPLE = (
    "append_fixed_bucket",
    "append_partitioned",
    "append_unaware",
    "compacted_full",
    "data_evolution",
    "decoupled_lookup",
    "partition_default_name",
    "pk_aggregation_full-compaction",
    "pk_avro_input",
    "pk_composite_key",
    "pk_dedup_lookup",
    "pk_dedup_none",
    "pk_deletion_vectors_lookup",
    "pk_first_row_lookup",
    "pk_orc_lookup",
    "pk_partial_update_lookup",
    "pk_write_only_lookup",
    "postpone_lookup",
    "precommit_compact_part_lookup",
    "rescale_bucket_lookup",
    "row_tracking",
    "schema_evolution_lookup",
)
ON_SPARK = ("append_partitioned", "pk_dedup_lookup", "pk_partial_update_lookup", "precommit_compact_part_lookup")
STARTS = ({}, {"start": "earliest"})


def place(scenario: str) -> dict[str, str]:
    """The options that name a scenario's table; the catalog is read in place, and nothing writes to it."""
    warehouse = load("java-2.1", scenario).warehouse
    (table,) = warehouse.glob("*.db/*/snapshot")
    return {
        "warehouse": str(warehouse),
        "table": f"{table.parents[1].name.removesuffix('.db')}.{table.parents[0].name}",
    }


def core_rows(scenario: str, start: str | None) -> Counter[str]:
    """The rows of the core's own stream up to the latest snapshot."""
    names = place(scenario)
    table = CatalogFactory.create({"warehouse": names["warehouse"]}).get_table(names["table"])
    builder = stream_read_builder(table).with_end(latest=True)
    if start is not None:
        builder.with_start(start)
    read = builder.new_read()
    rows: Counter[str] = Counter()
    for plan in builder.new_streaming_scan().stream_sync():
        rows.update(repr(tuple(row.values())) for row in read.to_arrow(plan.splits()).to_pylist())
    return rows


@pytest.mark.parametrize("start", STARTS, ids=["latest-full", "earliest"])
@pytest.mark.parametrize("scenario", some("tables for the source", SAMPLE, 7))
def test_all_batches_hold_the_rows_of_the_core(scenario: str, start: dict[str, str]) -> None:
    expected = core_rows(scenario, start.get("start"))
    assert expected or scenario == "compacted_full"
    for limits in ({}, {"maxRowsPerTrigger": "3"}):
        driver = Driver(place(scenario), **start, **limits)
        assert Counter(repr(row) for batch in driver.batches() for row in batch) == expected


@pytest.mark.parametrize("scenario", some("tables for Spark", ON_SPARK, 2))
def test_spark_gives_the_rows_of_the_core(spark: Any, tmp_path: Path, scenario: str) -> None:
    stream = spark.readStream.format("pypaimon").options(**place(scenario), start="earliest").load()
    rows = Collected(tmp_path / "checkpoint").run(stream)
    assert Counter(repr(row) for row in rows) == core_rows(scenario, "earliest")
