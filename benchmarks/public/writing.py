"""Writing and upserting as Paimon's own benchmarks do, and reading back what was written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.public import rows as made_rows
from benchmarks.public.engines import API, ROUNDS, WARM, Cost, Engine
from benchmarks.public.python_sides import OURS
from benchmarks.public.report import Section, compared
from benchmarks.public.rows import Rows

SIDES = (OURS, API)


@dataclass(frozen=True)
class Case:
    """What is written.

    Attributes:
        name: Of the table.
        title: In the report.
        commits: In how many commits of equal size.
        kind: The function of `rows` that makes the rows.
        arguments: Of it.
        buckets: Of the table.
    """

    name: str
    title: str
    commits: int
    kind: str
    arguments: dict[str, Any]
    buckets: int = 1

    @property
    def options(self) -> dict[str, str]:
        """Of the table: nothing is compacted."""
        return {"bucket": str(self.buckets), "write-only": "true"}

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.arguments["count"])

    def make(self) -> Rows:
        """The rows."""
        found: Rows = getattr(made_rows, self.kind)(**self.arguments)
        return found


def cases(scale: float) -> list[Case]:
    """The tables in the size that was asked for."""
    count, keys = (round(each * scale) // 10 * 10 for each in (1_000_000, 10_000_000))
    texts = Case("texts", f"{count:,} rows of one INT key and 20 texts", 1, "twenty_texts", {"count": count})
    title = f"{count:,} upserts of 150 bytes to {keys:,} keys, 10 commits"
    upserts = Case("upserts", title, 10, "of_150_bytes", {"count": count, "keys": keys}, buckets=4)
    return [texts, upserts]


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """Writing and reading back, for each table."""
    for case in cases(scale):
        home = directory / case.name
        warehouse = home / "warehouse"
        layout = prepare(engines, home, case)
        yield compared(f"Write: {case.title}", _write(engines, warehouse, case, layout), case.rows)
        costs, rows = _read_back(engines, warehouse)
        yield compared(f"Read back: {case.title}", costs, rows)
        shutil.rmtree(home)


def prepare(engines: dict[str, Engine], home: Path, case: Case) -> list[Any]:
    """Have the rows of a case in the memory of both sides; their layout."""
    rows = case.make()
    saved = rows.save(home / "input")
    engines[API].run("input", name=case.name, directory=str(saved), columns=rows.layout)
    engines[OURS].run("input", name=case.name, kind=case.kind, arguments=case.arguments)
    return rows.layout


def _write(engines: dict[str, Engine], warehouse: Path, case: Case, layout: list[Any]) -> dict[str, list[Cost]]:
    """What each side took in each round, each into a new table; the last ones stay."""
    costs: dict[str, list[Cost]] = {name: [] for name in SIDES}
    for turn in range(WARM + ROUNDS):
        for side, name in enumerate(SIDES):
            table = {"warehouse": str(warehouse), "table": f"t{side}"}
            shutil.rmtree(warehouse / "db.db" / f"t{side}", ignore_errors=True)
            engines[API].run("create", **table, columns=layout, primary_keys=["k"], options=case.options)
            given = {"input": case.name, "first": 0, "rows": case.rows, "commits": case.commits}
            cost = engines[name].run("write", **table, **given)
            if turn >= WARM:
                costs[name].append(cost)
    for name in SIDES:
        engines[name].run("forget")
    return costs


def _read_back(engines: dict[str, Engine], warehouse: Path) -> tuple[dict[str, list[Cost]], int]:
    """What each side takes to read the table that Java has written; both tables hold the same rows."""
    held = [
        engines[name].run("state", warehouse=str(warehouse), table=table, checked=True).answer
        for name in SIDES
        for table in ("t0", "t1")
    ]
    sums = {(each["rows"], each["checksum"]) for each in held}
    assert len(sums) == 1, f"the sides hold or read other rows: {sums}"
    costs: dict[str, list[Cost]] = {name: [] for name in SIDES}
    for turn in range(WARM + ROUNDS):
        for name in SIDES:
            cost = engines[name].run("state", warehouse=str(warehouse), table="t1", checked=False)
            if turn >= WARM:
                costs[name].append(cost)
    return costs, int(held[0]["rows"])
