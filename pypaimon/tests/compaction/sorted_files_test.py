"""Compactions that sort the rows of append tables lose no row, also of other writers, and bound their memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import compact, stream_read_builder, table_files
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.sort_order import sort_request
from pypaimon.streaming.compaction.task_pickers import sort_picker
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge import stages
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.memory import peak_memory
from support.samples import SOAK, sample_seed
from support.spark.sink_world import World
from support.tables.handles import EVOLUTION, batch_table, catalog_with_database, create_table, write_by_stream

STRATEGIES = ["order", "zorder", "hilbert"]
CLUSTERED = {
    "clustering.incremental": "true",
    "clustering.columns": "v,id",
    "num-sorted-run.compaction-trigger": "2",
}
COLUMNS = pa.schema([("p", pa.int32()), ("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
STEP = 1 if SOAK else 11


def drawn(rng: random.Random, count: int) -> pa.Table:
    rows = [
        {
            "p": rng.randrange(2),
            "a": rng.choice([None, rng.randrange(-50, 50), rng.randrange(-(1 << 63), 1 << 63)]),
            "s": rng.choice([None, "", f"{rng.random()}", "ä" * rng.randrange(300), "same"]),
            "l": rng.choice([None, [], [1, None]]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def bag(table: Any) -> list[str]:
    return sorted(map(repr, batch_table(table).to_pylist()))


def files_of(table: Any) -> list[pa.Table]:
    """The rows of each file, in the order in which the files of a partition were written."""
    splits = table.new_read_builder().new_scan().plan().splits()
    paths = [Path(str(file.file_path)) for split in splits for file in split.files]
    return [pq.ParquetFile(path).read() for path in sorted(paths, key=lambda path: int(path.stem.rpartition("-")[2]))]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_those_that_were_there(tmp_path: Path, strategy: str) -> None:
    rng = random.Random(f"{sample_seed()} {strategy}")
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "t", COLUMNS, partition_keys=["p"], options={"target-file-size": "4 kb"})
    for _ in range(3):
        write_by_stream(table, drawn(rng, 200))
    before = bag(table)
    for order_by in (["s"], ["a", "s"], "a"):
        report = compact(table, order_by=order_by, strategy=strategy)
        assert bag(table) == before
        assert {each.partition["p"] for each in report.compacted} == {0, 1}
        assert report.before.rows == report.after.rows == 600
        assert report.after.files > 2
    # The last order has one column.
    for partition in range(2):
        values = [
            value for file in files_of(table) if file["p"][0].as_py() == partition for value in file["a"].to_pylist()
        ]
        assert values == sorted(values, key=lambda value: -(1 << 64) if value is None else value)


def test_only_chosen_partitions_are_sorted(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "t", COLUMNS, partition_keys=["p"])
    write_by_stream(table, drawn(random.Random(1), 50))
    dry = compact(table, order_by="a", where="p > 0", dry_run=True)
    assert [each.partition for each in dry.compacted] == [{"p": 1}]
    assert compact(table, order_by="a", partition={"p": 1}).before == dry.before
    # One file is sorted too.
    assert compact(table, order_by="s", partition={"p": 1}).after.files == 1


@pytest.mark.parametrize(
    ("options", "keys", "order_by", "strategy", "message"),
    [
        ({}, [], ["a", "b"], "auto", "order_by: db.t has no column 'b'. It has p, a, s, l"),
        ({}, [], ["a", "p"], "auto", "'p' has one value in each partition"),
        ({}, [], ["l"], "auto", "column 'l' is ARRAY<INT>, whose values have no order"),
        ({}, [], ["a", "a"], "auto", "expected different columns, got a, a"),
        ({}, [], [], "auto", "expected different columns, got none"),
        ({}, [], ["a"], "random", "compact: strategy='random': choose one of 'auto', 'order', 'zorder', 'hilbert'"),
        ({}, [], 5, "auto", r"compact: order_by\(5\): give a list of columns"),
        ({}, [], ["a", 5], "auto", r"compact: order_by: expected str, got 5 \(int\)"),
        ({}, [], None, "zorder", "compact: strategy='zorder' sorts by columns: give them as order_by"),
        ({"bucket": "2", "bucket-key": "a"}, [], ["a"], "auto", "has buckets .*'bucket' is 2"),
        ({"bucket": "1"}, ["p", "a"], ["s"], "auto", "has a primary key"),
        (CLUSTERED, [], ["a"], "auto", "'clustering.columns': db.t has no column 'v'"),
        (CLUSTERED | {"clustering.columns": "a"}, [], ["a"], "auto", "each compaction sorts by 'clustering.columns'"),
        ({"sort-spill-buffer-size": "much"}, [], ["a"], "auto", "sort-spill-buffer-size"),
    ],
)
def test_bad_orders_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, str], keys: list[str], order_by: Any, strategy: str, message: str
) -> None:
    columns = COLUMNS if not keys else pa.schema([field.with_nullable(field.name not in keys) for field in COLUMNS])
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "t", columns, partition_keys=["p"], primary_keys=keys, options=options)
    write_by_stream(table, pa.table({"p": [1], "a": [1], "s": ["x"], "l": [[1]]}, schema=columns))
    before = sorted(tmp_path.rglob("*"))
    for dry_run in (True, False):
        with pytest.raises((StreamConfigError, UnsupportedTableError), match=message):
            compact(table, order_by=order_by, strategy=strategy, dry_run=dry_run)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clustering.columns": ""}, "'clustering.columns': expected different columns, got none"),
        ({"clustering.columns": "x"}, "'clustering.columns': db.t has no column 'x'"),
        ({"clustering.strategy": "peano"}, "Could not parse value 'peano' for key 'clustering.strategy'"),
        ({"bucket": "1", "bucket-key": "a"}, "has 'clustering.incremental' and buckets: set 'bucket-append-ordered'"),
        ({"row-tracking.enabled": "true"}, "row-tracking"),
        (EVOLUTION, "row-tracking"),
    ],
)
def test_options_that_cannot_be_clustered_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    table = create_table(
        catalog_with_database(tmp_path), "t", COLUMNS, options=CLUSTERED | {"clustering.columns": "a"} | options
    )
    with pytest.raises((StreamConfigError, UnsupportedTableError), match=message):
        compact(table)


def test_levels_of_append_files_are_shown_and_read(tmp_path: Path) -> None:
    table = create_table(
        catalog_with_database(tmp_path), "t", COLUMNS, options=CLUSTERED | {"clustering.columns": "a,s"}
    )
    rng, total = random.Random(1), 0
    for size in (10, 10, 40, 10):
        write_by_stream(table, drawn(rng, size))
        total += size
    before = bag(table)
    assert compact(table).new_snapshot_ids == (5,)
    write_by_stream(table, drawn(rng, 400))
    assert dict(table_files(table).buckets[0].levels).keys() == {0, 2}
    assert len(bag(table)) == len(before) + 400
    assert compact(table, full=True).new_snapshot_ids == (7,)
    assert not compact(table, full=True).compacted
    write_by_stream(table, drawn(rng, 5))
    # Streams get each row once, in the snapshot that wrote it.
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).open_sync() as stream:
        seen = [batch.data.num_rows for batch in stream]
    assert seen == [10, 10, 40, 10, 400, 5]


# Others


def sorting(world: World, how: str, file_io: MortalFileIO | None = None) -> tuple[Any, dict[str, Any]]:
    """The table of a world, and how it is compacted."""
    if how == "clustering":
        return world.table(file_io).copy(CLUSTERED), {"full": True}
    return world.table(file_io), {"order_by": ["v", "id"], "strategy": how}


def world_of(directory: Path) -> World:
    world = World(directory, keyed=False)
    for _ in range(3):
        world.run()
    return world


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("how", ["zorder", "clustering"])
def test_a_process_dies_at_every_request(tmp_path: Path, how: str) -> None:
    for steps in range(1 + sample_seed() % STEP, 90, STEP):
        world = world_of(tmp_path / str(steps))
        table, arguments = sorting(world, how, MortalFileIO(steps))
        try:
            compact(table, **arguments)
        except Killed:
            world.check()
            table, arguments = sorting(world, how)
            compact(table, **arguments)
            world.check()
            assert world.live_files() <= world.data_files()
            continue
        break
    assert 9 < steps < 90 - STEP


@pytest.mark.slow
@pytest.mark.parametrize("how", [*STRATEGIES, "clustering"])
def test_what_others_write_meanwhile_stays(tmp_path: Path, how: str) -> None:
    world = world_of(tmp_path)
    others = iter([1])

    def append() -> None:
        for _ in others:
            world.other()

    table, arguments = sorting(world, how)
    report = compact_while(table, append, **arguments)
    assert report.new_snapshot_ids and not report.conflicts
    world.check()
    assert len(world.live_files()) == 2


@pytest.mark.parametrize("how", ["hilbert", "clustering"])
def test_another_compaction_that_was_faster_is_a_conflict(tmp_path: Path, how: str) -> None:
    world = world_of(tmp_path)
    table, arguments = sorting(world, how)
    others = iter([1])

    def faster() -> None:
        for _ in others:
            assert compact(table, **arguments).new_snapshot_ids

    report = compact_while(table, faster, **arguments)
    assert report.conflicts and not report.new_snapshot_ids
    world.check()
    assert len(world.live_files()) == 1
    assert len(world.data_files()) == 4


def compact_while(table: Any, action: Callable[[], None], **arguments: Any) -> Any:
    order = sort_request("compact", arguments.get("order_by"), arguments.get("strategy", "auto"))
    return Compaction(PaimonTable(table), full=arguments.get("full", False), new_picker=sort_picker(order)).run(
        check=action
    )


# Memory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order_by", "strategy"), [(["a", "b"], "zorder"), pytest.param(["k"], "order", marks=pytest.mark.nightly)]
)
def test_memory_is_bounded_by_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order_by: list[str], strategy: str
) -> None:
    monkeypatch.setattr("pypaimon.streaming.compaction.file_reading._BATCH_ROWS", 2048)
    limit = 1 << 20
    few, many = (peak(tmp_path / str(rows), rows, limit, order_by, strategy) for rows in (10_000, 40_000))
    # The rows are 3 MB in memory, 5 MB with their places.
    assert many < few + limit
    assert many < 4 * limit


def peak(directory: Path, rows: int, limit: int, order_by: list[str], strategy: str) -> int:
    numbers = np.random.default_rng(1)
    columns = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("k", pa.int64()), ("s", pa.string())])
    options = {"target-file-size": "64 kb", "sort-spill-buffer-size": str(limit)}
    table = create_table(catalog_with_database(directory), "t", columns, options=options)
    parts = 10
    for _ in range(parts):
        values = numbers.integers(0, 1 << 40, (2, rows // parts))
        texts = [f"{each:.28f}" for each in numbers.random(rows // parts)]
        write_by_stream(table, pa.table([*values, [1] * len(texts), texts], schema=columns))
    report, most = peak_memory(lambda: compact(table, order_by=order_by, strategy=strategy))
    assert report.after.rows == rows
    return most


def test_a_full_disk_is_an_error_that_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, batch: pa.RecordBatch) -> None:
        raise OSError("no space")

    monkeypatch.setattr(stages.StoredRun, "_spill", full)
    columns = pa.schema([("a", pa.int64())])
    table = create_table(catalog_with_database(tmp_path), "t", columns, options={"sort-spill-buffer-size": "1 mb"})
    write_by_stream(table, pa.table({"a": range(100_000)}, schema=columns))
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(PaimonStreamError, match=r"Rows are sorted in temporary files.*no space") as caught:
        compact(table, order_by="a")
    assert "sort-spill-buffer-size" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == files
