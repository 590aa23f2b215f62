"""Parts of files: what becomes of those that were asked for together when one of them fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fault_file_io import SCHEME, Call, FaultFileIO

from pypaimon.streaming.io.byte_ranges import ByteRanges, Range
from pypaimon.streaming.io.store import Store

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
