"""Reading a stream from its first snapshot: the same tables, which Java has written, for all sides."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.public.engines import API, FLINK, ROUNDS, WARM, Cost, Engine
from benchmarks.public.report import Section, compared
from benchmarks.public.rows import Checksum, Rows, changes, five_columns

FIRST_RECORD, WHOLE = ", from its first record", ", whole"
POLL_MS = 100
"""How often a side looks for snapshots, if it does not look again as soon as it has read one."""
NOTE = f"""All sides read the same number of rows with the same checksum, snapshot by snapshot. Rows are counted;
nothing looks at their values, some of which Java decodes only then. Flink looks for a snapshot every {POLL_MS} ms; its
default is every 10 s, which would be part of the whole."""


@dataclass(frozen=True)
class Case:
    """A table.

    Attributes:
        name: Its name.
        title: In the report.
        commits: How many.
        each: Rows of one.
        options: Of the table.
        keyed: Whether it has a primary key, and changes of all kinds.
    """

    name: str
    title: str
    commits: int
    each: int
    options: dict[str, str]
    keyed: bool = False

    @property
    def rows(self) -> int:
        """All of them."""
        return self.commits * self.each

    def make(self) -> Rows:
        """What is written."""
        return changes(self.commits, self.each) if self.keyed else five_columns(np.arange(self.rows), seed=0)


def cases(scale: float) -> list[Case]:
    """The tables in the size that was asked for."""
    million, half, small = (10 * round(count * scale / 10) for count in (1_000_000, 500_000, 1_000))
    logged = {"bucket": "2", "changelog-producer": "input", "write-only": "true"}
    alone = {"write-only": "true"}
    return [
        Case("append", f"append, 8 x {million:,} rows", 8, million, alone),
        Case("keyed", f"primary key with changelog, 8 x {half:,} rows", 8, half, logged, keyed=True),
        Case("small", f"append, {small:,} snapshots of 1,000 rows", small, 1_000, alone),
    ]


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """One for each table."""
    for case in cases(scale):
        warehouse = directory / case.name
        rows = case.make()
        load(engines[API], warehouse, case, rows)
        costs = read(engines, warehouse, case, rows)
        yield compared(f"Read: {case.title}", costs, case.rows, NOTE)
        shutil.rmtree(warehouse)


def load(java: Engine, warehouse: Path, case: Case, rows: Rows) -> None:
    """Write a table by Java."""
    table = {"warehouse": str(warehouse / "warehouse"), "table": case.name}
    keys = ["id"] if case.keyed else []
    java.run("create", **table, columns=rows.layout, primary_keys=keys, options=case.options)
    java.run("input", name=case.name, directory=str(rows.save(warehouse / "input")), columns=rows.layout)
    java.run("write", **table, input=case.name, first=0, rows=case.rows, commits=case.commits)
    java.run("forget")


def read(engines: dict[str, Engine], warehouse: Path, case: Case, rows: Rows) -> dict[str, list[Cost]]:
    """What each side took in each round, by turns; in the first one, which does not count, their rows are compared."""
    table = {"warehouse": str(warehouse / "warehouse"), "table": case.name, "rows": case.rows, "poll": POLL_MS}
    expected = Checksum()
    expected.add(rows.arrow())
    costs: dict[str, list[Cost]] = {}
    for turn in range(WARM + ROUNDS):
        for name, engine in engines.items():
            cost = engine.run("read", **table, checked=turn == 0)
            found = [cost.answer["rows"], *([cost.answer["checksum"]] if turn == 0 else [])]
            assert found == [expected.rows, expected.value][: len(found)], (name, case.name, found, expected)
            if turn < WARM:
                continue
            if name == FLINK:
                costs.setdefault(name + FIRST_RECORD, []).append(cost.from_first_record())
            costs.setdefault(name + WHOLE * (name == FLINK), []).append(cost)
    return costs
