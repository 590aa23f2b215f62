"""Nexmark's q0, which passes bids through, from one table of Paimon into another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.public.engines import API, FLINK, ROUNDS, WARM, Cost, Engine
from benchmarks.public.python_sides import OURS
from benchmarks.public.report import Section, compared
from benchmarks.public.rows import bids

BIDS, COMMITS = 2_000_000, 10
COLUMNS = ("auction", "bidder", "price", "date_time", "extra")
INTERVAL = "1 s"
SIDES = (OURS, FLINK)
NOTE = f"""`INSERT INTO sink SELECT {", ".join(COLUMNS)} FROM source`, until all bids are
committed. Flink is a streaming job, whose checkpoints commit every {INTERVAL}; its time includes that of its start."""


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """One table."""
    rows = bids(round(BIDS * scale) // COMMITS * COMMITS)
    warehouse = {"warehouse": str(directory / "warehouse")}
    alone = {"write-only": "true"}
    java = engines[API]
    java.run("create", **warehouse, table="source", columns=rows.layout, primary_keys=[], options=alone)
    java.run("input", name="bids", directory=str(rows.save(directory / "input")), columns=rows.layout)
    java.run("write", **warehouse, table="source", input="bids", first=0, rows=len(rows), commits=COMMITS)
    java.run("forget")
    layout = [each for each in rows.layout if each[0] in COLUMNS]
    costs: dict[str, list[Cost]] = {name: [] for name in SIDES}
    for turn in range(WARM + ROUNDS):
        sums = set()
        for name in SIDES:
            shutil.rmtree(directory / "warehouse" / "db.db" / "sink", ignore_errors=True)
            java.run("create", **warehouse, table="sink", columns=layout, primary_keys=[], options=alone)
            given = {"source": "source", "sink": "sink", "columns": ", ".join(COLUMNS)}
            cost = engines[name].run("copy", **warehouse, **given, rows=len(rows), interval=INTERVAL)
            sums.add(engines[OURS].run("state", **warehouse, table="sink", checked=True).answer["checksum"])
            if turn >= WARM:
                costs[name].append(cost)
        assert len(sums) == 1, "both sides write the same rows"
    yield compared(f"Nexmark q0: {len(rows):,} bids through", costs, len(rows), NOTE)
