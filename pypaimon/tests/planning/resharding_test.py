"""Four readers of one consumer id become three while a writer and the old ones go on, in many orders."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from pypaimon.streaming import AsyncStreamingTableScan, ConsumerConflictError
from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from support.samples import SOAK
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

OLD, NEW = 4, 3
BUCKETS = 12
COMMITS = 14
KEYS = 24
"""Of a commit; enough for every bucket, as a rule."""

Row = tuple[int, int]
"""Snapshot and key."""


class Shard:
    def __init__(self, table: Table, index: int, count: int) -> None:
        builder = table.builder().with_start("earliest").with_consumer_id("etl").with_shard(index, count)
        self._read = builder.new_read()
        self.scan: AsyncStreamingTableScan = builder.new_streaming_scan()
        self.rows: list[Row] = []
        self.conflict = False

    def step(self) -> bool:
        try:
            plan = self.scan.plan()
        except ConsumerConflictError:
            self.conflict = True
            return False
        if plan is None:
            return False
        # A plan may cover several snapshots; the key tells which one a row is of.
        self.rows += [(key // KEYS + 1, key) for key in self._read.to_arrow(plan.splits())["k"].to_pylist()]
        return True


@pytest.mark.parametrize("seed", range(200 if SOAK else 2))
def test_no_row_is_lost_and_none_repeated_from_before_the_smallest_saved_position(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = Table(tmp_path / "w", bucket=str(BUCKETS), bucket_key="k")
    manager = ConsumerManager(table.handle().file_io, str(table.path))
    everything: list[Row] = []

    def write() -> None:
        keys = range(len(everything), len(everything) + KEYS)
        snapshot = table.commit(keys)
        everything.extend((snapshot, key) for key in keys)

    write()
    old = [Shard(table, index, OLD) for index in range(OLD)]
    for shard in old:
        shard.step()
    new: list[Shard] = []
    smallest = 0
    resharded_at = rng.randint(2, COMMITS - 4)
    while table.latest() < COMMITS:
        if len(new) < NEW and table.latest() >= resharded_at and rng.random() < 0.3:
            smallest = smallest or min(info.next_snapshot for info in manager.infos())
            new.append(Shard(table, len(new), NEW))
        actor = rng.choice([None, *old, *new])
        if actor is None:
            write()
        elif not actor.conflict:
            actor.step()
    smallest = smallest or min(info.next_snapshot for info in manager.infos())
    new.extend(Shard(table, index, NEW) for index in range(len(new), NEW))
    for shard in new:
        while shard.step():
            pass
    # The new files are all there, so that the old ones are not: nothing can be saved in them any more.
    assert {info.name.text for info in manager.infos()} == {f"etl.shard-{index}-of-{NEW}" for index in range(NEW)}
    write()
    for shard in old:
        while shard.step():
            pass
        assert shard.conflict
    for shard in new:
        while shard.step():
            pass
        assert not shard.conflict
    repeated = Counter(row for shard in (*old, *new) for row in shard.rows)
    assert set(repeated) == set(everything)
    assert all(snapshot >= smallest for (snapshot, _), times in repeated.items() if times > 1)
    for group in (old, new):
        assert max(Counter(row for shard in group for row in shard.rows).values()) == 1
    for shard in (*old, *new):
        shard.scan.close()
