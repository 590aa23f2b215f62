"""A live table holds what a batch read of its snapshot gives, raises what its stream fails with, and ends when told."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    PaimonStreamError,
    PositionExpiredError,
    SchemaChangedError,
    StreamConfigError,
    TableChangedError,
    UnsupportedTableError,
    compact,
    list_consumers,
    stream_read_builder,
)
from pypaimon.streaming.errors import StoreError, WaitTimeoutError
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.table_changes import TableChanges
from support.samples import SOAK, seeded
from support.stores.fault_file_io import RESET, FaultFileIO, HangingFileIO, failing
from support.tables.handles import batch_read
from support.tables.live_tables import (
    KEYS,
    HeldClock,
    assert_ended,
    check,
    columns_of,
    in_order,
    keyed_changes,
    live_threads,
    often,
)
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(autouse=True)
def _all_threads_end() -> Iterator[None]:
    """Those of each test."""
    before = live_threads()
    yield
    gc.collect()
    assert_ended(thread for thread in live_threads() if thread not in before)


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """With three rows, in snapshot 1."""
    table = SmallTable(tmp_path)
    table.commit({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3})
    return table


# ---- it holds what the table holds ----


@pytest.mark.parametrize("producer", ["input", "none", "lookup"])
def test_it_is_a_batch_read_at_each_snapshot(tmp_path: Path, producer: str) -> None:
    random = seeded(f"live table {producer}")
    table = SmallTable(tmp_path, options={"changelog-producer": producer})
    changes = TableChanges(table, True, random)

    def latest() -> Any:
        """The latest snapshot, to which the changes of all before it have come."""
        if producer == "lookup":
            compact(table.table, full=True)
        return table.table.snapshot_manager().get_latest_snapshot()

    with often(table.table).open_live_sync() as live:
        check(live, table.table, [])
        assert (live.snapshot_id, live.as_of) == (None, None)
        for _ in range(14 if SOAK else 4):
            if random.random() < 0.3:
                changes.alter()
            changes.commit()
            snapshot = latest()
            live.wait_for(snapshot.id)
            assert live.snapshot_id == snapshot.id
            assert live.as_of == datetime.fromtimestamp(snapshot.time_millis / 1000, timezone.utc)
            expected = batch_read(table.table)
            assert in_order(expected) == in_order(changes.rows())
            check(live, table.table, expected)
        changes.empty()
        live.wait_for(latest().id)
        check(live, table.table, [])
        changes.commit()
        live.wait_for(latest().id)
        check(live, table.table, changes.rows())
    with often(table.table).open_live_sync() as live:
        check(live, table.table, changes.rows())


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type(tmp_path: Path, kind: str) -> None:
    random = seeded(f"live keys {kind}")
    table = SmallTable(tmp_path, keys=tuple(KEYS[kind][0]), columns=columns_of(kind))
    with often(table.table).open_live_sync() as live:
        for step in range(6 if SOAK else 3):
            live.wait_for(table.commit(*keyed_changes(kind, step, random)))
            check(live, table.table, batch_read(table.table))


def test_columns_and_rows_are_those_of_the_builder(table: SmallTable) -> None:
    builder = often(table.table).with_projection(["name", "id"])
    builder = builder.with_filter(builder.new_predicate_builder().less_than("id", 3))
    with builder.open_live_sync() as live:
        assert live.to_arrow().schema.names == ["name", "id"]
        assert in_order(live.to_arrow().to_pylist()) == in_order([{"name": "a", "id": 1}, {"name": "b", "id": 2}])
        live.wait_for(table.commit(("-U", {"id": 1, "name": "a"}), ("+U", {"id": 1, "name": "c"}), {"id": 9}))
        assert live.get(1) == {"name": "c", "id": 1} and live.get(9) is None


def test_columns_that_swap_their_names_are_found_by_their_ids(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("one", pa.string()), ("other", pa.string())])
    table = SmallTable(tmp_path, columns=columns)
    table.commit({"id": 1, "one": "1", "other": "2"})
    with often(table.table).open_live_sync() as live:
        for old, new in (("one", "between"), ("other", "one"), ("between", "other")):
            table.alter(SchemaChange.rename_column(old, new))
        live.wait_for(table.commit({"id": 2, "one": "3", "other": "4"}))
        expected = [{"id": 1, "other": "1", "one": "2"}, {"id": 2, "one": "3", "other": "4"}]
        assert in_order(live.to_arrow().to_pylist()) == in_order(expected)


def test_a_state_in_the_middle_replaces_all_rows(table: SmallTable) -> None:
    clock = HeldClock()
    with often(table.table, clock).with_on_expired("full").open_live_sync() as live:
        clock.hold()
        table.commit(("-D", {"id": 1, "name": "a"}))
        table.commit({"id": 4})
        table.expire()
        clock.let_go()
        live.wait_for(3)
        check(live, table.table, [{"id": 2, "name": "b", "number": None, "amount": None}, row(3), row(4)])
        clock.hold()
        table.commit(("-D", row(2)), ("-D", row(3)), ("-D", row(4)))
        table.commit({"id": 5})
        table.commit(("-D", row(5)))
        table.expire()
        clock.let_go()
        live.wait_for(6)
        check(live, table.table, [])


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": None, "number": None, "amount": None}


def test_snapshots_without_rows_are_reached_too(table: SmallTable) -> None:
    table.commit({"id": 1, "name": "c"})
    with often(table.table).open_live_sync() as live:
        report = compact(table.table, full=True)
        latest = table.table.snapshot_manager().get_latest_snapshot()
        assert report.compacted and latest.commit_kind == "COMPACT"
        live.wait_for(latest.id)
        assert live.snapshot_id == latest.id
        assert live.as_of == datetime.fromtimestamp(latest.time_millis / 1000, timezone.utc)
        assert live.get(1)["name"] == "c"


def test_readers_see_whole_snapshots_only_also_where_limits_cut_plans(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, options={"bucket": "4"})
    count, steps = 40, 15 if SOAK else 5

    def commit(step: int) -> int:
        return table.commit(*(("+U", {"id": number, "number": step}) for number in range(count)))

    commit(0)
    builder = often(table.table).with_limits(max_splits=1)
    ended = threading.Event()
    wrong: list[Any] = []
    seen: dict[str, list[int]] = {"all": [], "asked": []}
    with builder.open_live_sync() as live:

        def read(name: str, ask: Callable[[], pa.Table]) -> None:
            while not ended.is_set():
                numbers = ask()["number"].to_pylist()
                if len(numbers) != count or len({*numbers}) != 1:
                    wrong.append(numbers)
                    return
                seen[name].append(numbers[0])

        threads = [
            threading.Thread(target=read, args=("all", live.to_arrow)),
            threading.Thread(target=read, args=("asked", lambda: live.get_many(list(range(count))))),
        ]
        for thread in threads:
            thread.start()
        for step in range(1, steps):
            live.wait_for(commit(step))
            assert live.get(step)["number"] == step
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_sql_sees_one_state(table: SmallTable) -> None:
    with often(table.table).open_live_sync() as live, live.duckdb("t") as before:
        live.wait_for(table.commit({"id": 4}))
        with live.duckdb() as after:
            assert after.execute("SELECT sum(id) FROM live").fetchone() == (10,)
        assert before.execute("SELECT sum(id) FROM t").fetchone() == (6,)


def test_with_an_end_the_last_state_stays(table: SmallTable) -> None:
    with often(table.table).with_end(latest=True).open_live_sync() as live:
        table.commit({"id": 4})
        live.wait_for(1)
        with pytest.raises(StreamConfigError, match="has ended at snapshot 1, before snapshot 2"):
            live.wait_for(2)
        assert len(live) == 3


def test_an_empty_table_has_an_end_too(tmp_path: Path) -> None:
    with often(SmallTable(tmp_path).table).with_end(latest=True).open_live_sync() as live:
        assert len(live) == 0 and live.snapshot_id is None and live.get(1) is None
        assert live.get_many([1, 2]).num_rows == 2
        with pytest.raises(StreamConfigError, match="has ended"):
            live.wait_for(1)


def test_a_consumer_protects_what_is_not_read_yet(table: SmallTable) -> None:
    clock = HeldClock()
    with often(table.table, clock).with_consumer_id("live").open_live_sync() as live:
        live.wait_for(table.commit({"id": 4}))
        # What was reached is saved before the next look.
        clock.hold()
    (consumer,) = list_consumers(table.table)
    assert (consumer.consumer_id, consumer.next_snapshot) == ("live", 3)
    with often(table.table).with_consumer_id("live").open_live_sync() as live:
        assert len(live) == 4


# ---- errors ----


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda builder: builder.with_projection(["name"]), StreamConfigError, "id of the primary key is not read"),
        (lambda builder: builder.with_start("latest"), StreamConfigError, "leave out with_start"),
        (lambda builder: builder.with_include_row_kind(False), StreamConfigError, "without the kinds"),
        (lambda builder: builder.with_range(1, 1), StreamConfigError, "a part of a table's history"),
        (lambda builder: builder.with_raw(True), StreamConfigError, r"with_raw\(True\)"),
        (lambda builder: builder.with_on_overwrite("skip"), StreamConfigError, r"with_on_overwrite\('skip'\)"),
        (lambda builder: builder.with_filter("number > 1", unmatched="drop"), StreamConfigError, "unmatched='drop'"),
    ],
)
async def test_what_cannot_be_kept_live_is_refused(
    table: SmallTable, change: Callable[[Any], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        change(often(table.table)).open_live_sync()
    with pytest.raises(error, match=words):
        await change(often(table.table)).open_live()


def test_a_table_without_keys_and_views_are_refused(table: SmallTable, tmp_path: Path) -> None:
    plain = SmallTable(tmp_path, keys=(), name="db.plain")
    with pytest.raises(UnsupportedTableError, match=r"db\.plain has no primary key"):
        often(plain.table).open_live_sync()
    with pytest.raises(StreamConfigError, match="view audit_log"):
        stream_read_builder(table.table, "audit_log").open_live_sync()


@pytest.mark.parametrize("given", ["2", None, True, 1.0, 0])
async def test_an_invalid_snapshot_is_refused_by_its_call_alone(table: SmallTable, given: Any) -> None:
    with often(table.table).open_live_sync() as live:
        with pytest.raises(StreamConfigError, match="wait_for: snapshot_id"):
            live.wait_for(given)
        live.wait_for(table.commit({"id": 4}))
        assert len(live) == 4
    async with often(table.table).open_live() as other:
        with pytest.raises(StreamConfigError, match="wait_for: snapshot_id"):
            await other.wait_for(given)
        assert len(other) == 4


@pytest.mark.parametrize("what", ["rolled back", "schema", "expired"])
async def test_what_ends_the_stream_is_raised_from_then_on(table: SmallTable, what: str) -> None:
    clock = HeldClock()
    builder = often(table.table, clock).with_on_schema_change("fail")
    table.commit({"id": 4})
    async with builder.open_live() as live:
        assert len(live) == 4
        await asyncio.to_thread(clock.hold)
        error: type[Exception]
        if what == "rolled back":
            table.table.rollback_to(1)
            error = TableChangedError
        elif what == "schema":
            table.alter(SchemaChange.rename_column("name", "title"))
            table.commit({"id": 5})
            error = SchemaChangedError
        else:
            table.commit({"id": 5})
            table.commit({"id": 6})
            table.expire()
            error = PositionExpiredError
        waiting = asyncio.ensure_future(live.wait_for(99))
        clock.let_go()
        with pytest.raises(error):
            await waiting
        calls: list[Callable[[], Any]] = [
            lambda: live.get(1),
            lambda: live.get_many([1]),
            live.to_arrow,
            live.duckdb,
            lambda: len(live),
            lambda: live.snapshot_id,
            lambda: live.as_of,
        ]
        depths = []
        for _ in range(3):
            for call in calls:
                with pytest.raises(error) as raised:
                    call()
            depths.append(len(raised.traceback))
            with pytest.raises(error) as raised:
                await live.wait_for(1)
            depths.append(len(raised.traceback))
        assert depths == depths[:2] * 3


def test_what_may_pass_is_raised_until_it_has(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True)
    table.commit([("+I", 1, "a"), ("+I", 2, "b")])
    file_io, clock = FaultFileIO(), HeldClock()
    builder = often(table.handle(file_io), clock)
    with builder.open_live_sync() as live:
        clock.hold()
        file_io.wherever(failing(RESET))
        table.commit([("+I", 3, "c")])
        clock.let_go()
        clock.hold()
        with pytest.raises(StoreError) as raised:
            live.get(1)
        assert raised.value.retriable
        file_io.wherever(None)
        clock.let_go()
        live.wait_for(2)
        assert live.get(3) is not None and len(live) == 3


def test_calls_after_a_close_raise_an_error(table: SmallTable) -> None:
    live = often(table.table).open_live_sync()
    live.close()
    live.close()
    for call in (lambda: live.get(1), lambda: live.wait_for(1), live.to_arrow):
        with pytest.raises(StreamConfigError, match="the live table is closed"):
            call()


async def test_it_is_opened_by_async_with_or_by_await(table: SmallTable) -> None:
    async with often(table.table).open_live() as entered:
        live = await often(table.table).open_live()
        assert live.to_arrow().num_rows == entered.to_arrow().num_rows
    await live.aclose()
    for each in (live, entered):
        with pytest.raises(StreamConfigError, match="the live table is closed"):
            each.to_arrow()


async def test_the_other_face_is_named(table: SmallTable) -> None:
    with pytest.raises(TypeError, match="open_live_sync"), await often(table.table).open_live():
        pass
    with pytest.raises(TypeError, match="open_live_sync"), often(table.table).open_live():  # type: ignore[attr-defined]
        pass
    with pytest.raises(TypeError, match=r"async with builder\.open_live"):
        async with often(table.table).open_live_sync():
            pass


# ---- waiting and ending ----


async def test_a_wait_with_a_timeout_says_where_the_rows_are(table: SmallTable) -> None:
    with often(table.table).open_live_sync() as live:
        with pytest.raises(WaitTimeoutError, match=r"snapshot 2 is not in the rows after 0.01 s.*those of snapshot 1"):
            live.wait_for(2, timeout=0.01)
        with pytest.raises(TimeoutError):
            live.wait_for(2, timeout=0)
        live.wait_for(table.commit({"id": 4}), timeout=60)
        for wrong in (-1, "1", math.nan):
            with pytest.raises(StreamConfigError, match="wait_for: timeout"):
                live.wait_for(3, timeout=wrong)  # type: ignore[arg-type]
    async with often(table.table).open_live() as other:
        with pytest.raises(WaitTimeoutError):
            await other.wait_for(3, timeout=timedelta(milliseconds=10))
        waiting = asyncio.ensure_future(other.wait_for(3, timeout=60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await other.wait_for(table.commit({"id": 5}), timeout=60)
        assert not other._updater._waiting


def test_it_says_when_the_rows_were_last_known_to_be_the_newest(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True)
    table.commit([("+I", 1, "a")])
    file_io, clock = FaultFileIO(), HeldClock()
    with often(table.handle(file_io), clock).open_live_sync() as live:
        clock.hold()
        first = live.checked_at
        assert first is not None
        clock.let_go()
        clock.hold()
        second = live.checked_at
        assert second is not None and first <= second <= datetime.now(timezone.utc)
        file_io.wherever(failing(RESET))
        clock.let_go()
        clock.hold()
        with pytest.raises(StoreError):
            live.get(1)
        # While the store is out of reach the time stays.
        assert live.checked_at == second
        file_io.wherever(None)
        clock.let_go()


async def test_a_cancelled_wait_loses_nothing(table: SmallTable) -> None:
    async with await often(table.table).open_live() as live:
        waiting = [asyncio.ensure_future(live.wait_for(2)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        table.commit({"id": 4})
        await asyncio.gather(*waiting[1:])
        assert live.get(4) is not None
        await live.wait_for(2)


async def test_opening_may_be_cancelled_at_any_request(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True)
    table.commit([("+I", 1, "a"), ("+I", 2, "b")])
    number, is_opened = 0, False
    while not is_opened:
        number += 1
        file_io = HangingFileIO()
        builder = often(table.handle(file_io))
        file_io.forget()
        file_io.at(number, file_io.hang)
        opening = asyncio.ensure_future(builder.open_live())
        held = asyncio.ensure_future(asyncio.to_thread(file_io.hanging.wait, 60))
        await asyncio.wait([held, opening], return_when=asyncio.FIRST_COMPLETED)
        is_opened = opening.done()
        if is_opened:
            await (await opening).aclose()
        else:
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        file_io.hanging.set()
        file_io.go_on.set()
        await held
        assert_ended(live_threads())
    assert number > 3


def test_a_table_that_nobody_holds_any_more_ends(table: SmallTable) -> None:
    live = often(table.table).open_live_sync()
    (thread,) = live_threads()
    assert thread.is_alive()
    del live
    gc.collect()
    assert_ended([thread])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_learns_that_it_does_not_continue_there(table: SmallTable) -> None:
    with often(table.table).open_live_sync() as live:
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: live.get(1), lambda: live.wait_for(1)):
                with suppress(StreamConfigError):
                    call()
                    continue
                refused += 1
            live.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert live.get(1) is not None


def test_errors_are_of_this_package(table: SmallTable) -> None:
    with often(table.table).open_live_sync() as live, pytest.raises(PaimonStreamError):
        live.get("x")


@pytest.mark.parametrize("memory_limit_bytes", [1 << 30, 0])
def test_each_call_gets_answers_of_one_snapshot(tmp_path: Path, memory_limit_bytes: int) -> None:
    """Money moves between accounts, some of which come and go: no snapshot has more or less of it."""
    random = seeded(f"accounts {memory_limit_bytes}")
    table = SmallTable(tmp_path, options={"bucket": "3"})
    accounts, total = 24, 24_000
    held = dict.fromkeys(range(accounts), total // accounts)
    table.commit(*({"id": number, "number": amount} for number, amount in held.items()))
    keys, ended = pa.array(range(accounts)), threading.Event()

    def in_sql() -> Any:
        with live.duckdb() as database:
            return database.execute("SELECT sum(number) FROM live").fetchone()[0]

    asks: list[Callable[[], Any]] = [
        lambda: pc.sum(live.to_arrow()["number"]).as_py(),
        lambda: pc.sum(live.get_many(keys)["number"]).as_py(),
        in_sql,
    ]
    with often(table.table).with_limits(max_splits=1).open_live_sync(memory_limit_bytes=memory_limit_bytes) as live:
        with ThreadPoolExecutor(len(asks)) as threads:

            def answers(ask: Callable[[], Any]) -> list[Any]:
                found = [ask()]
                while not ended.is_set():
                    found.append(ask())
                return found

            asked = [threads.submit(answers, ask) for ask in asks]
            try:
                for _ in range(5 if SOAK else 3):
                    gives, takes = random.sample(sorted(held), 2)
                    held[takes] += held[gives]
                    del held[gives]
                    changes = [("-D", {"id": gives}), ("+U", {"id": takes, "number": held[takes]})]
                    for number in range(accounts):
                        if number not in held and random.random() < 0.5:
                            held[takes] -= 1
                            held[number] = 1
                            changes[1] = ("+U", {"id": takes, "number": held[takes]})
                            changes.append(("+I", {"id": number, "number": 1}))
                    live.wait_for(table.commit(*changes))
            finally:
                ended.set()
            assert {value for answer in asked for value in answer.result()} == {total}
        assert {row["id"]: row["number"] for row in live.to_arrow().to_pylist()} == held
