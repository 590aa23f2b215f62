"""Columns whose files hold something else than their values are refused by name; the others of the table are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamConfigError, StreamReadBuilder, UnsupportedTableError, stream_read_builder
from pypaimon.streaming.paimon.internals import AtomicType, DataField, RowType, TableSchema
from pypaimon.streaming.reading.read_layout import ReadSettings, layout
from support.corpus.cases import load
from support.docs.cli_runs import Program
from support.spark.driver import batch_tasks
from support.tables.streamed_table import Table

ARCHIVE = "java-2.1-more"


def builder_of(scenario: str) -> StreamReadBuilder:
    catalog = CatalogFactory.create({"warehouse": str(load(ARCHIVE, scenario).warehouse)})
    return stream_read_builder(catalog.get_table("d.t")).with_end(latest=True).with_start("latest-full")


def rows(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    read = builder.new_read()
    plans = builder.new_streaming_scan().stream_sync()
    return [row for plan in plans for row in read.to_arrow(plan.splits()).to_pylist()]


def test_a_blob_inside_of_a_row_is_found() -> None:
    def settings(name: str, kind: str) -> ReadSettings:
        inner = RowType(True, [DataField(1, name, AtomicType(kind))])
        return ReadSettings(TableSchema(id=0, fields=[DataField(0, "r", inner)]))

    assert layout(settings("BLOB", "INT"))
    with pytest.raises(UnsupportedTableError, match="BLOB"):
        layout(settings("x", "BLOB"))


def test_a_filter_asks_of_blobs_whether_they_are_null_and_nothing_else() -> None:
    """Blobs are fetched when it is known which rows come out."""
    builder = builder_of("blob_append")
    tests = builder.new_predicate_builder()
    assert {row["b"] for row in rows(builder.copy().with_filter(tests.is_null("b")))} == {None}
    with pytest.raises(StreamConfigError, match="whether blobs are null"):
        builder.with_filter(tests.equal("b", b"x")).new_read()


@pytest.mark.parametrize("kind", ["GEOMETRY", "GEOGRAPHY NOT NULL"])
@pytest.mark.parametrize("where", ["column", "row"])
def test_a_type_that_pypaimon_does_not_know_is_not_damage(tmp_path: Path, kind: str, where: str) -> None:
    """Where it comes with a change of the schema."""
    table = Table(tmp_path)
    handle = table.handle()
    schema = json.loads((table.path / "schema" / "schema-0").read_text())
    inner = {"type": "ROW", "fields": [{"id": 3, "name": "g", "type": kind}]}
    schema["fields"].append({"id": 2, "name": "new", "type": kind if where == "column" else inner})
    schema |= {"id": 1, "highestFieldId": 3}
    (table.path / "schema" / "schema-1").write_text(json.dumps(schema))
    with pytest.raises(UnsupportedTableError, match=f"type {kind.split()[0]} cannot be streamed, and schema 1 has one"):
        stream_read_builder(handle)


def test_a_table_that_has_such_a_type_from_the_start_is_refused_where_we_load_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pypaimon itself only says that it cannot load the schema."""
    table = Table(tmp_path)
    path = table.path / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["fields"].append({"id": 2, "name": "g", "type": "GEOMETRY"})
    path.write_text(json.dumps(schema | {"highestFieldId": 2}))
    for place in ({"path": str(table.path)}, {"warehouse": str(tmp_path), "table": table.name}):
        with pytest.raises(UnsupportedTableError, match="GEOMETRY cannot be streamed, and schema 0 has one"):
            list(batch_tasks(place))
    told = Program(tmp_path, capsys)("tail", table.name)
    assert told.code and "type GEOMETRY cannot be streamed" in told.err
    with pytest.raises(RuntimeError, match="schema"):
        table.handle()
