"""Shards of one consumer id on a crafted append table, and the rows that each of them has read."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pypaimon.streaming import (
    ConsumerConflictError,
    EndOfScan,
    Plan,
    PositionExpiredError,
    StreamReadBuilder,
    list_consumers,
)
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.stream_types import Phase
from support.models.table import KEY, Record, java_hash
from support.tables.crafted_table import CraftedTable, WrittenFile

SHARDS = 6
"""The files of a commit by default. With 1, 2, 3 or 6 shards each shard has some."""


class ShardedTable:
    """The history of a `CraftedTable` without buckets, whose files have names that divide them among the shards.

    Attributes:
        written: The snapshot that appended each key.
    """

    def __init__(self, warehouse: Path) -> None:
        self.table = CraftedTable(warehouse, keyed=False, partitioned=False, buckets=0, options={"bucket": "-1"})
        self.written: dict[int, int] = {}

    def append(self, files: int = SHARDS) -> int:
        """Make an APPEND snapshot of `files` files with one row each, and return its id."""
        added = []
        for _ in range(files):
            key = len(self.written)
            values = {each.id: key if each.name == KEY else None for each in self.table.columns.columns}
            added.append(self._file(key, [Record("+I", (None, key), key, values)]))
            self.written[key] = self.table.latest + 1
        return self.table.commit("APPEND", added).id

    def compact(self, parts: int = SHARDS) -> int:
        """Make a COMPACT snapshot that rewrites all files to `parts` new ones, and return its id."""
        live = [file for file in self.table.live if isinstance(file, WrittenFile)]
        records = [record for file in live for record in file.records]
        cut = [records[index::parts] for index in range(parts)]
        added = [self._file(index, part, compacted=True) for index, part in enumerate(cut) if part]
        return self.table.commit("COMPACT", added, live).id

    def _file(self, number: int, records: list[Record], compacted: bool = False) -> WrittenFile:
        """Write a file that belongs to shard `number mod n`, for n = 1, 2, 3 and 6."""
        while True:
            name = f"data-{uuid.uuid4()}-0.parquet"
            if abs(java_hash(name)) % SHARDS == number % SHARDS:
                return self.table.file((None, 0), records, compacted=compacted, name=name)

    def expire(self, *, by_force: bool = False) -> None:
        """Remove all snapshots but the latest and, unless `by_force`, those that consumers keep."""
        keep = self.table.latest if by_force else min([self.table.latest, *self.table.consumers()])
        self.table.expire(max(keep, self.table.earliest))

    def builder(self, start: str | dict[str, Any] = "latest-full") -> StreamReadBuilder:
        handle = self.table.handle()
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        builder = StreamReadBuilder(handle).with_prefetch(0)
        return builder.with_start(start) if isinstance(start, str) else builder.with_start(**start)

    def consumers(self) -> dict[str, int]:
        return {info.name.text: info.next_snapshot for info in list_consumers(self.table.handle())}


class ShardReader:
    """One reader of the consumer id `etl` with all its restarts. What its saved progress covers, it has read for good.

    Args:
        shard: (index, count), or None for a plain reader or a member.
        start: As for `ShardedTable.builder`.
        consumer: More arguments of `with_consumer_id`.

    Attributes:
        given_up: Rows of snapshots before this one may be missing: its position had expired, see `expects_a_gap`.
    """

    def __init__(
        self,
        site: ShardedTable,
        shard: tuple[int, int] | None = None,
        start: str | dict[str, Any] = "latest-full",
        configure: Callable[[StreamReadBuilder], Any] = lambda builder: builder,
        **consumer: Any,
    ) -> None:
        self._site, self._shard, self._start = site, shard, start
        self._configure, self._consumer = configure, consumer
        self.plans: list[tuple[Plan, list[int]]] = []
        self.scan: Any = None
        self.given_up = 0

    def open(self) -> ShardReader:
        """Start, or restart after the process has died."""
        builder = self._site.builder(self._start)
        if self._shard is not None:
            builder.with_shard(*self._shard)
        builder.with_consumer_id("etl", commit="manual", **self._consumer)
        self._configure(builder)
        self._read, self.scan = builder.new_read(), builder.new_streaming_scan()
        saved = self.scan.committed()
        done = [number for number, (plan, _) in enumerate(self.plans, 1) if saved is not None and _whole(plan) <= saved]
        del self.plans[max(done, default=0) :]
        return self

    def step(self) -> Plan | None:
        """One plan, not yet confirmed. A full plan replaces everything read before."""
        plan: Plan | None = self.scan.plan()
        if plan is not None:
            before = self.plans[-1][0] if self.plans else None
            if plan.kind == "full" and before is not None and before.position.phase is Phase.FOLLOW:
                self.plans.clear()
            self.plans.append((plan, self._read.to_arrow(plan.splits())["k"].to_pylist()))
        return plan

    def expects_a_gap(self, policy: str) -> None:
        """Call it before a step under `with_on_expired`: an expired position gives up the rows before the new one."""
        position = self.scan.checkpoint()
        at = self.scan.committed() if position is None else position.snapshot
        at = self._site.consumers().get("etl.first-plan") if at is None else at
        table = self._site.table
        if at is not None and at < table.earliest:
            self.given_up = max(self.given_up, table.earliest if policy == "earliest" else table.latest + 1)

    def commit(self) -> None:
        if self.plans:
            self.scan.commit(self.plans[-1][0])

    def die(self) -> None:
        if self.scan is not None:
            self.scan.close()
        self.scan = None

    def catch_up(self, policy: str | None = None, lives: int = 8) -> ShardReader:
        """Read and confirm everything; after a conflict the reader is started again, as the error says.

        So it is where files expired by force inside a plan. An error that comes after each restart is raised.
        """
        if self.scan is None:
            self.open()
        try:
            if policy is not None:
                self.expects_a_gap(policy)
            while self.step() is not None:
                self.commit()
        except EndOfScan:
            return self
        except (ConsumerConflictError, PositionExpiredError):
            self.die()
            if lives == 1:
                raise
            return self.catch_up(policy, lives - 1)
        return self

    @property
    def begins_in_full(self) -> bool:
        return bool(self.plans) and self.plans[0][0].kind == "full"

    @property
    def first_snapshot(self) -> int | None:
        return self.plans[0][0].snapshot_id if self.plans else None

    @property
    def keys(self) -> Counter[int]:
        return Counter(key for _, keys in self.plans for key in keys)


def _whole(plan: Plan) -> float:
    """The next snapshot that must be saved so that the plan is not handed out again."""
    if plan.position.phase is Phase.FULL:
        return float("inf")
    return plan.position.snapshot + (plan.position.unit is not None)


def caught_up(readers: Iterable[ShardReader]) -> None:
    for reader in readers:
        reader.catch_up()


def read_by(readers: Iterable[ShardReader]) -> Counter[int]:
    return sum((reader.keys for reader in readers), Counter())
