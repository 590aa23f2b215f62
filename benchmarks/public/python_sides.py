"""What the sides of Python do, each in a process of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.public import rows as made_rows
from benchmarks.public.rows import KIND, Checksum
from benchmarks.reading_lines import NATIVE
from benchmarks.tables import PeerBuilder, catalog, peer_plans
from pypaimon.streaming import compact as compact_table
from pypaimon.streaming import copy_stream, maintain, stream_read_builder, stream_write_builder

OURS, PYPAIMON, NATIVE_READER, PYARROW = "this library", "pypaimon", "its native reader", "pyarrow, files alone"
Batches = Iterator[pa.RecordBatch | pa.Table]
_STORED_KIND = "_VALUE_KIND"
_PART = 1 << 16
_INPUTS: dict[str, pa.Table] = {}


def ready(**_: Any) -> dict[str, Any]:
    """Importing this module is what the sides begin with."""
    logging.disable(logging.WARNING)
    return {}


def _table(warehouse: str, name: str) -> Any:
    return catalog(warehouse).get_table(f"db.{name}")


# ---- reading


def read(side: str, warehouse: str, table: str, checked: bool, **_: Any) -> dict[str, Any]:
    """All changes of a table from its first snapshot up to its last one."""
    return _counted(_READERS[side](_table(warehouse, table)), checked)


def state(side: str, warehouse: str, table: str, checked: bool) -> dict[str, Any]:
    """The rows of the latest snapshot, by ours."""
    builder = stream_read_builder(_table(warehouse, table)).with_start("latest-full").with_end(latest=True)
    with builder.with_include_row_kind(False).open_sync() as stream:
        return _counted((batch.data for batch in stream), checked)


def _counted(batches: Batches, checked: bool) -> dict[str, Any]:
    if not checked:
        return {"rows": sum(batch.num_rows for batch in batches)}
    found = Checksum()
    for batch in batches:
        found.add(batch)
    return {"rows": found.rows, "checksum": found.value}


def _ours(table: Any) -> Batches:
    builder = stream_read_builder(table).with_start("earliest").with_catch_up("replay").with_end(latest=True)
    with builder.with_include_row_kind(bool(table.primary_keys)).open_sync() as stream:
        for batch in stream:
            yield batch.data


def _pypaimon(table: Any) -> Batches:
    """By its own stream, snapshot by snapshot."""
    latest = table.snapshot_manager().get_latest_snapshot().id
    read = PeerBuilder(table).with_include_row_kind(bool(table.primary_keys)).new_read()
    with peer_plans(table, next_snapshot=1) as next_plan:
        for _ in range(latest):
            yield from read.to_arrow_batch_reader(next_plan().splits())


def _native(table: Any) -> Batches:
    return _pypaimon(table.copy(NATIVE))


def _pyarrow(table: Any) -> Batches:
    """The files of all changes, without snapshots and manifests."""
    pattern = "changelog-*.parquet" if table.primary_keys else "data-*.parquet"
    columns = [*table.field_names, *([_STORED_KIND] if table.primary_keys else [])]
    for path in sorted(Path(str(table.table_path)).glob(f"bucket-*/{pattern}")):
        with pq.ParquetFile(path) as file:
            found = file.read(columns)
        yield found.rename_columns([KIND if name == _STORED_KIND else name for name in columns])


_READERS: dict[str, Callable[[Any], Batches]] = {
    OURS: _ours,
    PYPAIMON: _pypaimon,
    NATIVE_READER: _native,
    PYARROW: _pyarrow,
}


# ---- writing, by ours


def input(side: str, name: str, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Keep rows that a function of `rows` makes in memory."""
    _INPUTS[name] = getattr(made_rows, kind)(**arguments).arrow().combine_chunks()
    return {}


def forget(side: str) -> dict[str, Any]:
    """Forget rows that were kept."""
    _INPUTS.clear()
    return {}


def write(side: str, warehouse: str, table: str, input: str, first: int, rows: int, commits: int) -> dict[str, Any]:
    """Write rows of an input in commits of equal size."""
    each = rows // commits
    with stream_write_builder(_table(warehouse, table)).with_commit_user("ours").open_sync() as writer:
        for number in range(commits):
            for part in _INPUTS[input].slice(first + number * each, each).to_batches(max_chunksize=_PART):
                writer.write(part)
            writer.commit()
    return {"rows": rows}


def compact(side: str, warehouse: str, table: str) -> dict[str, Any]:
    """Compact what is due."""
    compact_table(_table(warehouse, table))
    return {}


def expire(side: str, warehouse: str, table: str) -> dict[str, Any]:
    """Expire snapshots by the options of the table."""
    maintain(_table(warehouse, table))
    return {}


def copy(side: str, warehouse: str, source: str, sink: str, columns: str, **_: Any) -> dict[str, Any]:
    """Insert columns of a table into another one."""
    target = _table(warehouse, sink)
    builder = stream_read_builder(_table(warehouse, source)).with_projection(columns.split(", "))
    with stream_write_builder(target).with_commit_user("q0").open_sync() as writer:
        copy_stream(builder.with_end(latest=True), writer)
    return {"rows": target.snapshot_manager().get_latest_snapshot().total_record_count}


# ---- following


def commits(side: str, warehouse: str, table: str, count: int, seconds: float, signal: str) -> dict[str, Any]:
    """Commit rows that carry the number of their commit: the first at once, the others, in time, after a signal."""
    with stream_write_builder(_table(warehouse, table)).with_commit_user("ours").open_sync() as writer:
        writer.write(made_rows.numbered(0).arrow())
        writer.commit()
        while not Path(signal).exists():
            time.sleep(0.01)
        due = time.monotonic()
        for number in range(1, count):
            due += seconds
            time.sleep(max(0.0, due - time.monotonic()))
            writer.write(made_rows.numbered(number).arrow())
            writer.commit()
    return {}


def follow(side: str, warehouse: str, table: str, commits: int, poll: int, signal: str) -> dict[str, Any]:
    """When the rows of each commit came, in milliseconds since 1970."""
    seen: dict[str, float] = {}
    builder = stream_read_builder(_table(warehouse, table)).with_start("earliest").with_poll_interval_ms(poll)
    with builder.open_sync() as stream:
        for batch in stream:
            now = time.time() * 1000
            for number in pc.unique(batch.data.column("commit")).to_pylist():
                seen.setdefault(str(number), now)
            Path(signal).touch()
            if len(seen) == commits:
                break
    return {"seen": seen}
