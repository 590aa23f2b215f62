"""Rows per second of processor time: follow-ups and changelogs beside raw pyarrow and its peers, first plans too.

Every side reads the same files (Parquet, ZSTD, as pypaimon writes them) and the same columns from a warm page cache.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import read_sides
from benchmarks.measuring import PEER, Figure, compared
from benchmarks.read_sides import OURS, PYARROW, Side
from benchmarks.tables import catalog, commit, create, some_rows

ROWS = 1_000_000
KEYED_ROWS = 300_000
STATE_ROWS = 100_000
KEYED: dict[str, Any] = {"primary_keys": ["id"], "options": {"bucket": "1"}}
FOLLOW_UPS: dict[str, tuple[dict[str, Any], float]] = {
    "append": ({}, 0.95),
    "primary-key follow-ups": (KEYED, 0.8),
    "changelog": ({"primary_keys": ["id"], "options": {"bucket": "1", "changelog-producer": "input"}}, 0.8),
}
MAP_ROWS = 50_000
MAPS = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
SHREDDED = {"fields.m.map.storage-layout": "shared-shredding", "fields.m.map.shared-shredding.max-columns": "8"}
BLOBS, BLOB_BYTES = 100, 1 << 20
BLOB_COLUMNS = pa.schema([("id", pa.int64()), ("b", pa.large_binary())])
EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    warehouse = catalog(directory / "reading")
    found: list[Figure] = []
    for name, (arguments, goal) in FOLLOW_UPS.items():
        found += _follow_up(warehouse, name, arguments, goal)
    for engine, options in ENGINES.items():
        found += _first_plan(warehouse, engine, options)
    return [*found, *_shredded_maps(warehouse), *_blobs(warehouse)]


def _follow_up(warehouse: Any, name: str, arguments: dict[str, Any], goal: float) -> list[Figure]:
    table = create(warehouse, name.replace(" ", "_").replace("-", "_"), **arguments)
    rows = KEYED_ROWS if arguments else ROWS
    commit(table, some_rows(rows))
    sides = read_sides.follow_up(table, kinds=bool(arguments))
    line = Line(f"read {name}", rows / 1e6, "M rows/s")
    raw = line.figure(sides[OURS], read_sides.raw_files(table), PYARROW, f"{goal:g} of pyarrow", goal, rounds=9)
    return [raw, *line.beside_peers(sides)]


def _first_plan(warehouse: Any, engine: str, options: dict[str, str]) -> list[Figure]:
    table, records = _state(warehouse, f"first_{engine.replace('-', '_')}", options, STATE_ROWS)
    line = Line(f"first plan, {engine}", records / 1e6, "M rows/s", "10 x", 10)
    return line.beside_peers(read_sides.first_plan(table))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the report: what is read, how much of it, and what is aimed at beside pypaimon as it comes."""

    measure: str
    amount: float
    unit: str
    goal: str = "faster"
    ratio: float = 1.0

    def beside_peers(self, sides: dict[str, Side]) -> list[Figure]:
        """Beside each peer on the same rows, by turns; all sides are warm."""
        assert len({run() for run in sides.values()}) == 1, "all sides read the same rows"
        ours, peers = sides[OURS], {name: run for name, run in sides.items() if name != OURS}
        goals = {PEER: (self.goal, self.ratio)}
        return [self.figure(ours, run, name, *goals.get(name, ("faster", 1.0))) for name, run in peers.items()]

    def figure(
        self, ours: Side, other: Side, name: str, goal: str = "-", ratio: float | None = None, rounds: int = 5
    ) -> Figure:
        """Beside one other side."""
        seconds, share = compared({OURS: ours, name: other}, rounds)
        met, rate = None if ratio is None else share >= ratio, self.amount / seconds
        return Figure(self.measure, rate, self.unit, goal, met, rate / share, name, more_is_better=True)


def _state(warehouse: Any, name: str, options: dict[str, str], rows: int) -> tuple[Any, int]:
    """A table of three runs, each with every second key; and the number of their records.

    What is stored is the same for every merge engine, so that it is written once.
    """
    table = create(warehouse, name, primary_keys=["id"], options={"bucket": "1"} | options)
    home = Path(str(table.table_path))
    stored = home.parent.parent / f"stored-{rows}"
    if stored.exists():
        shutil.copytree(stored, home, dirs_exist_ok=True)
    else:
        for seed in range(3):
            commit(table, some_rows(rows, seed, spread=2 * rows))
        shutil.copytree(home, stored, ignore=shutil.ignore_patterns("schema"))
    return table, 3 * rows


def _shredded_maps(warehouse: Any) -> list[Figure]:
    """Maps of 6 out of 50 keys in 8 columns, beside pypaimon on the same files, and beside ours on ordinary maps."""
    rows, sides = _some_maps(MAP_ROWS), {}
    for name, options in (("shredded", SHREDDED), ("ordinary", {})):
        table = create(warehouse, f"maps_{name}", MAPS, options=options)
        commit(table, rows)
        sides[name] = read_sides.follow_up(table, kinds=False)
    line = Line("read shredded maps", MAP_ROWS / 1e6, "M rows/s")
    ordinary = line.figure(sides["shredded"][OURS], sides["ordinary"][OURS], "ours, ordinary maps")
    return [*line.beside_peers(sides["shredded"]), ordinary]


def _some_maps(count: int) -> pa.Table:
    rng = np.random.default_rng(0)
    keys = rng.random((count, 50)).argsort(axis=1)[:, :6].ravel()
    entries = pa.array(np.char.add("key-", keys.astype(str))), pa.array(rng.integers(0, 1 << 40, len(keys)))
    maps = pa.MapArray.from_arrays(pa.array(range(0, len(keys) + 1, 6), pa.int32()), *entries)
    return pa.table({"id": pa.array(range(count), pa.int64()), "m": maps}, schema=MAPS)


def _blobs(warehouse: Any) -> list[Figure]:
    """Blobs of 1 MB, beside pypaimon on the same files."""
    table = create(warehouse, "blobs", BLOB_COLUMNS, options=EVOLUTION)
    blobs = [np.random.default_rng(number).bytes(BLOB_BYTES) for number in range(BLOBS)]
    commit(table, pa.table({"id": range(BLOBS), "b": blobs}, schema=BLOB_COLUMNS))
    line = Line("read blobs of 1 MB", BLOBS * BLOB_BYTES / 1e6, "MB/s")
    return line.beside_peers(read_sides.first_plan(table))
