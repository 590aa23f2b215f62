"""What the workers of a feed read: together every row once, told by the table alone, wherever they stop and go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    stream_read_builder,
)
from pypaimon.streaming.feeds.feed import Feed
from pypaimon.streaming.feeds.feed_state import Share
from pypaimon.streaming.feeds.shuffle import Shuffle
from pypaimon.streaming.planning.follow_up import DeltaFollowUpScanner
from pypaimon.streaming.testing import SmallTable
from support.samples import SOAK, seeded, some
from support.tables.fed_tables import KINDS, FedTable
from support.tables.streamed_table import Table, expire

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HISTORIES = 40 if SOAK else 1
MOST_BATCHES = 5000
Rows = list[tuple[Any, ...]]


def builder_of(table: FedTable, start: str = "earliest") -> StreamReadBuilder:
    return stream_read_builder(table.handle).with_start(start).with_end(latest=True)


def rows_of(batch: Any) -> Rows:
    return [tuple(row.values()) for row in batch.to_pylist()]


def streamed(builder: StreamReadBuilder) -> Rows:
    with builder.with_catch_up("replay").open_sync() as stream:
        return [row for batch in stream for row in rows_of(batch.data)]


def worked(
    feed: Feed, share: Share, length: int, across: bool, stops: random.Random | None = None, state: Any = None
) -> list[Rows]:
    """The batches of a worker from a state on, which with `stops` ends again and again and goes on at its state."""
    batches, state = list[Rows](), state or feed.identity.state(share, feed.begin)
    while True:
        reader = feed.open(share, feed.identity.place(share, json.loads(json.dumps(state))), length, across)
        left = None if stops is None else stops.randrange(1, 6)
        for batch, place in reader:
            batches.append(rows_of(batch))
            assert len(batches) < MOST_BATCHES, "it does not go on behind its state"
            state = feed.identity.state(share, place)
            left = None if left is None else left - 1
            if left == 0:
                break
        else:
            assert feed.identity.place(share, feed.identity.state(share, reader.place)).position == feed.end
            return batches
        reader.close()


@pytest.mark.parametrize("kind", some("kinds of feeds", sorted(KINDS), 5))
@pytest.mark.parametrize("history", range(HISTORIES))
def test_workers_read_every_row_once_wherever_they_stop(tmp_path: Path, kind: str, history: int) -> None:
    chance = seeded(f"feed {kind} {history}")
    table = FedTable(tmp_path, kind)
    table.append(chance.randrange(1, 30))
    for _ in range(chance.randrange(3, 9)):
        table.change(chance, keyed=bool(KINDS[kind][1]))
    builder = builder_of(table, chance.choice(["earliest", "latest-full"]))
    feed, workers = Feed.of(builder, "test"), chance.randrange(1, 6)
    expected = streamed(builder)
    table.append(10)
    length, across = chance.randrange(1, 20), chance.random() < 0.5
    shares = [Share(index, workers) for index in range(workers)]
    without_stops = [worked(feed, share, length, across) for share in shares]
    assert [worked(feed, share, length, across, chance) for share in shares] == without_stops
    given = [row for batches in without_stops for batch in batches for row in batch]
    assert Counter(given) == Counter(expected)
    if KINDS[kind][1]:
        assert by_key(given) == by_key(expected)
    full = [batch for batches in without_stops for batch in batches[:-1]]
    assert not across or all(len(batch) == length for batch in full)


@pytest.mark.parametrize(
    ("kind", "overwrites"),
    [("fixed append", "skip"), ("fixed append", "read"), ("fixed", "read"), ("partitions", "read")],
)
def test_workers_continue_over_buckets_that_were_rescaled(tmp_path: Path, kind: str, overwrites: Any) -> None:
    chance = seeded(f"rescaled {kind} {overwrites}")
    table = FedTable(tmp_path, kind)
    for _ in range(2):
        table.append(12)
    shares, length = [Share(index, 3) for index in range(3)], chance.randrange(1, 6)
    before = Feed.of(builder_of(table).with_on_overwrite(overwrites), "test")
    begun = [begun_by(before, share, length, chance.randrange(5)) for share in shares]
    for buckets in chance.sample([1, 2, 4, 7], 2):
        table.rescale(buckets)
        table.append(12)
    builder = builder_of(table).with_on_overwrite(overwrites)
    feed, expected = Feed.of(builder, "test"), streamed(builder)
    workers = [worked(feed, share, length, False) for share in shares]
    assert [
        batches + worked(feed, share, length, False, state=state)
        for share, (batches, state) in zip(shares, begun, strict=True)
    ] == workers
    given = [[row for batch in batches for row in batch] for batches in workers]
    assert Counter(row for rows in given for row in rows) == Counter(expected)
    for key, rows in by_key(expected).items():
        for of_worker in given:
            later = iter(rows)
            assert all(row in later for row in of_worker if row[1] == key)


def test_a_second_pass_in_a_process_has_the_manifests_of_the_first(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "unaware")
    table.append(20, files=3)
    feed, share = Feed.of(builder_of(table), "test"), Share(0, 2)
    first = worked(feed, share, 4, False)
    for manifest in (Path(table.handle.table_path) / "manifest").glob("manifest-[!l]*"):
        manifest.unlink()
    assert worked(feed, share, 4, False) == first


def begun_by(feed: Feed, share: Share, length: int, count: int) -> tuple[list[Rows], Any]:
    """So many batches of a worker, and its state behind them."""
    reader = feed.open(share, feed.begin, length, False)
    batches = [rows_of(batch) for batch, _ in islice(reader, count)]
    reader.close()
    return batches, feed.identity.state(share, reader.place)


def by_key(rows: Rows) -> dict[Any, Rows]:
    found: dict[Any, Rows] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


def test_files_of_a_snapshot_are_dealt_out_evenly(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "unaware")
    table.append(800, files=8)
    feed = Feed.of(builder_of(table), "test")
    sizes = [sum(map(len, worked(feed, Share(index, 4), 1000, False))) for index in range(4)]
    assert sizes == [200] * 4


def test_single_files_of_many_snapshots_come_to_all_workers(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "unaware")
    for _ in range(16):
        table.append(1)
    feed = Feed.of(builder_of(table), "test")
    sizes = [len(worked(feed, Share(index, 2), 1000, False)) for index in range(2)]
    assert sum(sizes) == 16
    assert min(sizes) >= 4


def test_partitions_of_one_bucket_come_to_several_workers(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "partitions")
    table.append(40)
    feed = Feed.of(builder_of(table), "test")
    assert sum(bool(worked(feed, Share(index, 4), 1000, False)) for index in range(4)) > 1


def test_a_file_of_blobs_of_several_row_id_ranges_is_one_workers(tmp_path: Path) -> None:
    from support.tables.blob_tables import blob_table

    table = blob_table(tmp_path)
    for commit in range(4):
        table.commit([(commit * 10 + row, "n", bytes([row])) for row in range(5)])
    feed = Feed.of(table.state_builder(), "test")
    parts = [[row for batch in worked(feed, Share(index, 3), 100, False) for row in batch] for index in range(3)]
    assert sorted(row for part in parts for row in part) == sorted(streamed(table.state_builder()))
    assert all(parts)


def test_all_workers_begin_where_the_feed_was_made(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "unaware")
    table.append(20)
    feed = Feed.of(stream_read_builder(table.handle), "test")
    first, place = next(feed.open(Share(0, 2), feed.begin, 100, False))
    table.append(20)
    other, _ = next(feed.open(Share(1, 2), feed.begin, 100, False))
    assert feed.end is None
    assert place.position.snapshot == 2
    assert first.num_rows + other.num_rows <= 20


def test_a_feed_of_an_empty_table_begins_with_its_first_snapshot(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "unaware")
    ended = Feed.of(stream_read_builder(table.handle).with_end(latest=True), "test")
    assert ended.start == ended.end
    assert worked(ended, Share(), 10, False) == []
    feed = Feed.of(stream_read_builder(table.handle).with_poll_interval_ms(1), "test")
    reader = feed.open(Share(), feed.begin, 10, False)
    assert next(reader)[0].num_rows == 0
    table.append(10)
    table.append(10)
    batches = (batch.column("k").to_pylist() for batch, _ in reader if batch.num_rows)
    assert [next(batches), next(batches)] == [list(range(10)), list(range(10, 20))]
    reader.close()


def test_the_end_of_a_feed_is_the_start_of_the_next(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "fixed")
    table.append(10)
    first = Feed.of(stream_read_builder(table.handle).with_end(latest=True), "test")
    table.append(7)
    assert first.end is not None
    follow = stream_read_builder(table.handle).with_start(position=first.end).with_end(latest=True)
    assert sum(map(len, worked(Feed.of(follow, "test"), Share(), 100, False))) == 7
    again = Feed.of(follow.copy().with_end(snapshot_id=1), "test")
    assert again.end == first.end
    assert worked(again, Share(), 100, False) == []


def test_a_state_after_the_end_stays_where_it_is(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "fixed")
    for _ in range(3):
        table.append(10)
    start = stream_read_builder(table.handle).with_start("earliest")
    longer, shorter = (Feed.of(start.copy().with_end(snapshot_id=end), "test") for end in (3, 1))
    for _, place in longer.open(Share(), longer.begin, 4, False):
        if place.position.snapshot > 2:
            reader = shorter.open(Share(), place, 4, False)
            assert list(reader) == []
            assert reader.place == place


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    table, other = FedTable(tmp_path / "a", "unaware"), FedTable(tmp_path / "b", "unaware")
    for each in (table, other):
        each.append(10)
    feed = Feed.of(builder_of(table), "test")
    state = feed.identity.state(Share(1, 4), feed.begin)
    assert feed.identity.place(Share(1, 4), state) == feed.begin
    for share in (Share(0, 4), Share(1, 3)):
        with pytest.raises(StreamConfigError, match="worker 1 of 4, but this is worker"):
            feed.identity.place(share, state)
    filtered = Feed.of(builder_of(table).with_filter("k > 3"), "test")
    with pytest.raises(StreamConfigError, match="filter was none, now #0 > 3"):
        filtered.identity.place(Share(1, 4), state)
    with pytest.raises(StreamConfigError, match="has version 2"):
        feed.identity.place(Share(1, 4), {**state, "version": 2})
    for none in ({}, {**state, "position": 3}, {**state, "rows": "many"}):
        with pytest.raises(StreamConfigError, match=r"Invalid state of a feed|was altered"):
            feed.identity.place(Share(1, 4), none)
    with pytest.raises(TableChangedError, match="another table"):
        feed.identity.place(Share(1, 4), {**state, "table": "other"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", 0),
        ("rows", 7),
        ("rows", -1),
        ("block", 4),
        ("given", 9),
        ("worker", True),
        ("epoch", 2),
        ("behind", None),
    ],
)
def test_a_state_that_was_altered_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    table = FedTable(tmp_path, "unaware")
    table.append(20)
    feed, share, shuffle = Feed.of(builder_of(table), "test"), Share(0, 1), Shuffle(10, seed=1)
    _, place = next(feed.open(share, feed.begin, 4, True, shuffle if field in ("block", "given") else None))
    state = json.loads(json.dumps(feed.identity.state(share, place, epoch=1)))
    assert feed.identity.place(share, state) == place
    with pytest.raises(StreamConfigError, match=r"was altered since|Invalid state|belongs to worker"):
        feed.identity.place(share, {**state, field: value})
    del state["checksum"]
    assert feed.identity.place(share, state) == place, "a state of an earlier release"
    with pytest.raises(StreamConfigError, match="Invalid state"):
        feed.identity.place(share, {**state, "given": -1})


@pytest.mark.parametrize("start", ["earliest", "latest-full"])
@pytest.mark.parametrize("reads", [0, 1])
def test_passes_do_not_mix_histories(tmp_path: Path, start: str, reads: int) -> None:
    """The last snapshot of the range has another commit by now. What a worker has read itself is still there."""
    table = Table(tmp_path).commit_each([1, 2, 3])
    feed = Feed.of(stream_read_builder(table.handle()).with_start(start).with_end(latest=True), "test")
    place = feed.begin
    if reads:
        _, place = next(feed.open(Share(), feed.begin, 1, False))
    table.rollback(1)
    table.commit_each([10, 11, 12])
    with pytest.raises(TableChangedError, match="rolled back: snapshot 3"):
        next(feed.open(Share(), place, 1, False))


def test_a_rollback_under_a_pass_is_found_at_its_end(tmp_path: Path) -> None:
    table = Table(tmp_path).commit_each(range(1, 5))
    feed = Feed.of(stream_read_builder(table.handle()).with_start("earliest").with_end(latest=True), "test")
    reader = feed.open(Share(), feed.begin, 1, False)
    reader._check_end()
    reader._has_begun = True
    table.rollback(1)
    table.commit_each(range(101, 105))
    with pytest.raises(TableChangedError, match="rolled back: snapshot 4"):
        list(reader)


@pytest.mark.parametrize(("kind", "workers"), [("unaware", 1), ("fixed append", 2)])
def test_a_worker_whose_range_has_expired_is_advised_to_make_the_feed_again(
    tmp_path: Path, kind: str, workers: int
) -> None:
    table = FedTable(tmp_path, kind)
    for _ in range(3):
        table.append(5)
    feed = Feed.of(builder_of(table), "test")
    expire(tmp_path / "db.db/t", 3)
    with pytest.raises(PositionExpiredError) as caught:
        next(feed.open(Share(0, workers), feed.begin, 1, False))
    assert "Make the feed again" in str(caught.value)
    assert "on_expired" not in str(caught.value) and "GROUP" not in str(caught.value)


def test_a_state_of_a_table_that_had_buckets_is_refused(tmp_path: Path) -> None:
    table = FedTable(tmp_path, "fixed append")
    table.append(10)
    feed = Feed.of(builder_of(table), "test")
    table.set_buckets(-1)
    with pytest.raises(StreamConfigError, match="divided_by was bucket, now file"):
        Feed.of(builder_of(table), "test").identity.place(Share(1, 2), feed.identity.state(Share(1, 2), feed.begin))


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        (lambda builder: builder.with_shard(0, 2), "rank and world_size"),
        (lambda builder: builder.with_buckets([0]), "share the buckets"),
        (lambda builder: builder.with_consumer_id("c"), "its own state"),
        (lambda builder: builder.with_limits(max_rows=1), "batch_rows"),
        (lambda builder: builder.with_on_expired("latest"), "would continue somewhere else"),
        (lambda builder: stream_read_builder(builder.table).with_range(0, 1), "with_start"),
    ],
)
def test_settings_that_a_feed_cannot_have_are_refused(tmp_path: Path, setting: Any, match: str) -> None:
    table = FedTable(tmp_path, "unaware")
    table.append(1)
    with pytest.raises(StreamConfigError, match=match):
        Feed.of(setting(stream_read_builder(table.handle)), "TorchFeed")


def test_a_scanner_that_workers_cannot_get_is_refused(tmp_path: Path) -> None:
    class LocalScanner(DeltaFollowUpScanner):
        pass

    table = FedTable(tmp_path, "unaware")
    table.append(1)
    with pytest.raises(StreamConfigError, match=r"TorchFeed: the scanner .* define its class at the top of a module"):
        Feed.of(stream_read_builder(table.handle).with_follow_up_scanner(LocalScanner()), "TorchFeed")
    Feed.of(stream_read_builder(table.handle).with_follow_up_scanner(DeltaFollowUpScanner()), "TorchFeed")


def test_a_start_that_is_not_there_yet_is_refused(tmp_path: Path) -> None:
    builder = stream_read_builder(FedTable(tmp_path, "unaware").handle).with_start(timestamp="2100-01-01T00:00:00Z")
    with pytest.raises(StreamConfigError, match="does not exist yet"):
        Feed.of(builder, "test")


def test_a_saved_filter_is_that_of_its_column_whatever_its_name(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    table = SmallTable(tmp_path, columns=columns, keys=())

    def feed(condition: str) -> Feed:
        return Feed.of(table.builder().with_filter(condition), "test")

    table.commit(*({"id": number, "a": "x", "b": "x"} for number in range(10)))
    before = feed("b = 'x'")
    reader = before.open(Share(), before.begin, 4, False)
    batch, place = next(reader)
    reader.close()
    state = before.identity.state(Share(), place)
    table.alter(SchemaChange.rename_column("b", "c"))
    renamed = feed("c = 'x'")
    left = renamed.open(Share(), renamed.identity.place(Share(), state), 4, False)
    read = [row for each in (batch, *(rows for rows, _ in left)) for row in each["id"].to_pylist()]
    assert sorted(read) == list(range(10))
    # Another column in the place of the old one, under its name.
    table.alter(SchemaChange.drop_column("c"))
    table.alter(SchemaChange.add_column("b", AtomicType("STRING")))
    with pytest.raises(StreamConfigError, match="filter was"):
        feed("b = 'x'").identity.place(Share(), state)
