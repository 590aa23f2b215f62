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
FEW, ALONE = 10, {"write-only": "true"}
NOTE = f"""`INSERT INTO sink SELECT {", ".join(COLUMNS)} FROM source`, until all bids are
committed. Flink is a streaming job, whose checkpoints commit every {INTERVAL}; its start is that of {FEW} bids,
measured apart, so the seconds of a small run may be negative."""


def sections(engines: dict[str, Engine], directory: Path, scale: float) -> Iterator[Section]:
    """One table."""
    rows = bids(round(BIDS * scale) // COMMITS * COMMITS)
    warehouse = {"warehouse": str(directory / "warehouse")}
    java = engines[API]
    java.run("input", name="bids", directory=str(rows.save(directory / "input")), columns=rows.layout)
    for source, count in (("source", len(rows)), ("few", FEW)):
        java.run("create", **warehouse, table=source, columns=rows.layout, primary_keys=[], options=ALONE)
        java.run("write", **warehouse, table=source, input="bids", first=0, rows=count, commits=COMMITS)
    java.run("forget")
    layout = [each for each in rows.layout if each[0] in COLUMNS]
    costs: dict[str, list[Cost]] = {}

    def copied(name: str, source: str, count: int) -> tuple[Cost, int]:
        shutil.rmtree(directory / "warehouse" / "db.db" / "sink", ignore_errors=True)
        java.run("create", **warehouse, table="sink", columns=layout, primary_keys=[], options=ALONE)
        given = {"source": source, "sink": "sink", "columns": ", ".join(COLUMNS), "interval": INTERVAL}
        cost = engines[name].run("copy", **warehouse, **given, rows=count)
        return cost, engines[OURS].run("state", **warehouse, table="sink", checked=True).answer["checksum"]

    for turn in range(WARM + ROUNDS):
        (ours, expected), (flink, found) = (copied(name, "source", len(rows)) for name in (OURS, FLINK))
        start, _ = copied(FLINK, "few", FEW)
        assert expected == found, "both sides write the same rows"
        if turn >= WARM:
            for name, cost in ((OURS, ours), (FLINK + ", without its start", flink.without(start)), (FLINK, flink)):
                costs.setdefault(name, []).append(cost)
    yield compared(f"Nexmark q0: {len(rows):,} bids through", costs, len(rows), NOTE)
