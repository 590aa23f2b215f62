"""The time limit is that of one request: what takes many of them, or waits for its turn, may take its time."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import IOTimeoutError, StreamReadBuilder
from pypaimon.streaming.io import local_files
from pypaimon.streaming.io.store import Store
from support.stores.fault_file_io import Call, FaultFileIO, HangingFileIO, data_files_from
from support.stores.request_time import takes
from support.tables.streamed_table import Table, keys

pytestmark = pytest.mark.slow

LIMIT = 60.0
SLOW = 10.0
"""Seconds of one request: far below the limit, a dozen of them far above."""
SHORT = 2.0
"""A limit that is waited for."""
FILES = 16
NEVER = 3600.0


class SlowData(FaultFileIO):
    """Every read of a data file takes its time."""

    def __init__(self, spend: Callable[[float], object] = takes, seconds: float = SLOW) -> None:
        super().__init__()
        self._spend = spend
        self._seconds = seconds
        self.wherever(self._slowly)

    def _slowly(self, call: Call) -> Any:
        if call.path.endswith(".parquet"):
            self._spend(self._seconds)
        return call.answer()


def table_of(tmp_path: Path, commits: int, **settings: Any) -> Table:
    table = Table(tmp_path / "w", **settings)
    for _ in range(commits):
        table.commit([0, 100])
    return table


def rare(builder: StreamReadBuilder) -> StreamReadBuilder:
    """A filter that no file can be left out by, and no row matches."""
    return builder.with_filter(builder.new_predicate_builder().equal("k", 50))


def test_a_filter_that_looks_through_many_files_has_no_time_limit(tmp_path: Path) -> None:
    table = table_of(tmp_path, FILES)
    builder = rare(table.builder(SlowData(), io_timeout=LIMIT)).with_end(latest=True)
    with builder.open_sync() as stream:
        assert list(stream) == []
        assert stream.status.scan.abandoned_requests == 0


async def test_nor_has_it_in_asyncio(tmp_path: Path) -> None:
    table = table_of(tmp_path, FILES)
    builder = rare(table.builder(SlowData(), io_timeout=LIMIT))
    with builder.new_streaming_scan() as scan:
        plan = await scan.plan_async()
    assert plan is not None
    assert (await builder.new_read().to_arrow_async(plan.splits())).num_rows == 0


def test_a_merge_of_many_files_has_no_time_limit(tmp_path: Path) -> None:
    table = table_of(tmp_path, FILES, primary_key=True, bucket="1")
    with table.builder(SlowData(), io_timeout=LIMIT).with_end(latest=True).open_sync() as stream:
        assert [row for batch in stream for row in batch.data["k"].to_pylist()] == [0, 100]
        assert stream.status.scan.abandoned_requests == 0


async def test_reads_that_wait_for_their_turn_have_no_time_limit(tmp_path: Path) -> None:
    table = table_of(tmp_path, 1)
    builder = table.builder(SlowData(threading.Event().wait, SHORT / 20), io_timeout=SHORT)
    with builder.new_streaming_scan() as scan:
        plan = await scan.plan_async()
    assert plan is not None
    read, splits = builder.new_read(), plan.splits()
    # Eight at a time, so that the last ones wait longer than a request may take.
    found = await asyncio.gather(*(read.to_arrow_async(splits) for _ in range(12 * FILES)))
    assert {each.num_rows for each in found} == {2}


class Opening:
    """A FileIO where to open a file and to read it are two requests, each of which takes most of the time limit."""

    def new_input_stream(self, path: str) -> Any:
        takes(LIMIT * 0.7)
        return self

    def read(self) -> bytes:
        takes(LIMIT * 0.7)
        return b"content"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def test_opening_and_reading_are_two_requests() -> None:
    store = Store(Opening(), LIMIT)
    assert store.read("object://file") == b"content"
    assert store.requests == {"read": 1, "abandoned": 0}
    store.close()


# ---- what hangs ----


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Table, Path, bytes]]:
    """A table on a disk, one of whose data files is a pipe that nobody writes to; and what it should hold."""
    table = table_of(tmp_path, 2)
    file = max(table.path.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    content = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    yield table, file, content
    if file.is_fifo():
        repair(file, content)


def test_batches_of_a_local_file_that_hangs_end_in_a_timeout_and_continue_later(
    pipe: tuple[Table, Path, bytes],
) -> None:
    table, file, content = pipe
    with table.builder(io_timeout=SHORT).with_end(latest=True).open_sync() as stream:
        batches = [next(stream)]
        with pytest.raises(IOTimeoutError, match="2 s"):
            next(stream)
        repair(file, content)
        batches += stream
    assert [row for batch in batches for row in batch.data["k"].to_pylist()] == [0, 100] * 2


async def test_awaited_reads_of_a_local_file_that_hangs_end_in_a_timeout(pipe: tuple[Table, Path, bytes]) -> None:
    table, file, content = pipe
    builder = table.builder(io_timeout=SHORT)
    with builder.new_streaming_scan() as scan:
        plan = await scan.plan_async()
    assert plan is not None
    read = builder.new_read()
    with pytest.raises(IOTimeoutError):
        await read.to_arrow_async(plan.splits())
    repair(file, content)
    assert keys(read, [plan]) == [0, 100] * 2


class PythonFiles(LocalFileIO):
    """Data files on a disk as streams of Python, where one kind of call hangs until it is let go.

    Args:
        hangs: `open`, `read` or `seek`.
    """

    def __init__(self, hangs: str) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self._hangs = hangs

    def call(self, what: str) -> None:
        if what == self._hangs:
            self.let_go.wait()

    def new_input_stream(self, path: str) -> Any:
        if not path.endswith(".parquet"):
            return super().new_input_stream(path)
        self.call("open")
        return PythonStream(Path(path).read_bytes(), self)


class PythonStream(io.BytesIO):
    def __init__(self, data: bytes, files: PythonFiles) -> None:
        super().__init__(data)
        self._files = files

    def read(self, size: int | None = -1) -> bytes:
        self._files.call("read")
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._files.call("seek")
        return super().seek(offset, whence)


@pytest.mark.parametrize(("hangs", "at_once"), [("open", True), ("read", True), ("read", False), ("seek", False)])
def test_a_stream_of_python_that_hangs_ends_in_a_timeout_and_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(local_files, "_SMALL", -1)
    handle = table_of(tmp_path, 1).handle()
    files = handle.file_io = PythonFiles(hangs)
    builder = StreamReadBuilder(handle).with_io_timeout(SHORT).with_end(latest=True)
    with builder.open_sync() as stream:
        with pytest.raises(IOTimeoutError):
            next(stream)
        files.let_go.set()
        (batch,) = stream
    assert batch.data["k"].to_pylist() == [0, 100]


def repair(file: Path, content: bytes) -> None:
    """Put the file in the place of the pipe, and let go those who wait for that."""
    writer = os.open(file, os.O_RDWR | os.O_NONBLOCK)
    other = file.with_suffix(".repaired")
    other.write_bytes(content)
    other.replace(file)
    os.close(writer)


def test_a_file_that_hangs_does_not_hold_back_the_rows_before_it(tmp_path: Path, hanging: HangingFileIO) -> None:
    table = table_of(tmp_path, 2)
    hanging.hangs = data_files_from(2)
    with table.builder(hanging, io_timeout=NEVER).with_end(latest=True).open_sync() as stream:
        first = next(stream)
        assert (first.data["k"].to_pylist(), first.is_last, first.position) == ([0, 100], False, None)
        hanging.go_on.set()
        (second,) = stream
    assert (second.data["k"].to_pylist(), second.is_last) == ([0, 100], True)


def test_the_end_of_a_plan_is_reported_though_no_rows_came_after_those_that_waited(
    tmp_path: Path, hanging: HangingFileIO
) -> None:
    table = Table(tmp_path / "w")
    table.commit([0, 50, 100])
    table.commit([0, 100])
    hanging.hangs = data_files_from(2)
    builder = rare(table.builder(hanging, io_timeout=NEVER)).with_end(latest=True).with_consumer_id("c")
    with builder.open_sync() as stream:
        first = next(stream)
        assert (first.data["k"].to_pylist(), first.is_last) == ([50], False)
        hanging.go_on.set()
        (end,) = stream
        assert (end.num_rows, end.is_last, end.data.schema) == (0, True, first.data.schema)
        assert stream.position is not None and stream.position.snapshot == 3
        assert (stream.status.batches, stream.status.rows, stream.scan.committed()) == (2, 1, 3)
