"""The examples of streaming reads in Paimon's own documentation of PyPaimon, run with both libraries.

"Streaming Reads and Consumers" there. What pypaimon answers rightly, ours answers too. docs/comparison.md has the
rest: buckets of the first plan (those examples run from the first snapshot on), row kinds, rows that fail a filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.consumer.consumer import Consumer
from pypaimon.consumer.consumer_manager import ConsumerManager as PaimonConsumerManager

from pypaimon.streaming import AsyncStreamingTableScan, ConsumerManager, StreamReadBuilder
from pypaimon.streaming.install import paimon_class
from support.tables.handles import catalog_with_database

pytestmark = pytest.mark.slow

Found = list[dict[str, Any]]
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("timestamp", pa.int64())])


class Library:
    """One of the two, under the same names.

    Attributes:
        builder: Its `table.new_stream_read_builder()`.
        scan: Its `AsyncStreamingTableScan`.
        consumers: Its `table.consumer_manager()`.
    """

    def __init__(self, builder: Any, scan: Any, consumers: Any) -> None:
        self.builder = builder
        self.scan = scan
        self.consumers: Callable[[Any], Any] = lambda table: consumers(table.file_io, table.table_path)


PAIMON = Library(
    paimon_class("pypaimon.read.stream_read_builder"),
    paimon_class("pypaimon.read.streaming_table_scan"),
    PaimonConsumerManager,
)
OURS = Library(StreamReadBuilder, AsyncStreamingTableScan, ConsumerManager)


class World:
    """A table `db.t` that both read, each in a directory of its own."""

    def __init__(self, path: Path, primary_key: bool = False, **options: str) -> None:
        self.catalog = catalog_with_database(path)
        dashed = {key.replace("_", "-"): value for key, value in options.items()}
        keys = ["id"] if primary_key else None
        schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=keys, options={"bucket": "6", **dashed})
        self.catalog.create_table("db.t", schema, False)

    @property
    def table(self) -> Any:
        return self.catalog.get_table("db.t")

    def write(self, *ids: int) -> None:
        builder = self.table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        rows = [{"id": each, "name": f"n{each}", "timestamp": 1704067200000 + each} for each in ids]
        writer.write_arrow(pa.Table.from_pylist(rows, schema=COLUMNS))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


def plans(scan: Any, count: int) -> Iterator[Any]:
    """The first plans of a blocking stream, which is left then."""
    stream = iter(scan.stream_sync())
    with closing(stream) if hasattr(stream, "close") else scan:
        for _ in range(count):
            yield next(stream)


def rows(read: Any, found: list[Any]) -> list[Found]:
    return [sorted(read.to_arrow(plan.splits()).to_pylist(), key=lambda row: row["id"]) for plan in found]


def basic(library: Library, world: World) -> Any:
    world.write(1, 2, 3)
    stream_builder = library.builder(world.table)
    stream_builder.with_poll_interval_ms(10)
    scan = stream_builder.new_streaming_scan()
    table_read = stream_builder.new_read()
    received = []

    async def process_stream() -> None:
        stream = scan.stream()
        async for plan in stream:
            received.append((plan.snapshot_id, sum(table_read.to_arrow([split]).num_rows for split in plan.splits())))
            if len(received) == 3:
                break
            world.write(*range(10 * len(received), 10 * len(received) + len(received)))
        await stream.aclose()

    asyncio.run(process_stream())
    return received


def synchronous(library: Library, world: World) -> Any:
    world.write(1, 2)
    stream_builder = library.builder(world.table)
    scan, table_read = stream_builder.new_streaming_scan(), stream_builder.new_read()
    received = []
    for plan in plans(scan, 3):
        received += rows(table_read, [plan])
        world.write(10 + len(received))
    return received


def manual_position(library: Library, world: World) -> Any:
    for number in range(1, 5):
        world.write(number)
    stream_builder = library.builder(world.table)
    scan, table_read = stream_builder.new_streaming_scan(), stream_builder.new_read()
    told = [scan.next_snapshot_id]
    scan.next_snapshot_id = 2
    received = rows(table_read, list(plans(scan, 2)))
    saved_position = scan.next_snapshot_id
    again = library.builder(world.table).new_streaming_scan()
    again.next_snapshot_id = saved_position
    return told, received, saved_position, rows(table_read, list(plans(again, 1)))


def filtering(library: Library, world: World) -> Any:
    world.write(1, 5)
    stream_builder = library.builder(world.table)
    predicate_builder = stream_builder.new_predicate_builder()
    predicate = predicate_builder.greater_than("timestamp", 1704067200003)
    stream_builder.with_filter(predicate)
    stream_builder.with_projection(["id", "name", "timestamp"])
    scan, table_read = stream_builder.new_streaming_scan(), stream_builder.new_read()
    received = []
    for plan in plans(scan, 2):
        received += rows(table_read, [plan])
        world.write(2, 6)
    return received


def buckets(library: Library, world: World) -> Any:
    world.write(*range(30))
    received = []
    for chosen in ([0, 1, 2], [3, 4, 5]):
        stream_builder = library.builder(world.table)
        stream_builder.with_buckets(chosen)
        scan = stream_builder.new_streaming_scan()
        scan.next_snapshot_id = 1
        received += rows(stream_builder.new_read(), list(plans(scan, 1)))
    return received


def bucket_filter(library: Library, world: World) -> Any:
    world.write(*range(30))
    stream_builder = library.builder(world.table)
    stream_builder.with_bucket_filter(lambda b: b % 2 == 0)
    scan = stream_builder.new_streaming_scan()
    scan.next_snapshot_id = 1
    (plan,) = plans(scan, 1)
    return rows(stream_builder.new_read(), [plan]), sorted({split.bucket for split in plan.splits()})


def row_kinds(library: Library, world: World) -> Any:
    world.write(1, 2)
    stream_builder = library.builder(world.table)
    stream_builder.with_include_row_kind(True)
    scan, table_read = stream_builder.new_streaming_scan(), stream_builder.new_read()
    received = []

    async def process_stream() -> None:
        stream = scan.stream()
        async for plan in stream:
            arrow_table = table_read.to_arrow(plan.splits())
            received.append(sorted((row["_row_kind"], row["id"]) for row in arrow_table.to_pylist()))
            if len(received) == 2:
                break
            world.write(2, 3)
        await stream.aclose()

    asyncio.run(process_stream())
    return received


def the_constructor(library: Library, world: World) -> Any:
    for number in range(1, 4):
        world.write(number)
    scan = library.scan(world.table, poll_interval_ms=10, prefetch_enabled=False, diff_threshold=10**9)
    scan.next_snapshot_id = 1
    return rows(library.builder(world.table).new_read(), list(plans(scan, 3)))


def progress(library: Library, world: World) -> Any:
    world.write(1)
    received = []
    for _ in range(3):
        stream_builder = library.builder(world.table).with_consumer_id("etl").with_poll_interval_ms(10)
        scan, table_read = stream_builder.new_streaming_scan(), stream_builder.new_read()
        for plan in plans(scan, 2):
            received += rows(table_read, [plan])
            world.write(len(received) + 10)
    return received, library.consumers(world.table).consumer("etl").next_snapshot


def consumers(library: Library, world: World) -> Any:
    world.write(1)
    manager = library.consumers(world.table)
    told = [manager.consumer("consumer_id")]
    manager.reset_consumer("consumer_id", Consumer(next_snapshot=10))
    told.append(manager.consumer("consumer_id").next_snapshot)
    manager.delete_consumer("consumer_id")
    told.append(manager.consumer("consumer_id"))
    for number, name in enumerate(("test_a", "test_b", "prod_a", "other"), 5):
        manager.reset_consumer(name, Consumer(next_snapshot=number))
    told += [sorted(manager.consumers().items()), sorted(manager.list_all_ids()), manager.min_next_snapshot()]
    manager.expire(datetime.now() - timedelta(days=1))
    told.append(sorted(manager.list_all_ids()))
    manager.clear_consumers("test_.*")
    told.append(sorted(manager.list_all_ids()))
    manager.clear_consumers(".*", "prod_.*")
    told.append(sorted(manager.list_all_ids()))
    branch_manager = manager.with_branch("feature_branch")
    told.append(branch_manager.consumers())
    branch_manager.reset_consumer("on_branch", Consumer(next_snapshot=3))
    told += [branch_manager.consumers(), manager.list_all_ids()]
    manager.expire(datetime.now() + timedelta(days=1))
    return [*told, manager.list_all_ids(), manager.min_next_snapshot()]


EXAMPLES: dict[str, Callable[[Library, World], Any]] = {
    each.__name__.replace("_", " "): each
    for each in (
        basic,
        synchronous,
        manual_position,
        filtering,
        buckets,
        bucket_filter,
        row_kinds,
        the_constructor,
        progress,
        consumers,
    )
}
KINDS: dict[str, dict[str, Any]] = {
    "append": {"bucket_key": "id"},
    "primary key": {"primary_key": True},
    "changelog": {"primary_key": True, "changelog_producer": "input"},
}


@pytest.mark.parametrize("kind", ["append", "changelog", pytest.param("primary key", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("example", EXAMPLES)
def test_both_libraries_answer_alike(tmp_path: Path, example: str, kind: str) -> None:
    found = [
        EXAMPLES[example](library, World(tmp_path / name, **KINDS[kind]))
        for name, library in (("paimon", PAIMON), ("ours", OURS))
    ]
    assert _as_paimon(found[1]) == found[0]
    assert found[0], "the example saw something"


def _as_paimon(found: Any) -> Any:
    """Without row kinds, which ours gives unless it is told not to, and rows that fail the filter (`-D`)."""
    if isinstance(found, dict):
        return {key: value for key, value in found.items() if key != "_row_kind"}
    if isinstance(found, (list, tuple)):
        kept = (each for each in found if not (isinstance(each, dict) and each.get("_row_kind") == "-D"))
        return type(found)(map(_as_paimon, kept))
    return found
