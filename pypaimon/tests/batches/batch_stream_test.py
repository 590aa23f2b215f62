"""`builder.open()` and `open_sync()`: rows in order, read ahead within bounds, confirmed as told, nothing twice."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import re
import threading
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

from pypaimon.streaming import (
    ConsumerManager,
    CorruptTableError,
    StreamConfigError,
    StreamReadBuilder,
    stream_read_builder,
)
from pypaimon.streaming.batches import chunks
from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.batches.stream import StreamStatus
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Phase, Position
from support.tables.handles import create_table
from support.tables.orders import CHANGES, COLUMNS, append, catalog, change, create_orders, events, orders, write
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

Row = tuple[Any, ...]
ALL = [(kind, *values) for _, kind, *values in CHANGES]
NUMBERS = pa.schema([("n", pa.int64())])


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path / "warehouse")


def changes_of(table: Any) -> StreamReadBuilder:
    return stream_read_builder(table).with_projection(COLUMNS).with_start(snapshot_id=2).with_end(latest=True)


def tuples(data: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in data.to_pylist()]


def saved(table: Any, consumer_id: str = "etl") -> int | None:
    consumer = ConsumerManager(table.file_io, table.table_path).consumer(consumer_id)
    return None if consumer is None else consumer.next_snapshot


def numbers(tables: Any, *commits: range) -> Any:
    """A table with one file per commit."""
    table = create_table(tables, "numbers", NUMBERS)
    for commit in commits:
        write(table, [{"n": n} for n in commit], NUMBERS)
    return table


# ---- rows ----


async def test_hands_out_changes_with_their_kinds(tables: Any) -> None:
    async with changes_of(orders(tables)).open() as stream:
        batches = [batch async for batch in stream]
    assert [row for batch in batches for row in tuples(batch.data)] == ALL
    assert [batch.snapshot_id for batch in batches] == [2, 3, 4]
    assert [batch.kinds.to_pylist() for batch in batches] == [["-U"], ["+U"], ["-D"]]
    assert all(batch.is_last and batch.kind.value == "changelog" for batch in batches)
    assert batches[0].rows.schema.names == COLUMNS


def test_the_blocking_twin_hands_out_the_same(tables: Any) -> None:
    with changes_of(orders(tables)).open_sync() as stream:
        assert [row for batch in stream for row in tuples(batch.data)] == ALL
        assert stream.status.rows_by_kind == {"-U": 1, "+U": 1, "-D": 1}


def test_a_plan_of_a_small_file_is_one_call_of_another_thread(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(pool: IOPool, function: Any, *args: Any) -> Any:
        calls[pool._name] += 1
        return submit(pool, function, *args)

    submit = IOPool.submit
    monkeypatch.setattr(IOPool, "submit", counted)
    table = numbers(tables, *(range(3 * commit, 3 * commit + 3) for commit in range(8)))
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).open_sync() as stream:
        assert [batch.data.column("n").to_pylist()[0] for batch in stream] == list(range(0, 24, 3))
    assert calls["paimon-batches"] == 8
    # The search for the table and the start.
    assert calls["paimon-scan"] <= 2


def test_rows_of_many_small_files_do_not_wait_for_the_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_SOON_SECONDS", math.inf)
    table, most = Table(tmp_path / "w"), chunks._MOST_BATCHES
    table.commit_files(range(2 * most))
    with table.builder().with_end(latest=True).open_sync() as stream:
        found = [(batch.data.num_rows, batch.is_last) for batch in stream]
    assert found == [(most, False), (most, True)]


def test_batches_that_were_pulled_before_an_error_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_SOON_SECONDS", 0.0)
    go_on = threading.Event()
    first, second = (pa.record_batch({"n": [number]}) for number in range(2))

    def pulled() -> Any:
        yield first
        assert go_on.wait(30)
        yield second
        raise OSError("lost")

    rows = chunks._Rows(IOPool(1, 30.0, marked=True), pulled(), 1 << 20)
    assert not rows.wait()
    assert rows.first is first
    rows.drop()
    go_on.set()
    assert rows._pulling is not None
    assert isinstance(rows._pulling.exception(30), OSError)
    assert rows.wait()
    assert rows.first is second
    with pytest.raises(OSError, match="lost"):
        rows.has_ended()


async def test_without_row_kinds_all_rows_are_inserts(tables: Any) -> None:
    async with stream_read_builder(numbers(tables, range(3))).with_end(latest=True).open() as stream:
        (batch,) = [batch async for batch in stream]
    assert batch.kinds.to_pylist() == ["+I"] * 3
    assert batch.rows is batch.data


async def test_batches_are_frames_of_other_libraries_too(tables: Any) -> None:
    async with stream_read_builder(numbers(tables, range(3))).with_end(latest=True).open() as stream:
        (batch,) = [batch async for batch in stream]
    assert batch.to_pandas()["n"].tolist() == [0, 1, 2]
    assert batch.to_polars().equals(polars.DataFrame({"n": [0, 1, 2]}))
    assert batch.to_duckdb("numbers").sql("select sum(n) from numbers").fetchall() == [(3,)]
    assert pa.table(batch).equals(batch.data)
    assert polars.DataFrame(batch).equals(batch.to_polars())
    assert repr(batch) == "Batch(3 rows, full of snapshot 1)"


def test_builders_scans_and_streams_name_their_table(tables: Any) -> None:
    table = numbers(tables, range(3))
    builder = stream_read_builder(table).with_end(latest=True)
    assert repr(builder) == "StreamReadBuilder(db.numbers)"
    assert repr(stream_read_builder(table, "audit_log")) == "StreamReadBuilder(db.numbers, view audit_log)"
    assert repr(builder.new_streaming_scan()) == "AsyncStreamingTableScan(db.numbers)"
    with builder.open_sync() as stream:
        assert repr(stream) == "BlockingBatchStream(db.numbers, before the first batch, 0 rows)"
        assert re.fullmatch(r"StreamStatus\(no batch yet, \d+ bytes read ahead\)", repr(stream.status))
        batch = next(stream)
        told = f"3 rows (+I 3) in 1 batches, {batch.data.nbytes} bytes, up to snapshot 1 of {batch.commit_time}, lag"
        assert repr(stream.status).startswith(f"StreamStatus({told} not measured, ")
        assert repr(stream) == "BlockingBatchStream(db.numbers, after snapshot 1, 3 rows)"
    assert [field.name for field in batch.schema.fields] == batch.data.schema.names == ["n"]


async def test_the_wrong_kind_of_with_says_which_is_right(tables: Any) -> None:
    builder = stream_read_builder(numbers(tables, range(3)))
    with pytest.raises(TypeError, match="async with"), builder.open():
        pass
    with pytest.raises(TypeError, match=r"builder\.open\(\)"):
        async with builder.open_sync():
            pass


def test_a_large_plan_comes_in_several_batches_in_order(tables: Any) -> None:
    table = numbers(tables, range(1000), range(1000, 2000), range(2000, 3000))
    builder = stream_read_builder(table).with_end(latest=True)
    with builder.open_sync(batch_bytes=8000) as stream:
        batches = list(stream)
    assert [batch.is_last for batch in batches] == [False, False, True]
    assert [n for batch in batches for (n,) in tuples(batch.data)] == list(range(3000))


def test_rows_of_one_file_come_in_several_batches_in_order(tables: Any) -> None:
    table = numbers(tables, range(20_000))
    with stream_read_builder(table).with_end(latest=True).open_sync(batch_bytes=1) as stream:
        batches = list(stream)
    assert [batch.num_rows for batch in batches] == [5000] * 4
    assert [batch.is_last for batch in batches] == [False, False, False, True]
    assert [n for batch in batches for (n,) in tuples(batch.data)] == list(range(20_000))


def test_follows_what_is_committed_meanwhile(tables: Any) -> None:
    table = create_orders(tables)
    builder = stream_read_builder(table).with_projection(["id"]).with_poll_interval_ms(10)
    with builder.open_sync() as stream:
        for key in range(3):
            change(table, "+I", (key, "placed", None))
            assert tuples(next(stream).data) == [("+I", key)]


# ---- reading ahead ----


def test_reads_ahead_at_most_as_much_as_it_may(tables: Any) -> None:
    table = numbers(tables, *(range(1000) for _ in range(20)))
    reads = CountedReads(table)
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    with builder.open_sync(read_ahead_bytes=20_000) as stream:
        next(stream)
        until_paused(stream)
        # One in hand, three that wait: the third was begun while 16,000 bytes waited.
        assert 20_000 <= stream.status.read_ahead_bytes <= 20_000 + 8000
        assert reads.count <= 5
        assert sum(batch.num_rows for batch in stream) == 19_000


def until_paused(stream: BlockingBatchStream) -> None:
    """Wait until reading ahead waits for somebody to take, or has come to its end."""
    ahead = stream._ahead
    while True:
        with ahead._lock:
            if not ahead._is_running or ahead._changed._waiters:  # type: ignore[attr-defined]
                return
        threading.Event().wait(0.005)


class CountedReads:
    """Counts the data files of a table that are opened."""

    def __init__(self, table: Any) -> None:
        self.count = 0
        lock = threading.Lock()
        original = table.file_io.new_input_stream

        def counted(path: Any) -> Any:
            if "/bucket-" in str(path):
                with lock:
                    self.count += 1
            return original(path)

        table.file_io.new_input_stream = counted


async def test_a_cancelled_wait_loses_nothing(tables: Any) -> None:
    table = create_orders(tables)
    builder = stream_read_builder(table).with_projection(["id"]).with_poll_interval_ms(10)
    async with builder.open() as stream:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.03)
        change(table, "+I", (1, "placed", None))
        assert tuples((await anext(stream)).data) == [("+I", 1)]


def test_after_an_error_it_continues_without_a_row_twice(tables: Any) -> None:
    table = numbers(tables, range(1000), range(1000, 2000))
    file = sorted(Path(str(table.table_path)).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)[1]
    content = file.read_bytes()
    file.write_bytes(b"damaged")
    with stream_read_builder(table).with_end(latest=True).open_sync(batch_bytes=1) as stream:
        batches = [next(stream)]
        for _ in range(2):
            with pytest.raises(CorruptTableError):
                next(stream)
        file.write_bytes(content)
        batches += stream
    assert [n for batch in batches for (n,) in tuples(batch.data)] == list(range(2000))


async def test_leaving_it_ends_its_threads(tables: Any) -> None:
    table = orders(tables)
    async with stream_read_builder(table).with_poll_interval_ms(10).open() as stream:
        await anext(stream)
        assert any(thread.name == "paimon-read-ahead" for thread in threading.enumerate())
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert not any(thread.name == "paimon-read-ahead" and _lives(thread) for thread in threading.enumerate())


def test_a_stream_that_nobody_holds_ends_its_thread(tables: Any) -> None:
    stream = stream_read_builder(orders(tables)).with_poll_interval_ms(10).open_sync()
    next(stream)
    (thread,) = [each for each in threading.enumerate() if each.name == "paimon-read-ahead"]
    del stream
    gc.collect()
    assert not _lives(thread)


def _lives(thread: threading.Thread) -> bool:
    thread.join(timeout=30)
    return thread.is_alive()


def test_two_readers_of_one_stream_are_refused(tables: Any) -> None:
    table = create_orders(tables)
    failures: list[Exception] = []
    with stream_read_builder(table).with_poll_interval_ms(10).open_sync() as stream:

        def read() -> None:
            try:
                next(stream)
            except Exception as error:  # noqa: BLE001 - looked at below
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not failures:
            threads[0].join(0.01)
        change(table, "+I", (1, "placed", None))
        for thread in threads:
            thread.join(30)
    assert [type(each) for each in failures] == [StreamConfigError]


# ---- progress ----


def auto(table: Any) -> StreamReadBuilder:
    return changes_of(table).with_consumer_id("etl")


async def test_asking_for_the_next_confirms_the_one_before_though_more_was_read_ahead(tables: Any) -> None:
    table = orders(tables)
    async with auto(table).open() as stream:
        await anext(stream)
        assert saved(table) == 2
        await anext(stream)
        assert saved(table) == 3
    assert saved(table) == 3


async def test_a_clean_end_confirms_everything(tables: Any) -> None:
    table = orders(tables)
    async with auto(table).open() as stream:
        async for _ in stream:
            pass
    assert saved(table) == 5


def test_leaving_confirms_nothing(tables: Any) -> None:
    table = orders(tables)
    with auto(table).open_sync() as stream:
        for _ in stream:
            break
    assert saved(table) == 2
    with pytest.raises(ZeroDivisionError):
        fail_at(3, auto(table))
    assert saved(table) == 3


def fail_at(snapshot_id: int, builder: StreamReadBuilder) -> None:
    with builder.open_sync() as stream:
        for batch in stream:
            _ = 1 / (batch.snapshot_id - snapshot_id)


async def test_by_hand_only_commit_confirms(tables: Any) -> None:
    table = orders(tables)
    async with changes_of(table).with_consumer_id("etl", commit="manual").open() as stream:
        batches = [batch async for batch in stream]
        assert saved(table) == 2
        await batches[0].commit()
        assert saved(table) == 3
        await batches[2].commit()
    assert saved(table) == 5


def test_a_plan_in_several_batches_is_confirmed_with_its_last(tables: Any) -> None:
    table = numbers(tables, range(1000), range(1000, 2000))
    builder = stream_read_builder(table).with_end(latest=True).with_consumer_id("etl", commit="manual")
    with builder.open_sync(batch_bytes=1) as stream:
        first, last = stream
        first.commit()
        assert saved(table) is None
        assert first.position is None
        last.commit()
        assert saved(table) == 3
        assert last.position is not None and last.position.snapshot == 3


def test_plans_without_rows_move_progress(tables: Any) -> None:
    table = numbers(tables, range(3), range(10, 13), range(20, 23))
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    predicate = builder.new_predicate_builder().equal("n", 5)
    with builder.with_filter(predicate).with_consumer_id("etl").open_sync() as stream:
        assert list(stream) == []
    assert saved(table) == 4


def test_a_plan_without_rows_waits_for_the_batch_before_it(tables: Any) -> None:
    table = numbers(tables, range(3), range(10, 30), range(3))
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    # Statistics leave the second commit, its rows do not.
    predicates = builder.new_predicate_builder()
    odd = predicates.or_predicates([predicates.less_than("n", 3), predicates.equal("n", 17)])
    builder.with_filter(predicates.and_predicates([odd, predicates.not_equal("n", 17)]))
    with builder.with_consumer_id("etl", commit="manual").open_sync() as stream:
        first = next(stream)
        second = next(stream)
        assert (first.snapshot_id, second.snapshot_id, saved(table)) == (1, 3, 1)
        first.commit()
        assert saved(table) in (2, 3)
        second.commit()
        assert saved(table) == 4


async def test_awaited_a_plan_without_rows_waits_for_the_batch_before_it(tables: Any) -> None:
    table = numbers(tables, range(3), range(10, 30), range(3))
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    predicates = builder.new_predicate_builder()
    odd = predicates.or_predicates([predicates.less_than("n", 3), predicates.equal("n", 17)])
    builder.with_filter(predicates.and_predicates([odd, predicates.not_equal("n", 17)]))
    async with builder.with_consumer_id("etl", commit="manual").open() as stream:
        first, second = await anext(stream), await anext(stream)
        assert (first.snapshot_id, second.snapshot_id, saved(table)) == (1, 3, 1)
        await second.commit()
        assert saved(table) == 4


async def test_without_a_consumer_there_is_nothing_to_commit(tables: Any) -> None:
    async with changes_of(orders(tables)).open() as stream:
        with pytest.raises(StreamConfigError, match="with_consumer_id"):
            await (await anext(stream)).commit()


def test_a_position_continues_exactly_there(tables: Any) -> None:
    table = orders(tables)
    with changes_of(table).open_sync() as stream:
        position = next(stream).position
    assert position is not None
    assert stream.position == position
    builder = stream_read_builder(table).with_projection(COLUMNS).with_start(position=position).with_end(latest=True)
    with builder.open_sync() as stream:
        assert [row for batch in stream for row in tuples(batch.data)] == ALL[1:]


# ---- ending, and what is known ----


def test_stop_ends_after_the_plan_in_hand(tables: Any) -> None:
    table = orders(tables)
    builder = stream_read_builder(table).with_start(snapshot_id=2).with_consumer_id("etl")
    with builder.open_sync() as stream:
        for batch in stream:
            if batch.snapshot_id == 3:
                stream.stop()
    assert saved(table) == 4


def test_stop_finishes_a_plan_in_several_batches(tables: Any) -> None:
    table = numbers(tables, range(1000), range(1000, 2000), range(2000, 3000))
    rows = 0
    with stream_read_builder(table).with_consumer_id("etl").open_sync(batch_bytes=1) as stream:
        for batch in stream:
            rows += batch.num_rows
            stream.stop()
    assert (rows, saved(table)) == (3000, 4)


def test_reports_its_status_after_each_batch(tables: Any) -> None:
    seen: list[StreamStatus] = []
    with changes_of(orders(tables)).open_sync(on_progress=seen.append) as stream:
        list(stream)
    assert [status.rows for status in seen] == [1, 2, 3]
    assert [status.snapshot_id for status in seen] == [2, 3, 4]
    last = stream.status
    assert (last.batches, last.scan.plans, last.read_ahead_bytes) == (3, 3, 0)
    assert last.position is not None and last.position.snapshot == 5


class FailsOnce:
    """A callback that fails at one batch, once."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.seen: list[int] = []

    def __call__(self, status: StreamStatus) -> None:
        self.seen.append(status.rows)
        if status.rows == self.rows and self.seen.count(self.rows) == 1:
            raise ConnectionError("nobody listens")


def test_a_batch_whose_callback_failed_comes_again(tables: Any) -> None:
    table = orders(tables)
    failing = FailsOnce(2)
    with auto(table).open_sync(on_progress=failing) as stream:
        rows = tuples(next(stream).data)
        position = stream.position
        with pytest.raises(ConnectionError):
            next(stream)
        assert (stream.position, stream.status.rows, saved(table)) == (position, 1, 3)
        rows += [row for batch in stream for row in tuples(batch.data)]
    assert (rows, failing.seen, saved(table)) == (ALL, [1, 2, 2, 3], 5)


async def test_awaited_a_batch_whose_callback_failed_comes_again(tables: Any) -> None:
    table = orders(tables)
    failing = FailsOnce(2)
    async with auto(table).open(on_progress=failing) as stream:
        rows = tuples((await anext(stream)).data)
        with pytest.raises(ConnectionError):
            await anext(stream)
        assert (stream.status.rows, saved(table)) == (1, 3)
        rows += [row async for batch in stream for row in tuples(batch.data)]
    assert (rows, failing.seen, saved(table)) == (ALL, [1, 2, 2, 3], 5)


def test_a_snapshot_with_an_impossible_time_is_damaged_until_it_is_repaired(tables: Any) -> None:
    table = numbers(tables, range(1), range(1, 2), range(2, 3))
    path = Path(str(table.table_path)) / "snapshot" / "snapshot-2"
    good = path.read_text()
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    with builder.with_consumer_id("etl").open_sync() as stream:
        path.write_text(json.dumps({**json.loads(good), "timeMillis": 10**18}))
        found = tuples(next(stream).data)
        with pytest.raises(CorruptTableError, match="timeMillis"):
            next(stream)
        assert saved(table) == 2
        path.write_text(good)
        found += [row for batch in stream for row in tuples(batch.data)]
    assert (found, saved(table)) == ([(0,), (1,), (2,)], 4)


@pytest.mark.parametrize("time", [datetime.min, datetime(1969, 12, 31, 23, 59, 59, 1000), datetime(9999, 12, 31, 23)])
def test_times_of_every_year_are_reported(tables: Any, time: datetime) -> None:
    table = numbers(tables, range(1))
    path = Path(str(table.table_path)) / "snapshot" / "snapshot-1"
    millis = (time - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": millis}))
    with stream_read_builder(table).with_end(latest=True).open_sync() as stream:
        (batch,) = stream
        assert batch.commit_time == stream.status.commit_time == time.replace(tzinfo=timezone.utc)


def test_wrong_settings_are_refused_before_anything_is_read(tables: Any) -> None:
    builder = stream_read_builder(events(tables, commits=1))
    for wrong in ({"read_ahead_bytes": -1}, {"batch_bytes": 0}, {"batch_bytes": 1.5}):
        with pytest.raises(StreamConfigError, match="open: "):
            builder.open(**wrong)


def test_settings_of_the_builder_do_not_change(tables: Any) -> None:
    table = events(tables, commits=1)
    builder = stream_read_builder(table).with_consumer_id("etl")
    builder.open_sync().close()
    with builder.new_streaming_scan() as scan:
        assert scan.plan() is not None
        append(table, 1)
        assert scan.plan() is not None
    assert saved(table) == 2


async def test_the_lag_is_that_of_the_last_batch_whatever_is_read_ahead(tables: Any) -> None:
    table = orders(tables)
    with changes_of(table).open_sync() as stream:
        found = []
        for _ in stream:
            found.append(stream.lag().snapshots)
            assert stream.status.lag is not None and stream.status.lag.snapshots == found[-1]
    assert found == [2, 1, 0]
    async with changes_of(table).open() as stream_async:
        assert stream_async.status.lag is None
        await anext(stream_async)
        assert (await stream_async.lag()).rows == 2
    with stream_read_builder(events(tables)).open_sync(batch_bytes=1) as full:
        assert not next(full).is_last
        assert (full.lag().snapshots, full.lag().rows) == (1, 9)


# ---- where a state begins ----


def resumed(table: Table, after: int, **limits: int) -> StreamReadBuilder:
    """A stream that was left after a snapshot, which has expired meanwhile, and goes on with a full state."""
    builder = table.builder().with_projection(["k", "v"]).with_limits(**limits).with_end(latest=True)
    position = Position(TableDirectory.of(table.handle()).identity, after + 1)
    return builder.with_start(position=position).with_on_expired("full")


@pytest.fixture
def expired(tmp_path: Path) -> Table:
    """Keys 0 to 9 in two buckets; then 0 to 4 are deleted in a snapshot that has expired."""
    table = Table(tmp_path / "keyed", primary_key=True)
    table.commit(range(10))
    table.commit([("-D", key, "") for key in range(5)])
    table.commit([("-D", 5, "")])
    table.expire(3)
    return table


def begun(builder: StreamReadBuilder, **settings: int) -> list[tuple[bool, bool, bool]]:
    with builder.open_sync(**settings) as stream:
        return [(batch.begins_state, batch.is_first, batch.is_last) for batch in stream]


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}])
@pytest.mark.parametrize("start", ["at its start", "in its midst"])
def test_a_state_begins_once_however_it_is_cut(expired: Table, limits: dict[str, int], start: str) -> None:
    builder = resumed(expired, 1, **limits)
    if start == "at its start":
        builder.with_start("latest-full")
    found = begun(builder, batch_bytes=1)
    plans = 2 if limits else 1
    assert sum(is_first for _, is_first, _ in found) == sum(is_last for _, _, is_last in found) == plans
    assert [begins for begins, _, _ in found] == [True] + [False] * (len(found) - 1)


def test_what_is_read_from_inside_a_state_does_not_begin_it(expired: Table) -> None:
    builder = resumed(expired, 1, max_splits=1)
    with builder.open_sync() as stream:
        first = next(stream)
    assert first.plan_after.phase is Phase.FULL and first.begins_state
    assert begun(builder.with_start(position=first.plan_after)) == [(False, True, True)]


def test_a_state_in_the_middle_that_is_empty_is_reported_at_once(expired: Table) -> None:
    expired.commit([("-D", key, "") for key in range(6, 10)])
    for builder in (resumed(expired, 1), resumed(expired, 1, max_splits=1)):
        with builder.open_sync() as stream:
            (batch,) = stream
        assert (batch.num_rows, batch.begins_state, batch.kind.value) == (0, True, "full")
        assert batch.data.column_names == ["_row_kind", "k", "v"]
        assert batch.position == batch.plan_after


def test_a_table_without_files_left_is_a_state_too(tmp_path: Path) -> None:
    table = Table(tmp_path / "plain", dynamic_partition_overwrite="false")
    table.commit(range(3))
    table.commit(range(3, 5))
    table.handle().new_batch_write_builder().new_commit().truncate_table()
    table.expire(3)
    with resumed(table, 1).open_sync() as stream:
        (batch,) = stream
    assert (batch.num_rows, batch.begins_state, batch.snapshot_id) == (0, True, 3)
    with resumed(table, 1).with_start("latest-full").open_sync() as stream:
        assert list(stream) == [], "a stream that held nothing before is told nothing"


def test_a_state_in_the_middle_of_which_a_filter_leaves_nothing_is_reported_at_once(expired: Table) -> None:
    builder = resumed(expired, 1)
    builder.with_filter(builder.new_predicate_builder().equal("v", "nothing"))
    with builder.open_sync() as stream:
        assert [(batch.num_rows, batch.begins_state) for batch in stream] == [(0, True)]


def test_the_first_rows_of_a_state_begin_it_though_plans_without_rows_came_before(expired: Table) -> None:
    with resumed(expired, 1, max_splits=1).with_start("latest-full").open_sync() as stream:
        _, second = stream
    builder = resumed(expired, 1, max_splits=1).with_start("latest-full")
    values = second.rows["v"].to_pylist()
    builder.with_filter(builder.new_predicate_builder().is_in("v", values))
    with builder.open_sync() as stream:
        assert [(batch.rows["v"].to_pylist(), batch.begins_state) for batch in stream] == [(values, True)]


def test_changes_begin_no_state(tables: Any) -> None:
    assert not any(begins for begins, _, _ in begun(changes_of(orders(tables)), batch_bytes=1))
