"""`run_forever` and its twin: what passes is waited out, what fails is tried again and put aside, SIGTERM ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    Batch,
    BlockingBatch,
    ConsumerConflictError,
    ConsumerManager,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    database_stream_builder,
    logs,
    run_forever,
    run_forever_async,
)
from pypaimon.streaming.batches.run_forever import backoff_of, waiting_out
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.logs import FIELDS
from support.stores.fault_file_io import UNAVAILABLE, Call, FaultFileIO
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

AnyBatch = Batch | BlockingBatch
QUICK = {"first_pause": 0.0, "longest_pause": 0.0}
NEVER = {"first_pause": 1e6, "longest_pause": 1e6}
"""Pauses that outlast every test: only a stop ends one."""


class Service:
    """Runs one of the twins over a builder; what its handler is given the stream to do with."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.stream: Any = None

    def __call__(
        self,
        builder: StreamReadBuilder,
        handle: Callable[[AnyBatch], object],
        dead_letter: Callable[[AnyBatch, Exception], object] | None = None,
        batch_bytes: int = 1_000_000,
        **settings: Any,
    ) -> None:
        settings = {**QUICK, **settings}
        if self.asynchronous:
            asyncio.run(self._run(builder, handle, dead_letter, batch_bytes, settings))
            return
        with builder.open_sync(batch_bytes=batch_bytes, read_ahead_bytes=0) as self.stream:
            run_forever(self.stream, handle, dead_letter=dead_letter, **settings)

    async def _run(
        self, builder: StreamReadBuilder, handle: Any, dead_letter: Any, size: int, settings: dict[str, Any]
    ) -> None:
        async def awaited(batch: Batch) -> None:
            handle(batch)

        async def put_aside(batch: Batch, error: Exception) -> None:
            dead_letter(batch, error)

        async with builder.open(batch_bytes=size, read_ahead_bytes=0) as self.stream:
            hook = None if dead_letter is None else put_aside
            await run_forever_async(self.stream, awaited, dead_letter=hook, **settings)


@pytest.fixture(params=["blocking", "asyncio"])
def serve(request: pytest.FixtureRequest) -> Service:
    return Service(request.param == "asyncio")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four snapshots, with the keys 1 to 4."""
    return Table(tmp_path).commit_each(range(1, 5))


class Handler:
    """Keeps the keys that it was given, and does something before."""

    def __init__(self, before: Callable[[list[int]], object] = lambda _: None) -> None:
        self.calls: list[list[int]] = []
        self.kept: list[int] = []
        self._before = before

    def __call__(self, batch: AnyBatch) -> None:
        keys = batch.data["k"].to_pylist()
        self.calls.append(keys)
        self._before(keys)
        self.kept += keys


def etl(table: Table, file_io: Any = None) -> StreamReadBuilder:
    builder = table.builder(file_io).with_start("earliest").with_catch_up("replay").with_poll_interval_ms(10)
    return builder.with_consumer_id("etl")


def saved(table: Table) -> int | None:
    handle = table.handle()
    consumer = ConsumerManager(handle.file_io, handle.table_path).consumer("etl")
    return None if consumer is None else consumer.next_snapshot


def failing_at(key: int) -> Callable[[list[int]], None]:
    def check(keys: list[int]) -> None:
        if key in keys:
            raise ValueError(f"no {key}")

    return check


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [vars(record)[FIELDS]["event"] for record in caplog.records if hasattr(record, FIELDS)]
    return [event for event in told if event in ("waits_out", "handler_failed", "dead_letter")]


def test_an_outage_is_waited_out_without_a_row_twice(
    table: Table, serve: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_io, left = FaultFileIO(), [17]

    def outage(call: Call) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise UNAVAILABLE
        return call.answer()

    def begins(keys: list[int]) -> None:
        if keys == [1]:
            file_io.wherever(outage)

    handler = Handler(begins)
    monkeypatch.setattr(logs, "outages", logs.Outages(lambda: 0.0))
    with caplog.at_level(logging.DEBUG):
        serve(etl(table, file_io).with_prefetch(0).with_end(latest=True), handler)
    assert (handler.kept, saved(table)) == ([1, 2, 3, 4], 5)
    assert left[0] < 0
    assert set(events(caplog)) == {"waits_out"}
    warned = [vars(record)[FIELDS]["event"] for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["retry"]


def test_a_loop_without_a_handler_waits_out_the_same(table: Table) -> None:
    file_io, left = FaultFileIO(), [6]

    def outage(call: Call) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise UNAVAILABLE
        return call.answer()

    with etl(table, file_io).with_end(latest=True).open_sync() as stream:
        first = next(stream)
        file_io.wherever(outage)
        rest = [key for batch in waiting_out(stream) for key in batch.data["k"].to_pylist()]
    assert (first.data["k"].to_pylist(), rest) == ([1], [2, 3, 4])


def test_a_handler_that_fails_is_called_again_with_the_same_batch(table: Table, serve: Service) -> None:
    failures = iter([ValueError(), OSError()])

    def fails_twice(keys: list[int]) -> None:
        if keys == [2] and (error := next(failures, None)):
            raise error

    handler = Handler(fails_twice)
    serve(etl(table).with_end(latest=True), handler)
    assert handler.calls == [[1], [2], [2], [2], [3], [4]]
    assert saved(table) == 5


def test_what_cannot_be_handled_is_put_aside(table: Table, serve: Service, caplog: pytest.LogCaptureFixture) -> None:
    handler, aside = Handler(failing_at(2)), []
    with caplog.at_level(logging.WARNING):
        serve(
            etl(table).with_end(latest=True),
            handler,
            lambda batch, error: aside.append((batch.data["k"].to_pylist(), str(error))),
            attempts=3,
        )
    assert (handler.kept, handler.calls.count([2])) == ([1, 3, 4], 3)
    assert (aside, saved(table)) == ([([2], "no 2")], 5)
    assert events(caplog) == ["handler_failed"] * 3 + ["dead_letter"]


def test_without_a_place_to_put_it_aside_it_comes_again(table: Table, serve: Service) -> None:
    def raises(batch: AnyBatch, error: Exception) -> None:
        raise error

    for hook in (None, raises):
        with pytest.raises(ValueError, match="no 2"):
            serve(etl(table).with_end(latest=True), Handler(failing_at(2)), hook, attempts=2)
        assert saved(table) == 2
    handler = Handler()
    serve(etl(table).with_end(latest=True), handler)
    assert handler.kept == [2, 3, 4]


def test_what_does_not_pass_is_raised(table: Table, serve: Service) -> None:
    serve(etl(table).with_end(snapshot_id=1), Handler())
    table.expire(3)
    handler = Handler()
    with pytest.raises(PositionExpiredError):
        serve(etl(table), handler)
    assert handler.calls == []


def test_a_conflict_is_not_retried(table: Table, serve: Service) -> None:
    def conflict(keys: list[int]) -> None:
        raise ConsumerConflictError("another reader")

    handler, aside = Handler(conflict), []
    with pytest.raises(ConsumerConflictError):
        serve(etl(table), handler, lambda *each: aside.append(each))
    assert (handler.calls, aside) == ([[1]], [])


def test_what_a_handler_says_may_pass_is_waited_out(table: Table, serve: Service) -> None:
    """It says nothing of the batch, which is therefore not put aside, however long it lasts."""
    failures = iter([StoreError("locked") for _ in range(12)])

    def locked(keys: list[int]) -> None:
        if keys == [2] and (error := next(failures, None)):
            raise error

    handler, aside = Handler(locked), []
    serve(etl(table).with_end(latest=True), handler, lambda *each: aside.append(each), attempts=2)
    assert (handler.kept, handler.calls.count([2]), aside) == ([1, 2, 3, 4], 13, [])
    assert saved(table) == 5


def test_a_stop_in_an_outage_of_the_handler_confirms_nothing(table: Table, serve: Service) -> None:
    def locked(keys: list[int]) -> None:
        if keys == [2]:
            serve.stream.stop()
            raise StoreError("locked")

    handler = Handler(locked)
    serve(etl(table), handler, **NEVER)
    assert (handler.calls, saved(table)) == ([[1], [2], [2]], 2)


@pytest.mark.parametrize("kind", ["group", "database"])
def test_streams_of_groups_and_databases_are_served(table: Table, serve: Service, kind: str) -> None:
    builder: Any = table.builder().with_start("earliest").with_end(latest=True).new_group("etl", session_timeout=5.0)
    if kind == "database":
        builder = database_stream_builder(table.catalog, "db").with_start("earliest").with_end(latest=True)
    failures = iter([ValueError(), StoreError("locked")])

    def fails_twice(keys: list[int]) -> None:
        if error := next(failures, None):
            raise error

    handler = Handler(fails_twice)
    serve(builder, handler)
    assert sorted(handler.kept) == [1, 2, 3, 4]


def test_a_stop_ends_pauses_and_tries_once_more(table: Table, serve: Service) -> None:
    def stops(keys: list[int]) -> None:
        if keys == [2]:
            serve.stream.stop()
            raise ValueError("no 2")

    handler = Handler(stops)
    with pytest.raises(ValueError, match="no 2"):
        serve(etl(table), handler, **NEVER)
    assert handler.calls == [[1], [2], [2]]
    assert saved(table) == 2


def test_after_a_stop_a_batch_with_attempts_left_is_not_put_aside(table: Table, serve: Service) -> None:
    def stops(keys: list[int]) -> None:
        if keys == [2]:
            serve.stream.stop()
            raise ValueError("no 2")

    aside: list[Any] = []
    serve(etl(table), Handler(stops), lambda *each: aside.append(each), **NEVER)
    assert not aside and saved(table) == 2


def test_a_stop_ends_the_wait_for_a_store_that_is_away(
    table: Table, serve: Service, caplog: pytest.LogCaptureFixture
) -> None:
    file_io = FaultFileIO()

    class Stops(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            serve.stream.stop()

    with table.builder().new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        first = plan.splits()[0].files[0].file_name

    def away(call: Call) -> Any:
        if "/bucket-" in call.path and call.name != first:
            raise UNAVAILABLE
        return call.answer()

    log, stops = logging.getLogger("pypaimon.streaming.batches.run_forever"), Stops()
    log.addHandler(stops)
    caplog.set_level(logging.DEBUG, log.name)
    try:
        handler = Handler()
        file_io.wherever(away)
        builder = table.builder(file_io)
        serve(builder, handler, batch_bytes=1, **NEVER)
    finally:
        log.removeHandler(stops)
    assert len(handler.kept) == 1, "the rest of the plan could not be had"


def test_sigterm_ends_it_in_good_order(table: Table, serve: Service) -> None:
    def terminated(keys: list[int]) -> None:
        if keys == [4]:
            os.kill(os.getpid(), signal.SIGTERM)

    handler = Handler(terminated)
    serve(etl(table), handler)
    assert (handler.kept, saved(table)) == ([1, 2, 3, 4], 5)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_program_decides_about_sigterm(table: Table, serve: Service) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        handler = Handler(lambda keys: os.kill(os.getpid(), signal.SIGTERM))
        serve(etl(table).with_end(latest=True), handler)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (handler.kept, seen) == ([1, 2, 3, 4], [signal.SIGTERM] * 4)


def test_a_handler_of_the_wrong_kind_is_refused(table: Table) -> None:
    async def nobody_awaits(batch: AnyBatch) -> None:
        raise AssertionError("never called")

    with table.builder().open_sync() as stream, pytest.raises(StreamConfigError, match="run_forever_async"):
        run_forever(stream, nobody_awaits)

    async def plain() -> None:
        async with table.builder().open() as stream:
            await run_forever_async(stream, Handler())  # type: ignore[arg-type]

    with pytest.raises(StreamConfigError, match="async def"):
        asyncio.run(plain())


def test_a_dead_letter_that_nobody_would_await_is_refused(table: Table) -> None:
    async def put_aside(batch: BlockingBatch, error: Exception) -> None:
        raise AssertionError("never awaited")

    builder = etl(table).with_end(latest=True)
    with builder.open_sync() as stream, pytest.raises(StreamConfigError, match="run_forever_async"):
        run_forever(stream, Handler(failing_at(1)), attempts=1, dead_letter=put_aside)
    assert saved(table) == 1


def test_pauses_double_up_to_the_longest(table: Table) -> None:
    bounds = [1, 2, 4, 8, 10, 10]
    pauses = [backoff_of(1, 1.0, 10.0).pause(failures) for failures in range(1, len(bounds) + 1)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, bounds, strict=True))
    for attempts, first, longest in ((0, 1.0, 2.0), (1, -1.0, 2.0), (1, 3.0, 2.0)):
        with pytest.raises(StreamConfigError, match="run_forever"):
            backoff_of(attempts, first, longest)
