"""Blobs in the source of Spark: bytes as `binary`, of collections too, or descriptors where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon.table.row.blob import BlobDescriptor
from pyspark.sql import types as spark

from support.corpus.cases import load
from support.spark.driver import Driver, batch_tasks
from support.tables.blob_tables import blob_table


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    table = blob_table(tmp_path)
    table.commit([(1, "a", b"x" * 1000), (2, "b", None)])
    table.commit([(3, "c", b"")])
    return {"warehouse": str(tmp_path), "table": "db.t"}


def read(given: dict[str, str], **more: str) -> list[dict[str, Any]]:
    options = {**given, **{key.replace("_", "-"): value for key, value in more.items()}}
    return [row for batches in batch_tasks(options) for batch in batches for row in batch.to_pylist()]


def test_a_stream_and_a_batch_give_their_bytes(given: dict[str, str]) -> None:
    driver = Driver(given)
    assert driver.source.schema()["b"].dataType == spark.BinaryType()
    wanted = [(1, "a", b"x" * 1000), (2, "b", None), (3, "c", b"")]
    assert [row[:3] for batch in driver.batches() for row in batch] == wanted
    assert [tuple(row.values())[:3] for row in read(given)] == wanted


def test_descriptors_come_out_where_the_table_s_option_says_so(given: dict[str, str]) -> None:
    first, second, _ = (row["b"] for row in read(given, blob_as_descriptor="true"))
    assert BlobDescriptor.deserialize(first).length == 1000 and second is None


def test_arrays_and_maps_of_blobs_are_those_of_spark() -> None:
    scenario = load("java-2.1-more", "blob_collections")
    given = {"warehouse": str(scenario.warehouse), "table": "d.t"}
    schema = Driver(given).source.schema()
    assert schema["a"].dataType == spark.ArrayType(spark.BinaryType())
    assert schema["m"].dataType == spark.MapType(spark.StringType(), spark.BinaryType())
    row = next(row for row in read(given) if row["id"] == 4)
    assert [len(each) if each is not None else None for each in row["a"]] == [40, None, 0]
    assert [key for key, _ in row["m"]] == ["p", "q"]
