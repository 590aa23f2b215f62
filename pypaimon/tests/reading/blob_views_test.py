"""Columns that refer to blobs of other tables: followed to what is there now, or an error that names what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pypaimon.table.row.blob import BlobDescriptor, BlobViewStruct

from pypaimon.streaming import CorruptTableError, UnsupportedTableError
from support.tables.blob_tables import blob_table, rows
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

BLOB_FIELD = 2


def reference(row_id: int, table: str = "db.t", field_id: int = BLOB_FIELD) -> bytes:
    return bytes(BlobViewStruct(table, field_id, row_id).serialize())


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    first, second = blob_table(tmp_path), blob_table(tmp_path, "u")
    first.commit([(key, "n", b"first %d" % key) for key in range(5)])
    first.commit([(5, "n", None), (6, "n", b"")])
    second.commit([(key, "n", b"second %d" % key) for key in range(3)])
    return tmp_path


def referring(warehouse: Path, *references: bytes | None) -> Table:
    made = blob_table(warehouse, "v", blob_view_field="b")
    made.commit([(key, "n", each) for key, each in enumerate(references)])
    return made


def values(table: Table, **options: str) -> list[bytes | None]:
    return [row["b"] for row in rows(table.state_builder(**options))]


def test_references_are_followed_to_rows_of_several_tables(warehouse: Path) -> None:
    found = values(
        referring(warehouse, reference(4), None, reference(1, "db.u"), reference(6), reference(4), reference(5))
    )
    assert found == [b"first 4", None, b"second 1", b"", b"first 4", None]


def test_rows_that_are_left_out_refer_to_nothing(warehouse: Path) -> None:
    """What they refer to need not be there."""
    table = referring(warehouse, reference(4), reference(99))
    builder = table.state_builder()
    builder.with_filter(builder.new_predicate_builder().equal("id", 0))
    assert [row["b"] for row in rows(builder)] == [b"first 4"]


def test_all_null_asks_nobody(warehouse: Path) -> None:
    assert values(referring(warehouse, None, None)) == [None, None]


def test_descriptors_are_those_of_the_other_table(warehouse: Path) -> None:
    (found,) = (row["b"] for row in rows(referring(warehouse, reference(2)).state_builder().with_blob_descriptors()))
    descriptor = BlobDescriptor.deserialize(found)
    assert "/t/" in descriptor.uri
    with open(descriptor.uri, "rb") as file:
        file.seek(descriptor.offset)
        assert file.read(descriptor.length) == b"first 2"


def test_references_come_out_as_they_are_where_the_table_says_so(warehouse: Path) -> None:
    table = referring(warehouse, reference(2), None)
    assert values(table, **{"blob-view.resolve.enabled": "false"}) == [reference(2), None]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: reference(99), "db.t that does not exist: it has no row 99"),
        (lambda: reference(1, field_id=77), "db.t that does not exist: it has no column with the id 77"),
        (lambda: reference(1, "db.gone"), "refers to db.gone, which does not exist"),
    ],
)
def test_what_is_not_there_is_named(warehouse: Path, made: Callable[[], bytes], said: str) -> None:
    table = referring(warehouse, reference(0), made())
    with pytest.raises(CorruptTableError, match=said) as raised:
        values(table)
    assert raised.value.path == str(table.path)


def test_a_column_without_blobs_is_refused(warehouse: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="holds no blobs itself"):
        values(referring(warehouse, reference(1, field_id=1)))


def test_without_a_catalog_nobody_finds_other_tables(warehouse: Path) -> None:
    table = referring(warehouse, reference(1))
    handle = table.handle()
    handle.catalog_environment.catalog_loader = None
    builder = table.state_builder()
    builder.table.catalog_environment.catalog_loader = None
    with pytest.raises(UnsupportedTableError, match="which only a catalog finds"):
        rows(builder)
