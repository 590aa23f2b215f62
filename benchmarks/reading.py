"""Rows per second of processor time: follow-ups, changelogs and first plans, compared with pyarrow and other readers.

Every side reads the same files (Parquet, ZSTD, as pypaimon writes them) and the same columns from a warm page cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import reading_lines
from benchmarks.measuring import Clock, Figure, worked
from benchmarks.reading_lines import OURS, PYARROW, Line, Side
from benchmarks.tables import catalog, commit, create, some_rows

ROWS = 1_000_000
KEYED_ROWS = 300_000
STATE_ROWS = 100_000
KEYED: dict[str, Any] = {"primary_keys": ["id"], "options": {"bucket": "1"}}
FOLLOW_UPS: dict[str, dict[str, Any]] = {
    "read append": {},
    "read primary-key follow-ups": KEYED,
    "read changelog": {"primary_keys": ["id"], "options": {"bucket": "1", "changelog-producer": "input"}},
}
SHARES = {"read append": 0.95, "read primary-key follow-ups": 0.8, "read changelog": 0.8}
"""Goals for the ratio to pyarrow."""
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
    create_tables(warehouse)
    found: list[Figure] = []
    for line, table, sides in lines(warehouse):
        if (share := SHARES.get(line.measure)) is not None:
            raw = reading_lines.raw_files(table)
            found.append(line.figure(sides[OURS], raw, PYARROW, f"{share:g} of pyarrow", share, rounds=9))
        found += line.beside_peers(sides)
    return [*found, *_shredded_maps(warehouse), *_blobs(warehouse)]


def create_tables(warehouse: Any) -> None:
    """Make the tables of `lines`."""
    for name, arguments in FOLLOW_UPS.items():
        commit(create(warehouse, _table_name(name), **arguments), some_rows(KEYED_ROWS if arguments else ROWS))
    for engine, options in ENGINES.items():
        _create_state(warehouse, _table_name(f"first plan, {engine}"), options)


def lines(warehouse: Any, suffix: str = "", clock: Clock = worked) -> Iterator[tuple[Line, Any, dict[str, Side]]]:
    """Rows of follow-ups and first plans, with the table and the readers of each."""
    for name, arguments in FOLLOW_UPS.items():
        table = warehouse.get_table(f"db.{_table_name(name)}")
        line = Line(f"{name}{suffix}", (KEYED_ROWS if arguments else ROWS) / 1e6, "M rows/s", clock=clock)
        yield line, table, reading_lines.follow_up(table, kinds=bool(arguments))
    for engine in ENGINES:
        name = f"first plan, {engine}"
        table = warehouse.get_table(f"db.{_table_name(name)}")
        line = Line(f"{name}{suffix}", 3 * STATE_ROWS / 1e6, "M rows/s", "10 x", 10, clock)
        yield line, table, reading_lines.first_plan(table)


def _table_name(measure: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in measure)


def _create_state(warehouse: Any, name: str, options: dict[str, str]) -> None:
    """A table of three runs, each with every second key.

    What is stored is the same for every merge engine, so that it is written once.
    """
    table = create(warehouse, name, primary_keys=["id"], options={"bucket": "1"} | options)
    home = Path(str(table.table_path))
    stored = home.parent.parent / "stored"
    if stored.exists():
        shutil.copytree(stored, home, dirs_exist_ok=True)
    else:
        for seed in range(3):
            commit(table, some_rows(STATE_ROWS, seed, spread=2 * STATE_ROWS))
        shutil.copytree(home, stored, ignore=shutil.ignore_patterns("schema"))


def _shredded_maps(warehouse: Any) -> list[Figure]:
    """Maps of 6 out of 50 keys in 8 columns, compared with pypaimon on these files, and with ours on ordinary maps."""
    rows, sides = _some_maps(MAP_ROWS), {}
    for name, options in (("shredded", SHREDDED), ("ordinary", {})):
        table = create(warehouse, f"maps_{name}", MAPS, options=options)
        commit(table, rows)
        sides[name] = reading_lines.follow_up(table, kinds=False)
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
    """Blobs of 1 MB, compared with pypaimon on the same files."""
    table = create(warehouse, "blobs", BLOB_COLUMNS, options=EVOLUTION)
    blobs = [np.random.default_rng(number).bytes(BLOB_BYTES) for number in range(BLOBS)]
    commit(table, pa.table({"id": range(BLOBS), "b": blobs}, schema=BLOB_COLUMNS))
    line = Line("read blobs of 1 MB", BLOBS * BLOB_BYTES / 1e6, "MB/s")
    return line.beside_peers(reading_lines.first_plan(table))
