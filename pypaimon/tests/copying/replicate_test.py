"""`replicate`: a target holds what the table holds, whatever has expired, and continues where it stands."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pypaimon.streaming import (
    ConsumerManager,
    DictTarget,
    DuckDBTarget,
    PaimonTarget,
    Position,
    PositionExpiredError,
    Replication,
    StreamConfigError,
    StreamReadBuilder,
    replicate,
    replicate_async,
)
from pypaimon.streaming.planning.follow_up import DeltaFollowUpScanner
from pypaimon.streaming.stream_types import PlanKind
from pypaimon.streaming.targets import Target
from pypaimon.streaming.targets.changes import AnyBatch
from support.tables.copied_table import COLUMNS, batches, changed, held, keyed, rows_of, stream

pytestmark = pytest.mark.slow


class Counting(DictTarget):
    """A dict that keeps the kinds of the plans that it was given."""

    def __init__(self) -> None:
        super().__init__("k")
        self.kinds: list[PlanKind] = []

    def apply(self, batch: AnyBatch) -> None:
        super().apply(batch)
        self.kinds.append(batch.kind)


def values(target: DictTarget) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in target.rows.values()), key=str)


def test_the_state_comes_first_and_then_what_changed(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    table.expire(table.latest())
    target = Counting()
    replicate(stream(table), target)
    assert values(target) == rows_of(table)
    table.commit([("+U", 1, "later"), ("-D", 5, "v5")])
    position = replicate(stream(table), target)
    assert values(target) == rows_of(table)
    assert target.kinds == [PlanKind.FULL, PlanKind.DELTA]
    assert position == target.load_position()
    assert position is not None
    assert position.snapshot == table.latest() + 1


def test_a_copy_in_duckdb_continues_after_its_program_has_ended(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    for commit in (None, [("-D", 1, "changed")], [("+I", 30, "v30")]):
        if commit:
            table.commit(commit)
        with duckdb.connect(str(tmp_path / "copy.db")) as database:
            replicate(stream(table), DuckDBTarget(database, "copy", ["k"]))
            assert held(database) == rows_of(table)


def test_if_the_next_snapshot_has_expired_it_says_so_or_begins_again(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    target = Counting()
    replicate(stream(table), target)
    changed(table)
    with pytest.raises(PositionExpiredError):
        replicate(stream(table), target)
    replicate(stream(table).with_on_expired("full"), target)
    assert values(target) == rows_of(table)
    assert target.kinds == [PlanKind.FULL, PlanKind.FULL]


def test_neither_the_progress_of_a_consumer_nor_an_option_of_the_table_leaves_out_the_state(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    builder = stream(table, **{"scan.mode": "latest"}).with_consumer_id("etl")
    batches(builder.copy().with_start("latest-full"))
    target = DictTarget("k")
    replicate(builder, target)
    assert values(target) == rows_of(table)


def test_a_consumer_that_the_options_of_the_table_name_leaves_out_no_state(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    builder = stream(table, **{"consumer-id": "etl"})
    batches(builder)
    target = DictTarget("k")
    replicate(builder, target)
    assert values(target) == rows_of(table) != []
    with builder.with_read_type(table.handle().fields).open_live_sync() as live:
        assert len(live) == len(target.rows)


def test_a_consumer_keeps_what_the_target_has_not_read(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    manager = ConsumerManager(table.handle().file_io, str(table.path))
    builder, target = stream(table).with_consumer_id("etl"), DictTarget("k")
    for change in ([("+I", 40, "v40")], [("-D", 1, "changed")]):
        table.commit(change)
        replicate(builder, target)
        assert manager.consumers() == {"etl": table.latest() + 1}
        assert values(target) == rows_of(table)


@pytest.mark.parametrize("start", [{"mode": "compacted-full"}, {"snapshot_id": 2, "full": True}])
def test_a_start_with_the_state_is_taken(tmp_path: Path, start: dict[str, Any]) -> None:
    table = keyed(tmp_path / "w")
    target = DictTarget("k")
    replicate(stream(table).with_start(**start), target)
    assert values(target) == rows_of(table)


@pytest.mark.parametrize(
    ("without", "text"),
    [
        (lambda builder: builder.with_start("earliest"), "leaves out rows"),
        (lambda builder: builder.with_start(snapshot_id=2), "leaves out rows"),
        (lambda builder: builder.with_start(position=Position("t", 2)), "continues where it stands"),
        (lambda builder: builder.with_include_row_kind(False), "deletes"),
        (lambda builder: builder.with_range(1, 2), "a part of a table's history"),
        (lambda builder: builder.with_raw(True), "records as they were written"),
        (lambda builder: builder.with_on_overwrite("skip"), "differ from its table for ever"),
        (lambda builder: builder.with_on_expired("earliest"), "skips changes"),
        (lambda builder: builder.with_on_expired("latest"), "skips changes"),
        (lambda builder: builder.with_follow_up_scanner(DeltaFollowUpScanner()), "may skip changes"),
        (lambda builder: builder.with_filter("v = 'v1'", unmatched="drop"), "match no longer"),
        (lambda builder: StreamReadBuilder(builder.table, "audit_log"), "view audit_log"),
    ],
)
def test_what_cannot_be_a_copy_is_refused_before_the_first_read(tmp_path: Path, without: Any, text: str) -> None:
    table, target = keyed(tmp_path / "w"), Counting()
    with pytest.raises(StreamConfigError, match=text):
        replicate(without(table.builder()), target)
    assert target.kinds == []


def test_the_builder_stays_as_it_is(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    builder = stream(table)
    replicate(builder, DictTarget("k"))
    assert [batch.kind for batch in batches(builder)] == [PlanKind.FULL]


class Failing(DictTarget):
    """Its second batch fails once."""

    calls = 0

    def apply(self, batch: AnyBatch) -> None:
        self.calls += 1
        if self.calls == 2:
            raise OSError("disk full")
        super().apply(batch)


def test_after_an_error_of_the_target_the_next_call_continues(tmp_path: Path) -> None:
    table, target = keyed(tmp_path / "w"), Failing("k")
    builder = stream(table).with_start(snapshot_id=1, full=True)
    with pytest.raises(OSError, match="disk full"):
        replicate(builder, target)
    replicate(builder, target)
    assert values(target) == rows_of(table)


async def test_it_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    table, target = keyed(tmp_path / "w"), DictTarget("k")
    position = await replicate_async(stream(table), target)
    assert values(target) == rows_of(table)
    assert position == target.load_position()


def test_a_dict_that_holds_a_part_of_a_new_state_stands_nowhere(tmp_path: Path) -> None:
    """What it held before is gone, so that it cannot go on from there."""
    table, target = keyed(tmp_path / "w"), DictTarget("k")
    replicate(stream(table), target)
    table.commit([("+U", 1, "later")])
    table.commit([("+U", 2, "later")])
    table.expire(table.latest())
    builder = stream(table).with_on_expired("full").with_start(position=target.load_position())
    with builder.open_sync(batch_bytes=1) as state:
        target.apply(next(iter(state)))
    assert target.load_position() is None
    replicate(stream(table), target)
    assert values(target) == rows_of(table)


class Slow(DictTarget):
    """A batch is begun, and goes on when it is told to."""

    def __init__(self) -> None:
        super().__init__("k")
        self.begun, self.may_end = threading.Event(), threading.Event()

    def apply(self, batch: AnyBatch) -> None:
        self.begun.set()
        self.may_end.wait()
        super().apply(batch)


async def test_when_it_is_cancelled_the_target_is_free_again(tmp_path: Path) -> None:
    table, target = keyed(tmp_path / "w"), Slow()
    task = asyncio.ensure_future(replicate_async(table.builder().with_projection(COLUMNS), target))
    await asyncio.to_thread(target.begun.wait)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
        task.cancel()
    assert not task.done()
    target.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert values(target) == rows_of(table)


def test_all_targets_are_targets(tmp_path: Path) -> None:
    targets: list[Target] = [DictTarget("k"), DuckDBTarget(duckdb.connect(), "copy", ["k"])]
    table = keyed(tmp_path / "w")
    for target in targets:
        assert replicate(stream(table), target) == target.load_position()


@pytest.mark.parametrize("settings", [{"replace": True}, {"shared": True}])
def test_a_table_is_not_its_own_target(tmp_path: Path, settings: dict[str, bool]) -> None:
    """Each commit would be a change to be copied."""
    table = keyed(tmp_path)
    target = PaimonTarget(table.handle(), **settings)
    for run in (replicate, lambda *given: asyncio.run(replicate_async(*given)), Replication):
        with pytest.raises(StreamConfigError, match="the source and the target of the copy"):
            run(table.builder().with_end(latest=True), target)
    assert table.latest() == 3
