"""What is saved under a consumer id: confirmed, then saved (B26)."""

from __future__ import annotations

from pathlib import Path

import pytest
from consumer_group import Group, at

from pypaimon.streaming.consumers.progress import CommitMode
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.position import Position


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


# B26: confirmed, then saved.


def test_nothing_is_saved_before_it_is_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.flush(99)
    assert group.files() == {"etl": 3}
    progress.confirm(at(4))
    assert group.files() == {"etl": 3}
    progress.flush(99)
    assert group.files() == {"etl": 4}
    assert progress.saved == progress.committed() == 4


def test_confirming_a_position_confirms_all_before_it(group: Group) -> None:
    progress = group.started(at(3))
    for snapshot in (4, 5, 6):
        progress.on_plan(at(snapshot))
    progress.confirm(at(5))
    progress.flush(0)
    assert progress.confirmed == at(5)
    assert group.files() == {"etl": 5}
    progress.confirm(at(4))
    progress.flush(0)
    assert group.files() == {"etl": 5}


def test_a_snapshot_id_confirms_like_the_position(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(Position("t", 4, fingerprint="of snapshot 3"))
    progress.confirm(Position("t", 4))
    progress.flush(0)
    assert group.files() == {"etl": 4}


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
    progress.confirm(at(5))
    progress.flush(0)
    assert group.files() == {"etl": 5}


def test_passed_over_snapshots_move_it_with_one_write_per_poll_interval(group: Group) -> None:
    progress = group.started(at(3))
    for second, position in enumerate(range(4, 25), start=1):
        progress.on_passed_over(at(position))
        progress.flush(second)
    assert group.files() == {"etl": 23}
    assert group.io.asked["PUT"] == 1 + 2
    progress.flush(21, force=True)
    assert group.files() == {"etl": 24}


def test_passed_over_snapshots_do_not_move_it_over_an_unconfirmed_plan(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_passed_over(at(5))
    progress.on_plan(at(6))
    progress.on_passed_over(at(8))
    progress.flush(99)
    assert group.files() == {"etl": 5}
    progress.confirm(at(6))
    progress.flush(99)
    assert group.files() == {"etl": 8}


def test_snapshots_passed_over_on_the_way_to_a_plan_count(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(10), first_snapshot=7)
    progress.flush(99)
    assert group.files() == {"etl": 7}
    progress.on_plan(at(10, unit=0), first_snapshot=10)
    progress.confirm(at(10))
    progress.flush(99)
    assert group.files() == {"etl": 10}


def test_auto_confirms_when_the_next_plan_is_asked_for(group: Group) -> None:
    progress = group.started(at(3), commit="auto")
    progress.on_plan(at(4))
    progress.flush(99)
    assert group.files() == {"etl": 3}
    progress.confirm_handed_out()
    progress.flush(99)
    assert group.files() == {"etl": 4}


def test_manual_does_not(group: Group) -> None:
    progress = group.started(at(3), commit=CommitMode.MANUAL)
    progress.on_plan(at(4))
    progress.confirm_handed_out()
    progress.flush(99, force=True)
    assert group.files() == {"etl": 3}
    with pytest.raises(StreamConfigError, match="'auto' or 'manual'"):
        group.reader(commit="sometimes")


def test_a_plan_that_was_not_handed_out_cannot_be_confirmed(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    with pytest.raises(StreamConfigError, match=r"Snapshot 5 cannot be confirmed: .* reached snapshot 4"):
        progress.confirm(at(5))
    with pytest.raises(StreamConfigError, match="another table"):
        progress.confirm(Position("u", 4))
    with pytest.raises(StreamConfigError, match="has not started"):
        group.reader().confirm(at(1))
    assert progress.confirmed == at(3)


def test_plans_lie_one_after_the_other(group: Group) -> None:
    progress = group.started(at(3))
    for report in (progress.on_plan, progress.on_passed_over):
        with pytest.raises(ValueError, match="does not lie after"):
            report(at(2))
    with pytest.raises(ValueError, match="does not lie after"):
        progress.on_plan(at(3))
    with pytest.raises(ValueError, match="before begin"):
        group.reader().on_plan(at(3))


def test_leaving_with_a_plan_in_hand_confirms_nothing(group: Group) -> None:
    progress = group.started(at(3), commit="auto")
    progress.on_plan(at(4))
    del progress
    assert group.reader().open(0) == 3


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


def test_a_seek_may_go_backward_and_forgets_what_lies_behind_it(group: Group) -> None:
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
    progress.confirm(at(3))
    progress.flush(0)
    assert group.files() == {"etl": 3}


def test_a_seek_forward_confirms_nothing(group: Group) -> None:
    progress = group.started(at(3))
    progress.on_plan(at(4))
    progress.begin(at(9), 99)
    progress.flush(99)
    assert group.files() == {"etl": 3}
    progress.confirm(at(4))
    progress.flush(99)
    assert group.files() == {"etl": 9}


def test_nothing_is_asked_while_nothing_changes(group: Group) -> None:
    progress = group.started(at(3))
    group.io.asked.clear()
    for second in range(100):
        progress.flush(second, force=True)
        progress.confirm_handed_out()
        progress.keep_alive(second)
    assert not group.io.asked


def test_a_save_is_one_get_and_one_put(group: Group) -> None:
    progress = group.started(at(3))
    group.io.asked.clear()
    progress.on_plan(at(4))
    progress.confirm(at(4))
    progress.flush(0)
    assert group.io.asked == {"GET": 1, "PUT": 1}
