"""Rows per second: follow-ups and changelogs beside raw pyarrow and pypaimon, first plans beside pypaimon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, in_turns, timed
from benchmarks.tables import PeerBuilder, catalog, commit, create, peer_plans, some_rows
from pypaimon.streaming import stream_read_builder

ROWS = 300_000
STATE_ROWS = 100_000
PEER_SHARE = 10
"""pypaimon reads a tenth of the rows: it takes seconds for them, and its rate does not grow with more."""

PYARROW = "pyarrow"
KEYED: dict[str, Any] = {"primary_keys": ["id"], "options": {"bucket": "1"}}
FOLLOW_UPS: dict[str, tuple[dict[str, Any], float]] = {
    "append": ({}, 0.95),
    "primary-key follow-ups": (KEYED, 0.8),
    "changelog": ({"primary_keys": ["id"], "options": {"bucket": "1", "changelog-producer": "input"}}, 0.8),
}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


def figures(directory: Path) -> list[Figure]:
    """All figures of this room."""
    warehouse = catalog(directory / "reading")
    found: list[Figure] = []
    for name, (arguments, goal) in FOLLOW_UPS.items():
        found += _follow_up(warehouse, name, arguments, goal)
    for engine, options in ENGINES.items():
        found.append(_first_plan(warehouse, engine, options))
    return found


def _follow_up(warehouse: Any, name: str, arguments: dict[str, Any], goal: float) -> list[Figure]:
    table = create(warehouse, name.replace(" ", "_").replace("-", "_"), **arguments)
    commit(table, some_rows(ROWS))
    builder = stream_read_builder(table).with_start("earliest").with_include_row_kind(bool(arguments))
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    read, splits = builder.new_read(), plan.splits()
    files = [file.file_path for split in splits for file in split.files]

    def raw() -> None:
        for path in files:
            with pq.ParquetFile(path) as file:
                names = [each for each in file.schema_arrow.names if each in (*table.field_names, "_VALUE_KIND")]
                file.read(names, use_threads=False)

    seconds = in_turns({"ours": lambda: _read_all(read, splits), "raw": raw}, rounds=9)
    ours, beside = (ROWS / seconds[each] / 1e6 for each in ("ours", "raw"))
    peer = _peer_follow_up(warehouse, f"{table.identifier.get_table_name()}_peer", arguments)
    against = f"{goal:g} of pyarrow"
    return [
        Figure(f"read {name}", ours, "M rows/s", against, ours >= goal * beside, beside, PYARROW, more_is_better=True),
        Figure(f"read {name}", ours, "M rows/s", "faster", ours > peer, peer, more_is_better=True),
    ]


def _peer_follow_up(warehouse: Any, name: str, arguments: dict[str, Any]) -> float:
    rows = ROWS // PEER_SHARE
    table = create(warehouse, name, **arguments)
    commit(table, some_rows(rows))
    with peer_plans(table, next_snapshot=1) as next_plan:
        splits = next_plan().splits()
    read = PeerBuilder(table).with_include_row_kind(bool(arguments)).new_read()
    return rows / timed(lambda: read.to_arrow(splits)) / 1e6


def _read_all(read: Any, splits: Any) -> int:
    return sum(batch.num_rows for batch in read.iter_batches(splits))


def _first_plan(warehouse: Any, engine: str, options: dict[str, str]) -> Figure:
    name = f"first_{engine.replace('-', '_')}"
    table, records = _state(warehouse, name, options, STATE_ROWS)
    read, splits = _our_state(table)
    rate = records / in_turns({"ours": lambda: _read_all(read, splits)}, rounds=5)["ours"] / 1e6
    table, records = _state(warehouse, f"{name}_peer", options, STATE_ROWS // PEER_SHARE)
    with peer_plans(table) as next_plan:
        peer_splits = next_plan().splits()
    result: list[pa.Table] = []
    peer = timed(lambda: result.append(table.new_read_builder().new_read().to_arrow(peer_splits)))
    assert result[0].num_rows == _read_all(*_our_state(table))
    beside = records / peer / 1e6
    goal = "2 M rows/s" if engine == "deduplicate" else "10 x"
    met = rate >= 2 if engine == "deduplicate" else rate >= 10 * beside
    return Figure(f"first plan, {engine}", rate, "M rows/s", goal, met, beside, more_is_better=True)


def _state(warehouse: Any, name: str, options: dict[str, str], rows: int) -> tuple[Any, int]:
    """A table of three runs, each with every second key; and the number of their records."""
    table = create(warehouse, name, primary_keys=["id"], options={"bucket": "1"} | options)
    for seed in range(3):
        commit(table, some_rows(rows, seed, spread=2 * rows))
    return table, 3 * rows


def _our_state(table: Any) -> tuple[Any, Any]:
    builder = stream_read_builder(table).with_raw(True)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    return builder.new_read(), plan.splits()
