"""Index files of deletion vectors: few requests for all data files of a plan, and the same vectors as one by one."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.table.row.generic_row import GenericRow
from pyroaring import BitMap

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.paimon.internals import DeletionFile
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO, Meeting
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, records, split

pytestmark = pytest.mark.slow

KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
FAR = 2 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(LocalFileIO(str(tmp_path)), retry=Backoff(attempts=2), sleep=lambda _: None)
    yield store
    store.close()


def index_file(path: Path, vectors: Sequence[tuple[set[int], int]], prefix: str = "") -> list[DeletionFile]:
    """An index file with a vector for each set of rows, each so many bytes behind the one before it."""
    data, found = b"\1", []
    for rows, gap in vectors:
        data += bytes(gap)
        content = struct.pack(">I", 1581511376) + BitMap(rows).serialize()
        found.append(DeletionFile(prefix + str(path), len(data), len(content), len(rows)))
        data += struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return found


def rows_of(vectors: PlanVectors, file: DeletionFile) -> list[int]:
    found: list[int] = vectors.read(file).positions.tolist()
    return found


@pytest.mark.parametrize("shared", [True, False], ids=["one split", "a split each"])
def test_an_index_file_is_asked_for_once_for_all_files_of_a_plan(warehouse: Any, shared: bool) -> None:
    table = create_table(warehouse, "t", KEYED, options={"deletion-vectors.enabled": "true"})
    rows = pa.table({"id": range(10), "v": ["v"] * 10}, KEYED)
    files = [put(table, f"{number}.parquet", rows) for number in range(10)]
    path = Path(str(table.table_path)) / "index" / "index-1"
    deleted = index_file(path, [({number}, 5) for number in range(10)], SCHEME)
    table.file_io = file_io = FaultFileIO()
    plan = [split(SplitMode.ROWS, files, deletion_files=deleted)]
    if not shared:
        plan = [split(SplitMode.ROWS, [file], deletion_files=[each]) for file, each in zip(files, deleted, strict=True)]
    read = reader(table)
    wanted = [key for number in range(10) for key in range(10) if key != number]
    for _ in range(2):
        assert read.to_arrow(plan)["id"].to_pylist() == wanted
        assert file_io.names().count("index-1") == 1


def test_files_that_are_opened_at_the_same_time_ask_for_their_index_file_once(warehouse: Any) -> None:
    options = {"deletion-vectors.enabled": "true", "bucket": "1"}
    table = create_table(warehouse, "t", KEYED, primary_keys=["id"], options=options)
    low, high = (GenericRow([key], table.fields[:1]) for key in (0, 9))
    stored = records([0] * 10, pa.table({"id": range(10), "v": ["v"] * 10}, KEYED))
    files = [put(table, f"{number}.parquet", stored, min_key=low, max_key=high) for number in range(8)]
    for file in files:
        file.file_path = SCHEME + file.file_path
    deleted = index_file(Path(str(table.table_path)) / "index" / "index-1", [({3, 4}, 0)] * 8, SCHEME)
    table.file_io = file_io = FaultFileIO()
    openers: list[str] = []
    before = {each for each in threading.enumerate() if each.name != "paimon-spare"}  # of other tests

    def answered(call: Call) -> Any:
        if call.name == "index-1":
            begun = set(threading.enumerate()) - before
            openers.extend(each.name for each in begun if each.name.startswith("paimon-open"))
        return call.answer()

    file_io.wherever(answered)
    found = reader(table).to_arrow([split(SplitMode.MERGE, files, deletion_files=deleted)])
    assert found["id"].to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert file_io.names().count("index-1") == 1
    assert openers == []  # it was there before any file was opened


def test_distant_blocks_are_read_apart_and_what_is_between_is_not_read(store: Store, tmp_path: Path) -> None:
    files = index_file(tmp_path / "index-1", [({1}, 0), ({2}, 9), ({3}, FAR), ({4}, 9), ({5}, FAR)])
    vectors = PlanVectors(IndexBlocks(store), files[:4])
    assert [rows_of(vectors, file) for file in files[:4]] == [[1], [2], [3], [4]]
    assert store.requests["read"] == 2
    assert rows_of(vectors, files[4]) == [5]  # not expected, and so read alone
    vectors.load(files[:4])
    assert store.requests["read"] == 3


def test_no_more_is_read_together_than_may_be(store: Store, tmp_path: Path) -> None:
    """Of twenty megabytes, in which the vectors lie near each other, eight at a time."""
    files = index_file(tmp_path / "index-1", [({number}, 200 << 10) for number in range(100)])
    vectors = PlanVectors(IndexBlocks(store), files)
    assert [rows_of(vectors, file) for file in files] == [[number] for number in range(100)]
    assert store.requests["read"] == 3


def test_no_more_is_kept_than_may_be(store: Store, tmp_path: Path) -> None:
    files = index_file(tmp_path / "index-1", [({number}, FAR) for number in range(4)])
    size = files[0].length + 8
    vectors = PlanVectors(IndexBlocks(store, kept_bytes=2 * size), files)
    for file in (*files, files[3], files[2]):
        rows_of(vectors, file)
    assert store.requests["read"] == 4
    rows_of(vectors, files[0])
    assert store.requests["read"] == 5
    none_fits = PlanVectors(IndexBlocks(store, kept_bytes=1), files)
    assert [rows_of(none_fits, file) for file in files] == [[0], [1], [2], [3]]


@given(
    vectors=st.lists(st.tuples(st.sets(st.integers(0, 99)), st.sampled_from([0, 3, 40])), min_size=1, max_size=8),
    data=st.data(),
)
@settings(max_examples=60)
def test_vectors_are_those_that_are_read_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, vectors: list[tuple[set[int], int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("index") / "index-1"
    files = index_file(path, vectors)
    wanted = data.draw(st.lists(st.sampled_from([*files, None]), max_size=8))
    store = Store(LocalFileIO(str(path.parent)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion_vectors, "_GAP_BYTES", data.draw(st.sampled_from([0, 5, 1000])))
        patch.setattr(deletion_vectors, "_BLOCK_BYTES", data.draw(st.sampled_from([1, 60, 1 << 20])))
        together = PlanVectors(IndexBlocks(store), wanted)
        if data.draw(st.booleans()):
            together.load(files)
        for file, (rows, _) in zip(files, vectors, strict=True):
            assert rows_of(together, file) == sorted(rows)
            assert together.read(file, 100).positions.tolist() == deletion_vectors.read(store, file).positions.tolist()
    store.close()


@pytest.mark.parametrize(
    "change",
    [{"offset": 10**12}, {"offset": -1}, {"length": 10**12}, {"length": -5}, {"length": 3}, {"cardinality": 9}],
    ids=str,
)
def test_a_range_that_is_wrong_is_damage_and_takes_no_memory(
    store: Store, tmp_path: Path, change: dict[str, int]
) -> None:
    files = index_file(tmp_path / "index-1", [({1}, 0), ({2}, 0)])
    wrong = replace(files[1], **change)
    vectors = PlanVectors(IndexBlocks(store), [files[0], wrong])
    with pytest.raises(CorruptTableError, match="index-1"):
        vectors.read(wrong)
    assert rows_of(vectors, files[0]) == [1]


def test_damage_is_reported_and_what_was_repaired_is_read(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "index-1"
    files = index_file(path, [({1}, 0), ({2}, 0)])
    good = path.read_bytes()
    path.write_bytes(good[:-6])
    vectors = PlanVectors(IndexBlocks(store), files)
    with pytest.raises(CorruptTableError, match="cut off"):
        rows_of(vectors, files[1])
    path.write_bytes(good)
    assert rows_of(vectors, files[1]) == [2]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        PlanVectors(IndexBlocks(store), files).read(files[1])


def test_index_files_of_many_buckets_are_asked_for_together_with_the_data_files(warehouse: Any) -> None:
    table = create_table(warehouse, "t", KEYED, options={"deletion-vectors.enabled": "true"})
    rows = pa.table({"id": range(10), "v": ["v"] * 10}, KEYED)
    home = Path(str(table.table_path))
    plan = []
    for number in range(8):
        file = put(table, f"{number}.parquet", rows)
        file.file_path = SCHEME + file.file_path
        deleted = index_file(home / "index" / f"index-{number}", [({number}, 5)], SCHEME)
        plan.append(split(SplitMode.ROWS, [file], deletion_files=deleted))
    file_io = FaultFileIO()
    table.file_io, table.table_path = file_io, SCHEME + str(home)
    names = {f"index-{number}" for number in range(8)}
    meeting = Meeting(names | {f"{number}.parquet" for number in range(8)}, parties=16)
    file_io.wherever(meeting)
    read = reader(table)
    wanted = [key for number in range(8) for key in range(10) if key != number]
    assert read.to_arrow(plan)["id"].to_pylist() == wanted
    assert meeting.met
    asked = [name for name in file_io.names("read") if name in names]
    assert sorted(asked) == sorted(names)
    file_io.forget()
    assert read.to_arrow(plan)["id"].to_pylist() == wanted
    assert not names & set(file_io.names())
