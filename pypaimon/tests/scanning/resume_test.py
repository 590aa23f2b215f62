"""Going on: at a saved position, in the place of what has expired, and after a seek."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import Position, PositionExpiredError, TableChangedError
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp, Limits, OnExpired, OnSchemaChange
from pypaimon.streaming.planning.planned_units import PlannedUnits
from pypaimon.streaming.stream_types import PlanKind
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

FULL_AT_1 = Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=1)
ONE_SPLIT = Limits(max_splits=1)
LONG_LIVED = {"changelog__num_retained__max": "90", "snapshot__num_retained__max": "9"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots of four rows each, in two buckets."""
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    for first in (0, 10, 20):
        table.commit(range(first, first + 4))
    return table


def first_plan(drive: Drive) -> Plan:
    while (plan := drive.step().plan) is None:
        pass
    return plan


def keys(*firsts: int) -> list[int]:
    return [first + number for first in firsts for number in range(4)]


# A saved position.


def saved_before_4(table: Table) -> Position:
    """A position that has read snapshots 1 to 3, of five."""
    table.commit_each(range(5))
    drive = Drive.of(table, EARLIEST, catch_up=CatchUp.REPLAY)
    for _ in range(4):
        drive.step()
    assert drive.position is not None and drive.position.snapshot == 4
    return drive.position


def test_a_position_whose_snapshot_has_expired_knows_as_much_after_a_restart(tmp_path: Path) -> None:
    table = Table(tmp_path / "w")
    position = saved_before_4(table)
    assert position.fingerprint is not None
    table.expire(4)
    drive = Drive.of(table, position)
    drive.step()
    assert drive.position == position
    assert drive.keys() == [3, 4]


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_position_is_held_against_the_changelog_that_outlives_its_snapshot(tmp_path: Path, rolled_back: bool) -> None:
    table = Table(tmp_path / "w", **LONG_LIVED)
    position = saved_before_4(table)
    if rolled_back:
        table.rollback(2)
        table.commit_each(range(12, 15))
    (table.path / "changelog").mkdir()
    left = table.snapshot_path(3).read_text()
    table.expire(4)
    (table.path / "changelog" / "changelog-3").write_text(left)
    drive = Drive.of(table, position)
    if rolled_back:
        with pytest.raises(TableChangedError, match="rolled back: snapshot 3"):
            drive.run()
    else:
        assert drive.keys() == [3, 4]


@pytest.mark.parametrize("change", ["none", "another snapshot", "another id", "gone"])
def test_a_first_plan_continues_at_the_tag_that_keeps_its_snapshot(table: Table, change: str) -> None:
    handle = table.handle()
    handle.create_tag("t", 3)
    start = Start(StartMode.FROM_TAG, tag="t", full=True)
    first = Drive.of(table, start, limits=ONE_SPLIT)
    given, position = first.keys([first_plan(first)]), first.position
    assert position is not None and position.unit is not None
    if change != "none":
        handle.delete_tag("t")
        table.rollback(2)
        table.commit(range(30, 34))
    table.commit(range(40, 44))
    if change.startswith("another"):
        table.handle().create_tag("t", 3 if change == "another snapshot" else 4)
    table.snapshot_path(3).unlink()
    table.snapshot_path(2).unlink()
    table.snapshot_path(1).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("4")
    again = Drive.of(table, start)
    again.state = again.planner.at(position)
    if change == "none":
        assert sorted(given + again.keys()) == keys(0, 10, 20, 40)
    elif change == "another snapshot":
        with pytest.raises(TableChangedError, match="rolled back: snapshot 3"):
            again.run()
    else:
        with pytest.raises(PositionExpiredError, match="Tag 't' does not keep it"):
            again.run()


def test_a_position_inside_a_snapshot_names_the_file_that_was_handed_out(tmp_path: Path) -> None:
    """Also where no fingerprint tells that the snapshot is another one."""
    table = Table(tmp_path / "w")
    table.commit_files(range(3))
    drive = Drive.of(table, EARLIEST, limits=ONE_SPLIT)
    position = first_plan(drive).position
    table.recreate()
    table.commit_files(range(10, 13))
    again = Drive.of(table, replace(position, table=Drive.of(table).directory.identity, fingerprint=None))
    with pytest.raises(TableChangedError, match="which is not in this snapshot"):
        again.run()


# What has expired.


def begun(table: Table, **settings: Any) -> Drive:
    """The start is found, nothing is read."""
    drive = Drive.of(table, FULL_AT_1, limits=ONE_SPLIT, **settings)
    drive.step()
    return drive


def restarted(table: Table, **settings: Any) -> Drive:
    """Another process, inside the first plan."""
    return Drive.of(table, first_plan(begun(table)).position, **settings)


@pytest.mark.parametrize("drive_of", [begun, restarted])
@pytest.mark.parametrize(
    ("policy", "wanted"), [("earliest", keys(0, 10, 20)), ("full", keys(0, 10, 20)), ("latest", [])], ids=str
)
def test_a_state_takes_the_place_of_a_first_plan_that_has_expired(
    table: Table, drive_of: Callable[..., Drive], policy: str, wanted: list[int]
) -> None:
    drive = drive_of(table, on_expired=OnExpired(policy))
    table.expire(2)
    plans = drive.run()
    assert sorted(drive.keys(plans)) == wanted
    if plans:
        assert (plans[0].kind, plans[0].snapshot_id) == (PlanKind.FULL, 2 if policy == "earliest" else 3)
    table.commit([30])
    assert drive.keys() == [30]


@pytest.mark.parametrize("drive_of", [begun, restarted])
def test_a_first_plan_that_has_expired_is_an_error_by_default(table: Table, drive_of: Callable[..., Drive]) -> None:
    drive = drive_of(table)
    table.expire(2)
    for _ in range(2):
        with pytest.raises(PositionExpiredError) as raised:
            drive.run()
        assert (raised.value.wanted, raised.value.earliest, raised.value.latest) == (1, 2, 3)


def test_a_state_without_rows_that_takes_the_place_is_reported_too(table: Table) -> None:
    drive = begun(table, on_expired=OnExpired.FULL)
    table.commit([], overwrite=True)
    table.expire(4)
    (plan,) = drive.run()
    assert (plan.kind, plan.snapshot_id, plan.splits()) == (PlanKind.FULL, 4, [])


def test_the_end_that_was_found_at_the_start_stays_where_the_stream_begins_again(table: Table) -> None:
    drive = begun(table, on_expired=OnExpired.EARLIEST, end=End(latest=True))
    table.commit([30])
    table.expire(2)
    assert sorted(drive.keys()) == keys(0, 10, 20)
    assert drive.state.ended


def test_a_schema_that_was_followed_stays_where_the_stream_begins_again(tmp_path: Path) -> None:
    """A writer that knows of no newer schema may commit after one that does."""
    table = Table(tmp_path / "w").commit_each([1])
    slow = table.handle()
    table.catalog.alter_table(table.name, [SchemaChange.add_column("x", AtomicType("STRING"))], False)
    table.write(pa.table({"k": [2], "v": ["b"], "x": ["c"]}), table=table.handle())
    settings = {"on_expired": OnExpired.EARLIEST, "on_schema_change": OnSchemaChange.FOLLOW, "catch_up": CatchUp.REPLAY}
    drive = Drive(slow, EARLIEST, **settings)
    assert [plan.schema.id for plan in drive.run()] == [0, 1]
    for key in (3, 4):
        table.commit([key], table=slow)
    table.expire(4)
    (plan,) = next(plans for plans in (drive.run() for _ in range(20)) if plans)
    assert (plan.snapshot_id, plan.schema.id) == (4, 1)


# A seek.


def prepared(*, but: Collection[int] = ()) -> list[PlannedUnits]:
    """The snapshots that are held, prepared for plans, by any stream of this process, but for those with these ids."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is PlannedUnits and id(each) not in but]


def test_a_seek_lets_go_of_what_was_prepared_of_a_snapshot(table: Table) -> None:
    drive, others = begun(table), prepared()  # Those are held here, so that no id comes twice.
    before = {id(each) for each in others}
    first_plan(drive)
    assert len(prepared(but=before)) == 1
    drive.planner.forget()
    assert prepared(but=before) == []
