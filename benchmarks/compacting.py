"""Compaction: time compared with pyarrow, rows a second compared with live Java, bytes read, the gain for readers."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon.catalog.catalog_factory import CatalogFactory

from benchmarks import java_peer
from benchmarks.java_peer import CountingFileIO, JavaTable
from benchmarks.measuring import Figure, worked
from benchmarks.tables import SCHEMA, catalog, create, some_rows
from benchmarks.writing import encode
from pypaimon.streaming import compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.registry import new_file
from pypaimon.streaming.merge import rows_of_batch
from pypaimon.streaming.writing.files.rolling_files import MOST_PIECE_BYTES

ROWS = 1_000_000
_FILE_ROWS = 200_000
COMMITS = 8
ROUNDS = 3
WARM = 3
"""Rounds that do not count: the JVM compiles what it runs."""
_KEYS = ROWS // 2
_SUMS = {
    "fields.amount.aggregate-function": "sum",
    "fields.number.aggregate-function": "max",
    "fields.name.aggregate-function": "last_value",
    "fields.day.aggregate-function": "last_value",
}
_BUCKET = {"bucket": "1"}
_TRACKED = {"row-tracking.enabled": "true", "compaction.min.file-num": "2"}
_EVOLUTION = _TRACKED | {"data-evolution.enabled": "true"}
_UPDATED = "data evolution with column updates"
_CLUSTERED = {"clustering.incremental": "true", "clustering.columns": "number,day", "clustering.strategy": "zorder"}
CASES: tuple[tuple[str, bool, dict[str, str], float], ...] = (
    ("append", False, {"compaction.min.file-num": "2"}, 1.0),
    ("deduplicate", True, _BUCKET, 1.0),
    ("partial-update", True, _BUCKET | {"merge-engine": "partial-update"}, 0.5),
    ("aggregation", True, _BUCKET | {"merge-engine": "aggregation"} | _SUMS, 0.5),
    ("first-row", True, _BUCKET | {"merge-engine": "first-row"}, 0.5),
    ("changelog of lookup", True, _BUCKET | {"changelog-producer": "lookup"}, 0.5),
    ("changelog of full-compaction", True, _BUCKET | {"changelog-producer": "full-compaction"}, 0.5),
    ("deletion vectors", True, _BUCKET | {"deletion-vectors.enabled": "true"}, 0.5),
    ("row tracking", False, _TRACKED, 1.0),
    ("data evolution", False, _EVOLUTION, 1.0),
    (_UPDATED, False, _EVOLUTION, 1.0),
    ("clustering by z-order", False, _CLUSTERED, 1.0),
    ("postponed buckets", True, {"bucket": "-2", "postpone.default-bucket-num": "1"}, 1.0),
)
"""Name, whether there is a primary key, options, and how many times as fast as Java it is to be."""


_OWN_SHARE = 0.05
"""Of decoding and encoding: 12 ms, less than a plan, a merge and a commit need."""


def figures(directory: Path) -> list[Figure]:
    """All of this area; what is compared with Java only where there is a live one."""
    return [*_beside_pyarrow(directory), *(_beside_java(directory) if java_peer.is_there() else ())]


def _beside_pyarrow(directory: Path) -> Iterator[Figure]:
    """A full compaction of eight files, most keys in one of them, compared with decoding and encoding alone."""
    table, kept = _level_0(directory / "alone", _FILE_ROWS)
    files = list(kept.rglob("data-*.parquet"))
    compact(table, full=True)
    home = Path(str(table.table_path))
    result = pa.concat_tables(
        pq.read_table(path) for path in home.rglob("data-*.parquet") if path.name not in {file.name for file in files}
    ).combine_chunks()
    ours, alone, merged = [], [], []
    for _ in range(9):
        shutil.rmtree(str(table.table_path))
        shutil.copytree(kept, str(table.table_path))
        ours.append(worked(lambda: compact(table, full=True)))
        alone.append(worked(lambda: _decode_and_encode(files, result)))
        merged.append(worked(lambda: _decode_sort_and_encode(files, result.schema)))
    share = median(one / other for one, other in zip(ours, alone, strict=True))
    measure = f"full compaction of {COMMITS} x {_FILE_ROWS:,} rows, processor time"
    peer = "decoded and encoded alone"
    least = median(one / other for one, other in zip(merged, alone, strict=True))
    limit = (
        f"numpy and pyarrow need {least:.2f} of it to decode, sort, gather, bound and encode the same batches, without "
        "a plan, a merge and a commit"
    )
    yield Figure(
        measure, median(ours), "s", "1.39 of it", share <= 1.39, median(ours) / share, peer,
        limit=limit if least > 1.39 - _OWN_SHARE else "",
    )  # fmt: skip


def _level_0(directory: Path, rows: int) -> tuple[Any, Path]:
    """A table of `COMMITS` files on level 0, few of whose keys are in several, and a copy of its directory."""
    table = create(catalog(directory), "t", primary_keys=["id"], options=_BUCKET | {"write-only": "true"})
    with stream_write_builder(table).open_sync() as writer:
        for number in range(COMMITS):
            writer.write(some_rows(rows, number, rows * COMMITS * 5))
            writer.commit()
    copy = directory / "kept"
    shutil.copytree(str(table.table_path), copy)
    return table, copy


def _decode_and_encode(files: list[Path], result: pa.Table) -> None:
    for path in files:
        pq.ParquetFile(path).read(use_threads=False)
    encode(result)


def _decode_sort_and_encode(files: list[Path], schema: pa.Schema) -> None:
    """The least of a merge in bounded memory: some rows of each file at once, sorted, with bounds, in row groups."""
    writer, group = new_file("parquet", io.BytesIO(), schema, WriteSettings("zstd")), list[pa.Table]()

    def end_group() -> None:
        rows = pa.concat_tables(group)
        for column in rows.columns:
            pc.min_max(column)
        writer.write(rows)
        group.clear()

    length = rows_of_batch(len(files))
    for batches in zip(*(pq.ParquetFile(path).iter_batches(length, use_threads=False) for path in files), strict=True):
        rows = pa.Table.from_batches(batches).combine_chunks()
        ids = np.asarray(rows["id"])
        order = np.argsort(ids, kind="stable")
        # The last row of each key, of those that are here together.
        group.append(rows.take(pa.array(order[np.append(np.diff(ids[order]) != 0, True)])))
        if sum(each.nbytes for each in group) > MOST_PIECE_BYTES:
            end_group()
    end_group()
    writer.close()


def _beside_java(directory: Path) -> Iterator[Figure]:
    with java_peer.live_java() as java:
        for number, (name, keyed, options, goal) in enumerate(CASES):
            warehouse = directory / f"w{number}"
            warehouse.mkdir(parents=True)
            of_java = JavaTable(java, warehouse, keyed=keyed, options=options)
            _write(_table(warehouse), keyed=keyed)
            if name == _UPDATED:
                _update_columns(_table(warehouse))
            of_java.keep()
            ours, javas = [], []
            for turn in range(WARM + ROUNDS):
                seconds = of_java.compact()
                of_java.restore()
                table = _table(warehouse)
                own = worked(lambda: compact(table, full=True))  # noqa: B023 - called at once
                if turn >= WARM:
                    ours.append(own)
                    javas.append(seconds)
                if turn < WARM + ROUNDS - 1:
                    of_java.restore()
            share = median(java / own for own, java in zip(ours, javas, strict=True))
            rate = ROWS / median(ours)
            words = "as fast" if goal == 1 else f"{goal:g} of it"
            yield Figure(f"compact, {name}", rate, "rows/s", words, share >= goal, rate / share, java_peer.NAME, True)
            of_java.restore()
            if name == "postponed buckets":
                continue  # what is distributed is compacted in the same run
            read = _share_read(_table(warehouse))
            yield Figure(f"bytes read of those there are, compact, {name}", read, "", "1.05", read <= 1.05)
            if name == "deduplicate":
                after = _first_plan(_table(warehouse))
                of_java.restore()
                before = _first_plan(_table(warehouse))
                yield Figure("first plan after that compaction", after, "s", "faster", after < before, before, "before")


def _table(warehouse: Path) -> Any:
    return CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")


def _write(table: Any, *, keyed: bool) -> None:
    with stream_write_builder(table).with_commit_user("load").open_sync() as writer:
        for commit in range(COMMITS):
            count = ROWS // COMMITS
            writer.write(some_rows(count, commit, _KEYS if keyed else None))
            writer.commit()
    assert table_files(table).files.rows == ROWS


def _update_columns(table: Any) -> None:
    """A commit for each column but the key, which writes it in all rows."""
    for seed, name in enumerate(SCHEMA.names[1:], COMMITS):
        data = pa.table({"_ROW_ID": range(ROWS), name: some_rows(ROWS, seed)[name]})
        builder = table.new_batch_write_builder()
        committer = builder.new_commit()
        committer.commit(builder.new_update().with_update_type([name]).update_by_arrow_with_row_id(data))
        committer.close()


def _share_read(table: Any) -> float:
    """Bytes of data files that a compaction reads, compared with the size of the files."""
    size = table_files(table).files.bytes
    table.file_io = CountingFileIO()
    compact(table, full=True)
    return float(table.file_io.of(".parquet") / size)


def _first_plan(table: Any) -> float:
    def read() -> None:
        with stream_read_builder(table).with_start("latest-full").with_end(latest=True).open_sync() as stream:
            for _ in stream:
                pass

    read()
    return median(worked(read) for _ in range(ROUNDS))
