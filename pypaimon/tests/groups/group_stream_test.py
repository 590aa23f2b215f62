"""Group streams: which member reads what, what moves to others, what is confirmed, and which callbacks run."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    ConsumerConflictError,
    DeltaFollowUpScanner,
    PositionExpiredError,
    StreamConfigError,
    UnsupportedTableError,
    list_consumers,
    stream_read_builder,
)
from pypaimon.streaming.errors import AssignmentLostError
from pypaimon.streaming.groups import GroupStreamBuilder
from pypaimon.streaming.groups.group_directory import group_info
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.interrupted_call import Interrupt
from support.groups.members import BUCKETS, FOR_EVER, SESSION, Member, group, keys, write
from support.samples import SOAK, how_to_repeat, is_drawn
from support.tables.streamed_table import KEYED, Table
from support.tables.written_tables import key_value_table
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ONE_IN = 1 if SOAK else 16


def test_a_single_member_reads_everything_and_continues_where_it_has_confirmed(written: Table) -> None:
    with group(written, commit="manual").open_sync() as stream:
        first = next(stream)
        assert sorted(keys(first)) == list(range(40))
        assert first.slots == tuple(range(BUCKETS)) and set(first.tokens.values()) == {first.token}
        assert stream.assignment is not None
        assert (stream.assignment.slots, stream.assignment.of, stream.assignment.members) == (first.slots, BUCKETS, 1)
        assert stream.assignment.covers((), 3)
        first.commit()
        write(written, 50)
        assert keys(next(stream)) == [50]
    with group(written).open_sync() as stream:
        again = next(stream)
        assert keys(again) == [50] and again.token > first.token


class Owner:
    """Holds a stream whose callbacks hold it, too."""

    def __init__(self, table: Table) -> None:
        self.stream = group(table, on_revoked=self.revoked).open_sync()

    def revoked(self, slots: tuple[int, ...]) -> None:
        pass


def test_a_stream_that_is_dropped_without_being_closed_leaves_the_group(written: Table) -> None:
    owner = Owner(written)
    next(owner.stream)
    del owner
    gc.collect()
    directory = TableDirectory.of(written.handle())
    until(lambda: [each.status for each in group_info(directory, "etl") or ()] == ["left"])


def test_members_share_and_one_that_leaves_hands_over_at_once(written: Table) -> None:
    first = Member(lambda **calls: group(written, **calls))
    first.wait(lambda member: len(member.keys) == 40)
    second = Member(lambda **calls: group(written, **calls))
    second.wait(lambda member: len(member.slots) == 2)
    first.wait(lambda member: len(member.slots) == 2)
    assert not first.slots & second.slots
    write(written, *range(100, 140))
    first.wait(lambda member: len(member.keys) > 40)
    second.wait(lambda member: bool(member.keys))
    second.end()
    first.wait(lambda member: len(member.slots) == BUCKETS)
    write(written, *range(200, 240))
    first.wait(lambda member: set(range(200, 240)) <= set(member.keys))
    first.end()
    assert sorted(first.keys + second.keys) == [*range(40), *range(100, 140), *range(200, 240)]


def test_a_slot_moves_to_another_member_inside_a_first_plan(written: Table) -> None:
    def limited(**settings: Any) -> GroupStreamBuilder:
        builder = stream_read_builder(written.handle()).with_poll_interval_ms(20).with_limits(max_rows=1)
        return builder.new_group("etl", session_timeout=SESSION, **settings)

    found = []
    with limited().open_sync() as first:
        batch = next(first)
        assert batch.position is not None and batch.position.unit is not None
        found += keys(batch)
        second = Member(lambda **calls: limited(**calls))
        until(lambda: first.assignment is not None and first.assignment.members == 2)
        found += keys(next(first))
        first.stop()
        found += [key for batch in first for key in keys(batch)]
    second.wait(lambda member: len(member.slots) == BUCKETS and len(member.keys) + len(found) >= 40)
    second.end()
    assert sorted(found + second.keys) == list(range(40))


def test_an_error_of_on_revoked_is_raised_and_the_slot_waits(written: Table) -> None:
    revoked: list[tuple[int, ...]] = []

    def refuse(slots: tuple[int, ...]) -> None:
        revoked.append(slots)
        if len(revoked) == 1:
            raise RuntimeError("not yet")

    with group(written, on_revoked=refuse).open_sync() as first:
        assert len(keys(next(first))) == 40
        second = Member(lambda **calls: group(written, **calls))
        with pytest.raises(RuntimeError, match="not yet"):
            next(first)
        assert not second.slots
        write(written, *range(100, 140))
        own = keys(next(first))
        second.wait(lambda member: len(member.keys) + len(own) == 40)
        second.end()
    assert revoked[0] == revoked[1] and len(revoked[1]) == 2
    assert sorted(own + second.keys) == list(range(100, 140))


def test_a_slot_that_is_held_for_too_long_is_lost_and_the_rest_is_confirmed(written: Table) -> None:
    lost: list[int] = []
    with group(written, commit="manual", max_hold=0.1, on_lost=lost.extend).open_sync() as first:
        batch = next(first)
        second = Member(lambda **calls: group(written, **calls))
        second.wait(lambda member: len(member.keys) > 0)
        with pytest.raises(AssignmentLostError) as error:
            batch.commit()
        assert set(error.value.slots) == second.slots and len(second.slots) == 2
        write(written, 100, 101, 102, 103, 104, 105)
        own = keys(next(first))
        second.wait(lambda member: len({key for key in member.keys if key >= 100}) + len(own) == 6)
        second.end()
    assert set(lost) == set(error.value.slots)
    with group(written).open_sync() as third:
        assert sorted(keys(next(third))) == sorted(own)


def end_from_outside(table: Table) -> None:
    """Make the next version of the only member's record, as a member that has missed its heartbeats for a session."""
    home = table.path / "consumer" / "group-etl" / "1"
    while True:
        last = max(home.glob("member-*"))
        record = json.loads(last.read_text())
        record |= {"number": record["number"] + 1, "nonce": "0" * 8, "by": ".00000000", "status": "sealed"}
        name = f"member-{record['id']}-{record['number']:012d}"
        with suppress(FileExistsError), (home / name).open("x") as file:
            file.write(json.dumps(record))
            return


def test_commits_of_a_fenced_member_are_lost_and_their_rows_are_read_again(
    written: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pypaimon.streaming")
    with group(written, commit="manual").open_sync() as stream:
        batch = next(stream)
        end_from_outside(written)
        with pytest.raises(AssignmentLostError) as error:
            batch.commit()
        assert error.value.slots == batch.slots
        again = next(stream)
        assert sorted(keys(again)) == sorted(keys(batch)) and again.token > batch.token
        again.commit()
        batch.commit()
    logged = [vars(record)["paimon"] for record in caplog.records if hasattr(record, "paimon")]
    of_group = [(each["event"], each["slots"]) for each in logged if each.get("group") == "etl"]
    assert of_group == [("group_assigned", "0-3"), ("group_lost", "0-3"), ("group_assigned", "0-3")]


def test_a_newer_member_of_the_same_name_takes_over_and_the_older_one_fails(written: Table) -> None:
    with group(written, member="a").open_sync() as older:
        assert len(keys(next(older))) == 40
        with group(written, member="a").open_sync() as newer:
            next(newer)
            with pytest.raises(ConsumerConflictError, match="newer"):
                next(older)


def test_cancelled_waits_lose_nothing(written: Table) -> None:
    async def read() -> list[int]:
        found: list[int] = []
        loop = asyncio.get_running_loop()
        end = loop.time() + FOR_EVER
        async with group(written).open() as stream:
            while len(found) < 43:
                assert loop.time() < end
                waiting = asyncio.ensure_future(stream.__anext__())
                done, _ = await asyncio.wait((waiting,), timeout=0.003)
                if not done:
                    waiting.cancel()
                try:
                    found += keys(await waiting)
                except asyncio.CancelledError:
                    continue
                if len(found) == 40:
                    await asyncio.to_thread(write, written, 100, 101, 102)
        return found

    assert sorted(asyncio.run(read())) == [*range(40), 100, 101, 102]


def lines_of_a_call(written: Table) -> Iterator[tuple[str, int]]:
    """Each line that a request for a batch executes, and how often."""
    tracer = Interrupt()
    with group(written).open_sync() as stream:
        tracer.call(lambda: next(stream))
    for line, count in sorted(tracer.seen.items()):
        yield from ((line, number) for number in {1, count})


def test_ctrl_c_at_any_line_loses_and_repeats_nothing(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, bucket="2")
    write(table, *range(4))
    drawn = [each for each in lines_of_a_call(table) if is_drawn(str(each), ONE_IN * 4)]
    for index, (line, number) in enumerate(drawn):
        builder = stream_read_builder(table.handle()).with_poll_interval_ms(20)
        found: Counter[int] = Counter()
        with builder.new_group(f"g{index}", session_timeout=SESSION).open_sync() as stream:
            interrupt = Interrupt(line, number)
            while sum(found.values()) < 4:
                with suppress(KeyboardInterrupt):
                    found.update(keys(interrupt.call(lambda stream=stream: next(stream))))  # type: ignore[misc]
        assert found == Counter(range(4)), (line, number, how_to_repeat())


def test_a_group_continues_after_a_reader_of_its_id_and_the_other_way_round(written: Table) -> None:
    alone = stream_read_builder(written.handle()).with_consumer_id("etl").with_poll_interval_ms(20)
    with alone.open_sync() as stream:
        assert len(keys(next(stream))) == 40
        write(written, 50)
        assert keys(next(stream)) == [50]
        write(written, 51)
        assert keys(next(stream)) == [51]
    with group(written).open_sync() as shared:
        assert keys(next(shared)) == [51]
        of_id = [info.name.text for info in list_consumers(written.handle()) if info.consumer_id == "etl"]
        assert of_id == ["etl.group"]
        write(written, 52)
        assert keys(next(shared)) == [52]
        write(written, 53)
        assert keys(next(shared)) == [53]
        shared.stop()
        assert list(shared) == []
    with alone.open_sync() as stream:
        found: list[int] = []
        write(written, 54)
        while 54 not in found:
            found += keys(next(stream))
    assert found == [54]


def test_a_reset_ends_the_group_and_the_next_one_begins_there(written: Table) -> None:
    from pypaimon.streaming import ConsumerManager
    from pypaimon.streaming.consumers.consumer_manager import Consumer

    write(written, 50)
    with group(written).open_sync() as stream:
        next(stream)
        manager = ConsumerManager(written.handle().file_io, str(written.path))
        manager.reset_consumer("etl", Consumer(2))
        with pytest.raises(ConsumerConflictError, match="pin"):
            next(stream)
    with group(written).open_sync() as stream:
        assert keys(next(stream)) == [50]


def test_a_member_waits_for_the_first_snapshot(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, bucket="2")
    member = Member(lambda **calls: group(table, **calls))
    write(table, 1, 2, 3)
    member.wait(lambda member: len(member.keys) == 3)
    member.end()


def test_a_member_with_another_stream_is_refused(written: Table) -> None:
    with group(written).open_sync() as stream:
        next(stream)
        other = stream_read_builder(written.handle()).with_filter("k > 3").new_group("etl", session_timeout=SESSION)
        with pytest.raises(StreamConfigError, match="settings"), other.open_sync() as refused:
            next(refused)


def test_saved_progress_whose_snapshot_has_expired_is_an_error(written: Table) -> None:
    from pypaimon.streaming import ConsumerManager
    from pypaimon.streaming.consumers.consumer_manager import Consumer

    write(written, 50)
    manager = ConsumerManager(written.handle().file_io, str(written.path))
    manager.reset_consumer("etl", Consumer(1))
    written.expire(2)
    with pytest.raises(PositionExpiredError, match="consumers reset TABLE GROUP"), group(written).open_sync() as stream:
        next(stream)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda builder: builder.with_consumer_id("x"), "with_consumer_id"),
        (lambda builder: builder.with_shard(0, 2), "with_shard"),
        (lambda builder: builder.with_buckets([1]), "buckets"),
        (lambda builder: builder.with_end(watermark=5), "an end by watermark"),
        (lambda builder: builder.with_end(timestamp=2**42), "a time in the future"),
        (lambda builder: builder.with_range(1, 1), "a range"),
        (lambda builder: builder.with_follow_up_scanner(DeltaFollowUpScanner()), "with_follow_up_scanner"),
        (lambda builder: builder.with_on_expired("latest"), "with_on_expired"),
        (lambda builder: builder.with_on_overwrite("read"), "with_on_overwrite"),
    ],
)
def test_settings_without_group_support_are_refused(written: Table, change: Callable[[Any], Any], message: str) -> None:
    refused = change(stream_read_builder(written.handle())).new_group("etl").open_sync()
    with pytest.raises(StreamConfigError, match=message), refused:
        next(refused)


def test_an_expiration_shorter_than_sessions_is_refused(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, bucket="2", **{"consumer.expiration-time": "6 s"})
    write(table, 1)
    with pytest.raises(StreamConfigError, match=r"consumer\.expiration-time"), group(table).open_sync() as stream:
        next(stream)


def test_keys_that_move_between_partitions_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path, columns=KEYED, primary_keys=["k"], partition_keys=["v"], bucket="-1")
    stream = stream_read_builder(table.handle()).new_group("etl").open_sync()
    with pytest.raises(UnsupportedTableError, match="partition"), stream:
        next(stream)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session_timeout": 0}, "session_timeout"),
        ({"max_hold": -1.0}, "max_hold"),
        ({"commit": "never"}, "commit"),
        ({"on_lost": 3}, "on_lost"),
        ({"member": "a/b"}, "directory"),
    ],
)
def test_invalid_arguments_are_refused(written: Table, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamConfigError, match=message):
        stream_read_builder(written.handle()).new_group("etl", **settings)


def test_the_position_is_that_of_the_slots_across_a_rebalance(written: Table) -> None:
    def confirmed(stream: Any, snapshot: int) -> None:
        while stream.position is None or stream.position.snapshot < snapshot:
            next(stream).commit()

    with group(written, commit="manual", member="a").open_sync() as first:
        assert first.position is None
        confirmed(first, 2)
        with group(written, commit="manual", member="b").open_sync() as second:
            _ = second._reader.ready()
            until(lambda: [len(each.assignment.slots) if each.assignment else 0 for each in (first, second)] == [2, 2])
            # The new owner continues where the former one has confirmed.
            assert first.position == second.position and first.position is not None
            assert first.position.snapshot == 2
            write(written, *range(100, 120))
            confirmed(first, 3)
            others: list[int] = []
            while second.position is None or second.position.snapshot < 3:
                others += keys(next(second))
        assert second.position is None
        until(lambda: first.assignment is not None and len(first.assignment.slots) == 4)
        # The slots that came back were read and not confirmed, so they are behind those that stayed.
        assert first.position is not None and first.position.snapshot == 2
        again: list[int] = []
        while first.position.snapshot < 3:
            again += keys(next(first))
        assert sorted(again) == sorted(others) and others
