"""Reading over a network: a store that takes 20 ms for each request, and 50 MB/s for each connection."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import reading
from benchmarks.latency_server import COUNTS
from benchmarks.measuring import Figure, timed
from benchmarks.tables import catalog, commit, create, multiply_commits, multiply_files
from pypaimon.streaming import stream_read_builder

SCHEMA = pa.schema([("id", pa.int64())])
NUMBERS = pa.schema([(name, pa.int64()) for name in "abcd"])
LATENCY_MS = 20
MEGABYTES_PER_SECOND = 50
BEHIND = 300
FAR_BEHIND = 1000
FILES = 1000
LARGE_MB = 256
CONNECTIONS = 8
ROUNDS = 3


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    home = directory / "latency"
    local = catalog(home / "bench" / "warehouse")
    backlog = create(local, "backlog", SCHEMA)
    commit(backlog, pa.table({"id": [0]}, schema=SCHEMA))
    multiply_commits(backlog, FAR_BEHIND)
    proven = create(local, "proven", SCHEMA)
    for number in range(BEHIND + 1):
        commit(proven, pa.table({"id": [number]}, schema=SCHEMA))
    many = create(local, "many", SCHEMA)
    commit(many, pa.table({"id": [0]}, schema=SCHEMA))
    multiply_files(many, FILES)
    _large_table(local)
    reading.create_tables(local)
    with far_store(home) as far:
        return [*_behind(far), *_first_plan(far), _large_file(far), *_reads(far)]


@contextmanager
def far_store(home: Path) -> Iterator[Any]:
    """A catalog on the directory `bench/warehouse` in here, as far away as this module says."""
    command = [sys.executable, "-m", "benchmarks.latency_server", str(home)]
    command += [str(LATENCY_MS), str(MEGABYTES_PER_SECOND)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        options = {"s3.endpoint": endpoint, "s3.access-key": "bench", "s3.secret-key": "bench"}
        options |= {"s3.region": "us-east-1", "s3.path-style-access": "true"}
        far = catalog("s3://bench/warehouse", **options)
        far.counts_url = endpoint + COUNTS
        yield far
        server.stdin.close()


def asked(far: Any) -> dict[str, int]:
    """Requests by method since the last call, and how many were in flight at most."""
    with urllib.request.urlopen(far.counts_url) as answer:
        return dict(json.loads(answer.read()))


def _behind(far: Any) -> list[Figure]:
    measure = f"{BEHIND} snapshots behind, rows in hand, {LATENCY_MS} ms per request"
    found = []
    for catch_up in ("replay", "collapsed"):
        for name, run in (("open_sync()", _opened), ("plans", _planned_and_read)):
            seconds = _median(partial(_caught_up, far, catch_up, run))
            found.append(Figure(f"{measure}, {name}, {catch_up}", seconds, "s", "1.2 s", seconds <= 1.2))
    seconds = _median(lambda: _planned(_builder(far, FAR_BEHIND, "replay"), FAR_BEHIND))
    measure = f"{FAR_BEHIND} snapshots behind, plans alone, {LATENCY_MS} ms per request"
    return [*found, Figure(measure, seconds, "s", "2.5 s", seconds <= 2.5)]


def _caught_up(far: Any, catch_up: str, run: Callable[[Any, int], None]) -> None:
    run(_builder(far, BEHIND, catch_up), BEHIND)


def _first_plan(far: Any) -> list[Figure]:
    def planned() -> tuple[Any, Any]:
        builder = stream_read_builder(far.get_table("db.many"))
        plan = builder.new_streaming_scan().plan()
        assert plan is not None
        return builder, plan

    def all_rows() -> None:
        builder, plan = planned()
        assert builder.new_read().to_arrow(plan.splits()).num_rows == FILES

    def first_rows() -> None:
        with stream_read_builder(far.get_table("db.many")).open_sync() as stream:
            next(iter(stream))

    measure = f"first plan of {FILES} small files, {LATENCY_MS} ms per request"
    whole, first, goal = _median(all_rows), _median(first_rows), _median(planned) + 0.1
    return [
        Figure(measure, whole, "s", "1 s", whole <= 1.0),
        Figure(f"{measure}, first rows", first, "s", f"a plan and 0.1 s: {goal:.2f} s", first <= goal),
    ]


def _large_file(far: Any) -> Figure:
    builder = stream_read_builder(far.get_table("db.large")).with_start("earliest")
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    read, size = builder.new_read(), sum(split.file_size for split in plan.splits())
    seconds = _median(lambda: [None for _ in read.iter_batches(plan.splits())])
    share = size / 1e6 / seconds / MEGABYTES_PER_SECOND / CONNECTIONS
    measure = f"a file of {size / 1e6:.0f} MB, {MEGABYTES_PER_SECOND} MB/s per connection"
    return Figure(measure, share * CONNECTIONS, "connections", f"0.8 of {CONNECTIONS}", share >= 0.8)


def _reads(far: Any) -> list[Figure]:
    """The lines of `reading` once more, by the clock."""
    lines = reading.lines(far, f", {LATENCY_MS} ms per request", timed)
    return [figure for line, _, sides in lines for figure in line.beside_peers(sides, ROUNDS)]


def _builder(far: Any, backlog: int, catch_up: str) -> Any:
    if catch_up == "collapsed":
        # Of commits by pypaimon it is proven that one plan gives the same rows.
        return stream_read_builder(far.get_table("db.proven")).with_start(snapshot_id=2)
    builder = stream_read_builder(far.get_table("db.backlog")).with_start(snapshot_id=FAR_BEHIND + 2 - backlog)
    return builder.with_catch_up("replay")


def _opened(builder: Any, rows: int) -> None:
    with builder.open_sync() as stream:
        for batch in stream:
            rows -= batch.num_rows
            if not rows:
                return


def _planned_and_read(builder: Any, rows: int) -> None:
    scan, read = builder.new_streaming_scan(), builder.new_read()
    while rows:
        plan = scan.plan()
        if plan is not None:
            rows -= read.to_arrow(plan.splits()).num_rows
    scan.close()


def _planned(builder: Any, plans: int) -> None:
    scan = builder.new_streaming_scan()
    while plans:
        plans -= scan.plan() is not None
    scan.close()


def _large_table(warehouse: Any) -> None:
    """A table of one file of numbers that nothing makes smaller."""
    table = create(warehouse, "large", NUMBERS, options={"file.compression": "none", "target-file-size": "1 gb"})
    rng, rows = np.random.default_rng(0), LARGE_MB * 1_000_000 // 8 // len(NUMBERS)
    commit(table, pa.table({name: rng.integers(0, 1 << 62, rows) for name in NUMBERS.names}, schema=NUMBERS))


def _median(run: Callable[[], object]) -> float:
    return median(timed(run) for _ in range(ROUNDS))
