"""Columns whose files hold something else than their values are refused by name; the others of the table are read."""

from __future__ import annotations

from typing import Any

import pytest
from corpus_cases import load
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamReadBuilder, UnsupportedTableError, stream_read_builder
from pypaimon.streaming.internals import AtomicType, DataField, RowType, TableSchema
from pypaimon.streaming.reading.read_layout import ReadSettings, layout

ARCHIVE = "java-2.1-more"
BLOBS = {
    "blob_append": "b BLOB",
    "blob_pk_deduplicate": "b BLOB",
    "blob_view": "ref BLOB",
    "blob_collections": r"a ARRAY<BLOB>",
    "blob_pk_collections": r"a ARRAY<BLOB>",
}


def builder_of(scenario: str) -> StreamReadBuilder:
    catalog = CatalogFactory.create({"warehouse": str(load(ARCHIVE, scenario).warehouse)})
    return stream_read_builder(catalog.get_table("d.t")).with_end(latest=True).with_start("latest-full")


def rows(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    read = builder.new_read()
    plans = builder.new_streaming_scan().stream_sync()
    return [row for plan in plans for row in read.to_arrow(plan.splits()).to_pylist()]


@pytest.mark.parametrize("scenario", BLOBS)
def test_a_column_of_blobs_is_refused_before_a_row_and_others_are_read(scenario: str) -> None:
    """What lies in a file may be a descriptor or a reference, which must not pass for the bytes."""
    with pytest.raises(UnsupportedTableError, match=f"BLOB cannot be streamed: {BLOBS[scenario]}"):
        builder_of(scenario).new_read()
    assert rows(builder_of(scenario).with_projection(["id"]))


def test_a_blob_inside_of_a_row_is_found() -> None:
    def settings(name: str, kind: str) -> ReadSettings:
        inner = RowType(True, [DataField(1, name, AtomicType(kind))])
        return ReadSettings(TableSchema(id=0, fields=[DataField(0, "r", inner)]))

    assert layout(settings("BLOB", "INT"))
    with pytest.raises(UnsupportedTableError, match="BLOB"):
        layout(settings("x", "BLOB"))
