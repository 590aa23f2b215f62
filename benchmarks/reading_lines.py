"""Lines of the report about reading. All sides of one read the same plan of the same table, once per call.

Planning is not part of it. pypaimon reads by its own stream: as it comes, and with its native planner and reader, where
those are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from benchmarks import rust_peer
from benchmarks.measuring import PEER, Clock, Figure, compared, worked
from benchmarks.tables import PeerBuilder, peer_plans
from pypaimon.streaming import stream_read_builder

OURS = "ours"
PYARROW = "pyarrow"
NATIVE_PEER = "native reader"
NATIVE = {"scan.native-plan.enabled": "true", "read.native.enabled": "true"}

Side = Callable[[], int]
"""Reads all; the number of rows."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is read, how much of it, and the goal for the ratio to pypaimon."""

    measure: str
    amount: float
    unit: str
    goal: str = "faster"
    ratio: float = 1.0
    clock: Clock = worked

    def beside_peers(self, sides: dict[str, Side], rounds: int = 5) -> list[Figure]:
        """Beside each peer on the same rows, by turns; all sides are warm."""
        assert len({run() for run in sides.values()}) == 1, "all sides read the same rows"
        ours, peers = sides[OURS], {name: run for name, run in sides.items() if name != OURS}
        goals = {PEER: (self.goal, self.ratio)}
        return [self.figure(ours, run, name, *goals.get(name, ("faster", 1.0)), rounds) for name, run in peers.items()]

    def figure(
        self, ours: Side, other: Side, name: str, goal: str = "-", ratio: float | None = None, rounds: int = 5
    ) -> Figure:
        """Beside one other side."""
        seconds, share = compared({OURS: ours, name: other}, rounds, self.clock)
        met, rate = None if ratio is None else share >= ratio, self.amount / seconds
        return Figure(self.measure, rate, self.unit, goal, met, rate / share, name, more_is_better=True)


def follow_up(table: Any, kinds: bool) -> dict[str, Side]:
    """Of the first snapshot of a table, as a change: ours, and the streams of pypaimon."""
    builder = stream_read_builder(table).with_start("earliest").with_include_row_kind(kinds)
    return _sides(table, builder, kinds=kinds, next_snapshot=1)


def first_plan(table: Any) -> dict[str, Side]:
    """Of the state of a table: the same sides."""
    return _sides(table, stream_read_builder(table).with_raw(True), kinds=False, next_snapshot=None)


def raw_files(table: Any) -> Side:
    """pyarrow on the files of a table's first snapshot, with the columns that the others read."""
    plan = stream_read_builder(table).with_start("earliest").new_streaming_scan().plan()
    assert plan is not None
    paths = [file.file_path for split in plan.splits() for file in split.files]

    def run() -> int:
        rows = 0
        for path in paths:
            with pq.ParquetFile(path) as file:
                names = [each for each in file.schema_arrow.names if each in (*table.field_names, "_VALUE_KIND")]
                rows += file.read(names).num_rows
        return rows

    return run


def _sides(table: Any, builder: Any, kinds: bool, next_snapshot: int | None) -> dict[str, Side]:
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    sides: dict[str, Side] = {OURS: partial(_batches, builder.new_read().iter_batches, plan.splits())}
    peers = {PEER: table} | ({NATIVE_PEER: table.copy(NATIVE)} if rust_peer.is_there() else {})
    for name, handle in peers.items():
        with peer_plans(handle, next_snapshot) as next_plan:
            splits = next_plan().splits()
        read = PeerBuilder(handle).with_include_row_kind(kinds).new_read()
        sides[name] = partial(_batches, read.to_arrow_batch_reader, splits)
    return sides


def _batches(read: Callable[[Any], Iterable[Any]], splits: Any) -> int:
    return sum(batch.num_rows for batch in read(splits))
