"""PySpark: the source and the sink, compared with the limit of Python data sources and with Spark's own readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import spark_ceilings
from benchmarks.measuring import Figure, text, worked
from benchmarks.spark_runs import (
    add_batch_seconds,
    batch_millis,
    clock_seconds,
    in_turns,
    new_session,
    noop,
    processor_seconds,
    run,
    share,
)
from benchmarks.spark_start import SOURCES, files_stream, first_query, small_stream
from benchmarks.tables import catalog, commit, create, some_rows
from pypaimon.spark import native_foreach_batch, native_read
from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import write_state

ROWS, FILES, SMALL, SKIPPED = 4_000_000, 8, 20, 5
START_ROUNDS, FIRST_ROUNDS = 9, 3
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
READ_ROUNDS = 9
"""Rows that are near their goals: fewer rounds let chance decide."""
PARTITIONS, COMMITS = 400, 22
READY_MADE, DECODED = "ready-made batches, same tasks", "its files through pyarrow, same tasks"
PARQUET, FILE_SOURCE, BARE = "spark.read.parquet of its files", "Spark's file source, its files", "bare Python source"


def figures(directory: Path) -> list[Figure]:
    """All figures of this area. Needs Java, or takes one from PyPI."""
    directory.mkdir()
    with _session(directory / "spark") as spark:
        found = _throughput(spark, directory)
        _small_table(directory)
        over_tcp = _round_trips(spark, directory)
        later = _later_queries(spark, directory)
    with _session(directory / "spark-unix", **UNIX_SOCKETS) as spark:
        over_unix = _round_trips(spark, directory, ", Unix sockets")
    held = [replace(tcp, limit=_held(tcp, unix) or tcp.limit) for tcp, unix in zip(over_tcp, over_unix, strict=True)]
    return [*found, *held, *over_unix, *later, *_first_queries(directory), _sink(directory)]


@contextmanager
def _session(directory: Path, **configuration: str) -> Iterator[Any]:
    spark = new_session(directory, quick=False, **{"spark.driver.memory": "2g"}, **configuration)
    spark_ceilings.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _held(tcp: Figure, unix: Figure) -> str:
    """Why a goal cannot be met over Spark's TCP sockets, if it is met over Unix sockets."""
    if not unix.met:
        return ""
    return (
        "Spark sends a task in two writes, and over TCP the second waits 40 ms for the acknowledgement of the first: "
        f"{text(unix.ratio)} x over Unix sockets"
    )


def _throughput(spark: Any, directory: Path) -> list[Figure]:
    """Rows per second of the clock, start and planning of streams aside; all sides with the same files and tasks."""
    warehouse = catalog(directory / "warehouse")
    appended = create(warehouse, "appended")
    for number in range(FILES):
        commit(appended, some_rows(ROWS // FILES, seed=number))
    logged = {"bucket": str(FILES), "changelog-producer": "input"}
    _write(create(warehouse, "changing", primary_keys=["id"], options=logged), some_rows(ROWS))
    place = {"warehouse": str(directory / "warehouse")}
    append, change = ({**place, "table": f"db.{name}"} for name in ("appended", "changing"))
    home = Path(str(appended.table_path))
    spark_stream = files_stream(spark, home)

    def ours(options: dict[str, str]) -> Callable[[], Any]:
        return lambda: spark.readStream.format("pypaimon").options(**options, start="earliest").load()

    def stream(load: Callable[[], Any], each: Any = None) -> Callable[[], float]:
        return lambda: add_batch_seconds(load(), directory, each)

    def batch(load: Callable[[], Any]) -> Callable[[], float]:
        return lambda: clock_seconds(lambda: noop(load()))

    def bare(options: dict[str, str], streaming: bool = True, files: bool = False) -> Callable[[], Any]:
        begin = {"start": "earliest"} if streaming else {}
        return spark_ceilings.bare(spark, options | begin, directory, streaming=streaming, files=files)

    found = in_turns(
        {
            "append": stream(ours(append)),
            "append bare": stream(bare(append)),
            "append decoded": stream(bare(append, files=True)),
            "append files": stream(spark_stream),
            "change": stream(ours(change)),
            "change bare": stream(bare(change)),
            "change decoded": stream(bare(change, files=True)),
            "batch": batch(lambda: spark.read.format("pypaimon").options(**append).load()),
            "batch bare": batch(bare(append, streaming=False)),
            "batch decoded": batch(bare(append, streaming=False, files=True)),
            "native": batch(lambda: native_read(spark, append)),
            "parquet": batch(lambda: spark.read.parquet(str(home / "bucket-0"))),
        },
        READ_ROUNDS,
    )

    def compared(measure: str, name: str, peer: str, peer_name: str, goal: float | None, decoded: str = "") -> Figure:
        rate, ratio = ROWS / median(found[name]) / 1e6, share(found, name, peer)
        words, met = ("none", None) if goal is None else (f"at least {goal:g}", ratio >= goal)
        # Ready-made batches are never decoded: a reader of files is as fast as pyarrow reads the same ones, at most.
        most = share(found, decoded, peer) if decoded else 1.0
        limit = f"pyarrow's decoding alone reaches {most:.2f}" if goal is not None and most < goal else ""
        measure = f"spark: {measure}"
        return Figure(measure, rate, "M rows/s", words, met, rate / ratio, peer_name, more_is_better=True, limit=limit)

    return [
        compared("append stream", "append", "append bare", READY_MADE, 0.95, "append decoded"),
        compared("append stream", "append", "append decoded", DECODED, 0.95),
        compared("append stream", "append", "append files", FILE_SOURCE, None),
        compared("changelog stream", "change", "change bare", READY_MADE, 0.9, "change decoded"),
        compared("changelog stream", "change", "change decoded", DECODED, 0.9),
        compared("batch read", "batch", "batch bare", READY_MADE, 0.9, "batch decoded"),
        compared("batch read", "batch", "batch decoded", DECODED, 0.9),
        compared("native_read", "native", "parquet", PARQUET, 0.97),
    ]


def _write(table: Any, rows: pa.Table) -> None:
    """Insert rows by the sink, as one commit of one task."""
    writer = RecordWriter(PaimonTable(table), "benchmark", False, write_state(PaimonTable(table)))
    kinds = pa.field(VALUE_KIND, pa.int8(), nullable=False)
    for batch in rows.combine_chunks().to_batches():
        inserts = pa.array(np.zeros(batch.num_rows, np.int8))
        writer.write(pa.RecordBatch.from_arrays([*batch.columns, inserts], schema=rows.schema.append(kinds)))
    commit_batch(PaimonTable(table), writer.prepare(), overwrite=False)
    writer.close()


def _small_table(directory: Path) -> None:
    table = create(catalog(directory / "small"), "small")
    for number in range(SMALL):
        commit(table, some_rows(10, seed=number))


def _round_trips(spark: Any, directory: Path, sockets: str = "") -> list[Figure]:
    """What waits for a Python task once per batch: files handed to Spark's reader, and a micro-batch of ten rows.

    Args:
        sockets: What the measures are called in addition.
    """
    append = {"warehouse": str(directory / "warehouse"), "table": "db.appended", "start": "earliest"}
    small = {**append, "warehouse": str(directory / "small"), "table": "db.small", "maxFilesPerTrigger": "1"}
    files = files_stream(spark, directory / "warehouse" / "db.db" / "appended")
    small_files = files_stream(spark, directory / "small" / "db.db" / "small", maxFilesPerTrigger=1)

    def ours(options: dict[str, str]) -> Any:
        return spark.readStream.format("pypaimon").options(**options).load()

    native = native_foreach_batch(lambda rows, _: noop(rows))
    bare_task = spark_ceilings.one_row(spark, directory)
    paths = [str(path) for path in (directory / "warehouse").rglob("data-*.parquet") if "appended" in path.parts]

    def by_hand(task: Any, _: int) -> None:
        task.collect()
        noop(spark.read.schema(schema).parquet(*paths))

    schema = files().schema
    seconds = in_turns(
        {
            "ours": lambda: add_batch_seconds(ours({**append, "mode": "files"}), directory, native),
            "by hand": lambda: add_batch_seconds(bare_task(), directory, by_hand),
            "theirs": lambda: add_batch_seconds(files(), directory, lambda rows, _: noop(rows)),
        },
        READ_ROUNDS,
    )
    millis = in_turns(
        {
            "ours": lambda: batch_millis(ours(small), directory, SKIPPED),
            "theirs": lambda: batch_millis(small_files(), directory, SKIPPED),
        }
    )
    rate, faster = ROWS / median(seconds["ours"]) / 1e6, share(seconds, "ours", "theirs")
    most = share(seconds, "by hand", "theirs")
    limit = f"a bare Python source, and its files read with a schema by hand, reach {most:.2f}" if most < 0.95 else ""
    once, ratio = median(millis["ours"]), share(millis, "ours", "theirs")
    each, batch = f"spark: native_foreach_batch{sockets}", f"spark: micro-batch of ten rows{sockets}"
    return [
        Figure(each, rate, "M rows/s", "at least 0.95", faster >= 0.95, rate / faster, FILE_SOURCE, True, limit),
        Figure(batch, once, "ms", "at most 1.1 times", 1 / ratio <= 1.1, once * ratio, FILE_SOURCE),
    ]


def _later_queries(spark: Any, directory: Path) -> list[Figure]:
    """Processor seconds of a query with one batch of few rows, in a session that has run others."""
    loads = {source: small_stream(spark, source, directory / "small", directory) for source in SOURCES}
    runs = {name: partial(_query_seconds, load, directory) for name, load in loads.items()}
    return _starts("a later query", in_turns(runs, START_ROUNDS), 0.3)


def _query_seconds(load: Callable[[], Any], directory: Path) -> float:
    return processor_seconds(lambda: run(load(), directory))


def _first_queries(directory: Path) -> list[Figure]:
    """Processor seconds of the first query of a session: of Spark's processes, which begin with it, too."""
    numbers = count()

    def first(source: str) -> float:
        return first_query(source, directory / "small", directory / f"first-{next(numbers)}")

    queries = {source: partial(first, source) for source in SOURCES}
    return _starts("the first query", in_turns(queries, FIRST_ROUNDS), 1.0)


def _starts(what: str, found: dict[str, list[float]], more: float) -> list[Figure]:
    """Medians of what queries of each source took in rounds: the bare source's is ours less the median difference."""
    ours, measure = median(found["pypaimon"]), f"spark: processor time of {what}"
    bare = ours - median(a - b for a, b in zip(found["pypaimon"], found["bare"], strict=True))
    return [
        Figure(measure, ours, "s", f"at most {more:g} s more", ours <= bare + more, bare, BARE),
        Figure(measure, ours, "s", "-", None, median(found["files"]), FILE_SOURCE),
    ]


def _sink(directory: Path) -> Figure:
    """Processor seconds of a write and its commit that touch all partitions of a table of many files."""
    warehouse = catalog(directory / "sink")
    columns = pa.schema([pa.field("day", pa.int32(), False), pa.field("id", pa.int64(), False), ("v", pa.float64())])
    options = {"bucket": "1"}
    table = create(warehouse, "days", columns, partition_keys=["day"], primary_keys=["day", "id"], options=options)

    def write(number: int, days: int) -> None:
        day = (np.arange(days, dtype=np.int32) + number * days) % PARTITIONS
        rows = {"day": day, "id": np.full(days, number), "v": np.zeros(days)}
        _write(warehouse.get_table("db.days"), pa.table(rows, schema=columns))

    assert table.partition_keys == ["day"]
    for number in range(COMMITS):
        write(number, 100)
    spent = [worked(partial(write, COMMITS + number, PARTITIONS)) for number in range(3)]
    measure = f"spark: sink, {PARTITIONS} partitions of {COMMITS * 100:,} files touched"
    return Figure(measure, median(spent), "s", "1.3 s", median(spent) <= 1.3)
