"""Positions are confirmed first, and then saved under a consumer id."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.consumers import unconfirmed
from pypaimon.streaming.consumers.progress import CommitMode
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from support.groups.consumer_group import Group, at
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


# ---- confirmed, then saved ----


def test_nothing_is_saved_before_it_is_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    assert group.flushed(progress, 99) == {"etl": 3}
    progress.confirm(at(4))
    assert group.files() == {"etl": 3}
    assert group.flushed(progress, 99) == {"etl": 4}
    assert progress.saved == progress.committed() == 4


def test_confirming_a_position_confirms_all_before_it(group: Group) -> None:
    progress = group.started(at(3))
    for snapshot in (4, 5, 6):
        progress.on_plan(at(snapshot))
    progress.confirm(at(5))
    progress.flush(0)
    assert progress.confirmed == at(5)
    assert group.files() == {"etl": 5}
    assert group.confirmed(progress, at(4), 0) == {"etl": 5}


def test_a_snapshot_id_confirms_like_the_position(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(Position("t", 4, fingerprint="of snapshot 3"))
    assert group.confirmed(progress, Position("t", 4), 0) == {"etl": 4}


def test_inside_a_snapshot_the_position_before_it_is_saved(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.on_plan(at(4, unit=0))
    progress.on_plan(at(4, unit=1))
    progress.confirm(at(4, unit=1))
    progress.flush(0)
    assert progress.confirmed == at(4, unit=1)
    assert group.files() == {"etl": 4}
    progress.on_plan(at(5))
    assert group.confirmed(progress, at(5), 0) == {"etl": 5}


def test_passed_over_snapshots_move_it_with_one_write_per_poll_interval(group: Group) -> None:
    progress = group.started(at(3))
    for second, position in enumerate(range(4, 25), start=1):
        progress.on_passed_over(at(position))
        progress.flush(second)
    assert group.files() == {"etl": 23}
    assert group.io.counts()["write"] == 1 + 2
    assert group.flushed(progress, 21, force=True) == {"etl": 24}


def test_passed_over_snapshots_do_not_move_it_over_an_unconfirmed_plan(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_passed_over(at(5))
    progress.on_plan(at(6))
    progress.on_passed_over(at(8))
    assert group.flushed(progress, 99) == {"etl": 5}
    assert group.confirmed(progress, at(6), 99) == {"etl": 8}


def test_snapshots_passed_over_on_the_way_to_a_plan_count(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(10), begins=at(7))
    assert group.flushed(progress, 99) == {"etl": 7}
    progress.on_plan(at(10, unit=0), begins=at(10))
    assert group.confirmed(progress, at(10), 99) == {"etl": 10}


def test_the_snapshot_before_is_known_wherever_a_reader_stops(group: Group) -> None:
    """Inside a snapshot, and after snapshots that contain nothing for it."""

    def known(snapshot: int) -> Position:
        return Position("t", snapshot, fingerprint=f"of {snapshot - 1}")

    def inside(snapshot: int, unit: int) -> Position:
        return replace(at(snapshot, unit), fingerprint=f"of {snapshot}")

    progress = group.started(known(3))
    progress.on_plan(inside(5, 0), begins=known(5))
    progress.on_plan(inside(5, 1))
    progress.on_plan(known(6))
    progress.on_passed_over(known(8))
    progress.on_plan(known(10), begins=known(9))
    for confirmed, saved in ((None, 5), (inside(5, 0), 5), (inside(5, 1), 5), (known(6), 9), (known(10), 10)):
        if confirmed is not None:
            progress.confirm(confirmed)
        progress.flush(99)
        file = progress.stored()
        assert file is not None and (file.next_snapshot, file.fingerprint) == (saved, f"of {saved - 1}")


def test_auto_confirms_when_the_next_plan_is_asked_for(group: Group) -> None:
    progress = group.started(at(3), commit="auto")
    progress.on_plan(at(4))
    assert group.flushed(progress, 99) == {"etl": 3}
    progress.confirm_handed_out()
    assert group.flushed(progress, 99) == {"etl": 4}


def test_manual_does_not(group: Group) -> None:
    progress = group.started(at(3), commit=CommitMode.MANUAL)
    progress.on_plan(at(4))
    progress.confirm_handed_out()
    assert group.flushed(progress, 99, force=True) == {"etl": 3}
    with pytest.raises(StreamConfigError, match="'auto' or 'manual'"):
        group.reader(commit="sometimes")


def test_a_plan_that_was_not_handed_out_cannot_be_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    with pytest.raises(StreamConfigError, match=r"Snapshot 5 cannot be confirmed: .* reached snapshot 4"):
        progress.confirm(at(5))
    with pytest.raises(StreamConfigError, match="belongs to table 'u'"):
        progress.confirm(Position("u", 4))
    with pytest.raises(StreamConfigError, match="has not started"):
        group.reader().confirm(at(1))
    assert progress.confirmed == at(3)


def test_plans_have_to_be_in_order(group: Group) -> None:
    progress = group.started(at(3))
    for report in (progress.on_plan, progress.on_passed_over):
        with pytest.raises(ValueError, match="is not after"):
            report(at(2))
    with pytest.raises(ValueError, match="is not after"):
        progress.on_plan(at(3))
    with pytest.raises(ValueError, match="before begin"):
        group.reader().on_plan(at(3))


def test_leaving_with_a_plan_in_hand_confirms_nothing(group: Group) -> None:
    progress = group.started(at(3), commit="auto")
    progress.on_plan(at(4))
    del progress
    assert group.reader().open(0).next_snapshot == 3


def test_a_restart_by_position_repeats_nothing_that_was_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4, unit=7))
    progress.confirm(at(4, unit=7))
    progress.flush(0)
    checkpoint = progress.confirmed
    assert checkpoint == at(4, unit=7)
    assert checkpoint is not None
    again = group.started(checkpoint)
    assert again.confirmed == at(4, unit=7)
    assert group.files() == {"etl": 4}


def test_a_seek_may_go_backward_and_forgets_later_plans(group: Group) -> None:
    progress = group.started(at(3))
    for snapshot in (4, 5, 6):
        progress.on_plan(at(snapshot))
    progress.confirm(at(6))
    progress.flush(0)
    progress.on_plan(at(7))
    progress.begin(at(2), 0)
    assert group.files() == {"etl": 2}
    with pytest.raises(StreamConfigError, match="last seek"):
        progress.confirm(at(7))
    progress.on_plan(at(3))
    assert group.confirmed(progress, at(3), 0) == {"etl": 3}


def test_a_seek_forward_confirms_nothing(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.begin(at(9), 99)
    assert group.flushed(progress, 99) == {"etl": 3}
    assert group.confirmed(progress, at(4), 99) == {"etl": 9}


def test_no_request_is_sent_while_nothing_changes(group: Group) -> None:
    progress = group.started(at(3))
    group.io.forget()
    for second in range(100):
        progress.flush(second, force=True)
        progress.confirm_handed_out()
        progress.keep_alive(second)
    assert not group.io.calls


def test_a_save_is_one_get_and_one_put(group: Group) -> None:
    progress = group.started(at(3))
    group.io.forget()
    progress.on_plan(at(4))
    progress.confirm(at(4))
    progress.flush(0)
    assert group.io.counts() == {"read": 1, "write": 1}


# ---- callers that confirm late, or never ----


def test_unconfirmed_plans_take_bounded_memory(group: Group) -> None:
    progress = group.started(at(0))
    sizes = []
    tracemalloc.start()
    for snapshot in range(1, 40_001):
        progress.on_plan(at(snapshot))
        if snapshot % 20_000 == 0:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] - sizes[0] < 100_000
    assert progress.confirmed == at(0)
    progress.confirm(at(40_000))
    assert progress.confirmed == at(40_000)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_plans_that_count_as_one_are_confirmed_with_the_last_of_them(
    group: Group, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_UNCONFIRMED", most)
    progress = group.started(at(0))
    for snapshot in range(1, 9):
        progress.on_plan(at(snapshot))
    found = []
    for snapshot in range(1, 9):
        progress.confirm(at(snapshot))
        assert progress.confirmed is not None
        found.append(progress.confirmed.snapshot)
    assert all(confirmed <= snapshot for snapshot, confirmed in enumerate(found, start=1))
    assert found == sorted(found)
    assert found[-1] == 8


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_seek_forgets_no_unconfirmed_plan_that_counts_as_one_with_later_ones(
    group: Group, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_UNCONFIRMED", most)
    progress = group.started(at(0))
    for snapshot in range(1, 9):
        progress.on_plan(at(snapshot))
    for snapshot in (7, 5, 3, 1):
        progress.begin(at(snapshot), 0)
        assert progress.confirmed == at(0)
    progress.confirm(at(1))
    assert progress.confirmed == at(1)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["plan", "plan", "plan", "pass", "confirm", "seek"]), st.integers(0, 30)), max_size=60
    ),
    most=st.integers(1, 5),
)
@settings(max_examples=examples(150))
def test_of_many_unconfirmed_plans_none_is_confirmed_too_early_and_the_last_confirms_all(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], most: int
) -> None:
    """Compared with the positions of all plans: the confirmed position is never after the right one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unconfirmed, "MAX_UNCONFIRMED", most)
        progress = Group(tmp_path_factory.mktemp("group")).started(at(100))
        plans: list[tuple[int, int]] = []
        frontier = 100
        for step, number in steps:
            if step == "plan":
                plans.append((frontier, frontier + 1 + number % 3))
                frontier = plans[-1][1]
                progress.on_plan(at(frontier))
            elif step == "pass":
                frontier += number % 3
                progress.on_passed_over(at(frontier))
            elif step == "confirm":
                confirmed = max(100, frontier - number)
                plans = [plan for plan in plans if plan[1] > confirmed]
                progress.confirm(at(confirmed))
            else:
                frontier = max(100, frontier - number)
                plans = [(before, min(after, frontier)) for before, after in plans if before < frontier]
                progress.begin(at(frontier), 0)
            assert progress.confirmed is not None
            assert progress.confirmed <= at(plans[0][0] if plans else frontier)
            assert len(progress._unconfirmed._plans) <= most
        progress.confirm(at(frontier))
        assert progress.confirmed == at(frontier)
