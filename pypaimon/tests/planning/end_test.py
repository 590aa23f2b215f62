"""Bounds and the delay to the millisecond: what lies exactly at them is read, as in Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pypaimon.streaming.options.between import End
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table

TIME = 1_700_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits a second apart, with watermarks 10, 20, 30."""
    table = Table(tmp_path / "w")
    for number in (1, 2, 3):
        table.commit([number])
        path = table.snapshot_path(number)
        said = {"timeMillis": TIME + 1000 * number, "watermark": 10 * number}
        path.write_text(json.dumps({**table.snapshot(number), **said}))
    return table


@pytest.mark.parametrize(("bound", "read"), [(19, [1]), (20, [1, 2]), (21, [1, 2])])
def test_a_watermark_at_the_bound_is_read_and_one_beyond_it_ends_the_stream(
    table: Table, bound: int, read: list[int]
) -> None:
    drive = Drive.of(table, EARLIEST, end_watermark=bound)
    assert drive.keys() == read
    assert drive.state.ended


@pytest.mark.parametrize(("after", "read"), [(1999, [1]), (2000, [1, 2]), (2001, [1, 2])])
def test_a_commit_at_the_end_is_read_and_one_after_it_ends_the_stream(
    table: Table, after: int, read: list[int]
) -> None:
    drive = Drive.of(table, EARLIEST, end=End(millis=TIME + after))
    assert drive.keys() == read
    assert drive.state.ended


def test_a_stream_that_is_caught_up_ends_when_its_last_millisecond_is_over(table: Table) -> None:
    """Until then another commit of that time may come."""
    drive = Drive.of(table, EARLIEST, end=End(millis=TIME + 5000), millis=TIME + 5000)
    assert drive.keys() == [1, 2, 3]
    assert not drive.state.ended
    drive.millis += 1
    assert drive.keys() == []
    assert drive.state.ended


@pytest.mark.parametrize(("now", "read"), [(11_999, [1]), (12_000, [1, 2]), (12_001, [1, 2])])
def test_a_snapshot_is_held_back_for_the_delay_and_no_longer(table: Table, now: int, read: list[int]) -> None:
    drive = Drive.of(table, EARLIEST, delay_ms=10_000, millis=TIME + now)
    assert drive.keys() == read
    drive.millis = TIME + 20_000
    assert drive.keys() == [1, 2, 3][len(read) :]
