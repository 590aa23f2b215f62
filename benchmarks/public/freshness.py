"""From a commit to its rows in hand: a process commits at intervals, another one follows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, quantiles
from threading import Thread

from benchmarks.measuring import text
from benchmarks.public.engines import API, FLINK, Engine, Python
from benchmarks.public.python_sides import OURS
from benchmarks.public.reading import POLL_MS
from benchmarks.public.report import Section
from benchmarks.public.rows import numbered

COMMITS, FEWEST = 200, 20
INTERVAL = 0.5
HEAD = ["", "average", "99 % within", "processor seconds"]
NOTE = f"""From the time of the snapshot's file to the first row of the commit. All sides look for a new snapshot every
{POLL_MS} ms; Flink's default is every 10 s."""


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """One table; sides follow one after the other."""
    commits = max(FEWEST, round(COMMITS * scale))
    writer = Python()
    lines = []
    try:
        for number, name in enumerate((OURS, API, FLINK)):
            late, processor = _followed(engines, name, writer, directory / str(number), commits)
            slowest = quantiles(late, n=100, method="inclusive")[-1]
            lines.append([name, f"{mean(late):.0f} ms", f"{slowest:.0f} ms", text(processor)])
    finally:
        writer.close()
    yield Section(f"Freshness: {commits} commits of 1,000 rows, one every {INTERVAL:g} s", HEAD, lines, NOTE)


def _followed(
    engines: dict[str, Engine], name: str, writer: Python, directory: Path, commits: int
) -> tuple[list[float], float]:
    """Milliseconds of each commit but the first, which opens the gate for the others; processor seconds."""
    directory.mkdir(parents=True)
    table = {"warehouse": str(directory), "table": "t"}
    options = {"write-only": "true"}
    engines[API].run("create", **table, columns=numbered(0).layout, primary_keys=[], options=options)
    given = {**table, "signal": str(directory / "seen")}
    commit = {**given, "side": OURS, "count": commits, "seconds": INTERVAL}
    writing = Thread(target=writer.call, args=("commits",), kwargs=commit)
    writing.start()
    cost = engines[name].run("follow", **given, commits=commits, poll=POLL_MS)
    writing.join()
    snapshots = directory / "db.db" / "t" / "snapshot"
    times = {number: (snapshots / f"snapshot-{number + 1}").stat().st_mtime * 1000 for number in range(1, commits)}
    shutil.rmtree(directory)
    return [cost.answer["seen"][str(number)] - time for number, time in times.items()], cost.processor
