"""The files of one reader: pins, shards, members, owners."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName, SharedStart
from pypaimon.streaming.consumers.progress import Progress, ResumePoint
from pypaimon.streaming.consumers.shared_start_coordinator import StartSettings
from pypaimon.streaming.errors import ConsumerConflictError, CorruptTableError, StoreError
from pypaimon.streaming.io.store import Store
from support.crash.crashing_file_io import MortalFileIO
from support.groups.consumer_group import EXPIRATION, Group, at, full
from support.stores.fault_file_io import SCHEME, DyingStore


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


# ---- the pin of the first full plan ----


def test_the_first_full_plan_is_pinned_until_the_first_save(group: Group) -> None:
    progress = group.started(full(5))
    assert group.files() == {"etl.first-plan": 5}
    assert progress.saved is None
    progress.on_plan(full(5, unit=3))
    progress.on_plan(at(6))
    assert group.confirmed(progress, full(5, unit=3), 99, force=True) == {"etl.first-plan": 5}
    assert group.confirmed(progress, at(6), 99) == {"etl": 6}


def test_a_full_plan_without_rows_is_passed_over(group: Group) -> None:
    progress = group.started(full(5))
    progress.on_passed_over(at(6))
    assert group.flushed(progress, 0) == {"etl": 6}


@pytest.mark.parametrize(
    ("settings", "fence"),
    [
        ({}, "etl.first-plan"),
        ({"shard": (1, 3)}, "etl.shard-1-of-3.first-plan"),
        ({"member": "a"}, "etl.member-a.first-plan"),
    ],
)
def test_the_pin_has_the_name_of_its_progress_file(group: Group, settings: dict[str, Any], fence: str) -> None:
    progress = group.started(full(5), **settings)
    assert group.files() == {fence: 5}
    progress.on_plan(at(6))
    assert group.confirmed(progress, at(6), 0) == {fence.removesuffix(".first-plan"): 6}


def test_after_a_crash_in_the_first_plan_the_start_is_the_same(group: Group) -> None:
    group.started(full(5), found=True).on_plan(at(6))
    for _ in range(2):
        again = group.reader()
        opened = again.open(0)
        assert opened.next_snapshot is None
        assert opened.start is not None and opened.start.position == full(5)
        again.begin(full(5), 0)
        assert group.files() == {"etl.first-plan": 5}


def test_a_pin_without_a_start_is_replaced(group: Group) -> None:
    group.put(etl_first=5, s0of2_first=5)
    assert group.reader().open(0) == group.reader(shard=(0, 2)).open(0) == ResumePoint(None)
    group.started(full(8), found=True, shard=(0, 2))
    assert group.files() == {"etl.first-plan": 8, "etl.shard-0-of-2.first-plan": 8}


def test_readers_that_find_starts_at_the_same_time_begin_at_the_first_one(group: Group) -> None:
    first, second = (group.reader(shard=(index, 2)) for index in range(2))
    assert first.open(0) == second.open(0) == ResumePoint(None)
    assert first.begin(full(5), 0, found=True, end=9) is None
    other = second.begin(full(7), 0, found=True, end=11)
    assert other is not None and (other.position, other.end) == (full(5), 9)
    assert group.files() == {"etl.first-plan": 5, "etl.shard-0-of-2.first-plan": 5}
    assert second.begin(other.position, 0) is None
    for progress in (first, second):
        progress.on_plan(at(6))
        progress.confirm(at(6))
        progress.flush(0)
    assert group.files() == {"etl.shard-0-of-2": 6, "etl.shard-1-of-2": 6}


def test_a_shard_whose_start_was_replaced_before_its_first_save_fails(group: Group) -> None:
    moving = StartSettings(rows_move=True)
    first = group.started(full(5), found=True, shard=(0, 2), start=moving)
    again = StartSettings(rows_move=True, ignore_progress=True)
    group.started(full(5), shard=(1, 2), start=again)
    second = group.reader(shard=(1, 2), start=again)
    second.open(0)
    second.begin(full(8), 0, found=True)
    first.on_plan(at(6))
    first.confirm(at(6))
    with pytest.raises(ConsumerConflictError, match=r"began again at the full state of snapshot 8.*begins there too"):
        first.flush(0)
    assert group.files() == {"etl.first-plan": 8, **{f"etl.shard-{i}-of-2.first-plan": s for i, s in ((0, 5), (1, 8))}}


def test_a_start_that_was_deleted_before_the_first_save_is_an_error(group: Group) -> None:
    progress = group.started(full(5), found=True, shard=(0, 2), start=StartSettings(rows_move=True))
    group.manager.delete(ConsumerName("etl", is_pin=True))
    progress.on_plan(at(6))
    progress.confirm(at(6))
    with pytest.raises(ConsumerConflictError, match="was deleted while"):
        progress.flush(0)
    assert group.files() == {"etl.shard-0-of-2.first-plan": 5}


def test_a_shared_start_is_kept_alive_by_readers_that_began_with_it(group: Group, tmp_path: Path) -> None:
    progress = group.started(full(7), found=True, shard=(0, 2), expiration=EXPIRATION)
    progress.on_plan(at(8))
    progress.confirm(at(8))
    progress.flush(0)
    path = tmp_path / "consumer" / "consumer-etl.first-plan"
    os.utime(path, (0, 0))
    progress.keep_alive(EXPIRATION)
    assert path.stat().st_mtime > 0


def test_a_crash_while_the_shards_begin_again_leaves_no_shard_of_the_former_start(group: Group) -> None:
    """The new start exists, and the progress of the former one was not deleted yet."""
    moving = StartSettings(rows_move=True)
    old = [group.started(at(5), found=True, shard=(index, 2), start=moving) for index in range(2)]
    start = SharedStart("again", full(9), moving.configured)
    group.manager.write(ConsumerName("etl", is_pin=True), Consumer(9, "a reader that died", start=start))
    joined = group.reader(shard=(0, 2), start=moving)
    assert joined.open(0) == ResumePoint(None, start)
    joined.begin(full(9), 0)
    assert set(group.files()) == {"etl.first-plan", "etl.shard-0-of-2.first-plan"}
    old[1].on_plan(at(6))
    old[1].confirm(at(6))
    with pytest.raises(ConsumerConflictError, match="began again"):
        old[1].flush(0)


def test_a_resumed_first_plan_keeps_its_pin(group: Group) -> None:
    group.started(full(5)).on_plan(full(5, unit=1))
    resumed = group.started(full(5, unit=1))
    assert group.files() == {"etl.first-plan": 5}
    resumed.on_plan(at(6))
    assert group.confirmed(resumed, at(6), 0) == {"etl": 6}


def test_any_other_start_deletes_a_stale_pin(group: Group) -> None:
    group.put(etl_first=5)
    group.started(at(9))
    assert group.files() == {"etl": 9}
    group.put(etl_first=5)
    group.started(at(9))
    assert group.files() == {"etl": 9}


def test_a_pin_left_by_a_crash_after_the_first_save_is_deleted(group: Group) -> None:
    group.put(etl=6, etl_first=5)
    progress = group.reader()
    assert progress.open(0).next_snapshot == 6
    progress.begin(at(6), 0)
    assert group.files() == {"etl": 6}


def test_a_seek_away_from_the_first_plan_keeps_the_pin_while_it_is_unconfirmed(group: Group) -> None:
    progress = group.started(full(5))
    progress.on_plan(at(6))
    progress.begin(at(9), 0)
    assert group.files() == {"etl.first-plan": 5}
    assert group.confirmed(progress, at(6), 0) == {"etl": 9}


def test_a_seek_to_a_full_plan_keeps_its_pin_while_older_plans_are_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.on_plan(at(5))
    progress.begin(full(9), 0)
    assert group.confirmed(progress, at(4), 0) == {"etl": 4, "etl.first-plan": 9}
    progress.on_plan(at(10))
    assert group.confirmed(progress, at(10), 0) == {"etl": 10}


def test_a_pin_whose_write_seemed_to_fail_is_deleted_by_another_start(group: Group, tmp_path: Path) -> None:
    dying = DyingStore()
    store = Store(dying, sleep=lambda _: None)
    progress = Progress(ConsumerManager(dying, f"{SCHEME}{tmp_path}", store=store), ConsumerName("etl"), owner="me")
    progress.open(0)
    dying.dies_after(3)
    with pytest.raises(StoreError):
        progress.begin(full(5), 0)
    assert group.files() == {"etl.first-plan": 5}
    dying.dies_after(None)
    progress.begin(at(9), 0)
    assert group.files() == {"etl": 9}


def test_a_start_without_a_full_plan_is_saved_as_soon_as_it_is_found(group: Group) -> None:
    group.started(at(7))
    assert group.files() == {"etl": 7}


def test_ignoring_progress_may_go_backward(group: Group) -> None:
    group.put(etl=50)
    progress = group.reader()
    assert progress.open(0).next_snapshot == 50
    progress.begin(full(10), 0)
    assert group.files() == {"etl": 50, "etl.first-plan": 10}
    progress.on_plan(at(11))
    assert group.confirmed(progress, at(11), 0) == {"etl": 11}


def test_an_idle_stream_keeps_its_files_alive(group: Group, tmp_path: Path) -> None:
    progress = group.started(at(7), expiration=EXPIRATION)
    assert progress.keep_alive_after == EXPIRATION / 3
    path = tmp_path / "consumer" / "consumer-etl"
    for hour in range(1, 4):
        os.utime(path, (0, 0))
        progress.keep_alive((hour - 1) * EXPIRATION + EXPIRATION / 4)
        assert path.stat().st_mtime == 0
        progress.keep_alive(hour * EXPIRATION)
        assert path.stat().st_mtime > 0
    assert group.files() == {"etl": 7}
    assert group.started(at(7)).keep_alive_after is None


def test_the_pin_is_kept_alive_too(group: Group, tmp_path: Path) -> None:
    progress = group.started(full(7), expiration=EXPIRATION)
    path = tmp_path / "consumer" / "consumer-etl.first-plan"
    os.utime(path, (0, 0))
    progress.keep_alive(EXPIRATION / 3)
    assert path.stat().st_mtime > 0


# ---- shards, members, owners ----


def test_a_start_takes_its_own_file(group: Group) -> None:
    group.put(etl=3, s0of2=7, s1of2=9)
    assert group.reader(shard=(1, 2)).open(0).next_snapshot == 9
    assert group.reader().open(0).next_snapshot == 3


def test_a_start_takes_the_smallest_of_a_complete_previous_sharding(group: Group) -> None:
    group.put(s0of2=7, s1of2=5)
    assert group.reader().open(0).next_snapshot == 5
    assert group.reader(shard=(2, 4)).open(0).next_snapshot == 5


def test_the_plain_id_is_a_complete_previous_sharding(group: Group) -> None:
    group.put(etl=5)
    assert group.reader(shard=(2, 4)).open(0).next_snapshot == 5


def test_an_incomplete_sharding_does_not_count_and_neither_do_pins(group: Group) -> None:
    group.put(s0of2=7, s1of2_first=5, etl_first=3)
    assert group.reader().open(0).next_snapshot is None
    assert group.reader(shard=(2, 4)).open(0).next_snapshot is None


def test_of_several_complete_shardings_the_furthest_counts(group: Group) -> None:
    group.put(etl=4, s0of2=9, s1of2=7)
    assert group.reader(shard=(0, 3)).open(0).next_snapshot == 7


def test_a_member_starts_as_configured(group: Group) -> None:
    group.put(etl=4, s0of1=9)
    assert group.reader(member="a").open(0).next_snapshot is None
    group.started(at(6), member="a")
    assert group.files() == {"etl": 4, "etl.member-a": 6, "etl.shard-0-of-1": 9}
    assert group.reader(member="a").open(0).next_snapshot == 6
    assert group.reader(shard=(0, 2)).open(0).next_snapshot == 9


def test_the_slowest_shard_keeps_snapshots(group: Group) -> None:
    slow, fast = (group.started(at(3), shard=(index, 2)) for index in range(2))
    for snapshot in range(4, 9):
        fast.on_plan(at(snapshot))
        fast.confirm(at(snapshot))
        fast.flush(0)
    assert slow.saved == 3
    assert group.files() == {"etl.shard-0-of-2": 3, "etl.shard-1-of-2": 8}
    assert group.manager.min_next_snapshot() == 3


def test_the_previous_sharding_is_deleted_once_the_new_one_is_complete(group: Group) -> None:
    group.put(s0of2=7, s1of2=5, s0of2_first=1)
    for index in range(3):
        assert {"etl.shard-0-of-2", "etl.shard-1-of-2"} < group.files().keys()
        progress = group.reader(shard=(index, 3))
        position = progress.open(0).next_snapshot
        assert position == 5
        progress.begin(at(position), 0)
    assert group.files() == {f"etl.shard-{index}-of-3": 5 for index in range(3)}


def test_a_previous_sharding_that_survived_a_crash_is_deleted_at_the_next_start(group: Group) -> None:
    group.put(etl=5, s0of2=5, s1of2=6)
    progress = group.reader(shard=(1, 2))
    assert progress.open(0).next_snapshot == 6
    progress.begin(at(6), 0)
    assert group.files() == {"etl.shard-0-of-2": 5, "etl.shard-1-of-2": 6}


def test_a_sharding_that_is_just_starting_survives_a_restart_of_the_previous_one(group: Group) -> None:
    group.put(etl=5, s0of2=7)
    progress = group.reader()
    assert progress.open(0).next_snapshot == 5
    progress.begin(at(5), 0)
    assert group.files() == {"etl": 5, "etl.shard-0-of-2": 7}


def test_the_newest_reader_takes_over(group: Group) -> None:
    old = group.started(at(3))
    new = group.reader()
    assert new.open(0).next_snapshot == 3
    old.on_plan(at(4))
    old.confirm(at(4))
    with pytest.raises(ConsumerConflictError, match="another reader"):
        old.flush(0)
    assert group.manager.read(old.name) == Consumer(3, "reader-2")
    new.begin(at(3), 0)
    new.on_plan(at(4))
    assert group.confirmed(new, at(4), 0) == {"etl": 4}


def test_the_newest_reader_takes_over_in_the_first_plan(group: Group) -> None:
    old, new = group.started(full(3)), group.started(full(4))
    for progress, position in ((old, at(4)), (new, at(5))):
        progress.on_plan(position)
        progress.confirm(position)
    with pytest.raises(ConsumerConflictError):
        old.flush(0)
    assert group.files() == {"etl.first-plan": 4}
    assert group.flushed(new, 0) == {"etl": 5}
    with pytest.raises(ConsumerConflictError):
        old.flush(0)
    with pytest.raises(ConsumerConflictError):
        old.begin(full(9), 0)
    with pytest.raises(ConsumerConflictError):
        old.open(0)
    assert group.files() == {"etl": 5}


def test_a_deleted_file_is_a_conflict(group: Group) -> None:
    progress = group.started(at(3))
    group.manager.delete_consumer("etl")
    progress.on_plan(at(4))
    progress.confirm(at(4))
    for _ in range(2):
        with pytest.raises(ConsumerConflictError, match="deleted"):
            progress.flush(0)
    assert group.files() == {}


def test_a_reset_stops_a_running_reader(group: Group) -> None:
    progress = group.started(at(3), expiration=EXPIRATION)
    group.manager.reset_consumer("etl", Consumer(1))
    with pytest.raises(ConsumerConflictError, match="Java, a reset or another library, at snapshot 1"):
        progress.keep_alive(EXPIRATION)
    with pytest.raises(ConsumerConflictError):
        progress.begin(at(9), 0)
    assert group.files() == {"etl": 1}
    assert group.reader().open(0).next_snapshot == 1


def test_a_file_of_java_is_taken_over_at_the_start(group: Group) -> None:
    group.put(etl=3)
    progress = group.reader()
    assert progress.open(0).next_snapshot == 3
    assert group.manager.read(progress.name) == Consumer(3, "reader-1")


def test_a_file_that_appeared_since_the_start_is_a_conflict(group: Group) -> None:
    progress = group.reader()
    assert progress.open(0).next_snapshot is None
    group.put(etl=8)
    with pytest.raises(ConsumerConflictError):
        progress.begin(at(2), 0)
    assert group.files() == {"etl": 8}


def test_a_damaged_file_is_an_error_at_the_start(group: Group, tmp_path: Path) -> None:
    group.put(etl=3)
    (tmp_path / "consumer" / "consumer-etl").write_text("")
    with pytest.raises(CorruptTableError, match="consumer-etl"):
        group.reader().open(0)


def test_commits_from_many_threads(group: Group) -> None:
    progress = group.started(at(0))
    last = 200
    for snapshot in range(1, last + 1):
        progress.on_plan(at(snapshot))

    def commit(start: int) -> None:
        for snapshot in range(start, last + 1, 4):
            progress.confirm(at(snapshot))
            progress.flush(0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(1, 5)))
    assert group.files() == {"etl": last}


def test_a_plan_before_the_target_of_a_seek_still_has_to_be_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.on_plan(at(5))
    progress.begin(at(4), 0)
    assert progress.confirmed == at(3)
    assert group.files() == {"etl": 3}
    assert group.confirmed(progress, at(4), 0) == {"etl": 4}


def test_a_reset_reaches_the_shards_that_have_no_file_yet(group: Group) -> None:
    group.put(s1of3=5, s2of3_first=4)
    group.manager.reset_consumer("etl", Consumer(2))
    assert group.files() == {f"etl.shard-{index}-of-3": 2 for index in range(3)}


def test_a_new_start_is_kept_while_a_shard_by_bucket_is_in_its_first_plan(group: Group) -> None:
    """Its own old file is kept too, because it may continue there."""
    group.put(s0of2=5, s1of2=5)
    first, second = (group.started(at(5), shard=(index, 2)) for index in range(2))
    assert first.begin(full(9), 0, found=True) is None
    other = second.begin(full(11), 0, found=True)
    assert other is not None and other.position == full(9)
    for progress in (second, first):
        assert group.files()["etl.first-plan"] == 9
        progress.begin(full(9), 0)
        progress.on_plan(at(10))
        progress.confirm(at(10))
        progress.flush(0)
    assert group.files() == {"etl.shard-0-of-2": 10, "etl.shard-1-of-2": 10}


def test_a_previous_sharding_that_did_not_begin_with_the_shared_start_does_not_count(group: Group) -> None:
    moving = StartSettings(rows_move=True)
    for index in range(2):
        group.started(at(5), found=not index, shard=(index, 2), start=moving)
    assert group.reader(shard=(0, 3), start=moving).open(0).next_snapshot == 5
    start = SharedStart("again", full(9), moving.configured)
    group.manager.write(ConsumerName("etl", is_pin=True), Consumer(9, "a reader that died", start=start))
    assert group.reader(shard=(0, 3), start=moving).open(0) == ResumePoint(None, start)


@pytest.mark.parametrize("saved", [(), (4,)], ids=["first start", "restart"])
def test_of_two_readers_that_start_a_first_plan_at_once_one_ends(tmp_path: Path, saved: tuple[int, ...]) -> None:
    """The second one starts and pins its plan at any request of the first one, whose pin it may find or overwrite."""
    for step in itertools.count(1):
        (tmp_path / str(step)).mkdir()
        io = MortalFileIO()
        manager = ConsumerManager(io, str(tmp_path / str(step)), store=Store(io))
        for number in saved:
            manager.write(ConsumerName("etl"), Consumer(number))
        first, second = (Progress(manager, ConsumerName("etl"), owner=owner) for owner in ("a", "b"))

        def start(reader: Progress, first_plan: int) -> None:
            reader.open(0)
            reader.begin(full(first_plan), 0)

        io.steps, io.interruption = 0, (step, partial(start, second, 6))
        ended = 0
        with suppress(ConsumerConflictError):
            start(first, 5)
        if io.interruption is not None:
            assert step > 4
            return
        for reader in (first, second):
            try:
                reader.on_plan(at(7))
                reader.confirm_handed_out()
                reader.flush(0)
            except (ConsumerConflictError, ValueError):  # noqa: PERF203
                # The latter: it has not begun.
                ended += 1
        assert ended == 1
