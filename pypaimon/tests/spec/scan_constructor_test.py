"""`AsyncStreamingTableScan(table, ...)`: pypaimon's constructor, as a face over the settings of the builder."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.common.predicate import Predicate
from pypaimon.read.scanner.delta_follow_up_scanner import DeltaFollowUpScanner

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    StreamConfigError,
    StreamReadBuilder,
    UnsupportedTableError,
    stream_read_builder,
)
from pypaimon.streaming.install import paimon_class
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.stream_types import PlanKind
from support.stores.fault_file_io import FaultFileIO
from support.tables.streamed_table import Table, available, keys

pytestmark = pytest.mark.slow

Use = Callable[[StreamReadBuilder], StreamReadBuilder]
EVERY = [*range(10, 18), *range(20, 28), *range(30, 38)]
TWELVE = Predicate("equal", 0, "k", [12])
SCANNER = DeltaFollowUpScanner()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "w", bucket="4", bucket_key="k")
    for number in range(1, 4):
        table.commit(range(number * 10, number * 10 + 8))
    return table


def found(table: Table, *args: Any, **given: Any) -> list[int]:
    with AsyncStreamingTableScan(table.handle(), *args, **given) as scan:
        return sorted(keys(table.builder().new_read(), available(scan)))


def test_it_takes_what_pypaimons_takes_in_its_order() -> None:
    theirs = list(inspect.signature(paimon_class("pypaimon.read.streaming_table_scan")).parameters.values())
    ours = list(inspect.signature(AsyncStreamingTableScan).parameters.values())
    names = [(each.name, each.default) for each in theirs]
    assert [(each.name, each.default) for each in ours][: len(names)] == names
    assert [each.name for each in ours][len(names) :] == ["shard_index", "shard_count"]


def test_without_arguments_it_is_the_builders_scan(table: Table) -> None:
    assert found(table) == EVERY
    assert isinstance(table.builder().new_streaming_scan(), AsyncStreamingTableScan)
    with table.builder().open_sync() as stream:
        assert isinstance(stream.scan, AsyncStreamingTableScan)


GIVEN: dict[str, tuple[dict[str, Any], Use]] = {
    "predicate": ({"predicate": TWELVE}, lambda b: b.with_filter(TWELVE)),
    "poll interval": ({"poll_interval_ms": 250}, lambda b: b.with_poll_interval_ms(250)),
    "default poll interval": ({"poll_interval_ms": 1000}, lambda b: b),
    "follow-up scanner": ({"follow_up_scanner": SCANNER}, lambda b: b.with_follow_up_scanner(SCANNER)),
    "bucket filter": ({"bucket_filter": bool}, lambda b: b.with_bucket_filter(bool)),
    "prefetch": ({"prefetch_enabled": True}, lambda b: b),
    "no prefetch": ({"prefetch_enabled": False}, lambda b: b.with_prefetch(0)),
    "threshold": ({"diff_threshold": 3}, lambda b: b.with_catch_up("auto", after=3)),
    "consumer": ({"consumer_id": "etl"}, lambda b: b.with_consumer_id("etl")),
    "shard": ({"shard_index": 1, "shard_count": 2}, lambda b: b.with_shard(1, 2)),
}


@pytest.mark.parametrize("case", GIVEN)
def test_every_argument_is_a_setting_of_the_builder(table: Table, case: str) -> None:
    def options(scan: AsyncStreamingTableScan) -> StreamOptions:
        return scan._driver.parts.get().options

    given, setting = GIVEN[case]
    handle = table.handle(**{"continuous.discovery-interval": "7 s"})
    builder = stream_read_builder(handle)
    if "follow_up_scanner" not in given:
        builder.with_catch_up("auto", after=10)
    with AsyncStreamingTableScan(handle, **given) as ours, setting(builder).new_streaming_scan() as theirs:
        assert options(ours) == options(theirs)


def test_progress_continues_where_it_was_saved(table: Table) -> None:
    assert found(table, consumer_id="etl") == EVERY
    with AsyncStreamingTableScan(table.handle(), consumer_id="etl") as scan:
        assert scan.committed() == 4
    table.commit([99])
    assert found(table, consumer_id="etl") == [99]


def test_shards_are_disjoint_and_together_complete(table: Table) -> None:
    shards = [found(table, shard_index=index, shard_count=3) for index in range(3)]
    assert all(shards)
    assert sorted(key for shard in shards for key in shard) == EVERY


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shard_index": 1}, "give both"),
        ({"shard_count": 2}, "give both"),
        ({"shard_index": 2, "shard_count": 2}, "index must be from 0 to 1"),
        ({"shard_index": 0, "shard_count": 2, "bucket_filter": bool}, "cannot be combined"),
        ({"consumer_id": "etl", "bucket_filter": bool}, "member"),
        ({"consumer_id": "a/b"}, "a/b"),
        ({"poll_interval_ms": 0}, "poll_interval_ms"),
        ({"diff_threshold": -1}, "diff_threshold"),
        ({"diff_threshold": "10"}, "diff_threshold"),
        ({"follow_up_scanner": 1}, "should_scan"),
        ({"predicate": 5}, "with_filter"),
    ],
)
def test_what_the_builder_refuses_it_refuses(table: Table, given: dict[str, Any], text: str) -> None:
    with pytest.raises(StreamConfigError, match=text):
        AsyncStreamingTableScan(table.handle(), **given)


def test_a_table_that_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path / "m", primary_key=True, merge_engine="partial-update")
    with pytest.raises(UnsupportedTableError, match="partial-update"):
        AsyncStreamingTableScan(table.handle())


@pytest.mark.parametrize(("threshold", "first"), [(0, 2), (2, 2), (5, 5), (7, 7), (12, 12)])
def test_the_threshold_says_from_how_many_snapshots_on_they_come_as_one_plan(
    tmp_path: Path, threshold: int, first: int
) -> None:
    table = Table(tmp_path / "t").commit_each(range(1, 41))
    read = table.builder().new_read()
    for count in (first - 1, first, 40):
        with AsyncStreamingTableScan(table.handle(), diff_threshold=threshold) as scan:
            scan.next_snapshot_id = 41 - count
            plans = available(scan)
        assert sorted(keys(read, plans)) == list(range(41 - count, 41)), "rows do not depend on it"
        collapses = PlanKind.COLLAPSED in [plan.kind for plan in plans]
        if count < first:
            assert not collapses
        elif count == 40 or first < 8:
            assert collapses


def test_a_threshold_that_is_never_reached_replays(tmp_path: Path) -> None:
    table = Table(tmp_path / "t").commit_each(range(1, 21))
    with AsyncStreamingTableScan(table.handle(), diff_threshold=10**9) as scan:
        scan.next_snapshot_id = 1
        assert [(plan.snapshot_id, plan.kind) for plan in available(scan)] == [
            (number, PlanKind.DELTA) for number in range(1, 21)
        ]


def test_on_an_event_loop_it_asks_for_nothing_before_the_first_plan(table: Table) -> None:
    files = FaultFileIO()

    async def first() -> int:
        scan = AsyncStreamingTableScan(table.handle(files))
        assert not files.calls, "nothing was asked for"
        async with scan.stream() as stream:
            async for plan in stream:
                return plan.snapshot_id
        raise AssertionError("no plan")

    assert asyncio.run(first()) == 3
