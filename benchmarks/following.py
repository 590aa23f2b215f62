"""Following a table: requests to a store, catching up when each takes 20 ms, memory, the event loop, import time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pyarrow as pa

from benchmarks import rust_peer
from benchmarks.measuring import PEER, Figure, timed
from benchmarks.planning import many_files
from benchmarks.reading_lines import NATIVE, NATIVE_PEER
from benchmarks.s3_server import COUNTS
from benchmarks.tables import (
    add_compactions,
    catalog,
    commit,
    create,
    multiply_commits,
    multiply_rows,
    peer_plans,
    slowed,
    some_rows,
)
from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.io.object_reads import SWITCH

SCHEMA = pa.schema([("id", pa.int64())])
LATENCY_MS = 20
MANY = 1000
BEHIND = 20
STATE_ROWS = 50_000
COPIES = 80
POLL_MS = 250
COMMITS = 120
COMMIT_SECONDS = 0.4045
"""Between two commits, so that they come at any point of a poll interval."""
STALL_RUNS = 5


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    return [
        *_requests(),
        *_catch_up(directory),
        *_far_behind(directory),
        *_latency(directory),
        *_event_loop(directory),
        _import_time(),
    ]


def _row(number: int) -> pa.Table:
    return pa.table({"id": [number]}, schema=SCHEMA)


# ---- requests ----


@contextmanager
def s3_catalog() -> Iterator[tuple[Any, Callable[[], int]]]:
    """A catalog on an S3 server, and a function that returns the number of requests since the last call."""
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.s3_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        home = f"http://127.0.0.1:{int(server.stdout.readline())}"
        urllib.request.urlopen(urllib.request.Request(f"{home}/bench", method="PUT")).close()

        def requests() -> int:
            with urllib.request.urlopen(home + COUNTS) as answer:
                return sum(json.loads(answer.read()).values())

        options = {"s3.endpoint": home, "s3.access-key": "bench", "s3.secret-key": "bench", "s3.region": "us-east-1"}
        yield catalog("s3://bench/warehouse", **options, **{"s3.path-style-access": "true"}), requests
    finally:
        server.stdin.close()
        server.wait(10)


def _requests() -> list[Figure]:
    with s3_catalog() as (warehouse, requests):
        table = create(warehouse, "t", SCHEMA)
        commit(table, _row(0))
        with switched("off"):
            ours = _our_requests(warehouse, requests, table)
        with switched("on"):
            fast = _our_requests(warehouse, requests, table)
        peers = {PEER: _peer_requests(warehouse, requests, table, {})}
        if rust_peer.is_there():
            peers[NATIVE_PEER] = _peer_requests(warehouse, requests, table, NATIVE)
    unread = f"per snapshot, {BEHIND} behind"
    goals = {"idle poll": (1.0, 1.0), "one new snapshot": (7.0, 4.0), unread: (6 + 2 / BEHIND, 3 + 2 / BEHIND)}
    # A rollback shows only in snapshots that are read again. Looking at LATEST sooner would cost those who keep up.
    limits = {unread: "+3 at least: LATEST, the snapshot before and the last one again; +2: two single steps first"}
    found = []
    for name, pair in goals.items():
        for counted, goal, extra in zip((ours, fast), pair, ("", ", extra fast"), strict=True):
            value, measure = counted[name], f"HTTP requests, {name}{extra}"
            found += [
                Figure(measure, value, "", f"{goal:g}", value <= goal, asked[name], peer, limit=limits.get(name, ""))
                for peer, asked in peers.items()
            ]
    return found


@contextmanager
def switched(value: str) -> Iterator[None]:
    """The client of the extra `fast` on or off."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = value
    try:
        yield
    finally:
        del os.environ[SWITCH]
        if before is not None:
            os.environ[SWITCH] = before


def _our_requests(warehouse: Any, requests: Callable[[], int], table: Any) -> dict[str, float]:
    builder = stream_read_builder(warehouse.get_table("db.t")).with_start("latest").with_prefetch(0)
    scan = builder.with_catch_up("replay").new_streaming_scan()
    assert [scan.plan(), scan.plan()] == [None, None]
    requests()
    polls = 10
    for _ in range(polls):
        assert scan.plan() is None
    idle = requests() / polls
    commit(table, _row(1))
    requests()
    assert scan.plan() is not None
    new = requests()
    for number in range(BEHIND):
        commit(table, _row(number))
    requests()
    for _ in range(BEHIND):
        assert scan.plan() is not None
    return {"idle poll": idle, "one new snapshot": new, f"per snapshot, {BEHIND} behind": requests() / BEHIND}


def _peer_requests(
    warehouse: Any, requests: Callable[[], int], table: Any, options: dict[str, str]
) -> dict[str, float]:
    latest = table.snapshot_manager().get_latest_snapshot().id
    counted: dict[str, float] = {}
    with peer_plans(warehouse.get_table("db.t").copy(options), next_snapshot=latest + 1) as next_plan:
        for number in range(BEHIND):
            commit(table, _row(number))
        requests()
        for _ in range(BEHIND):
            next_plan()
        counted[f"per snapshot, {BEHIND} behind"] = requests() / BEHIND
    with peer_plans(warehouse.get_table("db.t").copy(options), next_snapshot=latest + BEHIND) as next_plan:
        requests()
        next_plan()
        # With nothing prefetched this is one look-ahead for the snapshot, and one for the next, which is idle.
        both = requests()
    scan = table.snapshot_manager()
    requests()
    scan.find_next_scannable(latest + BEHIND + 1, lambda _: True, lookahead_size=10)
    counted["idle poll"] = requests()
    counted["one new snapshot"] = both
    return counted


# ---- catching up ----


def _catch_up(directory: Path) -> list[Figure]:
    warehouse = catalog(directory / "catch_up")
    table = create(warehouse, "t", SCHEMA)
    for number in range(41):
        commit(table, _row(number))
    compacted = create(warehouse, "c", SCHEMA)
    commit(compacted, _row(0))
    add_compactions(compacted, 50)
    commit(compacted, _row(1))
    return [
        _behind(warehouse, "t", "40 snapshots behind", plans=40, goal=1.0),
        _behind(warehouse, "c", "50 COMPACT snapshots passed over", plans=1, goal=0.3),
    ]


def _behind(warehouse: Any, name: str, what: str, plans: int, goal: float) -> Figure:
    ours = min(timed(lambda: _replay(slowed(warehouse, name, LATENCY_MS), 2, plans)) for _ in range(3))
    peer = timed(lambda: _peer_replay(slowed(warehouse, name, LATENCY_MS), 2, plans))
    return Figure(f"{what}, {LATENCY_MS} ms per request", ours, "s", f"{goal:g} s", ours <= goal, peer)


def _replay(table: Any, first: int, plans: int) -> None:
    builder = stream_read_builder(table).with_start(snapshot_id=first).with_catch_up("replay")
    scan = builder.new_streaming_scan()
    for _ in range(plans):
        while scan.plan() is None:
            pass
    scan.close()


def _peer_replay(table: Any, first: int, plans: int) -> None:
    with peer_plans(table, next_snapshot=first) as next_plan:
        for _ in range(plans):
            next_plan()


def _far_behind(directory: Path) -> list[Figure]:
    warehouse = catalog(directory / "far_behind")
    table = create(warehouse, "t", SCHEMA)
    commit(table, _row(0))
    multiply_commits(table, MANY)
    state = create(warehouse, "state", primary_keys=["id"], options={"bucket": "1"})
    for seed in range(3):
        commit(state, some_rows(STATE_ROWS, seed, spread=2 * STATE_ROWS))
    multiply_rows(state, COPIES, 2 * STATE_ROWS)
    records = f"{3 * COPIES * STATE_ROWS / 1e6:g} M records"
    grown = [
        (f"memory grown between snapshots {MANY // 5} and {MANY} of a catch-up", "t", "catch-up", 5.0),
        (f"memory grown in the second half of a first plan of {records}", "state", "first-plan", 15.0),
    ]
    return [_grown(directory, *each) for each in grown]


def _grown(directory: Path, measure: str, name: str, what: str, goal: float) -> Figure:
    command = [sys.executable, "-m", "benchmarks.memory", str(directory / "far_behind"), f"db.{name}", what]
    grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Figure(measure, grown, "MB", f"flat ({goal:g} MB)", grown <= goal)


# ---- from a commit to its rows ----


def _latency(directory: Path) -> list[Figure]:
    """Seconds from the time of a snapshot file to its rows in hand, while another process commits."""
    warehouse = catalog(directory / "latency")
    table = create(warehouse, "t", SCHEMA)
    commit(table, _row(0))
    builder = stream_read_builder(table).with_start("latest").with_poll_interval_ms(POLL_MS)
    scan, read = builder.new_streaming_scan(), builder.new_read()
    request = median(timed(scan.plan) for _ in range(20)) * 1000
    command = [sys.executable, "-m", "benchmarks.writer", str(directory / "latency"), str(COMMITS), str(COMMIT_SECONDS)]
    took: list[float] = []
    with subprocess.Popen(command) as writer, scan.stream_sync() as plans:
        for plan in plans:
            rows = read.to_arrow(plan.splits()).num_rows
            path = Path(str(table.table_path)) / "snapshot" / f"snapshot-{plan.snapshot_id}"
            took += [(time.time() - path.stat().st_mtime) * 1000] * rows
            if len(took) == COMMITS:
                break
        writer.wait()
    goal = POLL_MS / 2 + 3 * request
    measure = f"commit to rows in hand, mean, polled every {POLL_MS} ms"
    # The standard error of waits that are spread evenly over a poll interval.
    mean, exact = fmean(took), POLL_MS / sqrt(12 * COMMITS)
    limit = f"the mean of {COMMITS} waits for a poll is exact to {exact:.0f} ms" if mean < goal + exact else ""
    words = f"half a poll and 3 requests: {goal:.0f} ms"
    return [Figure(measure, mean, "ms", words, mean <= goal, limit=limit)]


# ---- the event loop ----


def _event_loop(directory: Path) -> list[Figure]:
    warehouse = catalog(directory / "loop")
    table = create(warehouse, "t", SCHEMA)
    for number in range(4):
        commit(table, _row(number))
    slow = slowed(warehouse, "t", 300)
    many = many_files(directory.parent / "planning").get_table("db.many")
    return [
        _stall("event-loop stall while each request takes 300 ms", slow, 5),
        _stall("event-loop stall while 100,000 entries are planned", many, 50),
    ]


def _stall(measure: str, table: Any, goal: float) -> Figure:
    """The longest stall during a first plan, compared with that of an idle loop.

    Of several runs the smallest counts, on either side: another process may stall both.
    """
    longest, idle = [], []
    for _ in range(STALL_RUNS):
        begin = time.perf_counter()
        longest.append(asyncio.run(_longest_stall(_first_plan(table))))
        idle.append(asyncio.run(_longest_stall(asyncio.sleep(time.perf_counter() - begin))))
    return Figure(measure, min(longest), "ms", f"{goal:g} ms", min(longest) <= goal, min(idle), "an idle loop")


async def _first_plan(table: Any) -> None:
    async with stream_read_builder(table).new_streaming_scan().stream() as stream:
        async for _ in stream:
            break


async def _longest_stall(work: Coroutine[Any, Any, None]) -> float:
    """The longest time, in milliseconds, that the event loop did not get round to a task while it did some work."""
    longest = 0.0

    async def heartbeat() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)

    beating = asyncio.create_task(heartbeat())
    await work
    beating.cancel()
    return longest * 1000


# ---- import ----

_IMPORT = """
import time
from pypaimon import CatalogFactory
begin = time.process_time()
from pypaimon.streaming import stream_read_builder
print((time.process_time() - begin) * 1000)
"""


def _import_time() -> Figure:
    times = []
    for _ in range(7):
        output = subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True).stdout
        times.append(float(output))
    took = median(times)
    return Figure("processor time to import stream_read_builder, above pypaimon's own", took, "ms", "50 ms", took <= 50)
