"""Blobs in an object store: ranges alone are asked for, several at the same time, with the extra `fast` and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import CorruptTableError, stream_read_builder
from support.stores.s3_server import S3Server, methods
from support.tables.blob_tables import blob_table, rows

pytestmark = pytest.mark.server

SIZE = 200_000


@pytest.fixture(scope="module")
def catalog(server: S3Server) -> Any:
    made = server.catalog("blobs")
    blobs = [(key, "a" if key % 5 else "b", bytes([key]) * SIZE) for key in range(20)]
    table = blob_table(Path(), catalog=made)
    table.write(table.arrow_rows(blobs))
    return made


def builder_of(catalog: Any) -> Any:
    return stream_read_builder(catalog.get_table("db.t")).with_start("latest-full").with_end(latest=True)


def test_ranges_of_a_file_are_read_and_those_side_by_side_together(catalog: Any, server: S3Server, fast: bool) -> None:
    builder = builder_of(catalog)
    builder.with_filter(builder.new_predicate_builder().equal("name", "b"))
    with server.asked() as asked:
        found = rows(builder)
    assert [row["b"] for row in found] == [bytes([key]) * SIZE for key in (0, 5, 10, 15)]
    of_blobs = [each for each in asked if each[1].endswith(".blob")]
    # The index, and four ranges; whether a file is there is asked by who opens it.
    assert methods(of_blobs)["GET"] == 5
    assert fast == (not methods(of_blobs)["HEAD"])

    with server.asked() as asked:
        assert len(rows(builder_of(catalog))) == 20
    assert methods([each for each in asked if each[1].endswith(".blob")])["GET"] == 2


def test_a_range_that_the_object_does_not_have_is_damage(catalog: Any, fast: bool) -> None:
    builder = builder_of(catalog).with_blob_descriptors()
    (first, *_) = (row["b"] for row in rows(builder))
    (blob,) = builder.new_read().blobs([first])
    assert blob is not None and blob.read(5, 3) == b"\0\0\0"
    blob.offset += 21 * SIZE
    with pytest.raises(CorruptTableError, match="ends before byte"):
        blob.read()
