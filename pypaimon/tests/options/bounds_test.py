"""Bounds of options: the last value that is allowed is taken, the next one is refused by name with its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click
import pytest

from pypaimon.streaming import (
    Compactor,
    StreamConfigError,
    compact,
    database_stream_builder,
    stream_read_builder,
    stream_write_builder,
    table_files,
)
from pypaimon.streaming.batches.run_forever import backoff_of
from pypaimon.streaming.cli.app import program
from pypaimon.streaming.commit.snapshot_commit import commit_backoff
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import MAX_SHARDS, reader_name
from pypaimon.streaming.groups.group_settings import GroupSettings, times_and_rule
from pypaimon.streaming.indexes.bitmap import BitmapIndexWriter
from pypaimon.streaming.indexes.bloom_filter import BloomFilterWriter
from pypaimon.streaming.live.duckdb_row_store import memory_bound
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import finite_seconds
from pypaimon.streaming.options.stream_options import StreamOptions, options_of_table
from pypaimon.streaming.spec.openers import AsyncStreamingTableScan
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.writing.dynamic_buckets import BucketRules
from pypaimon.streaming.writing.files.file_options import FileOptions
from pypaimon.streaming.writing.files.statistics import StatsMode
from support.docs.cli_runs import subcommands
from support.tables.handles import write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

TINY = math.nextafter(0, 1)
GREATEST_LONG = 2**63 - 1


@dataclass(frozen=True)
class Bound:
    """One bound."""

    name: str
    give: Callable[[Table, Any], object]
    allowed: Any
    refused: Any
    says: str

    def __str__(self) -> str:
        return f"{self.name} {self.refused}"


def reading(name: str, give: Callable[[Any, Any], object], *bound: Any) -> Bound:
    return Bound(name, lambda table, value: give(stream_read_builder(table.handle()), value), *bound)


def of_table(key: str, give: Callable[[Any], object], *bound: Any) -> Bound:
    """One of the options of a table, given to the code that reads it."""
    return Bound(key, lambda table, value: give(table.handle(**{key: str(value)})), *bound)


def at_least(least: int) -> tuple[int, int, str]:
    return least, least - 1, f"less than {least}"


def whole_from(least: int) -> tuple[int, int, str]:
    return least, least - 1, f"a whole number from {least}"


ABOVE_0 = (TINY, 0, "seconds above 0")
FROM_0 = (0, -TINY, "seconds from 0")


def of_stream(table: Any) -> StreamOptions:
    return options_of_table(table.table_schema)


def live(builder: Any, snapshot: int) -> None:
    with builder.open_live_sync() as found:
        found.wait_for(snapshot)


def expiring(table: Table, seconds: float) -> None:
    handle = table.handle(**{"consumer.expiration-time": f"{round(seconds * 1000)} ms"})
    times_and_rule(
        resolved(stream_read_builder(handle)).scan_parts(), handle.table_schema, GroupSettings("g", session_timeout=1.0)
    )


def commit(table: Table, identifier: int) -> None:
    with stream_write_builder(table.handle()).open_sync() as writer:
        writer.commit(identifier)


BOUNDS = [
    reading("with_poll_interval_ms", lambda b, v: b.with_poll_interval_ms(v), *at_least(1)),
    reading("with_shard: count", lambda b, v: b.with_shard(0, v), *at_least(1)),
    reading("with_shard: index", lambda b, v: b.with_shard(v, 2), *at_least(0)),
    reading("with_shard", lambda b, v: b.with_shard(v, 2), 1, 2, "from 0 to 1"),
    reading("shard", lambda b, v: reader_name("c", shard=(0, v)), MAX_SHARDS, MAX_SHARDS + 1, f"<= {MAX_SHARDS}"),
    *(
        reading(f"with_limits: {name}", lambda b, v, name=name: b.with_limits(**{name: v}), *at_least(1))
        for name in ("max_rows", "max_bytes", "max_splits")
    ),
    reading("with_catch_up: after", lambda b, v: b.with_catch_up("auto", after=v), *at_least(1)),
    reading("with_prefetch", lambda b, v: b.with_prefetch(v), *at_least(0)),
    reading("with_io_timeout", lambda b, v: b.with_io_timeout(v), *ABOVE_0),
    reading("with_io_timeout", lambda b, v: b.with_io_timeout(v), 1e308, math.inf, "seconds above 0"),
    reading("with_start: timestamp", lambda b, v: b.with_start(timestamp=v), 10**11, 10**11 - 1, "for seconds give"),
    reading("with_start: timestamp", lambda b, v: b.with_start(timestamp=v), 0, 1, "for seconds give"),
    reading("with_range", lambda b, v: b.with_range(v, 2), 2, 3, "the start comes after the end"),
    reading("diff_threshold", lambda b, v: AsyncStreamingTableScan(b.table, diff_threshold=v), *at_least(0)),
    *(
        Bound(f"open: {name}", lambda table, v, name=name, open_=open_: open_(table)(**{name: v}), *at_least(least))
        for name, least in (("read_ahead_bytes", 0), ("batch_bytes", 1))
        for open_ in (
            lambda table: stream_read_builder(table.handle()).open_sync,
            lambda table: stream_read_builder(table.handle()).open,
            lambda table: stream_read_builder(table.handle()).new_group("g").open_sync,
            lambda table: database_stream_builder(table.catalog, "db").open_sync,
        )
    ),
    Bound("open_live: memory_limit_bytes", lambda _, v: memory_bound(v, None), *at_least(0)),
    reading("wait_for: snapshot_id", live, *at_least(1)),
    reading("new_group: session_timeout", lambda b, v: b.new_group("g", session_timeout=v), *ABOVE_0),
    reading("new_group: max_hold", lambda b, v: b.new_group("g", max_hold=v), *ABOVE_0),
    Bound("consumer.expiration-time", expiring, 4, 3.999, "4 sessions or more"),
    Bound(
        "with_discovery_interval",
        lambda table, v: database_stream_builder(table.catalog, "db").with_discovery_interval(v),
        *ABOVE_0,
    ),
    Bound("run_forever: attempts", lambda table, v: backoff_of(v, 0, 0), *at_least(1)),
    Bound("run_forever", lambda table, v: backoff_of(1, v, 1), 0, -TINY, "expected seconds from 0"),
    Bound("run_forever", lambda table, v: backoff_of(1, v, 1), 1, 1 + 1e-9, "pauses cannot grow from"),
    Bound("threads", lambda table, v: compact(table.handle(), threads=v), *at_least(1)),
    Bound("buckets", lambda table, v: rescale(table.handle(), v), *at_least(1)),
    Bound("partition_idle_time", lambda table, v: compact(table.handle(), partition_idle_time=v), *FROM_0),
    Bound("interval", lambda table, v: Compactor(table.handle(), interval=v), *FROM_0),
    Bound("with_memory_limit", lambda table, v: table.writer().with_memory_limit(v), *at_least(1)),
    Bound("commit: an identifier", commit, 0, -1, "between 0 and"),
    Bound("commit: an identifier", commit, GREATEST_LONG - 1, GREATEST_LONG, "between 0 and 2**63 - 2"),
    Bound(
        "next snapshot",
        lambda table, v: ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer("c", Consumer(v)),
        *(0, -1, "cannot be negative"),
    ),
    of_table("continuous.discovery-interval", of_stream, "1 ms", "999 us", "a duration from 1 ms"),
    of_table("streaming.read.snapshot.delay", of_stream, "0 s", "-1 s", "a duration such as"),
    of_table("source.split.target-size", of_stream, "0 b", "-1 b", "a size such as"),
    *(
        of_table(key, lambda table: CompactionOptions.of(PaimonTable(table)), *whole_from(least))
        for key, least in (
            ("num-sorted-run.compaction-trigger", 1),
            ("num-levels", 2),
            ("compaction.max-size-amplification-percent", 0),
            ("compaction.size-ratio", 0),
            ("compaction.min.file-num", 1),
        )
    ),
    of_table("target-file-row-num", lambda table: FileOptions.of(PaimonTable(table), "me"), *whole_from(1)),
    of_table("commit.max-retries", lambda table: commit_backoff(PaimonTable(table).options), *whole_from(0)),
    *(
        of_table(f"dynamic-bucket.{name}", lambda table: BucketRules.of(PaimonTable(table).options), *bound)
        for name, greatest in (("target-row-num", GREATEST_LONG), ("initial-buckets", 32767), ("max-buckets", 32767))
        for bound in (
            (1, 0, f"a whole number from 1 to {greatest}"),
            (greatest, greatest + 1, f"a whole number from 1 to {greatest}"),
        )
    ),
    Bound("stats-mode", lambda _, v: StatsMode.parse(f"truncate({v})", "stats-mode"), 1, 0, "truncate(n) from 1"),
    Bound("bloom-filter", lambda _, v: BloomFilterWriter({"items": v}), 1, 0, "expected items from 1"),
    Bound("bloom-filter", lambda _, v: BloomFilterWriter({"fpp": v}), TINY, 0, "fpp between 0 and 1"),
    Bound("bloom-filter", lambda _, v: BloomFilterWriter({"fpp": v}), 1 - 1e-9, 1, "fpp between 0 and 1"),
    Bound("bitmap", lambda _, v: BitmapIndexWriter({"version": v}, False), 1, 0, "version 1 or 2"),
    Bound("bitmap", lambda _, v: BitmapIndexWriter({"version": v}, False), 2, 3, "version 1 or 2"),
]


def pause(table: Table, duration: Any) -> None:
    with table.builder().open_sync() as stream:
        stream.pause(duration)


DURATIONS = {
    "with_io_timeout": lambda table, v: table.builder().with_io_timeout(v),
    "with_discovery_interval": lambda table, v: database_stream_builder(table.catalog, "db").with_discovery_interval(v),
    "new_group: session_timeout": lambda table, v: table.builder().new_group("g", session_timeout=v),
    "new_group: max_hold": lambda table, v: table.builder().new_group("g", max_hold=v),
    "run_forever: first_pause": lambda _, v: backoff_of(1, v, v),
    "Compactor: interval": lambda table, v: Compactor(table.handle(), interval=v),
    "partition_idle_time": lambda table, v: table_files(table.handle(), partition_idle_time=v),
    "pause": lambda table, v: pause(table, v),
}


@pytest.mark.parametrize("name", DURATIONS)
def test_durations_are_seconds_or_timedeltas(table: Table, name: str) -> None:
    call: Any = DURATIONS[name]
    for taken in (0.001, timedelta(milliseconds=1)):
        call(table, taken)
    for refused in (timedelta(seconds=-1), "1 s"):
        with pytest.raises(StreamConfigError, match=rf"(?s){name.split(': ')[-1]}.*seconds"):
            call(table, refused)
    assert finite_seconds("x", timedelta(minutes=1.5)) == 90


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    found = key_value_table(tmp_path_factory.mktemp("bounds"))
    write_with(found.writer(), rows(1))
    return found


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_the_last_value_is_taken_and_the_next_one_refused(table: Table, bound: Bound) -> None:
    bound.give(table, bound.allowed)
    with pytest.raises(StreamConfigError) as caught:
        bound.give(table, bound.refused)
    assert bound.name in str(caught.value) and bound.says in str(caught.value)


RANGES = {
    "tail --rows": ">=1",
    "tail --poll": ">=0.01",
    "copy --poll": ">=0.01",
    "lag --watch": ">=0.1",
    "snapshots --last": ">=1",
    "snapshots --from": ">=1",
    "snapshots --to": ">=1",
    "compact --every": ">=0",
    "compact --threads": ">=1",
    "rescale buckets": ">=1",
    "materialize-deletion-vectors --threads": ">=1",
    "rewrite-file-index --threads": ">=1",
    "maintain --min-snapshots": ">=1",
    "rollback --to-snapshot": ">=1",
    "maintain --max-snapshots": ">=1",
    "maintain --min-changelogs": ">=1",
    "maintain --max-changelogs": ">=1",
    "maintain --limit": ">=0",
    "demo --seconds": ">=0",
    "demo --interval": ">=0.01",
}
OF_EVERY_COMMAND = {"--connect-timeout": ">0"}


def ranges(command: click.Command, *names: str) -> Iterator[tuple[str, str]]:
    """The bounds of a command's numbers. For what is outside of them click names the option and them."""
    for option in command.params:
        if isinstance(option.type, (click.IntRange, click.FloatRange)):
            name, kind = option.opts[0], option.type
            bound = f"{'>' if kind.min_open else '>='}{kind.min}"
            yield name if name in OF_EVERY_COMMAND else " ".join([*names, name]), bound
    if isinstance(command, click.Group):
        for name, each in subcommands(command).items():
            yield from ranges(each, *names, name)


def test_bounds_of_the_command_line() -> None:
    assert dict(ranges(program)) == RANGES | OF_EVERY_COMMAND
