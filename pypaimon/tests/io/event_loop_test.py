"""Builders on an event loop: it waits for no request, and what comes of them is what comes of builders elsewhere."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    PaimonStreamError,
    Position,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    stream_read_builder,
)
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.paimon.filter_internals import PredicateBuilder
from pypaimon.streaming.paimon.internals import PyarrowFieldParser
from pypaimon.streaming.spec.spec_builder import resolved
from support.stores.fault_file_io import UNAVAILABLE, Call, FaultFileIO, failing
from support.tables.streamed_table import COLUMNS, Table, keys

pytestmark = pytest.mark.slow

LONG = 60.0
"""Seconds after which something counts as standing still."""
PREDICATES = PredicateBuilder(PyarrowFieldParser.to_paimon_schema(COLUMNS))
MISSING_COLUMN = PredicateBuilder(PyarrowFieldParser.to_paimon_schema(COLUMNS.set(0, COLUMNS.field(0).with_name("x"))))


class BeatingFileIO(FaultFileIO):
    """Each request comes back only after the event loop has gone round some times more."""

    def __init__(self) -> None:
        super().__init__()
        self.beats = 0
        self._beaten = threading.Condition()
        self.wherever(self._held)

    async def beat(self) -> None:
        """Count the loop's rounds for as long as this is not cancelled."""
        while True:
            await asyncio.sleep(0)
            with self._beaten:
                self.beats += 1
                self._beaten.notify_all()

    def _held(self, call: Call) -> Any:
        with self._beaten:
            due = self.beats + 5
            assert self._beaten.wait_for(lambda: self.beats >= due, LONG), f"the loop waits for {call.kind} {call.name}"
        return call.answer()


@pytest.fixture
async def beating() -> AsyncIterator[BeatingFileIO]:
    file_io = BeatingFileIO()
    heart = asyncio.ensure_future(file_io.beat())
    yield file_io
    heart.cancel()


@pytest.fixture
def file_io() -> FaultFileIO:
    return FaultFileIO()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four commits, snapshot n with the key n."""
    return Table(tmp_path / "w").commit_each(range(1, 5))


def earliest(builder: StreamReadBuilder) -> StreamReadBuilder:
    return builder.with_start("earliest").with_catch_up("replay").with_end(snapshot_id=4).with_poll_interval_ms(1)


async def plans(scan: AsyncStreamingTableScan) -> list[int]:
    return [plan.snapshot_id async for plan in scan.stream()]


async def asked(file_io: FaultFileIO) -> None:
    """Until a request came."""
    assert await asyncio.to_thread(file_io.asked.wait, LONG)


# ---- nothing waits ----


@pytest.mark.parametrize(
    "make", [stream_read_builder, StreamReadBuilder, lambda table: table.new_stream_read_builder()]
)
async def test_the_loop_continues_whatever_is_asked_for(
    table: Table, beating: BeatingFileIO, make: Callable[[Any], StreamReadBuilder]
) -> None:
    builder = earliest(make(table.handle(beating))).with_consumer_id("c", commit="manual")
    builder.with_filter(PREDICATES.greater_than("k", 1)).with_projection(["k"])
    scan, read = builder.new_streaming_scan(), builder.new_read()
    found = []
    async for plan in scan.stream():
        found += (await read.to_arrow_async(plan.splits()))["k"].to_pylist()
        await scan.commit_async(plan)
        await scan.lag_async()
        assert scan.checkpoint() == plan.position
    scan.restore(3)
    assert (await scan.plan_async()).snapshot_id == 3  # type: ignore[union-attr]
    await scan.aclose()
    async with builder.with_consumer_id("d").open() as stream:
        batches = [batch.data["k"].to_pylist() async for batch in stream]
    assert (found, batches) == ([2, 3, 4], [[2], [3], [4]])
    assert beating.counts()["read"] > 10


async def test_the_loop_continues_until_a_stream_is_one_table(table: Table, beating: BeatingFileIO) -> None:
    builder = earliest(stream_read_builder(table.handle(beating)))
    assert (await builder.open().to_arrow())["k"].to_pylist() == [1, 2, 3, 4]
    with pytest.raises(StreamConfigError, match=r"needs a stream that ends"):
        await stream_read_builder(table.handle(beating)).open().to_arrow()


async def test_nothing_is_asked_before_the_first_step(table: Table, file_io: FaultFileIO) -> None:
    saved = Position("of another table", 3)
    builder = earliest(table.builder(file_io)).with_filter(PREDICATES.equal("k", 1)).with_projection(["k"])
    builder.with_consumer_id("c").copy().with_io_timeout(1)
    scan, stream = builder.new_streaming_scan(), builder.open()
    builder.new_read()
    scan.restore(saved)
    assert (scan.checkpoint(), scan.next_snapshot_id, scan.watermark) == (saved, 3, None)
    scan.restore(2)
    assert scan.next_snapshot_id == 2
    scan.restore(None)
    assert (scan.checkpoint(), scan.metrics.plans, scan.metrics.requests) == (None, 0, {})
    assert (stream.position, stream.delivered, stream.status.batches) == (None, None, 0)
    scan.stop()
    stream.stop()
    assert ([each async for each in scan.stream()], [each async for each in stream]) == ([], [])
    await scan.aclose()
    await stream.aclose()
    assert file_io.calls == []


@pytest.mark.parametrize("end", ["stop", "close"])
async def test_while_the_table_is_not_known_a_stream_can_be_sought_and_ended(
    table: Table, file_io: FaultFileIO, end: str
) -> None:
    file_io.gate.clear()
    builder = earliest(table.builder(file_io))
    scan, stream = builder.new_streaming_scan(), builder.open()
    waiting = asyncio.ensure_future(scan.plan_async())
    await asked(file_io)
    waiting.cancel()
    await asyncio.wait([waiting])
    scan.restore(3)
    assert (scan.next_snapshot_id, scan.watermark) == (3, None)
    pending = [asyncio.ensure_future(each.__anext__()) for each in (scan.stream(), stream)]
    await asyncio.sleep(0)
    for each in (scan, stream):
        if end == "stop":
            each.stop()
        else:
            await each.aclose()
    ended = await asyncio.wait_for(asyncio.gather(*pending, return_exceptions=True), LONG)
    assert [type(each) for each in ended] == [StopAsyncIteration] * 2
    file_io.gate.set()
    await scan.aclose()
    await stream.aclose()


async def test_what_hangs_in_one_scan_holds_up_no_other_of_the_builder(table: Table, file_io: FaultFileIO) -> None:
    hang = threading.Event()
    file_io.at(1, lambda call: hang.wait(LONG) and call.answer())
    builder = earliest(table.builder(file_io, io_timeout=LONG))
    scans = [builder.new_streaming_scan(), builder.new_streaming_scan()]
    waiting = asyncio.ensure_future(plans(scans[0]))
    await asked(file_io)
    assert await plans(scans[1]) == [1, 2, 3, 4]
    assert not waiting.done()
    hang.set()
    assert await waiting == [1, 2, 3, 4]


# ---- the same as elsewhere ----


@pytest.mark.parametrize("start", [{"scan.mode": "latest"}, {"scan.mode": "latest-full"}, {"scan.snapshot-id": "2"}])
@pytest.mark.parametrize("consumer", [None, "c"])
async def test_as_many_requests_and_the_same_plans_as_off_the_loop(
    table: Table, start: dict[str, str], consumer: str | None
) -> None:
    def make(file_io: FaultFileIO) -> StreamReadBuilder:
        builder = table.builder(file_io, **start).with_catch_up("replay").with_prefetch(0)
        return builder if consumer is None else builder.with_consumer_id(consumer)

    outcomes: list[Any] = []
    for off_loop in (False, True):
        for path in (table.path / "consumer").glob("*"):
            path.unlink()
        file_io = FaultFileIO()
        builder = await asyncio.to_thread(make, file_io) if off_loop else make(file_io)
        scan, read = builder.new_streaming_scan(), builder.new_read()
        found = []
        while (plan := await scan.plan_async()) is not None:
            found.append((plan.position, keys(read, [plan])))
        names = ("data" if name.startswith("data") else name for name in file_io.names())
        outcomes.append((found, Counter(names), scan.checkpoint()))
        scan.close()
    assert outcomes[0] == outcomes[1]


async def test_copies_of_a_builder_ask_for_the_table_once(table: Table, file_io: FaultFileIO) -> None:
    builder = earliest(table.builder(file_io))
    copies = [builder.copy(), builder.copy().with_io_timeout(30)]
    for each in (builder, *copies):
        assert await plans(each.new_streaming_scan()) == [1, 2, 3, 4]
    names = Counter(file_io.names())
    assert (names["schema"], builder.read_type()[0].name) == (1, "k")


async def test_settings_are_those_of_the_moment(table: Table) -> None:
    builder = earliest(table.builder())
    scan, stream = builder.new_streaming_scan(), builder.open()
    builder.with_start(snapshot_id=3).with_projection(["v"])
    assert await plans(scan) == [1, 2, 3, 4]
    async with stream:
        assert [batch.data.column_names async for batch in stream] == [["k", "v"]] * 4


async def test_a_snapshot_that_is_sought_before_the_table_is_known_is_one_of_it(table: Table) -> None:
    builder = earliest(table.builder())
    scan = builder.new_streaming_scan()
    scan.restore(3)
    sought = Position.from_json(scan.checkpoint().to_json())  # type: ignore[union-attr]
    other = builder.new_streaming_scan()
    other.restore(sought)
    begun = builder.copy().with_start(position=sought)
    positions = []
    for each in (scan, other, begun.new_streaming_scan()):
        await each.lag_async()
        positions.append([plan.position async for plan in each.stream()])
    assert [position.snapshot for position in positions[0]] == [4, 5]
    assert positions == [positions[0]] * 3
    async with earliest(table.builder()).open() as stream:
        stream.scan.restore(sought)
        before = [batch.plan_before async for batch in stream]
    assert before == [Position(positions[0][0].table, 3), positions[0][0]]


async def test_lag_and_saves_come_before_the_first_plan(table: Table, beating: BeatingFileIO) -> None:
    builder = earliest(table.builder()).with_consumer_id("c", commit="manual")
    scan = builder.new_streaming_scan()
    assert (await scan.lag_async()).snapshots == 4
    assert await plans(scan) == [1, 2, 3, 4]
    scan = builder.new_streaming_scan()
    with pytest.raises(StreamConfigError, match="has not started"):
        await scan.commit_async(3)
    assert await plans(scan) == [1, 2, 3, 4]
    await scan.commit_async(5)
    scan = builder.new_streaming_scan()
    assert (await asyncio.to_thread(scan.committed), (await scan.lag_async()).snapshots) == (5, 0)
    with pytest.raises(StreamConfigError, match="no consumer id"):
        await earliest(table.builder(beating)).new_streaming_scan().commit_async(3)


async def test_files_of_a_reader_are_kept_from_its_first_plan_on(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", consumer__expiration_time="1 h").commit_each([1])
    scan = table.builder().with_consumer_id("c").new_streaming_scan()
    assert await scan.plan_async() is not None
    assert "paimon-keep-alive" in [thread.name for thread in threading.enumerate()]
    await scan.aclose()


async def test_builders_and_reads_can_be_pickled(table: Table) -> None:
    builder = earliest(table.builder())
    read, copy = await asyncio.to_thread(lambda: pickle.loads(pickle.dumps((builder.new_read(), builder))))
    assert resolved(copy).identity == resolved(builder).identity
    async with copy.new_streaming_scan() as scan:
        found = [(await read.to_arrow_async(plan.splits()))["k"].to_pylist() async for plan in scan.stream()]
    assert found == [[1], [2], [3], [4]]


# ---- errors ----


@pytest.mark.parametrize("what", ["filter", "projection", "shard"])
async def test_a_wrong_setting_is_an_error_of_the_first_step_as_elsewhere(table: Table, what: str) -> None:
    def make() -> Any:
        builder = table.builder()
        if what == "filter":
            builder.with_filter(MISSING_COLUMN.equal("x", 1))
        elif what == "projection":
            builder.with_projection(["k", "x"])
        else:
            builder.with_shard(0, 2)
        return builder.new_streaming_scan(), builder.new_read(), builder.open()

    with pytest.raises(StreamConfigError) as elsewhere:
        await asyncio.to_thread(make)
    scan, read, stream = make()
    steps = [scan.plan_async, scan.lag_async, stream.__anext__]
    if what != "shard":
        steps.append(lambda: read.to_arrow_async([]))
    for step in steps * 2:
        with pytest.raises(StreamConfigError) as raised:
            await step()
        assert str(raised.value) == str(elsewhere.value)
    await scan.aclose()
    await stream.aclose()


@pytest.mark.parametrize(
    ("call", "text"), [(["k", 5], r"expected str, got 5 \(int\)"), (["k", "k"], "named twice"), ("k", "a list")]
)
async def test_an_error_that_needs_no_table_is_raised_at_once(
    table: Table, file_io: FaultFileIO, call: Any, text: str
) -> None:
    with pytest.raises(StreamConfigError, match=text):
        table.builder(file_io).with_projection(call)
    assert file_io.calls == []


async def test_a_table_that_is_gone_is_an_error_of_the_first_step(table: Table) -> None:
    builder = earliest(table.builder())
    table.drop()
    scan, stream = builder.new_streaming_scan(), builder.open()
    for step in (scan.plan_async, stream.__anext__) * 2:
        with pytest.raises(TableChangedError, match="was dropped"):
            await step()
    await scan.aclose()
    await stream.aclose()


async def test_after_an_error_of_the_store_the_next_step_tries_again(table: Table, file_io: FaultFileIO) -> None:
    builder = earliest(table.builder(file_io))
    scan, stream, read = builder.new_streaming_scan(), builder.open(), builder.new_read()
    file_io.wherever(failing(UNAVAILABLE))
    errors: list[PaimonStreamError] = []
    for step in (scan.plan_async, stream.__anext__, lambda: read.to_arrow_async([])) * 2:
        with pytest.raises(StoreError) as raised:
            await step()
        errors.append(raised.value)
    assert all(error.retriable for error in errors)
    file_io.forget()
    assert await plans(scan) == [1, 2, 3, 4]
    async with stream:
        assert [batch.data["k"].to_pylist() async for batch in stream] == [[1], [2], [3], [4]]
    assert (await read.to_arrow_async([])).num_rows == 0


async def test_a_stream_begins_before_its_first_batch_where_it_was_sent(table: Table) -> None:
    """A position sought before the table was known is one of the table; a seek before the first batch counts."""
    scan = table.builder().new_streaming_scan()
    scan.restore(3)
    begins_at_3 = table.builder().with_catch_up("replay").with_end(snapshot_id=4).with_start(position=scan.checkpoint())
    sent_to_3 = earliest(table.builder())
    for builder, sought in ((begins_at_3, None), (sent_to_3, 3)):
        async with builder.open() as stream:
            if sought is not None:
                stream.scan.restore(sought)
            before = [(batch.snapshot_id, batch.plan_before) async for batch in stream]
        assert [(snapshot, None if where is None else where.snapshot) for snapshot, where in before] == [(3, 3), (4, 4)]
        assert {None if where is None else where.table for _, where in before} == {resolved(table.builder()).identity}
    await scan.aclose()


async def test_requests_for_the_table_that_hang_are_counted_over_seeks(table: Table, file_io: FaultFileIO) -> None:
    scan = table.builder(file_io).with_io_timeout(LONG).new_streaming_scan()
    file_io.gate.clear()
    with pytest.raises(StoreError, match="hang"):
        for _ in range(100):
            file_io.asked.clear()
            waiting = asyncio.ensure_future(scan.plan_async())
            came = asyncio.ensure_future(asked(file_io))
            await asyncio.wait((waiting, came), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                file_io.asked.set()
                await came
                await waiting
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            scan.restore(2)
    file_io.gate.set()
    await scan.aclose()
