"""Writing: rows a second compared with pypaimon's writers, requests of a commit, and the growth of its time."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import rust_peer
from benchmarks.following import s3_catalog, switched
from benchmarks.measuring import PEER, Figure, compared, in_turns, worked
from benchmarks.reading_lines import OURS
from benchmarks.tables import SCHEMA, catalog, commit, create, some_rows
from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.registry import new_file
from pypaimon.streaming.merge.ordering import stable_order

NATIVE_PEER = "native writer"
NATIVE = {"write.native.enabled": "true"}
ROWS = 300_000
ROUNDS = 3
TURNS = 9
COMMITS = 10_000
_FIRST_COMMITS, _WARM_COMMITS = 600, 100
_PART = 1 << 16
_OBJECTS = 6
"""Written by a commit: the data file, a manifest, two manifest lists, the snapshot and the hint."""
_JAVA_REQUESTS = 16
"""Reads, writes, listings and probes of files in one commit of Java 1.4.2 to an append table, without its data file."""


def figures(directory: Path) -> list[Figure]:
    """All of this area."""
    return [*_rates(directory), *_limits(directory), *_requests(), *_growth(directory)]


# ---- rows ----


def _rates(directory: Path) -> Iterator[Figure]:
    """Rows of one commit, each side into tables of its own, by turns."""
    warehouse, numbers = catalog(directory / "rates"), count()
    rows = some_rows(ROWS)
    shuffled = rows.take(pa.array(np.random.default_rng(0).permutation(ROWS)))
    # The native writer leaves copies of the keys out, whatever the table says.
    options = {"bucket": "4", "data-file.thin-mode": "true"}
    keyed: dict[str, Any] = {"primary_keys": ["id"], "options": options}
    logged = keyed | {"options": options | {"changelog-producer": "input"}}
    sides = {OURS: _write, PEER: commit} | ({NATIVE_PEER: _write_native} if rust_peer.is_there() else {})
    for name, arguments, given in (
        ("append", {}, rows),
        ("primary key", keyed, shuffled),
        ("primary key, changelog of the input", logged, shuffled),
    ):
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        sizes: dict[str, int] = {}
        for turn in range(ROUNDS + 1):  # the first one warms up
            for side, run in sides.items():
                table = create(warehouse, f"t{next(numbers)}", **arguments)
                taken = worked(lambda: run(table, given))  # noqa: B023 - called at once
                if turn:
                    seconds[side].append(taken)
                sizes[side] = _bytes(table)
        rate = ROWS / median(seconds[OURS])
        for side in sides.keys() - {OURS}:
            share = median(peer / ours for ours, peer in zip(seconds[OURS], seconds[side], strict=True))
            goal, least = ("faster", 1.0) if side == PEER else ("0.9 of it", 0.9)
            yield Figure(f"write {name}", rate, "rows/s", goal, share >= least, rate / share, side, more_is_better=True)
            size = sizes[OURS] / sizes[side]
            yield Figure(
                f"bytes written, {name}", sizes[OURS] / 1e6, "MB", "at most", size <= 1, sizes[side] / 1e6, side
            )


def _bytes(table: Any) -> int:
    """The size of its data files, which go."""
    home = Path(str(table.table_path))
    size = sum(path.stat().st_size for path in home.rglob("bucket-*/data-*"))
    shutil.rmtree(home)
    return size


def _write(table: Any, rows: pa.Table) -> None:
    with stream_write_builder(table).open_sync() as writer:
        for part in rows.to_batches(max_chunksize=_PART):
            writer.write(part)
        writer.commit()


def _write_native(table: Any, rows: pa.Table) -> None:
    commit(table.copy(NATIVE), rows)


def _limits(directory: Path) -> Iterator[Figure]:
    """Rows of one bucket in any order, compared with what is left to be done without us."""
    warehouse, numbers = catalog(directory / "limits"), count()
    rows = some_rows(ROWS)
    order = pa.array(np.random.default_rng(0).permutation(ROWS))
    shuffled = rows.take(order)

    def writing(given: pa.Table = shuffled, **options: str) -> Callable[[], None]:
        keyed: dict[str, Any] = {"primary_keys": ["id"], "options": options}
        tables = iter([create(warehouse, f"t{next(numbers)}", **keyed) for _ in range(TURNS)])
        return lambda: _write(next(tables), given)

    sides = {OURS: writing(bucket="-2"), "Parquet": writing(bucket="-2", **{"file.format": "parquet"})}
    avro, share = compared(sides, TURNS)
    yield Figure(
        "write postponed buckets, Avro", ROWS / avro, "rows/s", "0.5 of it", share >= 0.5, ROWS / avro / share,
        "the same in Parquet", more_is_better=True,
    )  # fmt: skip
    records = rows.add_column(0, "_VALUE_KIND", pa.array(np.zeros(ROWS, np.int8)))
    records = records.add_column(0, "_SEQUENCE_NUMBER", order).add_column(0, "_KEY_id", rows["id"])
    writing_one = writing(rows.slice(0, 1), bucket="1")
    ours, share = compared({OURS: writing(bucket="1"), "pyarrow": lambda: encode(records)}, TURNS)
    arranged, one = (median(worked(run) for _ in range(TURNS)) for run in (lambda: _arrange(shuffled), writing_one))
    least, more = 1 + arranged / (ours * share), one / (ours * share)
    limit = (
        f"numpy and pyarrow need {least:.2f} to sort rows that come in any order, gather them, find the bounds of "
        f"columns and encode; a writer and its commit of one row take {more:.2f} more"
    )
    yield Figure(
        "write primary key, one bucket, processor time", ours, "s", "1.17 of it", share >= 1 / 1.17,
        ours * share, "the sorted rows encoded alone", limit=limit if least > 1.17 else "",
    )  # fmt: skip


def _arrange(rows: pa.Table) -> None:
    """What a file of sorted rows needs before they are encoded: sequence numbers, order, bounds."""
    numbered = rows.append_column("_SEQUENCE_NUMBER", pa.array(np.arange(rows.num_rows)))
    sorted_rows = numbered.take(pa.array(stable_order(np.asarray(rows["id"]))))
    for column in sorted_rows.columns:
        pc.min_max(column)


def encode(rows: pa.Table) -> None:
    """Only encode rows, as a data file of ours: pyarrow's own settings would take longer."""
    writer = new_file("parquet", io.BytesIO(), rows.schema, WriteSettings("zstd"))
    writer.write(rows)
    writer.close()


# ---- commits ----


def _requests() -> Iterator[Figure]:
    """Requests of one commit of one row of an open writer."""
    with s3_catalog() as (warehouse, requests):
        row = some_rows(1)
        peer = _requests_of(create(warehouse, "peer"), requests, lambda table: lambda: commit(table, row))
        upload = f"pyarrow begins, fills and completes an upload of each of {_OBJECTS} objects: {3 * _OBJECTS} requests"
        for number, (switch, extra, limit) in enumerate((("off", "", upload), ("on", ", extra fast", ""))):
            with switched(switch):
                counted = _requests_of(create(warehouse, f"ours{number}"), requests, _committing)
            measure = f"HTTP requests of a commit of one row{extra}"
            goal = f"{_JAVA_REQUESTS + 1} (Java)"
            yield Figure(measure, counted, "", goal, counted <= _JAVA_REQUESTS + 1, peer, limit=limit)


def _requests_of(table: Any, requests: Callable[[], int], side: Callable[[Any], Callable[[], None]]) -> float:
    run, commits = side(table), 20
    run()
    requests()
    for _ in range(commits):
        run()
    return requests() / commits


def _committing(table: Any) -> Callable[[], None]:
    writer = stream_write_builder(table).open_sync().__enter__()  # to the end of the process

    def run() -> None:
        writer.write(some_rows(1))
        writer.commit()

    return run


def _growth(directory: Path) -> Iterator[Figure]:
    """Processor time of a commit after many commits, compared by turns with the first ones of another table."""
    warehouse = catalog(directory / "growth")
    old, new = (create(warehouse, name, SCHEMA) for name in ("old", "new"))
    sides: dict[str, Callable[[], object]] = {
        "last": _committing(old),
        "first": _committing(new),
        "listing": lambda: os.listdir(f"{old.table_path}/snapshot"),
    }
    for side, commits in (("last", COMMITS), ("first", _WARM_COMMITS)):
        for _ in range(commits):
            sides[side]()
    taken = in_turns(sides, _FIRST_COMMITS - _WARM_COMMITS)
    # Means, because every thirtieth commit or so merges manifests.
    last, first, listing = (fmean(taken[side]) for side in sides)
    # Only a listing shows the temporary file of Java's writer, which a rename would put in place of the snapshot.
    limit = (
        f"a local commit lists its {COMMITS:,} snapshots to find a rename of Java's: {listing * 1000:.1f} ms; "
        f"{(last - listing) / first:.2f} without it"
    )
    yield Figure(f"commit of one row, after {COMMITS:,} others, processor time", last * 1000, "ms", "-", None)
    met, unavoidable = last <= 1.2 * first, last - listing <= 1.2 * first
    yield Figure(
        f"the same, compared with the first {_FIRST_COMMITS}",
        last / first,
        "",
        "1.2",
        met,
        limit=limit if unavoidable else "",
    )
    peer = create(warehouse, "peer", SCHEMA)
    seconds = [worked(lambda: commit(peer, some_rows(1))) for _ in range(COMMITS // 10)]
    share = fmean(seconds[-50:]) / fmean(seconds[50:100])
    yield Figure(f"growth of {PEER} after {COMMITS // 10:,} commits", share, "", "-", None)
