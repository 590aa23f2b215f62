"""Rows per second of processor time: follow-ups and changelogs beside raw pyarrow and its peers, first plans too.

Every side reads the same files (Parquet, ZSTD, as pypaimon writes them) and the same columns from a warm page cache.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import rust_peer
from benchmarks.measuring import PEER, Figure, compared, in_turns, worked
from benchmarks.tables import PeerBuilder, catalog, commit, create, peer_plans, some_rows
from pypaimon.streaming import stream_read_builder

ROWS = 1_000_000
KEYED_ROWS = 300_000
STATE_ROWS = 100_000
PEER_ROWS = 30_000
"""pypaimon reads less: it takes seconds for that, and its rate does not grow with more."""

PYARROW = "pyarrow"
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
NATIVE = {"scan.native-plan.enabled": "true", "read.native.enabled": "true"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    home = directory / "reading"
    warehouse = catalog(home)
    found: list[Figure] = []
    for name, (arguments, goal) in FOLLOW_UPS.items():
        found += _follow_up(warehouse, name, arguments, goal)
    for engine, options in ENGINES.items():
        found.append(_first_plan(warehouse, engine, options))
    found += _shredded_maps(warehouse)
    found += _blobs(warehouse)
    return found + (_native(home) if rust_peer.is_there() else [])


def _follow_up(warehouse: Any, name: str, arguments: dict[str, Any], goal: float) -> list[Figure]:
    table = create(warehouse, name.replace(" ", "_").replace("-", "_"), **arguments)
    rows = KEYED_ROWS if arguments else ROWS
    commit(table, some_rows(rows))
    read, splits = _our_follow_up(table, bool(arguments))
    files = [file.file_path for split in splits for file in split.files]

    def raw() -> None:
        for path in files:
            with pq.ParquetFile(path) as file:
                names = [each for each in file.schema_arrow.names if each in (*table.field_names, "_VALUE_KIND")]
                file.read(names, use_threads=False)

    seconds, share = compared({"ours": lambda: _read_all(read, splits), "raw": raw})
    ours = rows / seconds / 1e6
    peer = _peer_follow_up(warehouse, f"{table.identifier.get_table_name()}_peer", arguments)
    measure, against = f"read {name}", f"{goal:g} of pyarrow"
    return [
        Figure(measure, ours, "M rows/s", against, share >= goal, ours / share, PYARROW, more_is_better=True),
        Figure(measure, ours, "M rows/s", "faster", ours > peer, peer, more_is_better=True),
    ]


def _our_follow_up(table: Any, kinds: bool) -> tuple[Any, Any]:
    builder = stream_read_builder(table).with_start("earliest").with_include_row_kind(kinds)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    return builder.new_read(), plan.splits()


def _peer_follow_up(warehouse: Any, name: str, arguments: dict[str, Any]) -> float:
    table = create(warehouse, name, **arguments)
    commit(table, some_rows(PEER_ROWS))
    with peer_plans(table, next_snapshot=1) as next_plan:
        splits = next_plan().splits()
    read = PeerBuilder(table).with_include_row_kind(bool(arguments)).new_read()
    return PEER_ROWS / worked(lambda: read.to_arrow(splits)) / 1e6


def _read_all(read: Any, splits: Any) -> int:
    return sum(batch.num_rows for batch in read.iter_batches(splits))


def _first_plan(warehouse: Any, engine: str, options: dict[str, str]) -> Figure:
    name = f"first_{engine.replace('-', '_')}"
    table, records = _state(warehouse, name, options, STATE_ROWS)
    read, splits = _our_state(table)
    rate = records / median(in_turns({"ours": lambda: _read_all(read, splits)})["ours"]) / 1e6
    table, records = _state(warehouse, f"{name}_peer", options, PEER_ROWS // 3)
    with peer_plans(table) as next_plan:
        peer_splits = next_plan().splits()
    result: list[pa.Table] = []
    peer = worked(lambda: result.append(table.new_read_builder().new_read().to_arrow(peer_splits)))
    assert result[0].num_rows == _read_all(*_our_state(table))
    beside = records / peer / 1e6
    goal = "2 M rows/s" if engine == "deduplicate" else "10 x"
    met = rate >= 2 if engine == "deduplicate" else rate >= 10 * beside
    return Figure(f"first plan, {engine}", rate, "M rows/s", goal, met, beside, PEER, more_is_better=True)


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


def _our_state(table: Any) -> tuple[Any, Any]:
    builder = stream_read_builder(table).with_raw(True)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    return builder.new_read(), plan.splits()


def _shredded_maps(warehouse: Any) -> list[Figure]:
    """Maps of 6 out of 50 keys in 8 columns, beside pypaimon on the same files, and beside ours on ordinary maps."""
    rows, sides = _some_maps(MAP_ROWS), {}
    for name, options in (("shredded", SHREDDED), ("ordinary", {})):
        table = create(warehouse, f"maps_{name}", MAPS, options=options)
        commit(table, rows)
        sides[name] = (table, *_our_follow_up(table, False))
    table, read, splits = sides["shredded"]
    peer = table.new_read_builder()
    peer_read, peer_splits = peer.new_read(), peer.new_scan().plan().splits()
    assert peer_read.to_arrow(peer_splits).num_rows == _read_all(read, splits) == MAP_ROWS
    ours = partial(_read_all, read, splits)
    seconds, share = compared({"ours": ours, "peer": lambda: peer_read.to_arrow(peer_splits)})
    _, slower = compared({"ours": ours, "ordinary": partial(_read_all, *sides["ordinary"][1:])})
    rate, measure = MAP_ROWS / seconds / 1e6, "read shredded maps"
    return [
        Figure(measure, rate, "M rows/s", "faster", share > 1, rate / share, PEER, more_is_better=True),
        Figure(measure, rate, "M rows/s", "-", None, rate / slower, "ours, ordinary maps", more_is_better=True),
    ]


def _some_maps(count: int) -> pa.Table:
    rng = np.random.default_rng(0)
    keys = rng.random((count, 50)).argsort(axis=1)[:, :6].ravel()
    entries = pa.array(np.char.add("key-", keys.astype(str))), pa.array(rng.integers(0, 1 << 40, len(keys)))
    maps = pa.MapArray.from_arrays(pa.array(range(0, len(keys) + 1, 6), pa.int32()), *entries)
    return pa.table({"id": pa.array(range(count), pa.int64()), "m": maps}, schema=MAPS)


def _blobs(warehouse: Any) -> list[Figure]:
    """Blobs of 1 MB, beside pypaimon on the same files: by itself, and with its native reader where that is there."""
    table = create(warehouse, "blobs", BLOB_COLUMNS, options=EVOLUTION)
    blobs = [np.random.default_rng(number).bytes(BLOB_BYTES) for number in range(BLOBS)]
    commit(table, pa.table({"id": range(BLOBS), "b": blobs}, schema=BLOB_COLUMNS))
    ours = partial(_read_all, *_our_state(table))
    found = []
    peers = {PEER: table} | ({f"{PEER}, native reader": table.copy(NATIVE)} if rust_peer.is_there() else {})
    for name, handle in peers.items():
        peer = handle.new_read_builder()
        read, splits = peer.new_read(), peer.new_scan().plan().splits()
        assert read.to_arrow(splits)["b"].to_pylist() == blobs
        seconds, share = compared({"ours": ours, "peer": partial(_peer_batches, read, splits)})
        rate = BLOBS * BLOB_BYTES / seconds / 1e6
        found.append(
            Figure("read blobs of 1 MB", rate, "MB/s", "1", share >= 1, rate / share, name, more_is_better=True)
        )
    return found


def _peer_batches(read: Any, splits: Any) -> int:
    return sum(batch.num_rows for batch in read.to_arrow_batch_reader(splits))


def _native(home: Path) -> list[Figure]:
    """The tables of above, read by pypaimon-rust as well."""
    warehouse = catalog(home)
    found = []
    for name, measure, records in (
        ("append", "read append", ROWS),
        ("first_deduplicate", "first plan, deduplicate", 3 * STATE_ROWS),
    ):
        native, (read, splits) = rust_peer.table(home, name), _our_state(warehouse.get_table(f"db.{name}"))
        planned = rust_peer.splits(native)
        assert rust_peer.rows(native, planned) == _read_all(read, splits)
        seconds, share = _against_native(read, splits, native, planned)
        rate = records / seconds / 1e6
        found.append(Figure(measure, rate, "M rows/s", "-", None, rate / share, rust_peer.name(), more_is_better=True))
    return found


def _against_native(read: Any, splits: Any, native: Any, planned: Any) -> tuple[float, float]:
    return compared({"ours": lambda: _read_all(read, splits), "native": lambda: rust_peer.rows(native, planned)})
