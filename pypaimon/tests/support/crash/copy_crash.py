"""Copies of a table that die: this script forks one per start, each killed at a chosen step, and tells what came of it.

A step lies before and after every request to the store, of the source and of the target.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import polars  # noqa: F401 - imported once, before the forks

from pypaimon.streaming import StreamReadBuilder, copy_stream
from support.crash.steps import SteppingFileIO, Steps, steps_of
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

COMMITS = 4


def source(warehouse: Path, keyed: bool) -> Table:
    """A table of some commits: of rows that are never the same, or of changes of a few keys."""
    options = {"changelog_producer": "input"} if keyed else {}
    table = key_value_table(warehouse, "source", keyed=keyed, **options)
    with table.writer("maker").open_sync() as writer:
        for number in range(COMMITS):
            writer.write(_changed(number) if keyed else rows(*range(10 * number, 10 * number + 3)))
            writer.commit()
    return table


def _changed(number: int) -> Any:
    before, now = f"v{number - 1}", f"v{number}"
    updates = [("-U", 1, before), ("+U", 1, now), ("-D", 10 + number - 1, before)] if number else [("+I", 1, now)]
    return changes(*updates, ("+I", 10 + number, now))


def copied(table: Table, target: Table, at: int | None, interval: float | None) -> int:
    """Copy until the end, or until death at a step; the number of steps. `interval`: as `copy_stream` takes it."""
    step = Steps(at)
    link = os.link

    def stepping_link(*paths: Any) -> None:
        step()
        link(*paths)
        step()

    # How a snapshot is published on a local disk.
    os.link = stepping_link  # type: ignore[assignment]
    handle = table.handle()
    handle.file_io = SteppingFileIO(step)
    builder = (
        StreamReadBuilder(handle).with_start(snapshot_id=1, full=True).with_catch_up("replay").with_end(latest=True)
    )
    writer = target.writer("copy")
    writer._table.handle.file_io = SteppingFileIO(step)
    with writer.open_sync() as opened:
        copy_stream(builder, opened, commit_interval=interval)
    return step.count


def lives(directory: Path, keyed: bool, interval: float | None, deaths: list[int]) -> dict[str, Any]:
    """Copies that die one after the other at these steps, and one that lives."""
    directory.mkdir()
    table = source(directory / "warehouse", keyed)
    options = {"changelog_producer": "input"} if keyed else {}
    target = key_value_table(directory / "warehouse", "target", keyed=keyed, **options)
    runs = [partial(copied, table, target, at, interval) for at in (*deaths, None)]
    steps = [steps_of(run, directory / "steps") for run in runs]
    found = {
        "steps": steps,
        "rows": [table.rows(), target.rows()],
        "commits": [
            [each["commitIdentifier"], json.loads(each["properties"]["pypaimon.source-position"])["snapshot"]]
            for each in map(target.snapshot, target.ids())
        ],
        "changelog": [_changelog(table), _changelog(target)] if keyed else [],
    }
    shutil.rmtree(directory)
    return found


def _changelog(table: Table) -> list[list[Any]]:
    """The changes that the table has logged, in order of their commits; those of one commit sorted."""
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_end(latest=True)
    with builder.open_sync() as stream:
        return sorted([list(row.values()) for batch in stream for row in batch.data.to_pylist()], key=str)


def main() -> None:
    """Lists of steps to die at come as JSON lines on stdin; what came of them goes to stdout."""
    directory, keyed = Path(sys.argv[1]), sys.argv[2] == "keyed"
    interval = float(sys.argv[3]) if len(sys.argv) > 3 else None
    for number, line in enumerate(sys.stdin):
        print(json.dumps(lives(directory / str(number), keyed, interval, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
