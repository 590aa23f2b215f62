"""Readers of one consumer id begin at one start, even if files are compacted or expire between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    ConsumerConflictError,
    Position,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    list_consumers,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from support.crash.crashing_file_io import MortalFileIO
from support.groups.shard_group import ShardedTable, ShardReader, caught_up, read_by
from support.samples import SOAK, sample_seed
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

STEP = 1 if SOAK else 7
"""Between the requests before which a shard's start is disturbed."""

STARTS: dict[str, Any] = {
    "latest-full": "latest-full",
    "compacted-full": "compacted-full",
    "latest": "latest",
    "earliest": "earliest",
    "snapshot": {"snapshot_id": 2},
    "snapshot full": {"snapshot_id": 2, "full": True},
    "timestamp": {"timestamp": 1_700_000_000_002},
    "file creation time": {"file_creation_time": 0},
    "creation time": {"creation_time": 0},
}


@pytest.fixture
def site(tmp_path: Path) -> ShardedTable:
    site = ShardedTable(tmp_path / "w")
    site.append()
    site.append()
    return site


def group(site: ShardedTable, count: int, **settings: Any) -> list[ShardReader]:
    return [ShardReader(site, (index, count), **settings) for index in range(count)]


def everything(site: ShardedTable, since: int = 0) -> dict[int, int]:
    return {key: 1 for key, snapshot in site.written.items() if snapshot >= since}


# ---- one start for all, whenever each reader starts ----


@pytest.mark.parametrize("start", STARTS)
def test_shards_begin_at_one_snapshot_though_files_are_compacted_between_their_starts(
    site: ShardedTable, start: str
) -> None:
    shards = group(site, 3, start=STARTS[start])
    shards[0].catch_up()
    for change in (site.compact, site.append, site.compact):
        change()
    site.expire()
    shards[1].catch_up()
    site.compact(parts=3)
    site.expire()
    shards[2].catch_up()
    site.append()
    caught_up(shards)
    # These saw the table grow before the others started.
    first = {"latest": 3, "snapshot": 2, "timestamp": 2}.get(start, 0)
    assert read_by(shards) == everything(site, first)
    assert set(site.consumers()) == {f"etl.shard-{index}-of-3" for index in range(3)}


def test_a_shard_that_dies_in_its_first_plan_continues_at_the_same_snapshot(site: ShardedTable) -> None:
    shards = group(site, 2)
    shards[0].catch_up()
    shards[1].open().step()
    shards[1].die()
    site.compact()
    site.append()
    site.expire()
    caught_up(shards)
    assert [shard.first_snapshot for shard in shards] == [2, 2]
    assert read_by(shards) == everything(site)


def test_all_shards_die_in_their_first_plans(site: ShardedTable) -> None:
    shards = group(site, 2)
    for shard in shards:
        shard.open().step()
        shard.die()
        site.compact()
        site.expire()
    assert [shard.catch_up().first_snapshot for shard in shards] == [2, 2]
    assert read_by(shards) == everything(site)


def test_a_plain_reader_continues_inside_its_first_plan(site: ShardedTable) -> None:
    reader = ShardReader(site, configure=lambda builder: builder.with_limits(max_splits=5))
    reader.open().step()
    reader.die()
    site.append()
    site.expire()
    assert reader.catch_up().first_snapshot == 2
    assert reader.keys == everything(site)
    assert site.consumers() == {"etl": 4}


def test_the_start_is_kept_from_expiry_until_the_last_shard_has_saved(site: ShardedTable) -> None:
    shards = group(site, 3)
    for index, shard in enumerate(shards):
        assert site.consumers().get("etl.first-plan") == (2 if index else None)
        shard.catch_up()
        site.append()
    assert site.consumers() == {f"etl.shard-{index}-of-3": index + 3 for index in range(3)}


def test_the_shards_of_a_bounded_read_end_at_one_snapshot(site: ShardedTable) -> None:
    for _ in range(2):
        shards = group(site, 3, configure=lambda builder: builder.with_end(latest=True))
        shards[0].catch_up()
        written = everything(site)
        for shard in shards[1:]:
            site.append()
            site.compact()
            shard.catch_up()
        assert read_by(shards) == written
        ConsumerManager(site.table.handle().file_io, str(site.table.path)).delete_consumer("etl")


def test_a_plain_bounded_read_that_died_ends_at_the_latest_snapshot_of_now(site: ShardedTable) -> None:
    reader = ShardReader(site, configure=lambda builder: builder.with_end(latest=True))
    reader.open().step()
    reader.die()
    site.append()
    assert reader.catch_up().keys == everything(site)


def test_a_table_that_was_empty_has_one_start_too(tmp_path: Path) -> None:
    site = ShardedTable(tmp_path / "w")
    shards = group(site, 2)
    shards[0].open().step()
    site.append()
    shards[0].catch_up()
    site.append()
    site.compact()
    assert [shard.catch_up().first_snapshot for shard in shards] == [1, 1]
    assert read_by(shards) == everything(site)


def test_members_share_their_start_while_one_is_in_its_first_plan(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", bucket="4", bucket_key="k")
    table.commit(range(12))

    def member(name: str, start: str = "latest-full") -> Any:
        builder = table.builder().with_start(start).with_consumer_id("etl", commit="manual", member=name)
        return builder.with_buckets([ord(name) - ord("a")]).new_streaming_scan()

    first, second = member("a"), member("b")
    plans = [first.plan()]
    table.commit(range(12, 20))
    plans.append(second.plan())
    assert [plan.snapshot_id for plan in plans] == [1, 1]
    apart = member("c", "latest")
    assert apart.plan() is None
    second.close()
    second = member("b")
    plans[1] = second.plan()
    assert plans[1].snapshot_id == 1
    for scan, plan in zip((first, second), plans, strict=True):
        assert "etl.first-plan" in {info.name.text for info in list_consumers(table.handle())}
        scan.commit(plan)
    saved = {info.name.text: info.next_snapshot for info in list_consumers(table.handle())}
    assert saved == {"etl.member-a": 2, "etl.member-b": 2, "etl.member-c": 3}
    assert member("d").plan().snapshot_id == 2


# ---- a start that is found again ----


def test_an_expired_start_is_found_again_while_nothing_was_saved(site: ShardedTable) -> None:
    shards = group(site, 2)
    shards[0].open().step()
    shards[0].die()
    site.append()
    site.compact()
    site.expire(by_force=True)
    assert shards[1].catch_up().first_snapshot == 4
    site.append()
    site.compact()
    assert shards[0].catch_up().first_snapshot == 4
    shards[1].catch_up()
    assert read_by(shards) == everything(site)


def test_an_expired_start_is_an_error_once_a_shard_has_saved(site: ShardedTable) -> None:
    shards = group(site, 2)
    shards[0].catch_up()
    site.append()
    site.compact()
    site.expire(by_force=True)
    with pytest.raises(PositionExpiredError):
        shards[1].open().step()


def test_the_start_of_a_table_that_was_rolled_back_is_found_again(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each((1, 2))
    assert (plan := _etl(table).plan()) is not None and plan.snapshot_id == 2
    table.rollback(1)
    table.commit_each((3, 4))
    plan = _etl(table).plan()
    assert plan is not None and plan.snapshot_id == 3
    saved = _etl(table, shard=(0, 2))
    saved.plan()
    saved.commit(saved.checkpoint())  # the shard may have no rows
    table.rollback(1)
    table.commit([5])
    with pytest.raises((TableChangedError, PositionExpiredError)):
        _etl(table, shard=(1, 2)).plan()


def test_the_start_of_a_recreated_table_is_found_again(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    assert _etl(table).plan() is not None
    fence = (table.path / "consumer" / "consumer-etl.first-plan").read_bytes()
    table.recreate()
    table.commit([7], table=table.handle())
    table.commit([8], table=table.handle())
    (table.path / "consumer").mkdir()
    (table.path / "consumer" / "consumer-etl.first-plan").write_bytes(fence)
    plan = _etl(table).plan()
    assert plan is not None and plan.snapshot_id == 2


def _etl(table: Table, shard: tuple[int, int] | None = None, **consumer: Any) -> Any:
    builder = table.builder().with_consumer_id("etl", commit="manual", **consumer)
    return (builder.with_shard(*shard) if shard else builder).new_streaming_scan()


def test_all_shards_begin_again_after_one_has_expired_and_the_others_fail(site: ShardedTable) -> None:
    shards = group(site, 3, configure=lambda builder: builder.with_on_expired("full"))
    caught_up(shards)
    site.append()
    site.compact()
    shards[0].catch_up()
    site.expire(by_force=True)
    shards[1].die()
    shards[1].open().step()
    site.append()
    site.compact()
    assert shards[0].step() is not None
    with pytest.raises(ConsumerConflictError, match=r"began again at the full state of snapshot 4.*Start it again"):
        shards[0].commit()
    shards[2].die()
    site.append()
    site.compact()
    for _ in range(2):
        caught_up(shards)
    assert read_by(shards) == everything(site)
    assert set(site.consumers()) == {f"etl.shard-{index}-of-3" for index in range(3)}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_an_expired_shard_that_continues_with_changes_gives_up_only_its_own_rows(
    site: ShardedTable, policy: str, restarts: bool
) -> None:
    shards = group(site, 3, configure=lambda builder: builder.with_on_expired(policy))
    caught_up(shards)
    site.append()
    shards[0].catch_up()
    shards[2].catch_up()
    site.compact()
    site.expire(by_force=True)
    site.append()  # Snapshot 5, unread by all.
    site.compact()
    shards[1].die()
    shards[1].open().step()
    site.append()
    if restarts:
        for shard in shards:
            shard.die()
    caught_up(shards)
    given_up = {3} if policy == "earliest" else {3, 5}
    wanted = {key: 1 for key, snapshot in site.written.items() if key % 3 != 1 or snapshot not in given_up}
    assert read_by(shards) == wanted
    assert set(site.consumers()) == {f"etl.shard-{index}-of-3" for index in range(3)}


def test_a_shard_that_starts_after_another_has_expired_begins_at_the_shared_start(tmp_path: Path) -> None:
    """By buckets too: the first shard has saved, expired and continued; the start is still that of the second one."""
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    table.commit(range(8))

    def shard(index: int) -> Any:
        builder = table.builder().with_start("latest").with_consumer_id("etl").with_on_expired("latest")
        return builder.with_shard(index, 2).new_streaming_scan()

    first = shard(0)
    assert first.plan() is None
    first.close()
    for _ in range(3):
        table.commit(range(8))
    consumer = table.path / "consumer" / "consumer-etl.shard-0-of-2"
    consumer.write_text(consumer.read_text().replace('"nextSnapshot" : 2', '"nextSnapshot" : 1'))
    table.expire(2)
    first = shard(0)
    assert first.plan() is None
    assert first.checkpoint().snapshot == 5
    second = shard(1)
    assert [plan.snapshot_id for plan in iter(second.plan, None)] == [2, 3, 4]


def test_a_shard_that_starts_while_the_others_begin_again_begins_at_the_new_start(tmp_path: Path) -> None:
    """Between any two of its requests: it may have taken over its own file just before that was deleted."""
    joined = 0
    for step in range(1 + sample_seed() % STEP, 60 + STEP, STEP):
        outcome = _starts_meanwhile(ShardedTable(tmp_path / str(step)), step)
        if outcome is None:
            break
        joined += outcome == ""
        # Or it found its position before the others began again.
        assert outcome == "" or "began again" in outcome
    else:
        raise AssertionError("it has ever more requests")
    assert joined > 5 / STEP


def _starts_meanwhile(site: ShardedTable, step: int) -> str | None:
    """One of two expired shards finds a new start before that request of the other one.

    Returns:
        The conflict that the other one met, or ""; None: it has fewer requests.
    """
    site.append()
    first, second = group(site, 2, configure=lambda builder: builder.with_on_expired("full"))
    for shard in (first, second):
        shard.catch_up()
        shard.die()
    site.append()
    site.compact()
    site.expire(by_force=True)
    handle = site.table.handle()
    handle.file_io = MortalFileIO()
    builder = StreamReadBuilder(handle).with_on_expired("full").with_prefetch(0).with_shard(1, 2)
    read, scan = builder.new_read(), builder.with_consumer_id("etl", commit="manual").new_streaming_scan()

    def start_again() -> None:
        first.open().step()
        first.commit()

    handle.file_io.interruption = handle.file_io.steps + step, start_again
    with scan:
        try:
            plan = scan.plan()
            keys = read.to_arrow(plan.splits())["k"].to_pylist()
            scan.commit(plan)
        except ConsumerConflictError as conflict:
            return str(conflict)
    if handle.file_io.interruption is not None:
        return None
    assert Counter(keys) + first.keys == everything(site)
    return ""


def test_a_late_save_of_the_former_start_is_deleted_again(site: ShardedTable) -> None:
    """On a store without conditional writes: the save of a running shard began before its file was deleted."""
    shards = group(site, 2, configure=lambda builder: builder.with_on_expired("full"))
    caught_up(shards)
    site.append()
    site.compact()
    shards[0].catch_up()
    file = Path(site.table.handle().table_path) / "consumer" / "consumer-etl.shard-0-of-2"
    late = file.read_bytes()
    site.expire(by_force=True)
    shards[1].die()
    shards[1].open().step()
    file.write_bytes(late)
    shards[1].commit()
    assert set(site.consumers()) == {"etl.first-plan", "etl.shard-1-of-2"}
    site.append()
    assert shards[0].step() is not None
    with pytest.raises(ConsumerConflictError, match="began again at the full state"):
        shards[0].commit()
    shards[0].die()
    shards[0].catch_up()
    shards[1].catch_up()
    assert read_by(shards).keys() >= everything(site).keys()
    assert set(site.consumers()) == {"etl.shard-0-of-2", "etl.shard-1-of-2"}


def test_an_expired_shard_that_dies_in_its_new_first_plan_continues_there(site: ShardedTable) -> None:
    shards = group(site, 2, configure=lambda builder: builder.with_on_expired("full"))
    caught_up(shards)
    site.append()
    site.compact()
    site.expire(by_force=True)
    for shard in shards:
        shard.die()
    shards[0].open().step()
    shards[0].die()
    site.append()
    site.compact()
    assert [shard.catch_up().first_snapshot for shard in shards] == [4, 4]
    assert read_by(shards) == everything(site)


def test_an_expired_plain_reader_that_dies_in_its_new_first_plan_continues_there(site: ShardedTable) -> None:
    reader = ShardReader(site, configure=lambda builder: builder.with_on_expired("full"))
    reader.catch_up()
    site.append()
    site.append()
    site.expire(by_force=True)
    reader.die()
    reader.open().step()
    reader.die()
    site.append()
    assert reader.catch_up().first_snapshot == 4
    assert reader.keys == everything(site)


def test_shards_by_bucket_that_have_not_expired_continue(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    table.commit(range(8))

    def shard(index: int) -> Any:
        builder = table.builder().with_consumer_id("etl", commit="manual").with_on_expired("full")
        return builder.with_shard(index, 2).new_streaming_scan()

    slow, fast = shard(0), shard(1)
    for scan in (slow, fast):
        scan.commit(scan.plan())
    for _ in range(2):
        table.commit(range(8))
    fast.commit(fast.plan())
    fast.commit(fast.plan())
    slow.close()
    table.expire(3)
    slow = shard(0)
    plan = slow.plan()
    assert (plan.kind, plan.snapshot_id) == ("full", 3)
    table.commit(range(8))
    fast.commit(fast.plan())
    slow.close()
    slow = shard(0)
    plan = slow.plan()
    assert (plan.kind, plan.snapshot_id) == ("full", 3)
    slow.commit(plan)
    saved = {info.name.text: info.next_snapshot for info in list_consumers(table.handle())}
    assert saved == {"etl.shard-0-of-2": 4, "etl.shard-1-of-2": 5}


def test_all_shards_begin_again_after_the_progress_of_one_was_deleted(site: ShardedTable) -> None:
    shards = group(site, 2)
    caught_up(shards)
    shards[0].die()
    (site.table.path / "consumer" / "consumer-etl.shard-0-of-2").unlink()
    site.append()
    site.compact()
    shards[0].catch_up()
    site.compact()
    site.append()
    for shard in (*shards, *shards):
        shard.catch_up()
    assert read_by(shards) == everything(site)


def test_shards_that_ignore_their_progress_begin_at_a_new_start_together(site: ShardedTable) -> None:
    shards = group(site, 2)
    caught_up(shards)
    site.append()
    site.compact()
    again = group(site, 2, ignore_progress=True)
    again[0].catch_up()
    site.append()
    site.compact()
    with pytest.raises(ConsumerConflictError, match="began again"):
        shards[1].step()
        shards[1].commit()
    assert [shard.catch_up().first_snapshot for shard in again] == [4, 4]
    assert read_by(again) == everything(site)
    # A shard that ignores its progress again begins at another start.
    site.append()
    again = group(site, 2, ignore_progress=True)
    again[1].catch_up()
    site.compact()
    assert [shard.catch_up().first_snapshot for shard in again] == [7, 7]
    assert read_by(again) == everything(site)


def test_a_plain_reader_that_ignores_its_progress_begins_as_configured(site: ShardedTable) -> None:
    for expected in (2, 3):
        reader = ShardReader(site, ignore_progress=True).open()
        reader.step()
        assert reader.first_snapshot == expected
        reader.die()
        site.append()


# ---- other starts, other numbers of shards ----


def test_shards_with_different_starts_are_refused(site: ShardedTable) -> None:
    first, second = ShardReader(site, (0, 2)), ShardReader(site, (1, 2), start="earliest")
    first.catch_up()
    with pytest.raises(StreamConfigError, match=r"full state of snapshot 2, for the start 'latest-full'.*'earliest'"):
        second.open().step()


def test_a_plain_reader_with_another_start_begins_there(site: ShardedTable) -> None:
    reader = ShardReader(site).open()
    reader.step()
    reader.die()
    site.append()
    other = ShardReader(site, start="earliest").catch_up()
    assert other.first_snapshot == 1
    assert site.consumers() == {"etl": 4}


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 2), (2, 1)])
def test_a_previous_sharding_that_died_in_its_first_plans_begins_at_the_same_start(
    site: ShardedTable, before: int, after: int
) -> None:
    def readers(count: int) -> list[ShardReader]:
        return group(site, count) if count > 1 else [ShardReader(site)]

    old = readers(before)
    for shard in old:
        shard.open().step()
    if before > 2:
        old[0].commit()
    for shard in old:
        shard.die()
    site.append()
    site.compact()
    site.expire()
    new = readers(after)
    new[0].catch_up()
    site.compact()
    caught_up(new)
    assert {shard.first_snapshot for shard in new} == {2}
    assert read_by(new) == everything(site)
    assert {name for name in site.consumers() if name.endswith("first-plan")} == set()


def test_a_complete_previous_sharding_continues_at_its_smallest_position(site: ShardedTable) -> None:
    old = group(site, 2)
    old[0].catch_up()
    site.append()
    old[1].catch_up()
    site.compact()
    site.append()
    new = group(site, 3)
    new[0].catch_up()
    site.compact()
    caught_up(new)
    assert read_by(new) == everything(site, 3)
    assert set(site.consumers()) == {f"etl.shard-{index}-of-3" for index in range(3)}


def test_a_restart_by_position_belongs_to_the_shared_start(site: ShardedTable) -> None:
    shards = group(site, 2, configure=lambda builder: builder.with_limits(max_splits=1))
    shards[0].catch_up()
    plan = shards[1].open().step()
    assert plan is not None
    shards[1].die()
    site.append()
    site.compact()
    site.expire()
    resumed = ShardReader(site, (1, 2), start={"position": plan.position})
    resumed.plans = list(shards[1].plans)
    done = list(resumed.plans)
    resumed.catch_up()
    resumed.plans = done + resumed.plans
    shards[0].catch_up()
    assert read_by([shards[0], resumed]) == everything(site)
    assert set(site.consumers()) == {"etl.shard-0-of-2", "etl.shard-1-of-2"}


def test_a_reset_moves_shards_and_not_the_plain_id(site: ShardedTable) -> None:
    shards = group(site, 2)
    for shard in shards:
        shard.open().step()
    manager = ConsumerManager(site.table.handle().file_io, str(site.table.path))
    manager.reset_consumer("etl", Consumer(1))
    assert site.consumers() == {"etl.shard-0-of-2": 1, "etl.shard-1-of-2": 1}
    for shard in shards:
        shard.die()
        shard.catch_up()
    assert read_by(shards) == everything(site)


def test_a_consumer_at_0_starts_at_the_earliest(site: ShardedTable) -> None:
    manager = ConsumerManager(site.table.handle().file_io, str(site.table.path))
    manager.reset_consumer("etl", Consumer(0))
    site.append()
    site.expire()
    assert ShardReader(site).catch_up().keys == everything(site)
    manager.reset_consumer("etl", Consumer(0))
    site.expire(by_force=True)
    assert ShardReader(site).catch_up().first_snapshot == 3


def test_a_consumer_at_0_waits_for_the_first_commit(tmp_path: Path) -> None:
    site = ShardedTable(tmp_path / "w")
    ConsumerManager(site.table.handle().file_io, str(site.table.path)).reset_consumer("etl", Consumer(0))
    reader = ShardReader(site).catch_up()
    site.append()
    assert reader.catch_up().keys == everything(site)


# ---- without a consumer id ----

Call = Callable[[StreamReadBuilder], Any]
MOVING: dict[str, Call] = {
    "default": lambda builder: builder,
    "latest": lambda builder: builder.with_start("latest"),
    "earliest": lambda builder: builder.with_start("earliest"),
    "timestamp": lambda builder: builder.with_start(timestamp=0),
    "on expired": lambda builder: builder.with_start(snapshot_id=1).with_on_expired("full"),
}
FIXED: dict[str, Call] = {
    "snapshot": lambda builder: builder.with_start(snapshot_id=1),
    "full": lambda builder: builder.with_start(snapshot_id=1, full=True),
    "tag": lambda builder: builder.with_start(tag="t", full=True),
    "position": lambda builder: builder.with_start(position=Position("t", 1)),
}


@pytest.mark.parametrize("options", [{}, {"bucket": "-2", "primary_key": True}])
@pytest.mark.parametrize("call", MOVING)
def test_shards_whose_rows_move_need_a_start_that_all_share(tmp_path: Path, options: dict[str, Any], call: str) -> None:
    table = Table(tmp_path / "w", **options)
    with pytest.raises(StreamConfigError, match=r"(?s)with_shard.*same snapshot.*consumer id"):
        MOVING[call](table.builder().with_shard(0, 2)).new_streaming_scan()
    with pytest.raises(StreamConfigError, match="with_shard"):
        MOVING[call](table.builder().with_shard(0, 2)).open_sync()
    MOVING[call](table.builder().with_shard(0, 2)).with_consumer_id("etl").new_streaming_scan().close()
    MOVING[call](table.builder().with_shard(0, 1)).new_streaming_scan().close()


@pytest.mark.parametrize("call", FIXED)
def test_a_fixed_start_is_shared(tmp_path: Path, call: str) -> None:
    FIXED[call](Table(tmp_path / "w").builder().with_shard(0, 2)).new_streaming_scan().close()


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "2", "bucket_key": "k"},
        {"primary_key": True},
        {"data_evolution__enabled": "true", "row_tracking__enabled": "true"},
        {"primary_key": True, "bucket": "-2", "changelog_producer": "lookup"},
    ],
)
def test_shards_by_bucket_may_begin_anywhere(tmp_path: Path, options: dict[str, Any]) -> None:
    Table(tmp_path / "w", **options).builder().with_shard(0, 2).new_streaming_scan().close()


def test_a_start_before_all_has_not_expired_while_the_first_snapshot_is_there(site: ShardedTable) -> None:
    site.append()
    plans = [site.builder({"snapshot_id": 0}).with_shard(index, 2).new_streaming_scan().plan() for index in range(2)]
    assert {plan.snapshot_id for plan in plans if plan is not None} == {1}


@pytest.mark.parametrize("start", [{"snapshot_id": 2}, {"snapshot_id": 2, "full": True}])
def test_a_fixed_start_that_has_expired_is_an_error(site: ShardedTable, start: dict[str, Any]) -> None:
    site.append()
    site.append()
    site.expire(by_force=True)
    with pytest.raises(PositionExpiredError):
        site.builder(start).with_shard(0, 2).new_streaming_scan().plan()
    # For other readers the start is raised to the earliest snapshot, as in Java.
    plan = site.builder(start).new_streaming_scan().plan()
    assert plan is not None and plan.snapshot_id == 4
