"""Parts of files: what becomes of those that were asked for together when one of them fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.io import byte_ranges
from pypaimon.streaming.io.byte_ranges import ByteRanges, Range
from pypaimon.streaming.io.store import Store
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO, Meeting

AT_ONCE, FILES = 4, 40


def test_where_one_fails_no_more_are_asked_for(tmp_path: Path) -> None:
    for number in range(FILES):
        (tmp_path / f"{number:02}").write_bytes(b"abc")
    file_io = FaultFileIO()
    failed = threading.Event()

    def answered(call: Call) -> Any:
        if call.name == "00":
            raise FileNotFoundError(2, "no such file", call.path)
        failed.wait()
        return call.answer()

    file_io.wherever(answered)
    store = Store(file_io, concurrency=AT_ONCE)
    targets = [bytearray(3) for _ in range(FILES)]
    try:
        with ByteRanges(store) as ranges, pytest.raises(FileNotFoundError):
            ranges.fill(
                [Range(f"{SCHEME}{tmp_path}/{number:02}", 0, memoryview(targets[number])) for number in range(FILES)]
            )
    finally:
        failed.set()
    # Threads take what there is in turn: all that was left has had its own.
    store.pool.run(int)
    # The thread of the one that failed may have begun another one.
    assert len(file_io.calls) <= AT_ONCE + 1


def test_a_large_range_is_read_in_pieces_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "_LARGEST", 1000)
    data = bytes(number % 251 for number in range(5500))
    (tmp_path / "blobs").write_bytes(data)
    file_io = FaultFileIO()
    meeting = Meeting(["blobs"], parties=6)
    file_io.wherever(meeting)
    store, path = Store(file_io), f"{SCHEME}{tmp_path}/blobs"
    with ByteRanges(store) as ranges:
        targets = [bytearray(5000), bytearray(300)]
        ranges.fill([Range(path, 100, memoryview(targets[0])), Range(path, 5150, memoryview(targets[1]))])
        assert (bytes(targets[0]), bytes(targets[1])) == (data[100:5100], data[5150:5450])
        assert meeting.met
        with pytest.raises(CorruptTableError, match="it ends before byte"):
            ranges.read(path, 2000, 4000)
