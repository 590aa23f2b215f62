"""Batches and streams as rows and data frames, `poll`, and a range of changes for polars and DuckDB."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from pypaimon.streaming import (
    BlockingBatch,
    ConsumerManager,
    EndOfScan,
    StreamConfigError,
    database_stream_builder,
    scan_changes,
    stream_read_builder,
)
from support.tables.orders import CHANGES, COLUMNS, catalog, change, create_orders, orders

pytestmark = pytest.mark.slow

ALL = [(kind, *values) for _, kind, *values in CHANGES]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return orders(catalog(tmp_path / "warehouse"))


def changes(table: Any) -> Any:
    return stream_read_builder(table).with_projection(COLUMNS).with_start(snapshot_id=2).with_end("latest")


def test_a_batch_is_a_sequence_of_rows(table: Any) -> None:
    with stream_read_builder(table).with_start(snapshot_id=1).open_sync() as stream:
        batch = next(stream)
    assert len(batch) == batch.num_rows == 2
    assert list(batch) == batch.to_pylist() == batch.data.to_pylist()
    assert batch.to_polars().rows() == [tuple(row.values()) for row in batch]


def test_a_batch_without_rows_is_true_and_has_its_columns(tmp_path: Path) -> None:
    table = create_orders(catalog(tmp_path / "warehouse"))
    change(table, "+I", (1, "placed", 1.0))
    with stream_read_builder(table).open_sync() as stream:
        batch = next(stream)
    empty = BlockingBatch(replace(batch._chunk, data=batch.data.slice(0, 0)), lambda: None)
    assert empty and len(empty) == 0 and empty.to_pylist() == []
    assert empty.to_polars().columns == batch.data.schema.names


async def test_a_stream_with_an_end_is_a_table_in_both_worlds(table: Any) -> None:
    def whole(rows: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rows.to_pylist()]

    assert whole(changes(table).open_sync().to_arrow()) == whole(await changes(table).open().to_arrow()) == ALL
    assert changes(table).open_sync().to_polars().rows() == ALL
    assert (await changes(table).open().to_polars()).rows() == ALL
    ids = [row[1] for row in ALL]
    assert list(changes(table).open_sync().to_pandas()["id"]) == ids
    assert list((await changes(table).open().to_pandas())["id"]) == ids
    none = changes(table).with_filter("id > 100")
    assert (await none.open().to_arrow()).schema.names == ["_row_kind", *COLUMNS]
    async with stream_read_builder(table).open() as stream:
        with pytest.raises(StreamConfigError, match=r"with_end\(...\)"):
            await stream.to_arrow()


def saved(table: Any) -> int | None:
    consumer = ConsumerManager(table.file_io, table.table_path).consumer("etl")
    return None if consumer is None else consumer.next_snapshot


def test_poll_gives_the_next_batch_or_none(table: Any) -> None:
    builder = stream_read_builder(table).with_start(snapshot_id=4).with_consumer_id("etl").with_poll_interval_ms(20)
    with builder.open_sync() as stream:
        batch = stream.poll(timeout=60)
        assert batch is not None and batch.snapshot_id == 4
        assert stream.poll() is None and stream.poll(timeout=0.1) is None
        assert saved(table) == 5
        change(table, "+I", (3, "placed", 2.0))
        batch = stream.poll(timeout=60)
        assert batch is not None and [row["id"] for row in batch] == [3]
        stream.stop()
        with pytest.raises(EndOfScan):
            stream.poll(timeout=60)


async def test_poll_is_awaited_with_asyncio(table: Any) -> None:
    builder = stream_read_builder(table).with_start(snapshot_id=4).with_consumer_id("etl").with_poll_interval_ms(20)
    async with builder.open() as stream:
        batch = await stream.poll(timeout=60)
        assert batch is not None and batch.snapshot_id == 4
        assert await stream.poll() is None and await stream.poll(timeout=0.1) is None
        assert saved(table) == 5
        await asyncio.to_thread(change, table, "+I", (3, "placed", 2.0))
        batch = await stream.poll(timeout=60)
        assert batch is not None and [row["id"] for row in batch] == [3]
    async with changes(table).open() as stream:
        assert [(await stream.poll(60)).snapshot_id for _ in range(4)] == [2, 3, 4, 5]
        with pytest.raises(EndOfScan):
            await stream.poll(60)


def test_databases_end_with_the_same_word(tmp_path: Path) -> None:
    found = catalog(tmp_path / "warehouse")
    orders(found)
    with database_stream_builder(found, "db").with_end("latest").open_sync() as stream:
        batch = stream.poll(timeout=60)
        assert batch is not None and len(batch) == 1
    with pytest.raises(StreamConfigError, match=r"with_end\('last'\): give 'latest'"):
        changes(found.get_table("db.orders")).with_end("last")


def test_a_range_of_changes_is_read_by_polars_and_duckdb(table: Any) -> None:
    scan = scan_changes(table, 1, 4)
    assert repr(scan) == "TableChanges(db.orders)"
    for _ in range(2):
        assert pa.table(scan).select(["_row_kind", *COLUMNS]).to_pylist() == [
            dict(zip(["_row_kind", *COLUMNS], row, strict=True)) for row in ALL
        ]
    assert duckdb.sql("SELECT _row_kind, id FROM scan WHERE status = 'placed' ORDER BY 1").fetchall() == [
        ("-D", 2),
        ("-U", 1),
    ]
    lazy = scan.lazy()
    assert lazy.collect().select(["_row_kind", *COLUMNS]).rows() == ALL
    assert lazy.filter(polars.col("id") == 1).select("status").collect().rows() == [("placed",), ("paid",)]
    assert lazy.select("_row_kind").head(2).collect().rows() == [("-U",), ("+U",)]
    assert lazy.with_row_index().select("index").collect().rows() == [(0,), (1,), (2,)]
    assert scan_changes(table, 4, 4).lazy().collect().rows() == []
    for snapshot in (1, 4):
        table.create_tag(f"at-{snapshot}", snapshot)
    for compared in (scan_changes(table, 1, 4, "diff"), scan_changes(table, "at-1", "at-4")):
        whole, ids = compared.lazy().collect(), compared.lazy().select("_row_kind", "id").collect()
        assert ids.rows() == whole.select("_row_kind", "id").rows() == [("-U", 1), ("+U", 1), ("-D", 2)]
    with pytest.raises(StreamConfigError, match=r"all"):
        scan_changes(table, 1, 4, "all")  # type: ignore[arg-type]


MISSING = {
    "from pypaimon.streaming.feeds import TorchFeed": "TorchFeed needs the package torch: pip install '{}[torch]'",
    "from pypaimon.streaming.feeds import RayFeed": "RayFeed needs the package ray: pip install '{}[ray]'",
    "DeltaTarget('x')": "DeltaTarget needs the package deltalake: pip install '{}[delta]'",
}


def test_what_is_missing_names_its_extra() -> None:
    """And the package itself needs none: all its names are imported first."""
    hidden = "torch", "ray", "deltalake", "duckdb", "pyiceberg", "adbc_driver_manager", "click", "rich", "obstore"
    program = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {hidden}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from pypaimon.streaming import *\n"
    )
    for code in MISSING:
        program += f"try:\n    {code}\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [text.format("pypaimon-streaming") for text in MISSING.values()]
