"""Targets: rows a second into a table of DuckDB, in batches of 10,000."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

from benchmarks.measuring import Figure, worked
from benchmarks.tables import catalog, create, some_rows
from pypaimon.streaming import BlockingBatch, DuckDBTarget, stream_read_builder, stream_write_builder

ROWS = 200_000
BATCH = 10_000
BATCHES = 40
ROUNDS = 5
PLAIN = "the same rows by plain SQL"
_GOAL = 1e6


def figures(directory: Path) -> list[Figure]:
    """All of this area."""
    return list(_rates(directory))


def _rates(directory: Path) -> Iterator[Figure]:
    """Processor time of the target alone: all batches are read before. Each round has a database of its own."""
    numbers = count()
    for name, keys in (("append", []), ("changes by key", ["id"])):
        state, *changes = _batches(directory / name.replace(" ", "-"), keys)
        seconds: list[tuple[float, float, float]] = []
        for _ in range(ROUNDS + 1):  # the first one warms up
            with duckdb.connect(str(directory / f"ours-{next(numbers)}.db")) as database:
                target = DuckDBTarget(database, "copy", keys)
                first = worked(lambda: target.apply(state))  # noqa: B023 - called at once
                rest = worked(lambda: _applied(target, changes))  # noqa: B023
            with duckdb.connect(str(directory / f"plain-{next(numbers)}.db")) as database:
                plain = worked(lambda: _plain(database, [state, *changes], bool(keys)))  # noqa: B023
            seconds.append((first, rest, plain))
        first, rest = (median(each[number] for each in seconds[1:]) for number in (0, 1))
        plain = median(each[2] / (each[0] + each[1]) for each in seconds[1:])
        total = (ROWS + BATCH * BATCHES) / (first + rest)
        unit, goal = "rows/s", "1 M rows/s"
        yield Figure(
            f"DuckDB, first plan, {name}", ROWS / first, unit, goal, ROWS / first >= _GOAL, more_is_better=True
        )
        rate = BATCH * BATCHES / rest
        yield Figure(f"DuckDB, {name}, batches of 10,000", rate, unit, goal, rate >= _GOAL, more_is_better=True)
        yield Figure(f"DuckDB, {name}, all", total, unit, "none", None, total / plain, PLAIN, more_is_better=True)


def _applied(target: DuckDBTarget, batches: list[BlockingBatch]) -> None:
    for batch in batches:
        target.apply(batch)


def _batches(warehouse: Path, keys: list[str]) -> list[BlockingBatch]:
    """A first commit, and commits of which half of the rows change others, if there are keys."""
    options = {"bucket": "1", "changelog-producer": "input"} if keys else {}
    table = create(catalog(warehouse), "t", primary_keys=keys, options=options)
    rng = np.random.default_rng(0)
    rows = some_rows(ROWS + BATCH * BATCHES)
    with stream_write_builder(table).open_sync() as writer:
        writer.write(rows.slice(0, ROWS))
        writer.commit()
        for number in range(BATCHES):
            new = np.arange(BATCH // 2) + ROWS + number * BATCH // 2
            old = rng.choice(ROWS, BATCH // 2, replace=False)
            writer.write(rows.take(np.concatenate([old, new])))
            writer.commit()
    builder = stream_read_builder(table).with_start("earliest").with_catch_up("replay").with_end(latest=True)
    with builder.open_sync() as stream:
        return list(stream)


def _plain(database: duckdb.DuckDBPyConnection, batches: list[BlockingBatch], is_keyed: bool) -> None:
    """The statements of a program that keeps no position: of one that knows the key, in transactions."""
    for number, batch in enumerate(batches):
        database.register("given", batch.rows)
        if number == 0:
            database.execute("CREATE TABLE copy AS SELECT * FROM given")
        else:
            database.execute("BEGIN")
            if is_keyed:
                database.execute("DELETE FROM copy WHERE id IN (SELECT id FROM given)")
            database.execute("INSERT INTO copy SELECT * FROM given")
            database.execute("COMMIT")
        database.unregister("given")
