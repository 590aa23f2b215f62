"""Random histories and random readers: what a reader sees is what the model says, snapshot by snapshot.

Histories: appends, overwrites, compactions, changelogs, columns that come, go and change, totals that are recounted,
expiry. Readers: they start anywhere, on new handles or on one that is as old as the table, restart, seek, cancel,
shard, limit, lag, filter, project, and choose what becomes of them when a schema changes or their position expires.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pypaimon.schema.schema_change import SchemaChange

from support.models.checked_reader import BelievingReader
from support.models.expectations import Settings
from support.models.table import KEY, PARTITION, StreamModel
from support.samples import SOAK, some
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO
from support.tables.crafted_table import CraftedTable
from support.tables.crafted_writer import KEYS, TABLES, CraftedWriter

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ACTIONS = st.sampled_from([*["append"] * 4, *["compact"] * 4, "overwrite", "nothing", "alter", "expire", "hurry"])
CHANGES = st.lists(st.tuples(ACTIONS, st.integers(0, 1 << 16)), min_size=1, max_size=6)


class Histories(RuleBasedStateMachine):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = TABLES[kind]
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()

    @initialize(data=st.data(), changes=CHANGES)
    def create(self, data: st.DataObject, changes: list[tuple[str, int]]) -> None:
        """A table, and one to three readers that share its shards."""
        kind = self.kind
        buckets, keyed, producer = kind["buckets"], kind.get("keyed", False), kind.get("producer", "none")
        postponed = kind.get("postponed", False)
        options = {"bucket": "-2" if postponed else str(buckets or -1), **kind.get("options", {})}
        if keyed:
            options["changelog-producer"] = producer
        self.table = CraftedTable(
            Path(self.directory.name) / "w",
            keyed=keyed,
            partitioned=data.draw(st.booleans()),
            buckets=buckets,
            options=options,
        )
        self.model = StreamModel(keyed, producer, ordered=buckets > 0)
        self.writer = CraftedWriter(self.table, buckets=buckets, producer=producer, postponed=postponed)
        if data.draw(st.booleans()):
            self.change(changes)
        shards = data.draw(st.sampled_from([1, 1, 2, 3]))
        # Where compaction moves rows between shards, a consumer id joins these; they share their start.
        rows_move = shards > 1 and (not buckets or (postponed and producer == "none"))
        consumer = data.draw(st.sampled_from(["c"] if rows_move else [None, None, "c"]))
        start = self.settings(data.draw).start
        self.readers = []
        for index in range(shards):
            shard = (index, shards) if shards > 1 else None
            chosen = replace(self.settings(data.draw), shard=shard, consumer=consumer)
            chosen = chosen if consumer is None else replace(chosen, start=start)
            self.readers.append(BelievingReader(self.table, self.model, not buckets, chosen))

    def settings(self, draw: Any) -> Settings:
        """How a reader reads, but for its shard and consumer."""

        def choice(*values: Any) -> Any:
            return draw(st.sampled_from(values))

        optional = [each.name for each in self.table.columns.columns if each.name not in (KEY, PARTITION)]
        always = [KEY, PARTITION] if self.table.partitioned else [KEY]
        projection = (*draw(st.permutations([*always, choice(*optional)])),) if choice(True, False, False) else None
        on_schema_change = choice("fail", "follow", "follow", "ignore")
        limit = choice(None, None, "max_rows", "max_bytes", "max_splits")
        most = {"max_rows": 6, "max_bytes": 6000, "max_splits": 3}
        return Settings(
            start=choice("earliest", "earliest", "latest-full", "latest-full", "latest", "compacted-full"),
            projection=projection,
            least_key=choice(None, None, draw(st.integers(0, KEYS))),
            overwrites=self.overwrites_can_be_read and choice(True, False),
            on_expired=choice("fail", "earliest", "latest", "full"),
            on_schema_change=on_schema_change,
            limits=() if limit is None else ((limit, draw(st.integers(1, most[limit]))),),
            catch_up=choice("auto", "replay", "net" if on_schema_change != "ignore" else "auto"),
            prefetch=choice(0, 1, 4),
            old_handle=choice(True, False),
        )

    @property
    def overwrites_can_be_read(self) -> bool:
        """Java refuses it where a changelog would tell of the same changes."""
        return not self.model.keyed or self.model.retracts_overwrites

    # ---- the history ----

    @rule(changes=CHANGES)
    def change(self, changes: list[tuple[str, int]]) -> None:
        for action, seed in changes:
            self.writer.act(action, seed)

    # ---- the readers ----

    @rule(number=st.integers(0, 2), cancel_after=st.none() | st.integers(0, 8))
    def step(self, number: int, cancel_after: int | None) -> None:
        self.run(self.reader(number).step(cancel_after))

    @rule(number=st.integers(0, 2))
    def catch_up(self, number: int) -> None:
        """All that is there."""
        self.run(self.reader(number).catch_up())

    @rule(number=st.integers(0, 2), data=st.data(), same=st.booleans())
    def restart(self, number: int, data: st.DataObject, same: bool) -> None:
        """A new process, perhaps with other settings."""
        reader = self.reader(number)
        others = reader.settings if same else self.settings(data.draw)
        # What is read stays: the rows of a first plan that began with a filter are not those without it.
        others = replace(
            others,
            start=reader.settings.start,
            shard=reader.settings.shard,
            least_key=reader.settings.least_key,
            overwrites=reader.settings.overwrites,
            projection=None if same else others.projection,
        )
        reader.restart(others)

    @rule(number=st.integers(0, 2), plan=st.integers(0, 9))
    def seek(self, number: int, plan: int) -> None:
        """Back behind an earlier plan."""
        self.reader(number).seek(plan)

    def reader(self, number: int) -> BelievingReader:
        return self.readers[number % len(self.readers)]

    def run(self, work: Any) -> None:
        self.loop.run_until_complete(work)

    def teardown(self) -> None:
        """At the end every reader gets all that is left."""
        try:
            for reader in getattr(self, "readers", []):
                self.run(reader.catch_up())
        finally:
            for reader in getattr(self, "readers", []):
                reader.scan.close()
            self.loop.close()
            self.directory.cleanup()


@pytest.mark.parametrize("kind", some("kinds of tables of the model", sorted(TABLES), 4))
def test_readers_see_what_the_model_says(kind: str) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Histories(kind),
        settings=settings(
            max_examples=400 if SOAK else 4,
            stateful_step_count=14 if SOAK else 10,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def crafted(tmp_path: Path, *, keyed: bool) -> tuple[CraftedTable, CraftedWriter]:
    """A table with a first commit: keyed with one bucket, or one of appends without buckets."""
    buckets = int(keyed)
    options = {"bucket": "1" if keyed else "-1"}
    table = CraftedTable(tmp_path / "w", keyed=keyed, partitioned=False, buckets=buckets, options=options)
    writer = CraftedWriter(table, buckets=buckets, producer="none", postponed=False)
    writer.act("append", 1)
    return table, writer


async def under_way(reader: BelievingReader) -> None:
    """Wait for what a cancelled call has left to a worker."""
    pending = reader.scan._driver._pending
    assert pending is not None
    await asyncio.wrap_future(pending.found)


def through_faults(table: CraftedTable, monkeypatch: pytest.MonkeyPatch) -> FaultFileIO:
    """Let new handles of a table ask an object store, which is what comes back."""
    file_io, plain = FaultFileIO(), table.handle

    def handle() -> Any:
        found = plain()
        found.file_io, found.table_path = file_io, SCHEME + str(found.table_path)
        return found

    monkeypatch.setattr(table, "handle", handle)
    return file_io


@pytest.mark.parametrize("start", ["latest-full", "latest", "earliest"])
def test_what_a_cancelled_call_found_between_two_commits_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Neither at the moment of that call nor at that of the next one."""
    table, writer = crafted(tmp_path, keyed=False)
    file_io = through_faults(table, monkeypatch)
    reader = BelievingReader(table, StreamModel(False, ordered=False), True, Settings(start=start))

    async def read() -> None:
        file_io.gate.clear()
        assert await reader.step(cancel_after=1)
        for seed in (2, 3):
            writer.act("append", seed)
        table.expire(2)
        file_io.gate.set()
        await under_way(reader)
        for seed in (4, 5):
            writer.act("append", seed)
        table.expire(3)
        await reader.catch_up()

    asyncio.run(read())
    reader.scan.close()


@pytest.mark.parametrize("policy", ["fail", "earliest"])
@pytest.mark.parametrize("consumer", ["c", None])
def test_a_reader_comes_past_an_overwrite_of_rows_that_are_gone(
    tmp_path: Path, policy: str, consumer: str | None
) -> None:
    """Its progress, and its start, lead to the same error again: it does what that error advises."""
    table, writer = crafted(tmp_path, keyed=True)
    chosen = Settings(consumer=consumer, overwrites=True, on_expired=policy)
    reader = BelievingReader(table, StreamModel(True), False, chosen)
    asyncio.run(reader.catch_up())
    writer.act("overwrite", 1)
    table.expire(2)
    asyncio.run(reader.catch_up())
    assert reader.settings.on_expired == "full"
    assert reader.scan.next_snapshot_id == 3
    reader.scan.close()


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_a_reader_whose_plan_expired_before_it_was_read_continues_at_its_progress(tmp_path: Path, policy: str) -> None:
    """The plan of an overwrite was made while the rows that it retracts were there still."""
    table, writer = crafted(tmp_path, keyed=True)
    chosen = Settings(start="latest", consumer="c", overwrites=True, on_expired=policy)
    reader = BelievingReader(table, StreamModel(True), False, chosen)

    async def read() -> None:
        await reader.catch_up()
        writer.act("overwrite", 1)
        assert await reader.step(cancel_after=1)
        await under_way(reader)
        table.expire(2)
        await reader.catch_up()

    asyncio.run(read())
    assert reader.settings.on_expired == "full"
    assert reader.scan.next_snapshot_id == 3
    reader.scan.close()


def test_a_start_that_expired_before_it_was_saved_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, writer = crafted(tmp_path, keyed=False)
    file_io, asked, saved = through_faults(table, monkeypatch), threading.Event(), threading.Event()

    def held(call: Call) -> Any:
        if "/consumer/" in call.path and call.kind == "write":
            asked.set()
            saved.wait()
        return call.answer()

    file_io.wherever(held)
    reader = BelievingReader(
        table, StreamModel(False, ordered=False), True, Settings(start="latest", consumer="c", on_expired="fail")
    )

    async def read() -> None:
        assert await reader.step(cancel_after=1)
        await under_way(reader)
        assert await reader.step(cancel_after=1)
        assert await asyncio.to_thread(asked.wait, 60)
        for seed in (2, 3):
            writer.act("append", seed)
        table.expire(3)
        saved.set()
        await reader.catch_up()

    asyncio.run(read())
    assert reader.scan.next_snapshot_id == 4
    reader.scan.close()


def test_what_a_cancelled_call_passed_over_may_expire(tmp_path: Path) -> None:
    """The reader is given nothing of the second snapshot, and knows nothing of its end."""
    table, writer = crafted(tmp_path, keyed=True)
    reader = BelievingReader(table, StreamModel(True), False, Settings(least_key=KEYS))

    async def read() -> None:
        await reader.catch_up()
        writer.act("append", 2)
        assert await reader.step(cancel_after=1)
        await under_way(reader)
        writer.act("append", 3)
        table.expire(3)
        await reader.catch_up()

    asyncio.run(read())
    assert reader.scan.next_snapshot_id == 4
    reader.scan.close()


def test_a_reader_that_comes_back_reads_with_the_schema_of_that_moment(tmp_path: Path) -> None:
    table, writer = crafted(tmp_path, keyed=False)
    reader = BelievingReader(table, StreamModel(False, ordered=False), True, Settings())
    asyncio.run(reader.catch_up())
    for seed in (2, 3):
        writer.act("append", seed)
    table.expire(3)

    async def until_it_comes_back() -> None:
        while reader.beliefs[0].phase != "start":
            assert await reader.step()

    asyncio.run(until_it_comes_back())
    table.alter(SchemaChange.rename_column("n", "c"))
    asyncio.run(reader.catch_up())
    assert reader.scan.next_snapshot_id == 4
    reader.scan.close()
