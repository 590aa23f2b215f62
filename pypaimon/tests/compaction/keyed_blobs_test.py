"""Blob columns of primary-key tables: references in data files are copied as they are, managed blobs are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import UnsupportedTableError, compact, stream_write_builder
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("b", pa.binary()), ("v", pa.int32())])
DESCRIPTORS = {key: bytes(range(256)) * key + b"not a descriptor" for key in range(1, 4)}


def table_with(directory: Path, form: str, options: dict[str, str]) -> Any:
    """A table whose column `b` becomes a column of blobs after its files were written, which current Java makes."""
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "2", **options}
    catalog.create_table("d.t", Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options=given), False)
    for turn in range(3):
        rows = [{"id": key, "b": DESCRIPTORS.get(key), "v": turn} for key in range(turn, 5)]
        with stream_write_builder(catalog.get_table("d.t")).with_commit_user("w").open_sync() as writer:
            writer.write(pa.Table.from_pylist(rows, COLUMNS))
            writer.commit()
    path = directory / "d.db" / "t" / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["fields"][1]["type"] = "BLOB"
    schema["options"] |= {f"blob-{form}-field": "b"} if form else {}
    path.write_text(json.dumps(schema))
    return CatalogFactory.create({"warehouse": str(directory)}).get_table("d.t")


def stored(table: Any) -> dict[int, tuple[bytes | None, int]]:
    """The rows of the only file of each bucket, without any resolving."""
    given = PaimonTable(table)
    directory = TableDirectory.of(table)
    entries = LiveEntries().look(directory, directory.snapshots.get_latest_snapshot())
    rows = [
        row
        for bucket in live_buckets(given, entries)
        for file in bucket.files
        for batch in read_file(directory, file.read, given.fields, schema_id=0)
        for row in batch.to_pylist()
    ]
    found = {row["id"]: (row["b"], row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("form", ["descriptor", "view"])
@pytest.mark.parametrize(
    "options", [{}, {"changelog-producer": "lookup"}, {"merge-engine": "partial-update"}, {"file.format": "avro"}]
)
def test_references_are_copied_as_they_are(tmp_path: Path, form: str, options: dict[str, str]) -> None:
    table = table_with(tmp_path, form, options)
    assert compact(table, full=True).compacted
    expected = {key: (DESCRIPTORS.get(key), min(key, 2)) for key in range(5)}
    assert stored(table) == expected
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match="Column 'b' is BLOB"):
        rescale(table, 1)
    assert sorted(tmp_path.rglob("*")) == before


def test_managed_blobs_are_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    table = table_with(tmp_path, "", {})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match=r"Column 'b' of d\.t is BLOB"):
        compact(table, full=True)
    assert sorted(tmp_path.rglob("*")) == before
