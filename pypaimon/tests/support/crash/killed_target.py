"""Targets whose processes are killed while they follow a table, or begin to fill it at the same time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pypaimon import CatalogFactory

from pypaimon.streaming import PaimonStreamError, replicate, stream_read_builder
from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable
from support.samples import seeded

IMPORTED = ["pypaimon.streaming.testing", "pypaimon.catalog.filesystem_catalog", "pyarrow.parquet", "deltalake.fs"]
IMPORTED += ["pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "duckdb"]
IMPORTED += ["adbc_driver_postgresql.dbapi", "adbc_driver_sqlite.dbapi", "pymysql"]
"""What a process imports before it forks those of the tests, each of which would take two seconds for it."""
_FORKS = multiprocessing.get_context("forkserver")
Rows = list[dict[str, Any]]


def check_killed(
    warehouse: Path,
    keys: tuple[str, ...],
    opened: Callable[[str], Target],
    held: Callable[[str], Rows],
    kills: int,
    *,
    commit_interval: float | None = None,
) -> None:
    """Kill the process of a target at as many moments, and have the next one go on.

    Args:
        opened: Opens the target of a name; it is pickled.
        commit_interval: As `replicate` takes it.
    """
    follow = partial(_follow, warehouse, opened, interval=commit_interval)
    chance = seeded(f"kills {keys}")
    states = _history(warehouse, keys)
    seconds = _seconds_of(follow, "whole")
    name, died, number = "copy 0", 0, 0
    while died < kills:
        number += 1
        # It is there before it is killed: of a file that it has not made to its end, DuckDB opens nothing.
        opened(name)
        ended = run(follow, name, chance.uniform(0, seconds))
        assert ended in (0, -signal.SIGKILL)
        died += ended != 0
        position = opened(name).load_position()
        assert in_order(held(name)) == states[1 if position is None else position.snapshot], (number, position)
        if ended == 0:
            name = f"copy {number}"
    run(follow, name, None)
    assert in_order(held(name)) == in_order(held("whole")) == states[max(states)]
    print(f"{died} of {number} died, {seconds:.2f} s")


def _history(warehouse: Path, keys: tuple[str, ...]) -> dict[int, Rows]:
    """Make a table, and its rows before each snapshot."""
    source, rows, states = SmallTable(warehouse, keys), dict[int, dict[str, Any]](), {1: Rows()}
    for number in range(8):
        changes: list[Any] = [{"id": number, "name": "new", "number": None, "amount": 0.5}]
        if keys and number > 1:
            changes += [("-D", rows.pop(min(rows)))] if number % 3 == 0 else []
            before = rows[max(rows)]
            changes += [("-U", before), ("+U", {**before, "number": number})]
            rows[before["id"]] = changes[-1][1]
        rows[number] = changes[0]
        states[source.commit(*changes) + 1] = in_order(list(rows.values()))
    return states


def in_order(rows: Rows) -> Rows:
    """Rows of small tables, by their ids."""
    return sorted(rows, key=lambda row: int(row["id"]))


def run(follow: Callable[[str, float | None], None], name: str, seconds: float | None) -> int:
    """Follow a table to its end, in a process that is killed after some time; how it ended."""
    _FORKS.set_forkserver_preload(IMPORTED)
    process = _FORKS.Process(target=follow, args=(name, seconds), daemon=True)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _seconds_of(follow: Callable[[str, float | None], None], name: str) -> float:
    """How long it takes to follow a table to its end, in a process that is there already."""
    _FORKS.set_forkserver_preload(IMPORTED)
    receives, sends = _FORKS.Pipe(duplex=False)
    _FORKS.Process(target=_timed, args=(sends, follow, name), daemon=True).start()
    sends.close()
    return float(receives.recv())


def _timed(sends: Connection, follow: Callable[[str, float | None], None], name: str) -> None:
    begun = time.monotonic()
    follow(name, None)
    sends.send(time.monotonic() - begun)


def _follow(
    warehouse: Path, opened: Callable[[str], Target], name: str, seconds: float | None, *, interval: float | None
) -> None:
    if seconds is not None:
        dies = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        dies.daemon = True
        dies.start()
    source = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.small")
    builder = stream_read_builder(source).with_start(snapshot_id=1, full=True).with_catch_up("replay")
    replicate(builder.with_end(latest=True), opened(name), commit_interval=interval)


def race(warehouse: Path, opened: Callable[[], Target], *, is_killed: bool) -> list[str]:
    """Have two processes find an empty target, and fill it; the first is at its last batch when the other one begins.

    Args:
        opened: Opens the target; it is pickled.
        is_killed: Whether the first process is killed there, or comes to its end.

    Returns:
        How each ended that was not killed: `done`, or the name of the error.
    """
    _FORKS.set_forkserver_preload(IMPORTED)
    pairs = [_FORKS.Pipe() for _ in range(2)]
    processes = [_FORKS.Process(target=_fill, args=(there, warehouse, opened), daemon=True) for _, there in pairs]
    (first, _), (second, _) = pairs
    for process, (here, there) in zip(processes, pairs, strict=True):
        process.start()
        there.close()
        assert here.recv() == "found nothing"
    first.send("go on")
    assert first.recv() == "began"
    second.send("go on")
    if is_killed:
        processes[0].kill()
        processes[0].join()
        outcomes = []
    else:
        first.send("go on")
        outcomes = [first.recv()]
    outcome = second.recv()
    if outcome == "began":
        second.send("go on")
        outcome = second.recv()
    for process in processes:
        process.join()
    return [*outcomes, outcome]


def _fill(pipe: Connection, warehouse: Path, opened: Callable[[], Target]) -> None:
    source = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.small")
    target = opened()
    assert target.load_position() is None
    with stream_read_builder(source).with_end(latest=True).open_sync(batch_bytes=1) as stream:
        *batches, last = stream
    assert batches and batches[0].is_first and not batches[-1].is_last
    pipe.send("found nothing")
    try:
        pipe.recv()
        for batch in batches:
            target.apply(batch)
        pipe.send("began")
        pipe.recv()
        target.apply(last)
    except PaimonStreamError as error:
        pipe.send(type(error).__name__)
    else:
        pipe.send("done")
