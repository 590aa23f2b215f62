"""Random histories and readers that restart, seek, cancel, shard, limit and lag: they see what the model says."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from tables import Row, Table, rows

from pypaimon.streaming import AsyncStreamingTableScan, Plan, Position, StreamTableRead

KINDS: dict[str, dict[str, Any]] = {
    "unaware": {},
    "fixed": {"bucket": "3", "bucket_key": "k"},
    "none": {"primary_key": True, "bucket": "2"},
    "input": {"primary_key": True, "bucket": "2", "changelog_producer": "input"},
}


@dataclass
class History:
    """A table, and the rows that a stream from its beginning hands out."""

    table: Table
    expected: list[Row] = field(default_factory=list)
    next_key: int = 0
    columns: int = 0

    def commit(self, draw: Any) -> None:
        """One random commit."""
        action = draw(st.sampled_from(["rows", "rows", "rows", "overwrite", "column"]))
        if action == "column":
            self.columns += 1
            change = SchemaChange.add_column(f"c{self.columns}", AtomicType("INT"))
            self.table.catalog.alter_table(self.table.name, [change], False)
            return
        count = draw(st.integers(1, 6))
        if not self.table.primary_key:
            added = [("+I", key, f"v{key}") for key in range(self.next_key, self.next_key + count)]
            self.next_key += count
            overwrites = action == "overwrite"
            self.table.commit(added, overwrite=overwrites)
            # OVERWRITE snapshots are passed over (B38).
            self.expected += [] if overwrites else added
            return
        keys = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count, unique=True))
        self.next_key += 1
        changes = [(draw(st.sampled_from(["+I", "-U", "+U", "-D"])), key, f"{key}@{self.next_key}") for key in keys]
        self.table.commit(changes)
        self.expected += changes


@dataclass
class Reader:
    """One reader of one shard. `seen` is what a downstream has that undoes what a restart repeats."""

    history: History
    draw: Any
    shard: tuple[int, int] | None
    consumer: str | None
    scan: AsyncStreamingTableScan | None = None
    read: StreamTableRead | None = None
    position: str | None = None
    seen: list[Row] = field(default_factory=list)
    plans: list[tuple[Plan, int]] = field(default_factory=list)

    def open(self) -> None:
        """Start, or start again with other settings."""
        draw, builder = self.draw, self.history.table.builder().with_start("earliest")
        builder.with_projection(["k", "v"]).with_include_row_kind().with_poll_interval_ms(1)
        builder.with_prefetch(draw(st.sampled_from([0, 1, 4]))).with_catch_up(draw(st.sampled_from(["auto", "replay"])))
        limit = draw(st.sampled_from([None, "max_rows", "max_splits"]))
        if limit is not None:
            builder.with_limits(**{limit: draw(st.integers(1, 8))})
        if self.shard is not None:
            builder.with_shard(*self.shard)
        if self.consumer is not None:
            builder.with_consumer_id(self.consumer)
        elif self.position is not None:
            builder.with_start(position=self.position)
        self.scan, self.read = builder.new_streaming_scan(), builder.new_read()

    def restart(self) -> None:
        """Go away with a plan in hand, and come back."""
        assert self.scan is not None
        self.scan.close()
        if self.consumer is None:
            found = self.scan.checkpoint()
            self.position = None if found is None else found.to_json()
        else:
            self.undo_from(self.scan.committed())
        self.open()

    def seek(self) -> None:
        """Back to a plan that was handed out."""
        assert self.scan is not None
        if self.plans:
            plan, _ = self.plans[self.draw(st.integers(0, len(self.plans) - 1))]
            self.scan.restore(plan.position)
            self.undo(plan.position)

    def undo_from(self, snapshot: int | None) -> None:
        if self.plans:
            table = self.plans[0][0].position.table
            self.undo(Position(table, 0 if snapshot is None else snapshot))

    def undo(self, position: Position) -> None:
        """Forget what comes again from a position on."""
        later = [number for number, (plan, _) in enumerate(self.plans) if plan.position > position]
        if later:
            del self.seen[self.plans[later[0]][1] :]
            del self.plans[later[0] :]

    async def step(self, cancel_after: int | None) -> bool:
        """Ask for a plan once, perhaps cancelled; whether something may be left."""
        assert self.scan is not None and self.read is not None
        waiting = asyncio.ensure_future(self.scan.plan_async())
        if cancel_after is not None:
            for _ in range(cancel_after):
                await asyncio.sleep(0)
            waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            plan = await waiting
            if plan is None:
                return False
            self.plans.append((plan, len(self.seen)))
            self.seen += rows(self.read, plan)
        return True

    async def catch_up(self) -> None:
        while await self.step(None):
            pass


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=15, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_readers_see_what_the_model_says(kind: str, data: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_check(Path(directory), kind, data.draw))


async def _check(directory: Path, kind: str, draw: Any) -> None:
    history = History(Table(directory / "w", **KINDS[kind]))
    shards = draw(st.integers(1, 3))
    consumer = draw(st.sampled_from([None, "c"]))
    readers = [Reader(history, draw, (index, shards) if shards > 1 else None, consumer) for index in range(shards)]
    for reader in readers:
        reader.open()
    for _ in range(draw(st.integers(3, 14))):
        reader = readers[draw(st.integers(0, shards - 1))]
        action = draw(st.sampled_from(["commit", "commit", "step", "step", "cancel", "catch up", "restart", "seek"]))
        if action == "commit":
            for _ in range(draw(st.sampled_from([1, 1, 5]))):
                history.commit(draw)
        elif action == "step":
            await reader.step(None)
        elif action == "cancel":
            await reader.step(draw(st.integers(0, 8)))
        elif action == "catch up":
            await reader.catch_up()
        elif action == "restart":
            reader.restart()
        else:
            reader.seek()
    for reader in readers:
        await reader.catch_up()
        assert reader.scan is not None
        reader.scan.close()
    seen = [row for reader in readers for row in reader.seen]
    assert sorted(seen) == sorted(history.expected)
    assert _by_key(seen) == _by_key(history.expected)


def _by_key(found: list[Row]) -> dict[int, list[Row]]:
    """The changes of each key, in their order."""
    changes: dict[int, list[Row]] = defaultdict(list)
    for row in found:
        changes[row[1]].append(row)
    return dict(changes)
