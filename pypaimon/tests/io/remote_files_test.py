"""Data files of object stores: few requests, each timed out and retried, for blocking reads too."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pypaimon.streaming import CorruptTableError, IOTimeoutError
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.formats.external_formats import local_copy
from pypaimon.streaming.io import fetch_ahead, remote_files
from pypaimon.streaming.io.fetch_ahead import FetchLimits
from pypaimon.streaming.io.remote_files import RemoteFile, open_remote, read_part
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.counting_file_io import CountingFileIO
from support.stores.request_time import hang
from support.tables.handles import create_table
from support.tables.stream_files import meta, put, write

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int64()), ("x", pa.float64())])
SCHEME = "remote://"


class RemoteStore:
    """A FileIO whose files are requests: each may fail, come short, or hang until the test is over.

    Attributes:
        troubles: What the next requests for bytes come to, taken from the end; None: all is well.
    """

    def __init__(self) -> None:
        self.troubles: list[Any] = []
        self.opened = 0
        self.over = threading.Event()

    def new_input_stream(self, path: str) -> Any:
        self.opened += 1
        return _Stream(self, Path(path.removeprefix(SCHEME)).read_bytes())

    def answer(self, data: bytes) -> bytes:
        trouble = self.troubles.pop() if self.troubles else None
        if trouble == "hang":
            hang(self.over)
        if trouble == "short":
            return data[: len(data) // 2]
        if isinstance(trouble, Exception):
            raise trouble
        return data


class _Stream(io.BytesIO):
    def __init__(self, store: RemoteStore, data: bytes) -> None:
        super().__init__(data)
        self._store = store

    def read(self, size: int | None = -1) -> bytes:
        return self._store.answer(super().read(size))


@pytest.fixture
def remote() -> Iterator[RemoteStore]:
    store = RemoteStore()
    yield store
    store.over.set()


def store_of(remote: RemoteStore) -> Store:
    return Store(remote, retry=Backoff(attempts=3), sleep=lambda _: None)


def numbers(count: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"id": np.arange(count), "x": rng.random(count)}, schema=COLUMNS)


def reading(warehouse: Any, remote: RemoteStore, rows: int) -> Any:
    """A function that reads a file with this number of rows from the store."""
    table = create_table(warehouse, "t", COLUMNS)
    file = put(table, "data-1.parquet", numbers(rows))
    file.file_path = SCHEME + str(file.file_path)
    directory = TableDirectory(table, store_of(remote))
    directory.know(table.table_schema)

    def read() -> pa.Table:
        batches = read_file(directory, file, table.table_schema.fields, schema_id=0)
        return pa.Table.from_batches(batches, COLUMNS)

    return read, directory


SMALL, LARGE = 1000, 1_000_000


def test_a_large_file_takes_few_requests(warehouse: Any, remote: RemoteStore) -> None:
    read, directory = reading(warehouse, remote, LARGE)
    assert read() == numbers(LARGE)
    assert directory.store.requests["read"] <= 2 + 16


def test_a_small_file_is_read_at_once(warehouse: Any, remote: RemoteStore) -> None:
    read, directory = reading(warehouse, remote, SMALL)
    assert read() == numbers(SMALL)
    assert (directory.store.requests["read"], remote.opened) == (1, 1)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("trouble", [OSError("503 Slow Down"), TimeoutError(), ConnectionResetError()])
def test_what_passes_is_asked_again(warehouse: Any, remote: RemoteStore, rows: int, at: int, trouble: Any) -> None:
    read, _ = reading(warehouse, remote, rows)
    remote.troubles = [trouble, *[None] * at]
    assert read() == numbers(rows)


def test_an_answer_that_came_short_is_asked_again(warehouse: Any, remote: RemoteStore) -> None:
    read, _ = reading(warehouse, remote, LARGE)
    remote.troubles = ["short", None]
    assert read() == numbers(LARGE)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_a_hung_request_is_given_up_and_asked_again(warehouse: Any, remote: RemoteStore, rows: int) -> None:
    read, directory = reading(warehouse, remote, rows)
    remote.troubles = ["hang"]
    assert read() == numbers(rows)
    assert directory.store.requests["abandoned"] == 1
    remote.troubles = ["hang", "hang"]
    with pytest.raises(IOTimeoutError, match=r"data-1\.parquet"):
        read()
    assert read() == numbers(rows)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_errors_that_last(warehouse: Any, remote: RemoteStore, rows: int) -> None:
    read, _ = reading(warehouse, remote, rows)
    remote.troubles = [OSError("503 Slow Down")] * 3
    with pytest.raises(StoreError, match="503"):
        read()
    remote.troubles = [PermissionError("forbidden")]
    with pytest.raises(CorruptTableError, match="credentials"):
        read()
    remote.troubles = [FileNotFoundError("gone")]
    with pytest.raises(FileNotFoundError, match="data file is missing"):
        read()


@given(st.lists(st.tuples(st.integers(0, 3 << 20), st.integers(-1, 3 << 20)), max_size=6))
def test_a_remote_file_reads_like_a_local_one(asked: list[tuple[int, int]]) -> None:
    remote, data = RemoteStore(), np.random.default_rng(0).bytes(2_500_000)
    remote.new_input_stream = lambda path: _Stream(remote, data)  # type: ignore[method-assign]
    ours, plain = open_remote(store_of(remote), "remote://f", None), io.BytesIO(data)
    assert isinstance(ours, RemoteFile)
    for position, length in asked:
        assert ours.seek(position) == plain.seek(position)
        assert ours.read(length) == plain.read(length)
        assert ours.tell() == plain.tell()


@example([0, 4_001], [], 4_000)
@given(
    st.lists(st.integers(0, 50_000), max_size=8),
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(-1, 30_000)), max_size=6),
    st.integers(0, 20_000),
)
def test_what_is_read_does_not_depend_on_what_was_announced(
    announced: list[int], asked: list[tuple[int, int]], bound: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, size in (("_PIECE", 4_000), ("_GAP", 300), ("_AHEAD", 1_000), ("_TAIL", 500)):
            patched.setattr(remote_files, name, size)
        patched.setitem(fetch_ahead._of_process, "limits", FetchLimits(bound, 64))
        remote, data = RemoteStore(), np.random.default_rng(0).bytes(50_000)
        remote.new_input_stream = lambda path: _Stream(remote, data)  # type: ignore[method-assign]
        store = store_of(remote)
        ours, plain = RemoteFile(store, "remote://f"), io.BytesIO(data)
        edges = sorted(set(announced))
        ours.seek(0, io.SEEK_END)
        ours.will_read((first, last - first) for first, last in zip(edges[::2], edges[1::2], strict=False))
        for position, length in asked:
            assert ours.seek(position) == plain.seek(position)
            assert bytes(ours.read(length)) == plain.read(length)
            assert ours.tell() == plain.tell()
        ours.close()
        while store.ahead.in_flight:
            store.pool.run(lambda: None)
        assert (store.ahead.held_bytes, store.ahead._fetches, store.ahead._lanes) == (0, {}, [])
        assert ours._idle == []


def of_bytes(data: bytes) -> Store:
    """A store whose files all hold these."""
    remote = RemoteStore()
    remote.new_input_stream = lambda path: _Stream(remote, data)  # type: ignore[method-assign]
    return store_of(remote)


def test_what_a_damaged_footer_announces_ends_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_PIECE", 4_000)
    ours = RemoteFile(of_bytes(bytes(10_000)), "remote://f")
    ours.seek(0, io.SEEK_END)
    ours.will_read([(2_000, 1_000_000), (20_000, 1_000_000)])
    assert [(piece.start, piece.length) for piece in ours._pieces] == [(2_000, 4_000), (6_000, 4_000)]
    ours.close()


def test_pieces_of_a_range_are_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as if all but the last were as large as they may be; the reader waits for the largest."""
    monkeypatch.setattr(remote_files, "_PIECE", 4_000)
    monkeypatch.setattr(remote_files, "_GAP", 100)
    ours = RemoteFile(of_bytes(bytes(20_000)), "remote://f")
    ours.will_read([(1_000, 5_000), (10_000, 4_000), (15_000, 2_000), (17_050, 2_951)])
    found = [(1_000, 2_500), (3_500, 2_500), (10_000, 4_000), (15_000, 2_500), (17_500, 2_501)]
    assert [(piece.start, piece.length) for piece in ours._pieces] == found
    ours.close()


@pytest.mark.parametrize("start", [0, 9_000, 20_000])
def test_a_large_part_of_a_file_that_ends_within_it_is_shorter(monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    monkeypatch.setattr(remote_files, "_PIECE", 4_000)
    monkeypatch.setattr(remote_files, "WHOLE_BYTES", 4_000)
    data = np.random.default_rng(0).bytes(10_000)
    assert read_part(of_bytes(data), "remote://f", start, 20_000) == data[start:]


class Held(RemoteStore):
    """Requests of at least this many bytes wait until the given number of them is in flight."""

    def __init__(self, parties: int, least: int = 1 << 19) -> None:
        super().__init__()
        self.most = self.now = self.bytes = 0
        self._parties = parties
        self._least = least
        self._changed = threading.Condition()

    def answer(self, data: bytes) -> bytes:
        with self._changed:
            self.bytes += len(data)
        if len(data) < self._least:
            return data  # The footer, or the end of the columns.
        with self._changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._parties, 300)
            self.now -= 1
        return super().answer(data)


def large(warehouse: Any, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(remote_files, "_PIECE", 1 << 20)
    return reading(warehouse, remote, LARGE)


def test_pieces_of_a_large_file_are_asked_for_at_once(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Held(8)
    read, directory = large(warehouse, remote, monkeypatch)
    assert read() == numbers(LARGE)
    assert 8 <= remote.most <= fetch_ahead._READER_REQUESTS + 1
    assert (directory.store.ahead.held_bytes, directory.store.ahead._lanes) == (0, [])


def test_bytes_of_a_large_file_are_bounded(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetch_ahead._of_process, "limits", FetchLimits(3 << 20, 64))
    remote = Held(3)
    read, _ = large(warehouse, remote, monkeypatch)
    assert read() == numbers(LARGE)
    assert remote.most <= 3 + 1


def written(warehouse: Any, file_format: str, rows: pa.Table) -> tuple[Any, Any]:
    """A table of a format, and one of its files, with its path in the store."""
    kind, _, compression = file_format.partition(" ")
    table = create_table(warehouse, "t", COLUMNS, options={"file.format": kind})
    if kind == "orc":
        path = Path(str(table.table_path)) / "bucket-0" / "a.orc"
        path.parent.mkdir(parents=True)
        orc.write_table(rows, str(path), compression=compression, stripe_size=1 << 16, batch_size=8192)
        file = meta(path, rows.num_rows)
    else:
        (file,) = write(table, rows)
    file.file_path = SCHEME + str(file.file_path)
    return table, file


@pytest.mark.parametrize("file_format", ["orc zstd", "orc snappy", "orc uncompressed", "row", "avro"])
def test_files_of_every_format_have_many_pieces_on_their_way(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    rows = numbers(40_000)
    table, file = written(warehouse, file_format, rows)
    for name, size in (("WHOLE_BYTES", 0), ("_PIECE", 30_000), ("_GAP", 100), ("_AHEAD", 4_000), ("_TAIL", 20_000)):
        monkeypatch.setattr(remote_files, name, size)
    remote = Held(6, 20_001)
    directory = TableDirectory(table, store_of(remote))
    directory.know(table.table_schema)
    batches = read_file(directory, file, table.table_schema.fields, schema_id=0)
    assert pa.Table.from_batches(batches).cast(COLUMNS) == rows
    assert (directory.store.ahead.held_bytes, directory.store.ahead._lanes) == (0, [])
    stripes = orc.ORCFile(str(file.file_path).removeprefix(SCHEME)).nstripes if "orc" in file_format else 0
    assert stripes != 1
    assert remote.most >= 6
    # Its end, footers of stripes, and each byte once.
    assert remote.bytes <= 1.1 * file.file_size + 24_000
    assert directory.store.requests["read"] <= 6 + 2 * stripes + file.file_size / 30_000


def test_a_file_that_is_copied_for_a_library_has_many_pieces_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "_PIECE", 1 << 20)
    data = np.random.default_rng(0).bytes(9 << 20)
    (tmp_path / "a.lance").write_bytes(data)
    remote = Held(6)
    file = RemoteFile(store_of(remote), f"{SCHEME}{tmp_path}/a.lance")
    assert Path(local_copy(file, remote).name).read_bytes() == data
    assert remote.most >= 6
    assert remote.bytes == len(data)


def test_only_stripes_of_columns_that_are_read_are_asked_for(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = numbers(40_000)
    table, file = written(warehouse, "orc uncompressed", rows)
    for name, size in (("WHOLE_BYTES", 0), ("_PIECE", 30_000), ("_GAP", 100), ("_AHEAD", 100), ("_TAIL", 20_000)):
        monkeypatch.setattr(remote_files, name, size)
    remote = Held(0)
    directory = TableDirectory(table, store_of(remote))
    directory.know(table.table_schema)
    (field,) = [each for each in table.table_schema.fields if each.name == "id"]
    assert sum(batch.num_rows for batch in read_file(directory, file, [field], schema_id=0)) == 40_000
    assert remote.bytes < 0.2 * file.file_size


def test_only_pieces_of_columns_that_are_read_are_asked_for(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_PIECE", 1 << 20)
    counting = CountingFileIO()
    table = create_table(warehouse, "t", COLUMNS)
    file = put(table, "data-1.parquet", numbers(LARGE))
    file.file_path = f"object://{file.file_path}"
    directory = TableDirectory(table, Store(counting))
    directory.know(table.table_schema)
    (field,) = [each for each in table.table_schema.fields if each.name == "x"]
    assert sum(batch.num_rows for batch in read_file(directory, file, [field], schema_id=0)) == LARGE
    assert counting.of(".parquet") < 0.8 * file.file_size


def test_a_piece_that_holds_the_end_of_one_column_and_the_begin_of_another_is_asked_for_once(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order of columns: the system columns come first in the file, and are read last."""
    counting = CountingFileIO()
    table = create_table(warehouse, "t", COLUMNS)
    file = put(table, "data-1.parquet", numbers(LARGE))
    monkeypatch.setattr(remote_files, "_PIECE", file.file_size * 3 // 4)
    file.file_path = f"object://{file.file_path}"
    directory = TableDirectory(table, Store(counting))
    directory.know(table.table_schema)
    found = pa.Table.from_batches(read_file(directory, file, table.table_schema.fields[::-1], schema_id=0))
    assert found.column_names == COLUMNS.names[::-1]
    assert found.select(COLUMNS.names).cast(COLUMNS) == numbers(LARGE)
    assert counting.of(".parquet") < 1.2 * file.file_size


@pytest.mark.parametrize("trouble", [OSError("503 Slow Down"), "short", "hang"])
def test_a_piece_that_fails_is_asked_again(warehouse: Any, monkeypatch: pytest.MonkeyPatch, trouble: Any) -> None:
    remote = RemoteStore()
    read, _ = large(warehouse, remote, monkeypatch)
    remote.troubles = [trouble, None, None, None]
    assert read() == numbers(LARGE)
    remote.over.set()


def test_a_piece_that_keeps_failing_is_an_error_in_its_place(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteStore()
    read, directory = large(warehouse, remote, monkeypatch)
    remote.troubles = [*[OSError("503 Slow Down")] * 60, None]
    with pytest.raises(StoreError, match="503"):
        read()
    assert directory.store.ahead._lanes == []
    remote.troubles = []
    assert read() == numbers(LARGE)
