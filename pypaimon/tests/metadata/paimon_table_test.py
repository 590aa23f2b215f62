"""`PaimonTable`: what it says of pypaimon's table, of its copies, and of the same table under another schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import AtomicType
from support.tables.handles import catalog_with_database, create_table

COLUMNS = pa.schema(
    [pa.field("day", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]
)


@pytest.fixture
def handle(tmp_path: Path) -> Any:
    catalog = catalog_with_database(tmp_path)
    options = {"bucket": "2", "time-zone": "Asia/Tokyo", "changelog-producer": "input"}
    return create_table(catalog, "t", COLUMNS, primary_keys=["day", "id"], partition_keys=["day"], options=options)


def test_it_says_what_the_handle_says(handle: Any) -> None:
    table = PaimonTable(handle)
    assert (table.name, table.path, table.branch) == ("db.t", handle.table_path, "main")
    assert [field.name for field in table.fields] == ["day", "id", "v"]
    assert (table.key_names, [field.name for field in table.key_fields]) == (["id"], ["id"])
    assert [field.name for field in table.partition_fields] == table.partition_keys == ["day"]
    assert (table.is_primary_key_table, table.total_buckets, table.bucket_mode) == (True, 2, handle.bucket_mode())
    assert (table.zone.name, table.traits.bucket, table.traits.producer.value) == ("Asia/Tokyo", 2, "input")
    assert table.new_directory().current_identity() == TableDirectory.of(handle).current_identity()


def test_its_options_are_read_only_and_parsed_once(handle: Any) -> None:
    table = PaimonTable(handle)
    assert dict(table.options) == handle.options.options.to_map()
    assert table.options is table.options and table.traits is table.traits
    with pytest.raises(TypeError, match="does not support item assignment"):
        table.options["bucket"] = "3"  # type: ignore[index]


def test_a_copy_has_other_options_and_the_name_that_was_given(handle: Any) -> None:
    copied = PaimonTable(handle, "my table").copy({"time-zone": None, "write-only": "true"})
    assert (copied.name, copied.options["write-only"]) == ("my table", "true")
    assert "time-zone" not in copied.options and copied.zone.name is None
    assert PaimonTable(handle).copy({"branch": "b"}).name == "db.t$branch_b"


def test_another_schema_keeps_the_table(handle: Any) -> None:
    loader = handle.catalog_environment.catalog_loader
    loader.load().alter_table("db.t", [SchemaChange.add_column("w", AtomicType("INT"))], False)
    table = PaimonTable(handle)
    altered = table.with_schema(table.new_directory().latest_schema())
    assert (altered.path, altered.name, altered.schema.id) == (table.path, table.name, 1)
    assert [field.name for field in altered.fields] == ["day", "id", "v", "w"]
    assert altered.new_directory().current_identity() == table.new_directory().current_identity()
