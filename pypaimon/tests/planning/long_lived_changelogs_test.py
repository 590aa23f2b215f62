"""Changelogs that outlive their snapshots: where streams may begin, what they follow, and what has expired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import CorruptTableError, Position, PositionExpiredError
from pypaimon.streaming.options.start import Start, StartMode
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

LONG_LIVED = {"changelog__num_retained__max": "90", "snapshot__num_retained__max": "9"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "input": {"primary_key": True, "bucket": "1", "changelog_producer": "input"},
}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Snapshots of one key each, 1 to 8: of 3 and 4 changelogs are left, of 1 and 2 nothing is."""
    table = Table(tmp_path / "w", **KINDS[request.param], **LONG_LIVED)
    (table.path / "changelog").mkdir()
    table.commit_each(range(1, 9))
    for number in range(1, 5):
        table.snapshot_path(number).rename(changelog(table, number))
    for number in (1, 2):
        changelog(table, number).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("5")
    return table


def changelog(table: Table, number: int) -> Path:
    return table.path / "changelog" / f"changelog-{number}"


def at(table: Table, snapshot_id: int) -> Drive:
    return Drive.of(table, Position(Drive.of(table).directory.identity, snapshot_id))


@pytest.mark.parametrize("start", [EARLIEST, Start(StartMode.FROM_SNAPSHOT, snapshot_id=1)], ids=["earliest", "1"])
def test_a_stream_begins_with_the_earliest_changelog_and_continues_with_snapshots(table: Table, start: Start) -> None:
    assert Drive.of(table, start).keys() == [3, 4, 5, 6, 7, 8]


def test_a_time_is_searched_in_changelogs_too(table: Table) -> None:
    millis = Drive.of(table).directory.snapshots.get_changelogs_batch([4])[4].time_millis  # type: ignore[union-attr]
    assert Drive.of(table, Start(StartMode.FROM_TIMESTAMP, millis=millis)).keys() == [4, 5, 6, 7, 8]


def test_a_saved_position_continues_in_them(table: Table) -> None:
    assert at(table, 4).keys() == [4, 5, 6, 7, 8]


def test_before_the_earliest_of_them_a_position_has_expired(table: Table) -> None:
    with pytest.raises(PositionExpiredError) as expired:
        at(table, 2).run()
    assert (expired.value.wanted, expired.value.earliest, expired.value.latest) == (2, 3, 8)


def test_one_that_is_missing_among_them_is_damage(table: Table) -> None:
    changelog(table, 4).unlink()
    drive = at(table, 3)
    assert drive.keys() == [3]
    assert "snapshot-4" in str(drive.polls_until_error(CorruptTableError))
