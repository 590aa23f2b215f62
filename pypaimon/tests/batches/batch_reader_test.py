"""A stream with an end as Arrow's reader of record batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import ConsumerManager, SchemaChangedError, StreamConfigError, stream_read_builder
from support.tables.orders import CHANGES, COLUMNS, ORDERS, catalog, orders, write

pytestmark = pytest.mark.slow

ALL = [(kind, *values) for _, kind, *values in CHANGES]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return orders(catalog(tmp_path / "warehouse"))


def changes(table: Any) -> Any:
    return stream_read_builder(table).with_projection(COLUMNS).with_start(snapshot_id=2).with_end(latest=True)


def test_it_gives_every_row_and_ends_the_stream(table: Any) -> None:
    stream = changes(table).open_sync()
    reader = stream.to_arrow_batch_reader()
    assert reader.schema.names == ["_row_kind", *COLUMNS]
    assert [tuple(row.values()) for row in reader.read_all().to_pylist()] == ALL
    assert next(stream, None) is None


def test_it_gives_what_is_left_and_nothing_is_read_before_it_is_pulled(table: Any) -> None:
    with changes(table).open_sync() as stream:
        next(stream)
        reader = stream.to_arrow_batch_reader()
        assert reader.read_next_batch().to_pylist()[0]["status"] == "paid"
        assert stream.position.snapshot == 4
        del reader
        assert next(stream, None) is None


def test_pulling_the_next_confirms_the_one_before(table: Any) -> None:
    def saved() -> int | None:
        consumer = ConsumerManager(table.file_io, table.table_path).consumer("etl")
        return None if consumer is None else consumer.next_snapshot

    reader = changes(table).with_consumer_id("etl").open_sync().to_arrow_batch_reader()
    reader.read_next_batch()
    reader.read_next_batch()
    assert saved() == 3
    assert [batch.num_rows for batch in reader] == [1]
    assert saved() == 5


@pytest.mark.parametrize("empty", [False, True])
def test_a_consumer_of_capsules_takes_a_stream(table: Any, empty: bool) -> None:
    builder = changes(table)
    if empty:
        builder = builder.with_filter("id > 100")
    rows = [] if empty else ALL
    assert polars.DataFrame(builder.open_sync()).rows() == rows
    assert pa.table(builder.open_sync()).num_rows == len(rows)
    stream = builder.open_sync()
    assert duckdb.sql("SELECT count(*) FROM stream").fetchall() == [(len(rows),)]
    assert stream.is_stopping is False


def test_a_stream_without_an_end_is_refused(table: Any) -> None:
    with stream_read_builder(table).open_sync() as stream, pytest.raises(StreamConfigError, match=r"with_end\(...\)"):
        stream.to_arrow_batch_reader()


def test_a_range_and_a_greatest_watermark_are_ends(table: Any) -> None:
    for builder in (stream_read_builder(table).with_range(1, 4), stream_read_builder(table).with_end(watermark=9)):
        with builder.open_sync() as stream:
            assert stream.to_arrow_batch_reader().schema.names[-1] == "op"


def test_a_schema_that_changes_in_the_middle_is_an_error_after_the_rows_before_it(table: Any, tmp_path: Path) -> None:
    follows = stream_read_builder(table).with_start(snapshot_id=2).with_on_schema_change("follow").with_end(latest=True)
    found = catalog(tmp_path / "warehouse")
    found.alter_table("db.orders", [SchemaChange.add_column("note", AtomicType("STRING"))], False)
    write(found.get_table("db.orders"), [{"id": 9, "op": "+I"}], ORDERS.append(pa.field("note", pa.string())))
    reader = follows.open_sync().to_arrow_batch_reader()
    assert [reader.read_next_batch().num_rows for _ in CHANGES] == [1, 1, 1]
    with pytest.raises(SchemaChangedError, match="has one schema"):
        reader.read_next_batch()
