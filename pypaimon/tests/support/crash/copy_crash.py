"""Copies of a table that die: this script forks one per start, each killed at a chosen step, and tells what came of it.

A step lies before and after every request to the store, of the source and of the target.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import polars  # noqa: F401 - imported once, before the forks
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import StreamReadBuilder, copy_stream
from support.crash.crash_reader import SteppingFileIO, Steps
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


class _Output:
    """A file that is written, with a step around each of its writes."""

    def __init__(self, stream: Any, step: Any) -> None:
        self._stream = stream
        self._step = step

    def write(self, data: Any) -> Any:
        self._step()
        done = self._stream.write(data)
        self._stream.flush()
        self._step()
        return done

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SteppingCopyIO(SteppingFileIO):
    """The local store, with steps also around what is written."""

    def new_output_stream(self, path: str) -> Any:
        self._step()
        return _Output(LocalFileIO.new_output_stream(self, path), self._step)


def copied(table: Table, target: Table, at: int | None, interval: float | None) -> int:
    """Copy until the end, or until death at a step; the number of steps. `interval`: as `copy_stream` takes it."""
    step = Steps(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    link = os.link

    def stepping_link(*paths: Any) -> None:
        step()
        link(*paths)
        step()

    # How a snapshot is published on a local disk.
    os.link = stepping_link  # type: ignore[assignment]
    handle = table.handle()
    handle.file_io = SteppingCopyIO(step)
    builder = (
        StreamReadBuilder(handle).with_start(snapshot_id=1, full=True).with_catch_up("replay").with_end(latest=True)
    )
    writer = target.writer("copy")
    writer._table.handle.file_io = SteppingCopyIO(step)
    with writer.open_sync() as opened:
        copy_stream(builder, opened, commit_interval=interval)
    return step.count


def life(table: Table, target: Table, report: Path, at: int | None, interval: float | None) -> int:
    """One process from its start to its end or death: its steps; 0 if it died."""
    report.write_text("0")
    child = os.fork()
    if not child:
        try:
            report.write_text(str(copied(table, target, at, interval)))
        except BaseException:  # noqa: BLE001 - the parent is told by the exit code
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a copy that was to die at step {at} ended with {status}")
    return int(report.read_text())


def lives(directory: Path, keyed: bool, interval: float | None, deaths: list[int]) -> dict[str, Any]:
    """Copies that die one after the other at these steps, and one that lives."""
    directory.mkdir()
    table = source(directory / "warehouse", keyed)
    options = {"changelog_producer": "input"} if keyed else {}
    target = key_value_table(directory / "warehouse", "target", keyed=keyed, **options)
    steps = [life(table, target, directory / "steps", at, interval) for at in (*deaths, None)]
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
