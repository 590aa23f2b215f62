"""Data files on their way before they are read: how many, in which order, and what becomes of errors and the rest."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import CorruptTableError, StreamConfigError
from pypaimon.streaming.io import fetch_ahead
from pypaimon.streaming.io.fetch_ahead import FetchLimits, Piece, limits_of_environment
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.plan import next_plans
from pypaimon.streaming.reading.read import drop_prefetched
from support.stores.fault_file_io import FORBIDDEN, Call, FaultFileIO
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

MOST = fetch_ahead._READER_REQUESTS
FILES = MOST + 12


class Gates(FaultFileIO):
    """A store each of whose requests for data files may be held back.

    Attributes:
        held: Says which requests wait; they do until `let_go`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: Callable[[str], bool] = lambda name: False
        self.fault: Callable[[str], OSError | None] = lambda name: None
        self.under_way: list[str] = []
        self.most = 0
        self._changed = threading.Condition()
        self.wherever(self._pass)

    def drop_prefetched(self) -> None:
        """Hold nothing back any more."""
        with self._changed:
            self.held = lambda name: False
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so after a request began or ended."""
        with self._changed:
            assert self._changed.wait_for(condition, 300)

    def files(self) -> list[str]:
        return [name for name in self.names("read") if name.endswith(".parquet")]

    def _pass(self, call: Call) -> Any:
        if not call.name.endswith(".parquet"):
            return call.answer()
        with self._changed:
            self.under_way.append(call.name)
            self.most = max(self.most, len(self.under_way))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.held(call.name))
        fault = self.fault(call.name)
        try:
            if fault is not None:
                raise fault
            return call.answer()
        finally:
            with self._changed:
                self.under_way.remove(call.name)
                self._changed.notify_all()


@pytest.fixture
def store() -> Iterator[Gates]:
    gates = Gates()
    yield gates
    gates.drop_prefetched()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> FetchLimits:
    """Those of the process, for this test alone."""
    limits = FetchLimits(256 << 20, 64)
    monkeypatch.setitem(fetch_ahead._of_process, "limits", limits)
    return limits


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One snapshot of many files."""
    table = Table(tmp_path_factory.mktemp("many"))
    table.commit_files(range(FILES))
    return table


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Many snapshots of one file each."""
    return Table(tmp_path_factory.mktemp("behind")).commit_each(range(12))


def planned(table: Table, store: Gates, **settings: Any) -> tuple[Any, Any, list[str]]:
    """A read, the splits of the first plan, and the names of their files in order."""
    builder = table.builder(store, **settings)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    names = [file.file_name for split in plan.splits() for file in split.files]
    return builder.new_read(), plan.splits(), names


def keys(batches: Any) -> list[int]:
    return [key for batch in batches for key in batch.column("k").to_pylist()]


def expected(table: Table) -> list[int]:
    builder = table.builder()
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    return keys(builder.new_read().iter_batches(plan.splits()))


def ahead_of(read: Any) -> Any:
    return read._parts.get().directory.store.ahead


def test_as_many_files_as_allowed_are_asked_for_at_once_and_rows_come_in_order(
    many: Table, store: Gates, limits: FetchLimits
) -> None:
    read, splits, names = planned(many, store)
    store.held = lambda name: True
    rows: list[int] = []
    thread = threading.Thread(target=lambda: rows.extend(keys(read.iter_batches(splits))), daemon=True)
    thread.start()
    # One that is needed now, and those behind it.
    store.until(lambda: len(store.under_way) == MOST)
    assert set(store.files()) <= set(names[: MOST + 1])
    store.drop_prefetched()
    thread.join(300)
    assert rows == expected(many)
    assert sorted(store.files()) == sorted(names)
    assert store.most <= MOST + 1


def test_a_process_has_no_more_under_way_than_its_limit(many: Table, store: Gates, limits: FetchLimits) -> None:
    limits.requests = 6
    readers = [planned(many, store) for _ in range(3)]
    store.held = lambda name: True
    rows: list[list[int]] = [[] for _ in readers]

    def run(index: int) -> None:
        read, splits, _ = readers[index]
        rows[index] += keys(read.iter_batches(splits))

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(3)]
    for thread in threads:
        thread.start()
    # What is needed now never waits for the limit; who asks for it has gone to the limit before.
    first = readers[0][2][0]
    store.until(lambda: store.under_way.count(first) == len(readers) and len(store.under_way) >= 6)
    store.drop_prefetched()
    for thread in threads:
        thread.join(300)
    assert rows == [expected(many)] * 3
    assert store.most <= 6 + len(readers)


def test_bytes_that_wait_to_be_taken_are_bounded(many: Table, store: Gates, limits: FetchLimits) -> None:
    read, splits, names = planned(many, store)
    size = max(file.file_size for split in splits for file in split.files)
    limits.bytes = 5 * size
    batches = read.iter_batches(splits)
    rows = keys([next(batches)])
    until_idle(read)
    assert ahead_of(read).held_bytes <= limits.bytes
    assert 2 <= len(store.files()) <= 1 + limits.bytes // (size // 2)
    rows += keys(batches)
    assert rows == expected(many)
    assert sorted(store.files()) == sorted(names)
    assert (ahead_of(read).held_bytes, ahead_of(read).in_flight) == (0, 0)


def test_nothing_is_fetched_ahead_where_that_is_turned_off(many: Table, store: Gates, limits: FetchLimits) -> None:
    limits.bytes = 0
    read, splits, names = planned(many, store)
    assert keys(read.iter_batches(splits)) == expected(many)
    assert store.files() == names
    assert store.most == 1


def test_a_file_that_hangs_holds_back_none_before_it(many: Table, store: Gates, limits: FetchLimits) -> None:
    read, splits, names = planned(many, store)
    store.held = lambda name: name == names[2]
    batches = read.iter_batches(splits)
    assert keys([next(batches), next(batches)]) == expected(many)[:2]
    store.until(lambda: names[2] in store.under_way)
    store.drop_prefetched()
    assert keys(batches) == expected(many)[2:]


def test_an_error_comes_in_its_place_after_the_rows_before_it(many: Table, store: Gates, limits: FetchLimits) -> None:
    read, splits, names = planned(many, store)
    store.fault = lambda name: FORBIDDEN if name == names[2] else None
    rows: list[int] = []
    with pytest.raises(CorruptTableError, match="credentials"):
        for batch in read.iter_batches(splits):
            rows += keys([batch])
    assert rows == expected(many)[:2]
    until_idle(read)
    assert ahead_of(read).held_bytes == 0
    store.fault = lambda name: None
    assert keys(read.iter_batches(splits)) == expected(many)


def test_a_piece_that_fails_for_now_is_requested_again_when_it_is_needed(
    many: Table, store: Gates, limits: FetchLimits
) -> None:
    read, splits, names = planned(many, store)
    failing = {names[3]}

    def fault(name: str) -> OSError | None:
        return ConnectionResetError() if name in failing and not failing.discard(name) else None

    store.fault = fault
    assert keys(read.iter_batches(splits)) == expected(many)
    assert not failing


def test_a_reader_that_stops_in_the_middle_leaves_nothing_behind(
    many: Table, store: Gates, limits: FetchLimits
) -> None:
    read, splits, names = planned(many, store)
    batches = read.iter_batches(splits)
    store.held = lambda name: name != names[0]
    next(batches)
    store.until(lambda: len(store.under_way) == MOST)
    batches.close()
    asked = len(store.files())
    store.drop_prefetched()
    store.until(lambda: not store.under_way)
    until_idle(read)
    assert len(store.files()) == asked
    assert (ahead_of(read).held_bytes, ahead_of(read).in_flight) == (0, 0)


def until_idle(read: Any) -> None:
    """Wait for the threads to count what the store has answered."""
    store = read._parts.get().directory.store
    store.pool.run(lambda: None)
    while ahead_of(read).in_flight:
        store.pool.run(lambda: None)


def until_left(read: Any) -> None:
    """Wait for the threads to have left what nobody reads any more."""
    while ahead_of(read)._lanes:
        read._parts.get().directory.store.pool.run(lambda: None)
    until_idle(read)


def test_reads_that_are_broken_off_again_and_again_are_never_refused(
    many: Table, store: Gates, limits: FetchLimits
) -> None:
    read, splits, _ = planned(many, store)
    first = expected(many)[:1]
    for _ in range(30):
        batches = read.iter_batches(splits)
        assert keys([next(batches)]) == first
        batches.close()


async def test_a_read_that_is_cancelled_lets_go(many: Table, store: Gates, limits: FetchLimits) -> None:
    read, splits, names = planned(many, store)
    store.held = lambda name: name == names[1]
    batches = read.iter_batches_async(splits)
    assert keys([await anext(batches)]) == expected(many)[:1]
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.to_thread(store.until, lambda: names[1] in store.under_way)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    del batches, waiting
    store.drop_prefetched()
    await asyncio.to_thread(until_left, read)
    assert ahead_of(read).held_bytes == 0
    assert keys([batch async for batch in read.iter_batches_async(splits)]) == expected(many)


# ---- across plans ----


def plans(table: Table, store: Gates) -> tuple[Any, Any]:
    builder = table.builder(store).with_start("earliest").with_catch_up("replay").with_end(latest=True)
    return builder.new_streaming_scan(), builder.new_read()


def test_files_of_plans_made_ahead_are_asked_for_while_one_is_read(
    behind: Table, store: Gates, limits: FetchLimits
) -> None:
    scan, read = plans(behind, store)
    with scan.stream_sync() as stream:
        first = next(stream)
        until_planned(scan, 6)
        assert store.files() == []
        rows = keys(read.iter_batches(first.splits()))
        store.until(lambda: len(store.files()) >= 6)
        for plan in stream:
            rows += keys(read.iter_batches(plan.splits()))
    assert rows == list(range(12))
    assert sorted(store.files()) == sorted(set(store.files()))


def until_planned(scan: Any, count: int) -> None:
    """Wait until so many plans are made ahead."""
    queue = scan._driver.parts.get().prefetcher._queue
    while len([each for each in list(queue) if each.future.done()]) < count:
        queue[-1].future.result()


def test_no_file_is_asked_for_while_nothing_is_read(behind: Table, store: Gates, limits: FetchLimits) -> None:
    scan, _ = plans(behind, store)
    with scan.stream_sync() as stream:
        assert len(list(stream)) == 12
    assert store.files() == []


def test_a_plan_that_is_skipped_gives_way(behind: Table, store: Gates, limits: FetchLimits) -> None:
    scan, read = plans(behind, store)
    with scan.stream_sync() as stream:
        found = []
        for number, plan in enumerate(stream):
            until_planned(scan, min(3, 11 - number))
            if number % 3 == 0:
                found += keys(read.iter_batches(plan.splits()))
                # What was expected of the plans that were skipped is not any more.
                behind = list(next_plans(plan.splits()[-1]))
                assert len(ahead_of(read)._lanes) <= len(behind)
    assert found == [0, 3, 6, 9]
    drop_prefetched(read)
    until_idle(read)
    assert (ahead_of(read).held_bytes, ahead_of(read)._lanes) == (0, [])


@pytest.mark.parametrize("room", [3000, 1 << 20])
@pytest.mark.parametrize("backwards", [False, True])
def test_each_file_is_asked_for_once_where_splits_are_read_one_by_one(
    tmp_path: Path, store: Gates, limits: FetchLimits, backwards: bool, room: int
) -> None:
    limits.bytes = room
    table = Table(tmp_path, source__split__target_size="1 kb", source__split__open_file_cost="1 kb")
    for first in range(0, 20, 5):
        table.commit_files(range(first, first + 5))
    scan, read = plans(table, store)
    rows = []
    with scan.stream_sync() as stream:
        for number, plan in enumerate(stream):
            until_planned(scan, 3 - number)
            assert len(plan.splits()) == 5
            for split in sorted(plan.splits(), key=plan.splits().index, reverse=backwards):
                rows += keys(read.iter_batches([split]))
            until_idle(read)
    assert sorted(rows) == list(range(20))
    assert ahead_of(read)._lanes == []
    assert sorted(store.files()) == sorted(set(store.files()))


def test_files_of_a_plan_that_was_read_are_not_asked_for_ahead_of_it(
    behind: Table, store: Gates, limits: FetchLimits
) -> None:
    scan, read = plans(behind, store)
    with scan.stream_sync() as stream:
        first, second = next(stream), next(stream)
        until_planned(scan, 3)
        for plan in (first, second, first):
            keys(read.iter_batches(plan.splits()))
        until_idle(read)
        (name,) = [file.file_name for split in second.splits() for file in split.files]
        assert store.files().count(name) == 1


def test_a_stream_that_is_closed_lets_go(behind: Table, store: Gates, limits: FetchLimits) -> None:
    builder = behind.builder(store).with_start("earliest").with_catch_up("replay")
    with builder.open_sync() as stream:
        assert next(stream).data["k"].to_pylist() == [0]
    for reader in list(limits.readers):
        assert reader._lanes == []
    store.until(lambda: not store.under_way)


def test_a_read_that_nobody_has_any_more_lets_go(behind: Table, store: Gates, limits: FetchLimits) -> None:
    scan, read = plans(behind, store)
    stream = scan.stream_sync()
    plan = next(stream)
    until_planned(scan, 6)
    keys(read.iter_batches(plan.splits()))
    ahead = ahead_of(read)
    del read
    gc.collect()
    while ahead._lanes or ahead._fetches:
        store.until(lambda: not store.under_way)
    stream.close()


def test_splits_travel_without_the_plans_after_them(behind: Table, store: Gates, limits: FetchLimits) -> None:
    scan, _ = plans(behind, store)
    with scan.stream_sync() as stream:
        plan = next(stream)
        until_planned(scan, 3)
        (split,) = plan.splits()
        assert next(next_plans(split)).snapshot_id == plan.snapshot_id + 1
        travelled = pickle.loads(pickle.dumps(split))
        assert (list(next_plans(travelled)), repr(travelled)) == ([], repr(split))


# ---- processes and settings ----


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_a_forked_process_asks_for_itself(many: Table, store: Gates, limits: FetchLimits) -> None:
    read, splits, names = planned(many, store)
    batches = read.iter_batches(splits)
    store.held = lambda name: name != names[0]
    rows = keys([next(batches)])
    store.until(lambda: len(store.under_way) == MOST)
    child = os.fork()
    if not child:
        store.__init__()  # type: ignore[misc]
        found = rows + keys(batches)
        os._exit(0 if found == sorted(found) and len(found) == FILES else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.drop_prefetched()
    assert rows + keys(batches) == expected(many)


@pytest.mark.parametrize(("text", "size"), [("", 256 << 20), ("0", 0), ("1000", 1000), ("64 MB", 64 << 20)])
def test_the_bound_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv(fetch_ahead.BOUND, text)
    assert limits_of_environment().bytes == size


@pytest.mark.parametrize("text", ["much", "-1", "5 parsecs"])
def test_an_invalid_bound_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(fetch_ahead.BOUND, text)
    with pytest.raises(StreamConfigError, match="64 mb"):
        limits_of_environment()


def test_local_files_are_opened_when_they_are_read(many: Table, limits: FetchLimits, tmp_path: Path) -> None:
    builder = many.builder()
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    read = builder.new_read()
    batches = read.iter_batches(plan.splits())
    next(batches)
    assert ahead_of(read)._lanes == []


def test_what_was_asked_for_out_of_its_order_is_not_asked_for_again(
    tmp_path: Path, store: Gates, limits: FetchLimits
) -> None:
    pieces = [Piece(f"object://{tmp_path}/{number}.parquet", None, 5) for number in range(3)]
    for number in range(3):
        (tmp_path / f"{number}.parquet").write_bytes(b"bytes")
    limits.bytes = 0
    reader = Store(store)
    lane = reader.ahead.lane(lambda piece: reader.begin_read(piece.path), 0)
    lane.expect(pieces)
    assert [reader.ahead.take(piece) for piece in (pieces[0], pieces[2])] == [None, None]
    limits.bytes = 100
    reader.ahead.pump()
    found = reader.ahead.take(pieces[1])
    assert found is not None and found() == b"bytes"
    assert store.files() == ["1.parquet"]
    lane.close()


def test_what_was_taken_is_let_go_of_with_its_answer(tmp_path: Path, store: Gates, limits: FetchLimits) -> None:
    (tmp_path / "a.parquet").write_bytes(b"bytes")
    piece = Piece(f"object://{tmp_path}/a.parquet", None, 5)
    reader = Store(store, concurrency=1)
    lane = reader.ahead.lane(lambda piece: reader.begin_read(piece.path), 0)
    gc.disable()
    try:
        lane.expect([piece])
        found: Any = reader.ahead.take(piece)
        assert found() == b"bytes"
        answered = weakref.ref(found._future)
        reader.pool.run(lambda: None)
        del found
        assert answered() is None
    finally:
        gc.enable()
    lane.close()


def test_pieces_are_equal_by_value() -> None:
    assert Piece("a", None, 3) == Piece("a", None, 3) != Piece("a", 0, 3)
