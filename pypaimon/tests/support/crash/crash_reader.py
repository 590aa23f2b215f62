"""Reader processes that die: this script forks one per start, each killed at a chosen step, and tells what came.

A step is what a process may die before: every request to the store, its answer, a plan in hand, its rows, the rows in
the sink, the commit. The sink is a file with one line per plan, its rows and its position together, written at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import fastavro  # noqa: F401 - imported once, before the forks
import pandas  # noqa: F401
import polars  # noqa: F401
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import Position, StreamReadBuilder
from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from support.crash.steps import SteppingFileIO, Steps, steps_of
from support.tables.streamed_table import Table

CONSUMER = "etl"
FIRST = 2
"""The stream begins with the full state of this snapshot."""
LAST = 6
"""It ends with this one."""


def history(warehouse: Path) -> Table:
    """Six snapshots of two files each, snapshot n with the keys 10 n to 10 n + 3; the fourth is an overwrite."""
    table = Table(warehouse, bucket="2", bucket_key="k")
    for number in range(1, LAST + 1):
        table.commit(range(10 * number, 10 * number + 4), overwrite=number == 4)
    return table


@dataclass(frozen=True)
class Reader:
    """How the readers of a scenario are set up.

    Attributes:
        resume: Where a restart goes on: `consumer` or `position`.
        commit: `auto` or `manual`.
        plan_units: Units per plan, None for whole snapshots.
        death: `SIGKILL`, or `SIGTERM` with a handler that stops the scan.
    """

    resume: str
    commit: str
    plan_units: int | None
    death: str
    prefetch: int


@dataclass
class Life:
    """What one process did.

    Attributes:
        plans: Snapshot and keys of each plan that reached the sink.
        saved: What the consumer files say after it, by id.
        steps: How many steps it took to its end; 0 if it died.
    """

    plans: list[tuple[int, list[int]]]
    saved: dict[str, int]
    steps: int


def read(table: Table, reader: Reader, sink: Path, at: int | None) -> int:
    """Read until the end, or until death at a step; the number of steps."""
    step = Steps(at, lambda: os.kill(os.getpid(), getattr(signal, reader.death)))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handle = table.handle()
    handle.file_io = SteppingFileIO(step)
    builder = StreamReadBuilder(handle).with_prefetch(reader.prefetch).with_end(snapshot_id=LAST)
    builder.with_on_overwrite("skip")
    builder.with_limits(max_splits=reader.plan_units)
    written = sink.read_text().splitlines() if sink.exists() else []
    if reader.resume == "position" and written:
        builder.with_start(position=Position.from_json(json.loads(written[-1])["position"]))
    else:
        builder.with_start(snapshot_id=FIRST, full=True)
    if reader.resume == "consumer":
        builder.with_consumer_id(CONSUMER, commit=reader.commit)
    rows_of = builder.new_read()
    scan = builder.new_streaming_scan()
    signal.signal(signal.SIGTERM, lambda *_: scan.stop())
    with sink.open("ab", buffering=0) as out, scan:
        for plan in scan.stream_sync():
            step()
            keys = rows_of.to_arrow(plan.splits())["k"].to_pylist()
            line = {"snapshot": plan.snapshot_id, "keys": keys, "position": plan.position.to_json()}
            step()
            out.write(json.dumps(line).encode() + b"\n")
            step()
            if reader.resume == "consumer" and reader.commit == "manual":
                scan.commit(plan)
            step()
    return step.count


def live(table: Table, reader: Reader, sink: Path, at: int | None) -> Life:
    """One process from its start to its end or death; afterwards snapshots expire as far as the consumers let them."""
    before = len(sink.read_text().splitlines()) if sink.exists() else 0
    steps = steps_of(lambda: read(table, reader, sink, at), sink.with_name("steps"))
    plans = [json.loads(line) for line in sink.read_text().splitlines()[before:]] if sink.exists() else []
    manager = ConsumerManager(LocalFileIO(), str(table.path))
    saved = {info.name.text: info.next_snapshot for info in manager.infos()}
    table.expire(min([*saved.values(), LAST]) if saved else FIRST)
    return Life([(plan["snapshot"], plan["keys"]) for plan in plans], saved, steps)


def lives(table: Table, directory: Path, reader: Reader, deaths: list[int]) -> list[Life]:
    """Processes that die one after the other at these steps, on one copy of the table, and one that lives."""
    copy = table.copy(directory / "warehouse")
    found = [live(copy, reader, directory / "sink", at) for at in (*deaths, None)]
    shutil.rmtree(directory)
    return found


def main() -> None:
    """Lists of steps to die at come as JSON lines on stdin; the lives that each came to go to stdout."""
    directory, reader = Path(sys.argv[1]), Reader(**json.loads(sys.argv[2]))
    table = history(directory / "warehouse")
    for number, line in enumerate(sys.stdin):
        run = directory / str(number)
        run.mkdir()
        found = lives(table, run, reader, json.loads(line))
        print(json.dumps([asdict(life) for life in found]), flush=True)


if __name__ == "__main__":
    main()
