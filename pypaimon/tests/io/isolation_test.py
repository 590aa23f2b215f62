"""Concurrent streams of one table handle: a request that hangs in one does not block others; all are limited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.io_requests import Hanging
from pypaimon.streaming.io.store import CONCURRENCY, Store
from support.stores.fault_file_io import Call, FaultFileIO
from support.stores.request_time import hang
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

LONG = 30.0


class HangingFiles(FaultFileIO):
    """Requests for some files hang until the test is over.

    Attributes:
        hold: What a request that hangs does; by default it is given up at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hangs: Callable[[Call], bool] = lambda call: False
        self.hold: Callable[[threading.Event], object] = hang
        self.held = 0
        self.over = threading.Event()
        self.wherever(self._hang)

    def _hang(self, call: Call) -> Any:
        if self.hangs(call):
            with self._lock:
                self.held += 1
            self.hold(self.over)
        return call.answer()


@pytest.fixture
def file_io() -> Iterator[HangingFiles]:
    hanging = HangingFiles()
    yield hanging
    hanging.over.set()


@pytest.mark.parametrize("kind", ["data", "metadata"])
def test_what_hangs_in_one_stream_does_not_stop_another_of_the_same_handle(
    tmp_path: Path, file_io: HangingFiles, kind: str
) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    first = set(table.path.rglob("*.parquet" if kind == "data" else "manifest-*"))
    table.commit([2])
    builder = table.builder(file_io).with_end(latest=True).with_catch_up("replay")
    fine = builder.copy().with_start(snapshot_id=2)
    names = {path.name for path in first}
    file_io.hangs = lambda call: call.name in names
    with builder.with_start("earliest").open_sync() as hung:
        for _ in range(8):
            with pytest.raises(StoreError):
                next(hung)
        assert 8 <= file_io.held <= 9
        with fine.open_sync() as stream:
            assert [row for batch in stream for row in batch.data["k"].to_pylist()] == [2]


def test_requests_that_have_not_timed_out_yet_hold_up_no_other_reader(tmp_path: Path, file_io: HangingFiles) -> None:
    """As many hang as one reader may have under way, and none of them is given up meanwhile."""
    count = CONCURRENCY + 8
    paths = [f"object://{tmp_path}/{name}-{number}" for name in ("hangs", "fine") for number in range(count)]
    for path in paths:
        Path(path.removeprefix("object://")).write_bytes(b"content")
    file_io.hangs = lambda call: call.name.startswith("hangs")
    file_io.hold = threading.Event.wait
    store = Store(file_io)
    thread = threading.Thread(target=store.for_reader().read_many, args=(paths[:count],), daemon=True)
    thread.start()
    while file_io.held < CONCURRENCY:
        thread.join(0.01)
    assert store.for_reader().read_many(paths[count:]) == [b"content"] * count
    assert store.requests["abandoned"] == 0


class Silent:
    """A FileIO that never answers, but for one file."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def list_status(self, path: str) -> list[Any]:
        if path != "answers":
            hang(self.over)
        return []


def test_readers_that_hang_are_bounded_together_and_one_that_is_answered_continues() -> None:
    silent = Silent()
    store = Store(silent, hung_attempts=1)
    healthy = store.for_reader()
    assert healthy.list_names("answers") == []
    before, most = threading.active_count(), store._common.hanging.most
    readers = [store.for_reader() for _ in range(most + 8)]
    for reader in readers:
        with pytest.raises(StoreError):
            reader.list_names("hangs")
    assert store.requests["abandoned"] == most
    assert threading.active_count() - before <= most
    assert healthy.list_names("answers") == []
    with pytest.raises(StoreError, match=f"{most} requests"):
        store.for_reader().list_names("answers")
    silent.over.set()
    while store._common.hanging.now:
        threading.Event().wait(0.01)
    assert store.for_reader().list_names("answers") == []


def test_a_reader_whose_requests_all_hang_does_not_stop_the_next_one() -> None:
    silent = Silent()
    store = Store(silent, hung_attempts=1)
    pool, all_began = store.for_reader().pool, threading.Barrier(CONCURRENCY)

    def begin_and_hang() -> None:
        all_began.wait(LONG)
        hang(silent.over)

    for future in [pool.submit(begin_and_hang) for _ in range(CONCURRENCY)]:
        with pytest.raises(StoreError):
            pool.result(future)
    assert pool.hanging == CONCURRENCY
    assert store.for_reader().list_names("answers") == []
    silent.over.set()


def test_a_pool_that_was_answered_before_its_own_call_hung_is_refused_like_others() -> None:
    hanging, over = Hanging(most=2), threading.Event()
    pools = [IOPool(1, LONG, hanging=hanging) for _ in range(2)]
    for pool in pools:
        assert pool.run(len, "one") == 3
        with pytest.raises(StoreError):
            pool.run(hang, over)
    for pool in pools:
        with pytest.raises(StoreError, match="2 requests"):
            pool.run(len, "more")
    over.set()
