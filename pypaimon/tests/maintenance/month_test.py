"""A writer for a long time with compaction and maintenance next to it: files, requests and time stay flat."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import pyarrow as pa
import pytest

from pypaimon.streaming import MaintenancePolicy, compact, maintain, stream_write_builder
from pypaimon.streaming.commit import session
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import KEYED, Table, available, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

COMMITS = int(os.environ.get("MONTH_COMMITS", "3000" if SOAK else "300"))
"""A commit a minute for a month are 43,200."""
WITH_KIND = KEYED.append(pa.field("kind", pa.string()))
BETWEEN, KEYS = 20, 50
KEPT = MaintenancePolicy(min_snapshots=20, max_snapshots=20)


def test_a_month_of_commits_leaves_no_more_than_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The consumer of the writer is up to this many snapshots behind, and keeps them: fewer than a tenth of all.
    for name in ("MOST_AHEAD", "MOST_SNAPSHOTS"):
        monkeypatch.setattr(session, name, min(64, COMMITS // 20))
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input")
    handle = table.handle()
    store = TableDirectory.of(handle).store
    requests: list[int] = []
    seconds: list[float] = []
    files: list[int] = []
    read_rows = 0
    builder = table.builder().with_catch_up("replay")
    read = builder.new_read()
    with builder.new_streaming_scan() as scan, stream_write_builder(handle).open_sync() as writer:
        for number in range(COMMITS):
            before, begin = _count(store.requests), time.process_time()
            writer.write(pa.table({"k": [number % KEYS], "v": [f"{number}"], "kind": ["+I"]}, WITH_KIND))
            writer.commit()
            seconds.append(time.process_time() - begin)
            requests.append(_count(store.requests) - before)
            if number % BETWEEN == BETWEEN - 1:
                compact(table.handle(), full=True)
                read_rows += sum(len(rows(read, plan)) for plan in available(scan))
                maintain(table.handle(), KEPT)
                there = files_of(table.path)
                files.append(len(there))
                assert len(there) <= 1.2 * len(needed_files(table.path))
    assert read_rows == COMMITS
    assert sorted(key for key, *_ in table.rows()) == list(range(min(KEYS, COMMITS)))
    (plan,) = available(table.builder().new_streaming_scan())[:1]
    assert len(rows(table.builder().new_read(), plan)) == min(KEYS, COMMITS)
    tenth = COMMITS // 10
    # The first tenth warms up: the consumer of the writer falls behind, and the tree fills.
    first, last = mean(requests[tenth : 2 * tenth]), mean(requests[-tenth:])
    assert abs(last - first) <= 0.1 * first, (first, last)
    few = len(files) // 10
    assert max(files[-few:]) <= 1.2 * max(files[few : 2 * few]), files
    print(f"requests {first:.2f} and {last:.2f}; ms {mean(seconds[tenth : 2 * tenth]) * 1e3:.1f} and "
          f"{mean(seconds[-tenth:]) * 1e3:.1f}; files {max(files[few : 2 * few])} and {max(files[-few:])}")  # fmt: skip


def _count(requests: Mapping[str, int]) -> int:
    return sum(requests[kind] for kind in ("read", "list", "write", "delete") if kind in requests)
