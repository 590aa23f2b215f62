"""The builder: each setting, wrong values, contradictions, precedence over table options, and when settings freeze."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    PaimonStreamError,
    Position,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    UnsupportedTableError,
    stream_read_builder,
)
from pypaimon.streaming.install import paimon_class
from support.tables.streamed_table import Table, available, keys, rows, snapshots

pytestmark = pytest.mark.slow

Use = Callable[[StreamReadBuilder], Any]


@pytest.fixture
def append(tmp_path: Path) -> Table:
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    for number in range(1, 4):
        table.commit([number * 10, number * 10 + 1])
    return table


@pytest.fixture
def primary(tmp_path: Path) -> Table:
    table = Table(tmp_path / "p", primary_key=True, changelog_producer="input")
    table.commit([1, 2])
    return table


WRONG: dict[str, Use] = {
    "start nothing": lambda b: b.with_start(),
    "start two": lambda b: b.with_start("latest", snapshot_id=1),
    "start mode": lambda b: b.with_start("newest"),
    "start mode from-timestamp": lambda b: b.with_start("from-timestamp"),
    "start id text": lambda b: b.with_start(snapshot_id="1"),  # type: ignore[arg-type]
    "start id true": lambda b: b.with_start(snapshot_id=True),
    "start naive time": lambda b: b.with_start(timestamp=datetime(2026, 1, 1)),
    "start time text without zone": lambda b: b.with_start(timestamp="2026-01-01"),
    "start time text": lambda b: b.with_start(timestamp="yesterday"),
    "start time in seconds": lambda b: b.with_start(timestamp=1_790_000_000),
    "start time float": lambda b: b.with_start(creation_time=1.5),  # type: ignore[arg-type]
    "start file time text": lambda b: b.with_start(file_creation_time="x"),
    "start tag number": lambda b: b.with_start(tag=1),  # type: ignore[arg-type]
    "start position number": lambda b: b.with_start(position=1),  # type: ignore[arg-type]
    "start position text": lambda b: b.with_start(position="snapshot 1"),
    "start full of latest": lambda b: b.with_start("latest", full=True),
    "start full number": lambda b: b.with_start(snapshot_id=1, full=1),  # type: ignore[arg-type]
    "end nothing": lambda b: b.with_end(),
    "end two": lambda b: b.with_end(latest=True, snapshot_id=1),
    "end latest number": lambda b: b.with_end(latest=1),  # type: ignore[arg-type]
    "end id text": lambda b: b.with_end(snapshot_id="1"),  # type: ignore[arg-type]
    "end time in seconds": lambda b: b.with_end(timestamp=1_790_000_000),
    "end naive time": lambda b: b.with_end(timestamp=datetime(2026, 1, 1)),
    "end watermark time": lambda b: b.with_end(watermark=datetime.now(timezone.utc)),  # type: ignore[arg-type]
    "poll 0": lambda b: b.with_poll_interval_ms(0),
    "poll float": lambda b: b.with_poll_interval_ms(0.5),  # type: ignore[arg-type]
    "consumer empty": lambda b: b.with_consumer_id(""),
    "consumer path": lambda b: b.with_consumer_id("../x"),
    "consumer number": lambda b: b.with_consumer_id(5),  # type: ignore[arg-type]
    "consumer commit": lambda b: b.with_consumer_id("c", commit="never"),
    "consumer ignore": lambda b: b.with_consumer_id("c", ignore_progress="yes"),  # type: ignore[arg-type]
    "consumer member": lambda b: b.with_consumer_id("c", member="a/b"),
    "shard beyond": lambda b: b.with_shard(4, 4),
    "shard below": lambda b: b.with_shard(-1, 4),
    "shard of none": lambda b: b.with_shard(0, 0),
    "shard text": lambda b: b.with_shard("0", 4),  # type: ignore[arg-type]
    "buckets number": lambda b: b.with_buckets(1),  # type: ignore[arg-type]
    "buckets text": lambda b: b.with_buckets("01"),  # type: ignore[arg-type]
    "buckets of text": lambda b: b.with_buckets(["0"]),  # type: ignore[list-item]
    "buckets none": lambda b: b.with_buckets([]),
    "bucket filter list": lambda b: b.with_bucket_filter([0]),  # type: ignore[arg-type]
    "limits 0": lambda b: b.with_limits(max_rows=0),
    "limits text": lambda b: b.with_limits(max_bytes="1 mb"),  # type: ignore[arg-type]
    "limits negative": lambda b: b.with_limits(max_splits=-1),
    "catch up": lambda b: b.with_catch_up("fast"),
    "prefetch negative": lambda b: b.with_prefetch(-1),
    "prefetch true": lambda b: b.with_prefetch(True),
    "io timeout 0": lambda b: b.with_io_timeout(0),
    "io timeout nan": lambda b: b.with_io_timeout(float("nan")),
    "io timeout inf": lambda b: b.with_io_timeout(float("inf")),
    "io timeout text": lambda b: b.with_io_timeout("60"),  # type: ignore[arg-type]
    "on expired": lambda b: b.with_on_expired("ignore"),
    "on schema change": lambda b: b.with_on_schema_change("evolve"),
    "on overwrite": lambda b: b.with_on_overwrite("replace"),
    "row kind number": lambda b: b.with_include_row_kind(1),  # type: ignore[arg-type]
    "raw text": lambda b: b.with_raw("yes"),  # type: ignore[arg-type]
    "projection unknown": lambda b: b.with_projection(["k", "x"]),
    "projection twice": lambda b: b.with_projection(["k", "k"]),
    "projection text": lambda b: b.with_projection("k"),
    "projection number": lambda b: b.with_projection(7),  # type: ignore[arg-type]
    "projection of numbers": lambda b: b.with_projection([7]),  # type: ignore[list-item]
    "filter text": lambda b: b.with_filter("k >"),
    "filter text of a column that is not there": lambda b: b.with_filter("x > 1"),
    "filter number": lambda b: b.with_filter(5),  # type: ignore[arg-type]
    "filter unmatched": lambda b: b.with_filter(b.new_predicate_builder().equal("k", 1), unmatched="keep"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_at_once_and_changes_nothing(append: Table, name: str) -> None:
    builder = append.builder().with_start("earliest").with_end(snapshot_id=2).with_catch_up("replay")
    with pytest.raises(StreamConfigError) as caught:
        WRONG[name](builder)
    assert isinstance(caught.value, ValueError) and len(str(caught.value)) > 20
    assert snapshots(available(builder.new_streaming_scan())) == [1, 2]


def test_a_filter_on_a_column_that_is_not_there_is_refused(append: Table) -> None:
    from pypaimon.common.predicate import Predicate

    with pytest.raises(StreamConfigError, match="no column 'x'; columns: k, v"):
        append.builder().with_filter(Predicate("equal", 0, "x", [1]))


def test_a_filter_may_be_text(append: Table) -> None:
    builder = append.builder().with_start("earliest").with_end(latest=True).with_filter("k > 10 and v <> 'v21'")
    assert keys(builder.new_read(), available(builder.new_streaming_scan())) == [11, 20, 30, 31]
    builder.with_filter(None)
    assert len(keys(builder.new_read(), available(builder.new_streaming_scan()))) == 6


async def test_on_an_event_loop_a_filter_of_text_waits_for_the_table(append: Table) -> None:
    def filtered(text: str) -> StreamReadBuilder:
        return stream_read_builder(append.handle()).with_end(latest=True).with_filter(text)

    async def found(builder: StreamReadBuilder) -> list[int]:
        async with builder.open() as stream:
            batches = [batch async for batch in stream]
        return sorted(key for batch in batches for key in batch.rows["k"].to_pylist())

    builder = filtered("k > 20")
    other = builder.copy()
    assert await found(builder) == [21, 30, 31]
    assert await found(other.with_filter("k = 10")) == [10]
    for text, message in (("k >", "expected"), ("x = 1", "no column 'x'")):
        with pytest.raises(StreamConfigError, match=message):
            await filtered(text).new_streaming_scan().plan_async()


def test_times_are_given_in_many_ways(append: Table) -> None:
    committed = append.snapshot(2)["timeMillis"]
    moment = datetime.fromtimestamp(committed / 1000, tz=timezone.utc)
    builder = append.builder().with_end(latest=True)
    text = moment.isoformat()
    for time in (committed, moment, text, text.replace("+00:00", "Z"), f" {text} "):
        with builder.with_start(timestamp=time).new_streaming_scan() as scan:
            assert snapshots(available(scan)) == [2, 3]


def test_a_start_by_time_means_commits_or_files(append: Table) -> None:
    after_the_first = append.snapshot(1)["timeMillis"] + 1
    builder = append.builder().with_end(latest=True).with_catch_up("replay")
    with builder.with_start(creation_time=after_the_first).new_streaming_scan() as scan:
        assert [(plan.kind, plan.snapshot_id) for plan in available(scan)] == [("delta", 2), ("delta", 3)]
    for time, wanted in ((0, [10, 11, 20, 21, 30, 31]), (2**42, [])):
        with builder.with_start(file_creation_time=time).new_streaming_scan() as scan:
            plans = available(scan)
            assert {plan.kind for plan in plans} == ({"full"} if wanted else set())
            assert sorted(keys(builder.new_read(), plans)) == wanted
            assert scan.next_snapshot_id == 4


CONTRADICTIONS: dict[str, Use] = {
    "shard and buckets": lambda b: b.with_shard(0, 2).with_buckets([0]),
    "shard and member": lambda b: b.with_shard(0, 2).with_consumer_id("c", member="m"),
    "buckets without member": lambda b: b.with_buckets([0]).with_consumer_id("c"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused_before_the_first_read(append: Table, name: str) -> None:
    builder = CONTRADICTIONS[name](append.builder())
    with pytest.raises(StreamConfigError):
        builder.new_streaming_scan()


def test_hidden_deletes_are_refused_or_warned_of(primary: Table, caplog: pytest.LogCaptureFixture) -> None:
    def filtered(unmatched: str) -> StreamReadBuilder:
        builder = primary.builder()
        return builder.with_filter(builder.new_predicate_builder().equal("v", "v1"), unmatched=unmatched)

    for make in ("new_read", "new_streaming_scan"):
        with pytest.raises(StreamConfigError, match="with_include_row_kind"):
            getattr(filtered("delete").with_include_row_kind(False), make)()
        with pytest.raises(StreamConfigError, match="with_raw"):
            getattr(filtered("delete").with_raw(), make)()
        getattr(filtered("drop").with_include_row_kind(False), make)()
        getattr(filtered("drop").with_raw(), make)()
    keyed = primary.builder()
    keyed.with_filter(keyed.new_predicate_builder().equal("k", 1)).with_include_row_kind(False)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        read = keyed.new_read()
    assert "with_include_row_kind(False)" in caplog.text
    assert read.to_arrow(available(keyed.new_streaming_scan())[0].splits()).column_names == ["k", "v", "kind"]


def test_row_kinds_come_where_rows_may_be_retracted(append: Table, primary: Table) -> None:
    def columns(table: Table, builder: StreamReadBuilder) -> list[str]:
        (plan,) = available(builder.new_streaming_scan())
        return list(builder.new_read().to_arrow(plan.splits()).column_names)

    assert columns(append, append.builder()) == ["k", "v"]
    assert columns(append, append.builder().with_include_row_kind()) == ["_row_kind", "k", "v"]
    assert columns(primary, primary.builder()) == ["_row_kind", "k", "v", "kind"]
    assert columns(primary, primary.builder().with_projection(["v", "k"])) == ["_row_kind", "v", "k"]


OPTIONS: dict[str, tuple[dict[str, str], Use, list[int], list[int]]] = {
    "start": ({"scan.mode": "from-snapshot", "scan.snapshot-id": "3"}, lambda b: b.with_start("earliest"),
              [30, 31], [10, 11, 20, 21, 30, 31]),
    "latest": ({"scan.mode": "latest"}, lambda b: b.with_start(snapshot_id=2), [], [20, 21, 30, 31]),
    "end": ({"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}, lambda b: b.with_end(snapshot_id=1),
            [10, 11, 20, 21, 30, 31], [10, 11]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_a_call_beats_the_table_option(append: Table, name: str) -> None:
    options, use, by_option, by_call = OPTIONS[name]
    builder = append.builder(**options)
    assert sorted(keys(builder.new_read(), available(builder.new_streaming_scan()))) == by_option
    use(builder)
    assert sorted(keys(builder.new_read(), available(builder.new_streaming_scan()))) == by_call


def test_consumer_poll_and_bucket_options_hold_until_a_call_beats_them(append: Table) -> None:
    options = {"consumer-id": "o", "continuous.discovery-interval": "7 s", "scan.mode": "latest"}
    scan = append.builder(**options).new_streaming_scan()
    assert scan._driver.poll_seconds == 7
    assert scan.plan() is None
    assert scan.committed() == 4
    called = append.builder(**options).with_poll_interval_ms(20).with_consumer_id("b").new_streaming_scan()
    assert called._driver.poll_seconds == 0.02
    assert called.committed() is None
    bucket = append.builder(**{"scan.bucket": "0"})
    other = append.builder(**{"scan.bucket": "0"}).with_buckets([1])
    found = [set(keys(b.new_read(), available(b.new_streaming_scan()))) for b in (bucket, other)]
    assert found[0] and found[1] and not found[0] & found[1]
    assert found[0] | found[1] == {10, 11, 20, 21, 30, 31}


def test_the_last_call_wins(append: Table) -> None:
    builder = append.builder().with_catch_up("replay").with_start("latest").with_start("earliest")
    builder.with_end(watermark=0).with_end(snapshot_id=3).with_end(snapshot_id=2)
    assert snapshots(available(builder.new_streaming_scan())) == [1, 2]


@pytest.mark.parametrize(
    "options",
    [{"scan.snapshot-idd": "1"}, {"streaming-read-overwrites": "true"}, {"scan.mode": "newest"},
     {"scan.mode": "from-snapshot"}, {"scan.snapshot-id": "1", "scan.timestamp-millis": "5"},
     {"scan.snapshot-id": "one"}, {"scan.tag-name": "t"}, {"incremental-between": "1,2"}],
)  # fmt: skip
def test_wrong_options_are_refused_before_the_first_read(append: Table, options: dict[str, str]) -> None:
    table = append.handle().copy_without_time_travel(options)
    with pytest.raises(PaimonStreamError) as caught:
        stream_read_builder(table).new_streaming_scan()
    assert isinstance(caught.value, ValueError)


def test_copies_are_independent_and_new_calls_freeze(append: Table) -> None:
    builder = append.builder().with_start("earliest").with_catch_up("replay")
    scan = builder.new_streaming_scan()
    builder.with_projection(["k"])
    read = builder.new_read()
    branch = builder.copy().with_end(snapshot_id=1).with_projection(["v"])
    builder.with_start("latest").with_projection(["v", "k"]).with_include_row_kind()
    assert snapshots(available(branch.new_streaming_scan())) == [1]
    plans = available(scan)
    assert snapshots(plans) == [1, 2, 3]
    assert read.to_arrow(plans[0].splits()).column_names == ["k"]
    assert branch.new_read().to_arrow(plans[0].splits()).column_names == ["v"]
    assert builder.new_read().to_arrow(plans[0].splits()).column_names == ["_row_kind", "v", "k"]
    assert type(branch) is StreamReadBuilder and isinstance(branch, paimon_class("pypaimon.read.stream_read_builder"))


def test_setters_return_the_builder(append: Table) -> None:
    builder = append.builder()
    predicate = builder.new_predicate_builder().greater_or_equal("k", 20)
    same = (
        builder.with_filter(predicate, unmatched="drop").with_projection(["k", "v"]).with_start(snapshot_id=1)
        .with_end(latest=True).with_poll_interval_ms(5).with_consumer_id("c", "manual", None, True).with_shard(0, 1)
        .with_include_row_kind(True).with_limits(5, 5, 5).with_catch_up("auto").with_prefetch(0).with_io_timeout(5)
        .with_raw(False).with_on_expired("full").with_on_schema_change("follow").with_on_overwrite(None)
    )  # fmt: skip
    assert same is builder
    read = builder.new_read()
    found = [row for plan in available(builder.new_streaming_scan()) for row in rows(read, plan)]
    assert sorted(found) == [("+I", key, f"v{key}") for key in (20, 21, 30, 31)]
    assert [field.name for field in builder.read_type()][-2:] == ["k", "v"]


def test_the_read_optimized_view_of_an_append_table_is_the_table(append: Table) -> None:
    builder = stream_read_builder(append.handle(), view="ro").with_start(snapshot_id=2, full=True)
    with builder.new_streaming_scan() as scan:
        assert [sorted(keys(builder.new_read(), [plan])) for plan in available(scan)] == [[10, 11, 20, 21], [30, 31]]


def test_every_table_class_has_our_builder(append: Table) -> None:
    assert type(append.handle().new_stream_read_builder()) is StreamReadBuilder


def test_what_cannot_stream_is_refused(append: Table, primary: Table) -> None:
    with pytest.raises(UnsupportedTableError, match="own format"):
        stream_read_builder(object())
    with pytest.raises(StreamConfigError, match="view"):
        stream_read_builder(append.handle(), view="nonsense")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedTableError, match="read optimized"):
        stream_read_builder(primary.handle(), view="ro").new_streaming_scan()
    handle = append.handle()
    builder = stream_read_builder(handle)
    append.drop()
    with pytest.raises(TableChangedError, match="dropped"):
        stream_read_builder(handle)
    with builder.new_streaming_scan() as scan, pytest.raises(TableChangedError, match="dropped"):
        scan.plan()


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_partial_records_are_refused_unless_raw(tmp_path: Path, engine: str) -> None:
    table = Table(tmp_path / "w", primary_key=True, merge_engine=engine)
    with pytest.raises(UnsupportedTableError, match="'lookup' or 'full-compaction'"):
        table.builder().new_streaming_scan()
    table.builder().with_raw().new_streaming_scan().close()


def test_a_position_may_be_given_as_text(append: Table) -> None:
    scan = append.builder().with_start("earliest").with_limits(max_splits=1).new_streaming_scan()
    plan = scan.plan()
    assert plan is not None
    text = plan.position.to_json()
    for position in (text, Position.from_json(text)):
        builder = append.builder().with_start(position=position)
        assert len(keys(builder.new_read(), available(builder.new_streaming_scan()))) == 5
