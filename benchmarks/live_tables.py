"""Live tables: rows a second that are applied to one, and keys a second that are looked up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.measuring import PEER, Figure, compared, text, worked
from benchmarks.tables import catalog, create, some_rows
from pypaimon.streaming import BlockingBatch, stream_read_builder, stream_write_builder
from pypaimon.streaming.live.arrow_row_store import ArrowRowStore
from pypaimon.streaming.live.duckdb_row_store import MemoryBound
from pypaimon.streaming.live.row_store import HeldColumns, RowStore, TableVersion
from pypaimon.streaming.targets import apply_to_dict

ROWS = 1_000_000
BATCH = 10_000
BATCHES = 20
ASKED = 1_000_000
GETS = 2_000
ROUNDS = 5
DICT = "dict"
_BOUND = MemoryBound(1 << 40)
_TIMES = 1.5


def figures(directory: Path) -> list[Figure]:
    """All of this area."""
    table = create(catalog(directory), "t", primary_keys=["id"], options={"bucket": "1", "changelog-producer": "input"})
    state, appends, updates = _batches(table)
    rows, dictionary = _live(state), _filled({}, state)
    return [
        *_rates(state, {"appends": appends, "updates": updates}),
        *_lookups(rows, dictionary, table),
        *_memory(rows, [*appends, *updates]),
    ]


def _batches(table: Any) -> tuple[list[BlockingBatch], list[BlockingBatch], list[BlockingBatch]]:
    """A state, commits of new rows, and commits of changes of rows."""
    rng = np.random.default_rng(0)
    rows = some_rows(ROWS + 2 * BATCH * BATCHES)
    with stream_write_builder(table).open_sync() as writer:
        writer.write(rows.slice(0, ROWS))
        writer.commit()
        for number in range(BATCHES):
            writer.write(rows.slice(ROWS + number * BATCH, BATCH))
            writer.commit()
        for number in range(BATCHES):
            changed = rows.slice(ROWS + (BATCHES + number) * BATCH, BATCH)
            ids = pa.array(rng.choice(ROWS, BATCH, replace=False))
            writer.write(changed.set_column(0, changed.schema.field("id"), ids))
            writer.commit()
    builder = stream_read_builder(table).with_start("earliest").with_catch_up("replay").with_end(latest=True)
    with builder.open_sync() as stream:
        found = list(stream)
    first = found[0].snapshot_id
    state = [batch for batch in found if batch.snapshot_id == first]
    changes = found[len(state) :]
    return state, changes[:BATCHES], changes[BATCHES:]


def _live(batches: list[BlockingBatch]) -> RowStore:
    return _applied(ArrowRowStore(HeldColumns.of(batches[0]), _BOUND), batches)


def _applied(rows: RowStore, batches: list[BlockingBatch]) -> RowStore:
    for batch in batches:
        rows = rows.apply(batch, TableVersion() if batch.is_last else None)
    return rows


def _filled(rows: dict[int, dict[str, Any]], batches: list[BlockingBatch]) -> dict[int, dict[str, Any]]:
    for batch in batches:
        apply_to_dict(batch, rows, "id")
    return rows


def _rates(state: list[BlockingBatch], changes: dict[str, list[BlockingBatch]]) -> Iterator[Figure]:
    """Processor time of the rows alone: all batches are read before. Each round has rows of its own."""
    for name, batches, goal in (
        ("first state", state, 5e6),
        ("appends", changes["appends"], 5e6),
        ("updates", changes["updates"], 1e6),
    ):
        seconds: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            before = [] if name == "first state" else state
            rows = _applied(ArrowRowStore(HeldColumns.of(state[0]), _BOUND), before)
            dictionary = _filled({}, before)
            ours = worked(lambda: _applied(rows, batches))  # noqa: B023 - called at once
            theirs = worked(lambda: _filled(dictionary, batches))  # noqa: B023
            seconds.append((ours, theirs))
        ours, ratio = median(each[0] for each in seconds), median(each[1] / each[0] for each in seconds)
        rate = sum(batch.num_rows for batch in batches) / ours
        yield Figure(
            f"live table, {name}" + ("" if name == "first state" else ", batches of 10,000"),
            rate,
            "rows/s",
            f"{text(goal / 1e6)} M rows/s",
            rate >= goal,
            rate / ratio,
            DICT,
            more_is_better=True,
        )


def _lookups(rows: RowStore, dictionary: dict[int, dict[str, Any]], table: Any) -> Iterator[Figure]:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, ROWS, GETS).tolist()
    ours, theirs = _each(rows.get, keys), _each(dictionary.get, keys)
    goal = "20 us"
    yield Figure("live table, get, median", ours, "us", goal, ours <= 20, theirs, DICT)
    yield Figure("live table, get, median", ours, "us", goal, ours <= 20, _each(_reader(table), keys[:5]), PEER)
    asked = pa.array(rng.integers(0, 2 * ROWS, ASKED))
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        database.register("held", rows.to_arrow())
        database.execute("CREATE TABLE live AS SELECT * FROM held")
        database.register("asked", pa.table({"id": asked}))
        query = "SELECT live.* FROM asked LEFT JOIN live USING (id)"
        seconds, ratio = compared(
            {
                "ours": lambda: rows.get_many(asked),
                "DuckDB": lambda: database.sql(query).to_arrow_table(),
            }
        )
    rate = ASKED / seconds
    yield Figure(
        "live table, get_many of 1 M keys, half of them there",
        rate,
        "keys/s",
        "5 M keys/s",
        rate >= 5e6,
        rate / ratio,
        "DuckDB's join",
        more_is_better=True,
    )


def _memory(rows: RowStore, changes: list[BlockingBatch]) -> Iterator[Figure]:
    """The most memory after any batch, compared with Arrow's size of the rows."""
    most = rows.nbytes / rows.to_arrow().nbytes
    for batch in changes:
        rows = rows.apply(batch, TableVersion())
        most = max(most, rows.nbytes / rows.to_arrow().nbytes)
    yield Figure("live table, memory of rows of 37 bytes", most, "times Arrow's", "at most 1.5", most <= _TIMES)


def _each(get: Callable[[int], object], keys: list[int]) -> float:
    """Microseconds of a call on the clock, the median."""
    seconds = []
    for key in keys:
        begin = time.perf_counter()
        get(key)
        seconds.append(time.perf_counter() - begin)
    return median(seconds) * 1e6


def _reader(table: Any) -> Callable[[int], object]:
    """pypaimon's read by key."""

    def get(key: int) -> object:
        builder = table.new_read_builder()
        builder = builder.with_filter(builder.new_predicate_builder().equal("id", key))
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    return get
