"""A writer for a month with compaction and maintenance next to it: files, requests and processor time stay flat.

A line is printed for each day (`pytest -s`). `MONTH_COMMITS` or `SOAK=1` make it longer.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import compact, maintain, stream_read_builder, stream_write_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.maintenance.live_files import LiveFiles
from support.samples import SOAK
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import KEYED, Table, available, rows

pytestmark = [pytest.mark.soak, pytest.mark.slow]

MONTH, DAY = 43_200, 1440
"""A commit a minute."""
COMMITS = int(os.environ.get("MONTH_COMMITS", MONTH if SOAK else 240))
DAYS = max(2, COMMITS // DAY)
WARM_UP, BETWEEN, KEYS, KEPT = 140, 20, 50, 60
"""Commits before the first day, commits between two compactions, keys, and snapshots that the options keep."""
CHANGES = KEYED.append(pa.field("kind", pa.string()))


@dataclass
class Day:
    """What the commits of a day took, by 20 of them, with their compaction, maintenance and readers."""

    requests: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    objects: int = 0
    share: float = 0.0

    def line(self) -> str:
        """Requests and milliseconds of a commit, its time by that of fixed work, objects, and these by live ones."""
        requests, millis = mean(self.requests) / BETWEEN, mean(self.seconds) / BETWEEN * 1e3
        return f"{requests:10.2f} {millis:8.2f} {median(self.relative):10.3f} {self.objects:8} {self.share:8.3f}"


class Follower:
    """A stream that is followed from some state on, and checks that the row of each commit comes once."""

    def __init__(self, table: Any, number: int) -> None:
        self._next = number
        builder = stream_read_builder(table).with_catch_up("replay")
        self._read, self._scan = builder.new_read(), builder.new_streaming_scan()
        if number:
            (first,) = available(self._scan)
            state = sorted((int(value), key) for _, key, value in rows(self._read, first))
            assert state == [(each, each % KEYS) for each in range(number - KEYS, number)]

    def follow(self, end: int) -> None:
        """Read what has come, up to the commit before one."""
        found = [row for plan in available(self._scan) for row in rows(self._read, plan)]
        found.sort(key=lambda row: int(row[2]))
        assert found == [("+I", each % KEYS, f"{each}") for each in range(self._next, end)]
        self._next = end


def test_the_last_day_of_a_month_is_like_the_first(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input", snapshot__num_retained__max=f"{KEPT}")
    handles = [table.handle() for _ in range(3)]
    stores = [TableDirectory.of(each).store for each in handles]
    followers = [Follower(handles[2], 0)]
    live, work, clock = LiveFiles(table.path, KEPT), FixedWork(tmp_path / "work"), Clock(table)
    days = [Day() for _ in range(DAYS + 1)]
    print("\nday   requests       ms   relative  objects   / live")
    with stream_write_builder(handles[0]).with_maintenance("auto").open_sync() as writer:
        assert writer.maintenance is not None
        for start in range(0, WARM_UP + COMMITS, BETWEEN):
            number = _day(start)
            day, requests, seconds, compared = days[number], _count(stores), 0.0, 0.0
            if start == (WARM_UP + COMMITS) // 2 // BETWEEN * BETWEEN:
                followers.append(Follower(table.handle(), start))
            for commit in range(start, start + BETWEEN):
                begin = time.process_time()
                writer.write(pa.table({"k": [commit % KEYS], "v": [f"{commit}"], "kind": ["+I"]}, CHANGES))
                writer.commit()
                writer.maintenance.close()
                if commit == start + BETWEEN - 1:
                    compact(handles[1], full=True)
                    followers[0].follow(start + BETWEEN)
                end = time.process_time()
                seconds += end - begin
                if commit % 10 == 0:
                    compared += work.seconds()
                clock.set(commit)
                objects, needed = live.counts()
                day.objects, day.share = max(day.objects, objects), max(day.share, objects / needed)
            day.requests.append(_count(stores) - requests)
            day.seconds.append(seconds)
            day.relative.append(seconds / compared)
            for follower in followers[1:]:
                follower.follow(start + BETWEEN)
            if number != _day(start + BETWEEN):
                print(f"{number:3} {day.line()}", flush=True)
        assert writer.maintenance.last_error is None
    state = [(key, value) for key, value, *_ in table.rows()]
    assert sorted((int(value), key) for key, value in state) == [
        (each, each % KEYS) for each in range(WARM_UP + COMMITS - KEYS, WARM_UP + COMMITS)
    ]
    maintain(table.handle())
    assert files_of(table.path) == needed_files(table.path)
    first, last = days[1], days[-1]
    assert mean(last.requests) == pytest.approx(mean(first.requests), rel=0.1)
    assert max(day.share for day in days) <= 1.2
    assert last.objects <= 1.1 * first.objects
    if COMMITS >= MONTH:
        assert median(last.relative) <= 1.1 * median(first.relative)


class Clock:
    """Gives snapshots the times of a commit a minute, because those of the last two seconds are read again."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._begin = time.time() - 60 * (WARM_UP + COMMITS + 1)
        self._dated = 0

    def set(self, commit: int) -> None:
        """Give them to the new snapshots."""
        latest = self._table.latest()
        for number in range(self._dated + 1, latest + 1):
            os.utime(self._table.snapshot_path(number), (self._begin + 60 * commit,) * 2)
        self._dated = latest


class FixedWork:
    """Work that is always the same, next to which the time of other work can be compared on a machine that is not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table = pa.table({"k": [*range(50)], "v": [f"{each}" for each in range(50)]})

    def seconds(self) -> float:
        """Do it, and return the processor time that it took."""
        begin = time.process_time()
        for _ in range(2):
            pq.write_table(self._table, self._path)
            assert pq.read_table(self._path).num_rows == 50
            json.loads(json.dumps({f"{each}": [each] * 5 for each in range(300)}))
        return time.process_time() - begin


def _day(commit: int) -> int:
    """The day of a commit; 0 before the first one, while the tree fills."""
    return 0 if commit < WARM_UP else 1 + (commit - WARM_UP) * DAYS // COMMITS


def _count(stores: Any) -> int:
    kinds = ("read", "list", "write", "delete")
    return sum(each.requests[kind] for each in stores for kind in kinds if kind in each.requests)
