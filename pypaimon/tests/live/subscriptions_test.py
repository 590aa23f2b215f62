"""Subscribers get each change of their keys, in order, however slow they are, and cost nothing when there are none."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import EndOfScan, SchemaChangedError, StreamConfigError
from pypaimon.streaming.live import KeyChange
from pypaimon.streaming.live.row_store import RowStore
from pypaimon.streaming.live.subscriptions import ChangeQueue, KeyWatch
from pypaimon.streaming.testing import SmallTable
from support.samples import SOAK, seeded
from support.tables.live_tables import HeldClock, often

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """With rows 1 and 2, in snapshot 1."""
    table = SmallTable(tmp_path)
    table.commit({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    return table


def names(change: KeyChange) -> tuple[Any, Any]:
    return tuple(None if row is None else row["name"] for row in (change.before, change.after))  # type: ignore[return-value]


@pytest.mark.parametrize("memory_limit_bytes", [1 << 30, 0], ids=["memory", "disk"])
async def test_each_change_of_a_key_comes_with_its_snapshot(table: SmallTable, memory_limit_bytes: int) -> None:
    async with often(table.table).open_live(memory_limit_bytes=memory_limit_bytes) as live:
        changes = live.subscribe(1, 3)
        assert await changes.poll() is None
        table.commit({"id": 2, "name": "other"})
        table.commit(("+U", {"id": 1, "name": "c"}), {"id": 3, "name": "new"})
        found = [await anext(changes), await anext(changes)]
        assert [(each.key, names(each), each.snapshot_id) for each in found] == [
            (1, ("a", "c"), 3),
            (3, (None, "new"), 3),
        ]
        assert found[0].commit_time == live.as_of and found[0].count == 1
        # Written again as it is: no change.
        table.commit(("+U", {"id": 1, "name": "c"}))
        last = table.commit(("-D", {"id": 1, "name": "c"}))
        change = await changes.poll(timeout=60)
        assert change is not None and (names(change), change.snapshot_id) == (("c", None), last)
        assert await changes.poll() is None


async def test_the_rows_that_there_are_come_first_if_they_are_wanted(table: SmallTable) -> None:
    async with often(table.table).open_live() as live:
        changes = live.subscribe(1, 9, current=True)
        table.commit(("+U", {"id": 1, "name": "c"}))
        found = [await anext(changes), await anext(changes)]
        assert [(names(each), each.snapshot_id) for each in found] == [((None, "a"), 1), (("a", "c"), 2)]


def test_changes_of_a_random_history_lead_from_each_row_to_the_next(tmp_path: Path) -> None:
    random = seeded("subscriptions")
    table = SmallTable(tmp_path)
    rows: dict[int, str] = {}
    with often(table.table).open_live_sync() as live:
        fast, slow = live.subscribe(*range(5)), live.subscribe(*range(5), max_waiting=1)
        steps: list[dict[int, str]] = []
        for step in range(40 if SOAK else 12):
            changed = []
            for key in random.sample(range(5), random.randint(1, 4)):
                if key in rows and random.random() < 0.3:
                    changed.append(("-D", {"id": key, "name": rows.pop(key)}))
                else:
                    rows[key] = f"{step}"
                    changed.append(("+U", {"id": key, "name": rows[key]}))
            snapshot = table.commit(*changed)
            live.wait_for(snapshot)
            steps.append(dict(rows))
        change, seen = None, dict[int, Any]()
        by_snapshot: dict[int, dict[int, Any]] = {}
        # A wait for a snapshot may end before its changes have come.
        while len(steps) not in by_snapshot or (change := fast.poll()) is not None:
            change = change if len(steps) in by_snapshot else fast.poll(timeout=60)
            assert change is not None
            assert names(change) == (seen.get(change.key), None if change.after is None else change.after["name"])
            assert change.count == 1
            seen[change.key] = names(change)[1]
            by_snapshot[change.snapshot_id] = {key: name for key, name in seen.items() if name is not None}
        assert by_snapshot == {number: step for number, step in enumerate(steps, 1) if number in by_snapshot}
        assert by_snapshot[len(steps)] == rows
        joined = []
        while (change := slow.poll()) is not None:
            joined.append(change)
        # One change of each key, from before the first one to the last row, which counts all of them.
        assert len({change.key for change in joined}) == len(joined)
        assert all(change.before is None for change in joined)
        assert {change.key: change.after["name"] for change in joined if change.after is not None} == rows
        assert sum(change.count for change in joined) > len(joined)


def test_a_state_in_the_middle_gives_the_difference(table: SmallTable) -> None:
    clock = HeldClock()
    with often(table.table, clock).with_on_expired("full").open_live_sync() as live:
        changes = live.subscribe(1, 2, 4)
        clock.hold()
        table.commit(("-D", {"id": 1, "name": "a"}))
        table.commit({"id": 4, "name": "d"})
        table.expire()
        clock.let_go()
        live.wait_for(3)
        found = [next(changes), next(changes)]
        assert [(each.key, names(each), each.snapshot_id) for each in found] == [
            (1, ("a", None), 3),
            (4, (None, "d"), 3),
        ]


async def test_it_ends_with_its_table(table: SmallTable) -> None:
    live = await often(table.table).open_live()
    first, changes, closed = live.subscribe(1), live.subscribe(1), live.subscribe(1)
    await closed.aclose()
    assert [change async for change in closed] == []
    table.commit(("+U", {"id": 1, "name": "c"}))
    assert names(await anext(first)) == ("a", "c")
    await live.aclose()
    # What waits still comes.
    assert [names(change) async for change in changes] == [("a", "c")]
    with pytest.raises(EndOfScan):
        await changes.poll()
    with pytest.raises(StreamConfigError, match="closed"):
        live.subscribe(1)


def test_it_ends_at_the_end_of_a_bounded_stream(table: SmallTable) -> None:
    with often(table.table).with_end(latest=True).open_live_sync() as live:
        assert [names(change) for change in live.subscribe(1, current=True)] == [(None, "a")]


def test_what_ends_the_stream_is_raised(table: SmallTable) -> None:
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    with often(table.table).with_on_schema_change("fail").open_live_sync() as live:
        changes = live.subscribe(1)
        table.alter(SchemaChange.add_column("more", AtomicType("INT")))
        table.commit({"id": 1, "name": "c"})
        with pytest.raises(SchemaChangedError):
            next(changes)


async def test_invalid_subscriptions_are_refused(table: SmallTable) -> None:
    async with often(table.table).open_live() as live:
        for keys, more, words in [
            ((), {}, "at least one key"),
            (("x",), {}, "the key of the table is"),
            ((1,), {"max_waiting": 0}, "max_waiting"),
            ((1,), {"current": 1}, "current"),
        ]:
            with pytest.raises(StreamConfigError, match=words):
                live.subscribe(*keys, **more)
        assert not live._updater._watch


async def test_a_subscription_that_nobody_holds_is_dropped(table: SmallTable) -> None:
    async with often(table.table).open_live() as live:
        watch = live._updater._watch
        changes, kept = live.subscribe(1), live.subscribe(2)
        assert watch and len(watch._queues) == 2
        del changes
        gc.collect()
        table.commit(("+U", {"id": 2, "name": "c"}))
        assert names(await anext(kept)) == ("b", "c")
        assert len(watch._queues) == 1


async def test_a_cancelled_wait_loses_no_change(table: SmallTable) -> None:
    async with often(table.table).open_live() as live:
        changes = live.subscribe(1)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        table.commit(("+U", {"id": 1, "name": "c"}))
        assert names(await anext(changes)) == ("a", "c")


def test_a_version_that_comes_while_a_subscription_begins_is_compared(table: SmallTable) -> None:
    with often(table.table).with_end(latest=True).open_live_sync() as live:
        before = live._updater.rows()
    table.commit(("+U", {"id": 1, "name": "new"}))
    with often(table.table).with_end(latest=True).open_live_sync() as live:
        after = live._updater.rows()
    watch, queue = KeyWatch(), ChangeQueue([1], 10)
    updates: list[threading.Thread] = []

    def rows_before_the_update() -> RowStore:
        # The updater compares nothing without subscribers.
        if watch:
            updates.append(threading.Thread(target=watch.changed, args=(after,)))
            updates[0].start()
        return before

    watch.add(queue, rows_before_the_update, current=False)
    for update in updates:
        update.join(60)
    change = queue.take()
    assert change is not None and names(change) == ("a", "new")


def test_many_threads_may_subscribe_while_rows_change(table: SmallTable) -> None:
    with often(table.table).open_live_sync() as live:
        wrong: list[Any] = []
        subscribed = threading.Barrier(5)

        def follow() -> None:
            changes = live.subscribe(1, current=True)
            subscribed.wait(60)
            name, expected = None, {"a", *(str(step) for step in range(8))}
            while name != "7":
                change = next(changes)
                if names(change)[0] != name or names(change)[1] not in expected:
                    wrong.append(change)
                name = names(change)[1]

        threads = [threading.Thread(target=follow) for _ in range(4)]
        for thread in threads:
            thread.start()
        subscribed.wait(60)
        for step in range(8):
            table.commit(("+U", {"id": 1, "name": str(step)}))
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
