"""What is on its way besides whole files: parts of merged changelogs, files that are joined, indexes of blobs."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import CorruptTableError, IOTimeoutError
from pypaimon.streaming.io import fetch_ahead
from pypaimon.streaming.io.fetch_ahead import FetchLimits
from pypaimon.streaming.io.store import HUNG_ATTEMPTS
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from support.stores.fault_file_io import FORBIDDEN, SCHEME, UNAVAILABLE, Call, FaultFileIO, Meeting
from support.stores.request_time import hang
from support.tables.blob_tables import blob_table
from support.tables.handles import EVOLUTION, create_table
from support.tables.stream_files import meta, put, reader, records, split

KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
PLAIN = pa.schema([("id", pa.int64()), ("v", pa.string())])
BUCKETS = 4


@pytest.fixture
def store() -> FaultFileIO:
    return FaultFileIO()


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> FetchLimits:
    """Those of the process, for this test alone."""
    limits = FetchLimits(256 << 20, 64)
    monkeypatch.setitem(fetch_ahead._of_process, "limits", limits)
    return limits


def far(table: Any, store: FaultFileIO) -> Any:
    table.file_io, table.table_path = store, SCHEME + str(table.table_path)
    return table


def is_idle(read: Any) -> bool:
    """Whether nothing is held, once threads that let go of something have done so."""
    store, end = read._parts.get().directory.store, time.monotonic() + 60
    ahead = store.ahead
    while time.monotonic() < end:
        with ahead._lock.held:
            if (ahead.in_flight, ahead.held_bytes, ahead._lanes, ahead._fetches) == (0, 0, [], {}):
                return True
        store.pool.run(lambda: None)
    return False


def merged(table: Any, name: str, first_key: int) -> tuple[str, list[StreamSplit]]:
    """A changelog file that holds those of all buckets, one key in each: its name, and a split for each."""
    contents = []
    for key in range(first_key, first_key + BUCKETS):
        sink = io.BytesIO()
        pq.write_table(records([0], pa.table({"id": [key], "v": ["é"]}, KEYED)), sink)
        contents.append(sink.getvalue())
    home = Path(str(table.table_path).removeprefix(SCHEME))
    base = f"{name}$0-{len(contents[0])}"
    real = home / "bucket-0" / f"{base}.cc-parquet"
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_bytes(b"".join(contents))
    found, offset = [], 0
    for bucket, content in enumerate(contents):
        parts = f"-{offset}-{len(content)}" if bucket else ""
        file = meta(home / f"bucket-{bucket}" / f"{base}{parts}.cc-parquet", 1)
        file.file_path = SCHEME + str(file.file_path)
        found.append(split(SplitMode.CHANGELOG, [file]))
        offset += len(content)
    return real.name, found


def changelogs(warehouse: Any, store: FaultFileIO) -> tuple[Any, list[str], list[StreamSplit]]:
    """A read of two such files, their names, and splits in which they take turns."""
    table = far(create_table(warehouse, "k", KEYED, primary_keys=["id"], options={"bucket": str(BUCKETS)}), store)
    (one, first), (two, second) = merged(table, "one", 0), merged(table, "two", BUCKETS)
    splits = [each for pair in zip(first, second, strict=True) for each in pair]
    return reader(table, include_row_kind=False), [one, two], splits


def test_a_merged_changelog_of_many_buckets_is_one_request_and_two_are_at_once(
    warehouse: Any, store: FaultFileIO
) -> None:
    read, names, splits = changelogs(warehouse, store)
    meeting = Meeting(names)
    store.wherever(meeting)
    assert sorted(read.to_arrow(splits)["id"].to_pylist()) == list(range(2 * BUCKETS))
    assert meeting.met
    assert sorted(name for name in store.names("read") if name in names) == sorted(names)
    assert is_idle(read)


@pytest.mark.parametrize("room", [0, 1500])
def test_parts_of_a_merged_changelog_that_find_no_room_are_asked_for_one_by_one(
    warehouse: Any, store: FaultFileIO, limits: FetchLimits, room: int
) -> None:
    limits.bytes = room
    read, names, splits = changelogs(warehouse, store)
    assert sorted(read.to_arrow(splits)["id"].to_pylist()) == list(range(2 * BUCKETS))
    assert 2 < len([name for name in store.names("read") if name in names]) <= 2 * BUCKETS
    assert is_idle(read)


def test_a_merged_changelog_that_fails_is_an_error_for_each_part(warehouse: Any, store: FaultFileIO) -> None:
    read, names, splits = changelogs(warehouse, store)

    def fail(call: Call) -> Any:
        if call.name in names:
            raise FORBIDDEN
        return call.answer()

    store.wherever(fail)
    with pytest.raises(CorruptTableError, match="credentials"):
        read.to_arrow(splits)
    assert is_idle(read)
    store.wherever(None)
    assert read.to_arrow(splits).num_rows == 2 * BUCKETS


def test_a_merged_changelog_that_fails_for_now_is_asked_for_once_more(warehouse: Any, store: FaultFileIO) -> None:
    read, names, splits = changelogs(warehouse, store)
    left = set(names)

    def fail_once(call: Call) -> Any:
        if call.name in left:
            left.remove(call.name)
            raise UNAVAILABLE
        return call.answer()

    store.wherever(fail_once)
    assert sorted(read.to_arrow(splits)["id"].to_pylist()) == list(range(2 * BUCKETS))
    assert sorted(name for name in store.names("read") if name in names) == sorted([*names, *names])
    assert is_idle(read)


def test_a_reader_that_stops_within_a_merged_changelog_leaves_nothing_behind(
    warehouse: Any, store: FaultFileIO
) -> None:
    read, _, splits = changelogs(warehouse, store)
    batches = read.iter_batches(splits)
    next(batches)
    batches.close()
    assert is_idle(read)


def joined(warehouse: Any, store: FaultFileIO) -> tuple[Any, list[StreamSplit]]:
    """A table of three groups of two files, each of which holds one column."""
    table = create_table(warehouse, "e", PLAIN, options=EVOLUTION)
    files = []
    for group in range(3):
        first = {"first_row_id": 10 * group}
        files.append(put(table, f"id-{group}.parquet", pa.table({"id": range(10)}), **first, write_cols=["id"]))
        texts = pa.table({"v": ["v"] * 10})
        files.append(put(table, f"v-{group}.parquet", texts, **first, write_cols=["v"], max_sequence_number=1))
    for file in files:
        file.file_path = SCHEME + str(file.file_path)
    return far(table, store), [split(SplitMode.EVOLUTION, files)]


def test_files_that_are_joined_are_at_once(warehouse: Any, store: FaultFileIO) -> None:
    table, splits = joined(warehouse, store)
    names = [f"{column}-{group}.parquet" for column in ("id", "v") for group in range(3)]
    meeting = Meeting(names, 6)
    store.wherever(meeting)
    read = reader(table, include_row_kind=False)
    assert read.to_arrow(splits).to_pylist() == [{"id": key, "v": "v"} for _ in range(3) for key in range(10)]
    assert meeting.met
    assert sorted(name for name in store.names("read") if name in names) == sorted(names)
    assert is_idle(read)


def test_files_of_columns_that_are_not_read_are_not_asked_for(warehouse: Any, store: FaultFileIO) -> None:
    table, splits = joined(warehouse, store)
    read = reader(table, include_row_kind=False, projection=("id",))
    assert read.to_arrow(splits)["id"].to_pylist() == 3 * list(range(10))
    assert is_idle(read)
    assert sorted(name for name in store.names("read") if "parquet" in name) == [f"id-{i}.parquet" for i in range(3)]


def test_a_schema_that_hangs_is_an_error_as_soon_as_without_fetching_ahead(warehouse: Any, store: FaultFileIO) -> None:
    table, splits = joined(warehouse, store)
    splits[0].files[0].schema_id = 1
    over = threading.Event()

    def hangs(call: Call) -> Any:
        if call.name == "schema-1":
            hang(over)
        return call.answer()

    store.wherever(hangs)
    read = reader(table, include_row_kind=False)
    with pytest.raises(IOTimeoutError):
        read.to_arrow(splits)
    over.set()
    assert store.names("read").count("schema-1") == HUNG_ATTEMPTS
    assert is_idle(read)


def test_indexes_of_blob_files_are_asked_for_with_the_files_they_belong_to(tmp_path: Path, store: FaultFileIO) -> None:
    table = blob_table(tmp_path)
    for number in range(4):
        table.commit([(number, "n", b"blob %d" % number)])
    builder = table.state_builder(store)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    names = [path.name for path in [*table.files(".parquet"), *table.files(".blob")]]
    assert len(names) == 8
    meeting = Meeting(names, 8)
    store.wherever(meeting)
    read = builder.new_read()
    assert read.to_arrow(plan.splits())["b"].to_pylist() == [b"blob %d" % number for number in range(4)]
    assert meeting.met
    assert is_idle(read)
    # Its index, and then the blob.
    assert len([name for name in store.names("read") if name.endswith(".blob")]) == 8
