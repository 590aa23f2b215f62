"""Columns of the rarer types through the sink of a real Spark: blobs, multisets, vectors, variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pypaimon.spark.source import register
from pypaimon.streaming import stream_read_builder
from support.tables.handles import catalog_with_database

pytestmark = pytest.mark.spark


EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "blob-field": "b"}
FIELDS = {
    "MULTISET": {"type": "MULTISET", "element": "STRING"},
    "VECTOR": {"type": "VECTOR", "element": "FLOAT", "length": 2},
    "VARIANT": "VARIANT",
}


def made(warehouse: Path, kind: str) -> Any:
    """A table of (k, b), with key k but where b is a blob."""
    catalog = catalog_with_database(warehouse)
    blob = kind == "BLOB"
    columns = pa.schema([pa.field("k", pa.int32(), blob), ("b", pa.large_binary() if blob else pa.string())])
    options = EVOLVING if blob else {"bucket": "1"}
    catalog.create_table("db.t", Schema.from_pyarrow_schema(columns, None, None if blob else ["k"], options), False)
    if not blob:
        path = Path(str(catalog.get_table("db.t").table_path)) / "schema" / "schema-0"
        schema = json.loads(path.read_text())
        # pypaimon makes no columns of all these types.
        schema["fields"][1]["type"] = FIELDS[kind]
        path.write_text(json.dumps(schema))
    return CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.t")


@pytest.mark.parametrize(
    ("kind", "select", "expected"),
    [
        ("BLOB", "binary('bytes')", b"bytes"),
        ("MULTISET", "map('a', 2, 'b', 1)", [("a", 2), ("b", 1)]),
        ("VECTOR", "array(float(1.5), float(2))", [1.5, 2.0]),
        (
            "VARIANT",
            """parse_json('{"a":1}')""",
            {"value": b"\x02\x01\x00\x00\x02\x0c\x01", "metadata": b"\x01\x01\x00\x01a"},
        ),
    ],
)
def test_they_are_written(spark: Any, tmp_path: Path, kind: str, select: str, expected: Any) -> None:
    table = made(tmp_path, kind)
    register(spark)
    rows = spark.range(3).selectExpr("int(id) AS k", f"if(id = 1, null, {select}) AS b")
    rows.write.format("pypaimon").options(warehouse=str(tmp_path), table="db.t").mode("append").save()
    with stream_read_builder(table).with_end(latest=True).open_sync() as stream:
        found = {row["k"]: row["b"] for batch in stream for row in batch.rows.to_pylist()}
    assert found == {0: expected, 1: None, 2: expected}
