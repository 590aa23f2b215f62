"""A day of commits with maintenance, as LST-Bench's longevity: does the last hour take as long as the first one?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean

from benchmarks.measuring import text
from benchmarks.public.engines import API, Engine
from benchmarks.public.python_sides import OURS
from benchmarks.public.report import Section
from benchmarks.public.writing import Case, prepare

HOURS, COMMITS, UPKEEPS, ROWS, KEYS = 24, 60, 6, 1_000, 100_000
"""Commits of an hour, how often ours compacts meanwhile, rows of a commit, and different keys."""
FILL = 3 * KEYS
"""Rows of the first commit, which has nearly all keys: the table hardly grows."""
OPTIONS = {"bucket": "2", "snapshot.num-retained.min": "10", "snapshot.num-retained.max": "20"}
SIDES = (OURS, API)
HEAD = ["", "first hour", "last hour", "rate of change"]
NOTE = f"""Java compacts and expires in its commits. Ours does both {UPKEEPS} times an hour in calls of their own,
which count as part of the commits. The rate of change is the mean, over the hours, of how much more an hour takes
than the one before it (the stability of LST-Bench); 0 is stable. An hour before the first one warms up."""


@dataclass
class Day:
    """What one side took, hour by hour."""

    table: dict[str, str]
    commits: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """One table: commits, reading back, and files. The sides take turns by the hour."""
    hours = max(4, round(HOURS * scale))
    rows = {"count": FILL + (1 + hours) * COMMITS * ROWS, "keys": KEYS}
    layout = prepare(engines, directory, Case("day", "", 1, "of_150_bytes", rows))
    days = {name: Day({"warehouse": str(directory / "warehouse"), "table": f"t{SIDES.index(name)}"}) for name in SIDES}
    for name, day in days.items():
        engines[API].run("create", **day.table, columns=layout, primary_keys=["k"], options=OPTIONS)
        engines[name].run("write", **day.table, input="day", first=0, rows=FILL, commits=1)
    for hour in range(1 + hours):
        for name, day in days.items():
            _hour(engines[name], day, hour)
    ends = [engines[name].run("state", **day.table, checked=True).answer for name, day in days.items()]
    assert len({(each["rows"], each["checksum"]) for each in ends}) == 1, "both sides hold the same rows"
    lines = []
    for name, day in days.items():
        lines += [
            [f"{name}: a commit", *_course(day.commits, "ms")],
            [f"{name}: processor time of a commit", *_course(day.processor, "ms")],
            [f"{name}: reading all", *_course(day.reads, "ms")],
            [f"{name}: files", *_course(day.files, "")],
        ]
    yield Section(f"{hours} hours of {COMMITS} commits, each of {ROWS:,} upserts to {KEYS:,} keys", HEAD, lines, NOTE)


def _hour(engine: Engine, day: Day, hour: int) -> None:
    """Commits, with what keeps the table small, and one read of all rows. The first hour does not count."""
    each, costs = COMMITS // UPKEEPS, []
    for part in range(UPKEEPS):
        first = FILL + (hour * COMMITS + part * each) * ROWS
        costs.append(engine.run("write", **day.table, input="day", first=first, rows=each * ROWS, commits=each))
        if engine.name == OURS:
            costs += [engine.run("compact", **day.table), engine.run("expire", **day.table)]
    read = engine.run("state", **day.table, checked=False)
    if hour:
        day.commits.append(sum(cost.seconds for cost in costs) / COMMITS * 1000)
        day.processor.append(sum(cost.processor for cost in costs) / COMMITS * 1000)
        day.reads.append(read.seconds * 1000)
        home = Path(day.table["warehouse"], "db.db", day.table["table"])
        day.files.append(sum(path.is_file() for path in home.rglob("*")))


def _course(values: list[float], unit: str) -> list[str]:
    """The first one, the last one, and the mean change from one to the next."""
    change = mean((after - before) / before for before, after in pairwise(values))
    return [f"{text(values[0])} {unit}".strip(), f"{text(values[-1])} {unit}".strip(), f"{change:+.1%}"]
