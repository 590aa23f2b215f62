"""Java and ours commit to one table at the same time: every commit of either is there once, in one line of snapshots.

`make differential` and `make soak` run the same test with more commits; the machine needs Maven and a JDK.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamReadBuilder, stream_write_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.java.live import JavaError, LiveJava
from support.samples import histories
from support.tables.handles import batch_table

pytestmark = [pytest.mark.java, pytest.mark.soak]

COMMITS = histories(10)
OURS = 1_000_000
"""Keys of ours begin here, those of Java at 0."""
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_each_commit_is_there_once(java: LiveJava, tmp_path: Path, keyed: bool) -> None:
    table = made(java, tmp_path, keyed)
    ours = 0
    with ThreadPoolExecutor(1) as pool, stream_write_builder(table).with_commit_user("ours").open_sync() as writer:
        # The writer is open: one commit of ours at least is under way at the same time, on a busy machine too.
        running = pool.submit(javas, java)
        while ours == 0 or not running.done():
            writer.write(pa.table({"k": [OURS + ours], "v": ["ours"]}, schema=COLUMNS))
            writer.commit(ours)
            ours += 1
        given_up = running.result()
    print(f"{COMMITS} commits of Java, {ours} of ours; Java gave up {given_up or 'none'}")
    expected = Counter({OURS + each: 1 for each in range(ours)}) + Counter(range(COMMITS))
    for who, keys in {"java": java_reads(java), "ours": batch_reads(table), "stream": stream_reads(table)}.items():
        # What Java said to have failed may be there, once: the answer to a rename tells no more.
        found = Counter(keys) + Counter(each for each in given_up if each not in keys)
        assert found == expected, f"{who}: lost {expected - found}, too many {found - expected}"
    snapshots = TableDirectory.of(table).snapshots.list_snapshots()
    assert [each.id for each in snapshots] == list(range(1, len(snapshots) + 1))
    assert [each.commit_identifier for each in snapshots if each.commit_user == "ours"] == list(range(ours))
    assert [each.total_record_count for each in snapshots] == list(range(1, len(snapshots) + 1))


def made(java: LiveJava, warehouse: Path, keyed: bool) -> Any:
    # Waits of up to ten seconds would leave the table to one of them.
    waits = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "20 ms", "commit.max-retries": "100"}
    options = {"write-only": "true", **waits}
    java.call(
        "create", warehouse=str(warehouse), fields=[["k", "BIGINT NOT NULL"], ["v", "STRING"]], partition_keys=[],
        primary_keys=["k"] if keyed else [], options=options | ({"bucket": "1"} if keyed else {}),
    )  # fmt: skip
    return CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")


def javas(java: LiveJava) -> list[int]:
    """Commits of Java; those that it gave up after its retries."""
    given_up = []
    for key in range(COMMITS):
        with suppress(JavaError):
            java.call("write", flushes=[[["+I", key, "java"]]])
            continue
        given_up.append(key)
    return given_up


def java_reads(java: LiveJava) -> list[int]:
    """Keys as Java's batch read gives them."""
    reply = java.call("read", options={"scan.mode": "latest-full"})
    assert reply["end"] == "waiting", reply
    return [int(row[-2]) for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]


def batch_reads(table: Any) -> list[int]:
    """Keys as pypaimon's batch read gives them."""
    found: list[int] = batch_table(table)["k"].to_pylist()
    return found


def stream_reads(table: Any) -> list[int]:
    """Keys as our stream gives them, commit by commit."""
    builder = StreamReadBuilder(table).with_start("earliest").with_catch_up("replay").with_end(latest=True)
    with builder.open_sync() as stream:
        return [key for batch in stream for key in batch.data["k"].to_pylist()]
