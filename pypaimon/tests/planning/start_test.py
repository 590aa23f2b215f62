"""Where a stream begins: every start mode against the snapshots that are there."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import PositionBeyondLatestError, StreamConfigError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.planner_state import Following, ReadingFull
from pypaimon.streaming.planning.start import StartingScanner
from support.tables.streamed_table import Table

STEP = 1000
FULL_COMPACTIONS = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Snapshots 1 to 5, committed at 1000 to 5000; 3 is a compaction."""
    table = Table(tmp_path / "w")
    for number in range(1, 6):
        table.commit([number])
        amend(table, number, timeMillis=number * STEP, commitIdentifier=number)
    amend(table, 3, commitKind="COMPACT")
    return table


def amend(table: Table, snapshot_id: int, **fields: Any) -> None:
    table.snapshot_path(snapshot_id).write_text(json.dumps(table.snapshot(snapshot_id) | fields))


def find(table: Table, mode: StartMode, was_empty: bool = False, **start: Any) -> ReadingFull | Following | None:
    handle = table.handle(**start.pop("options", {}))
    traits = TableTraits.of(handle.table_schema)
    return StartingScanner(TableDirectory.of(handle), traits, Start(mode, **start)).find(was_empty)


def begins(table: Table, mode: StartMode, **start: Any) -> tuple[int, int | None, int | None]:
    """The next snapshot, that of a full plan, and the earliest creation time."""
    found = find(table, mode, **start)
    assert found is not None
    return found.next_id, found.snapshot.id if isinstance(found, ReadingFull) else None, found.created_after


def test_by_name(table: Table) -> None:
    assert begins(table, StartMode.LATEST_FULL) == (6, 5, None)
    assert begins(table, StartMode.LATEST) == (6, None, None)
    assert begins(table, StartMode.EARLIEST) == (1, None, None)
    assert begins(table, StartMode.COMPACTED_FULL) == (4, 3, None)


def test_latest_of_a_table_that_was_empty_is_its_first_commit(table: Table) -> None:
    assert begins(table, StartMode.LATEST, was_empty=True) == (1, None, None)


def test_without_a_compaction_compacted_full_is_the_latest(table: Table) -> None:
    amend(table, 3, commitKind="APPEND")
    assert begins(table, StartMode.COMPACTED_FULL) == (6, 5, None)


@pytest.mark.parametrize("latest", [16, 17, 18, 33])
def test_compacted_full_looks_as_far_back_as_there_are_snapshots(table: Table, latest: int) -> None:
    """The earliest one too, wherever the steps in which they are asked for end."""
    for number in range(6, latest + 1):
        amended = table.snapshot(5) | {"id": number, "timeMillis": number * STEP}
        table.snapshot_path(number).write_text(json.dumps(amended))
    amend(table, 1, commitKind="COMPACT")
    amend(table, 3, commitKind="APPEND")
    assert begins(table, StartMode.COMPACTED_FULL) == (2, 1, None)


@pytest.mark.parametrize(("identifier", "wanted"), [(3, 5), (4, 3), (2**63 - 1, 3)])
def test_compacted_full_takes_full_compactions_only(table: Table, identifier: int, wanted: int) -> None:
    amend(table, 3, commitIdentifier=identifier)
    traits = TableTraits.of(table.handle().table_schema.copy(new_options=FULL_COMPACTIONS))
    scanner = StartingScanner(TableDirectory.of(table.handle()), traits, Start(StartMode.COMPACTED_FULL))
    found = scanner.find()
    assert isinstance(found, ReadingFull) and found.snapshot.id == wanted


@pytest.mark.parametrize(("wanted", "found"), [(0, 1), (1, 1), (4, 4), (6, 6), (9, 9)])
def test_by_snapshot(table: Table, wanted: int, found: int) -> None:
    assert begins(table, StartMode.FROM_SNAPSHOT, snapshot_id=wanted) == (found, None, None)


def test_by_snapshot_with_its_state(table: Table) -> None:
    assert begins(table, StartMode.FROM_SNAPSHOT_FULL, snapshot_id=2) == (3, 2, None)
    with pytest.raises(PositionBeyondLatestError):
        begins(table, StartMode.FROM_SNAPSHOT_FULL, snapshot_id=6)


def test_a_state_that_was_rolled_back_after_the_latest_was_read_has_not_expired(table: Table) -> None:
    directory = TableDirectory.of(table.handle())
    traits = TableTraits.of(table.handle().table_schema)
    latest = directory.snapshots.get_latest_snapshot()
    assert latest is not None and latest.id == 5
    directory.snapshots.forget()
    table.rollback(4)
    scanner = StartingScanner(directory, traits, Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=5))
    with pytest.raises(PositionBeyondLatestError):
        scanner.find_at(latest)


def test_below_the_earliest_it_is_the_earliest_with_a_warning(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.expire(4)
    with caplog.at_level(logging.WARNING):
        assert begins(table, StartMode.FROM_SNAPSHOT, snapshot_id=2) == (4, None, None)
        assert begins(table, StartMode.FROM_SNAPSHOT_FULL, snapshot_id=2) == (5, 4, None)
    assert caplog.text.count("which has expired: starting at the earliest, 4") == 2
    assert begins(table, StartMode.EARLIEST) == (4, None, None)


@pytest.mark.parametrize(("millis", "found"), [(0, 1), (1000, 1), (1001, 2), (2000, 2), (5000, 5), (5001, 6)])
def test_by_time(table: Table, millis: int, found: int) -> None:
    assert begins(table, StartMode.FROM_TIMESTAMP, millis=millis) == (found, None, None)


def test_by_time_before_the_earliest(table: Table) -> None:
    table.expire(4)
    assert begins(table, StartMode.FROM_TIMESTAMP, millis=1500) == (4, None, None)


def test_by_file_creation_time(table: Table) -> None:
    assert begins(table, StartMode.FROM_FILE_CREATION_TIME, millis=1234) == (6, 5, 1234)


@pytest.mark.parametrize(
    ("millis", "found"), [(1000, (6, 5, 1000)), (1001, (2, None, None)), (5000, (5, None, None)), (5001, (6, 5, 5001))]
)
def test_by_creation_timestamp(table: Table, millis: int, found: tuple[int, int | None, int | None]) -> None:
    assert begins(table, StartMode.FROM_CREATION_TIMESTAMP, millis=millis) == found


class TestTags:
    @pytest.fixture
    def tagged(self, table: Table) -> Table:
        (table.path / "tag").mkdir()
        (table.path / "tag" / "tag-two").write_text(table.snapshot_path(2).read_text())
        return table

    def test_what_came_after_it(self, tagged: Table) -> None:
        assert begins(tagged, StartMode.FROM_TAG, tag="two") == (3, None, None)

    def test_its_state_outlives_its_snapshot(self, tagged: Table) -> None:
        tagged.expire(4)
        assert begins(tagged, StartMode.FROM_TAG, tag="two", full=True) == (3, 2, None)
        assert begins(tagged, StartMode.FROM_TAG, tag="two") == (4, None, None)

    def test_those_of_a_branch_are_its_own(self, tagged: Table) -> None:
        home = tagged.path / "branch" / "branch-b"
        for directory in ("schema", "snapshot"):
            shutil.copytree(tagged.path / directory, home / directory)
        branch = tagged.catalog.get_table(f"{tagged.name}$branch_b")
        traits = TableTraits.of(branch.table_schema)
        scanner = StartingScanner(TableDirectory.of(branch), traits, Start(StartMode.FROM_TAG, tag="two"))
        with pytest.raises(StreamConfigError, match="no tag 'two'"):
            scanner.find()
        (tagged.path / "tag").rename(home / "tag")
        found = scanner.find()
        assert found is not None and found.next_id == 3

    def test_an_unknown_one_is_refused_by_the_names_of_the_others(self, tagged: Table) -> None:
        with pytest.raises(StreamConfigError, match=r"no tag 'three'.*two"):
            find(tagged, StartMode.FROM_TAG, tag="three")


@pytest.mark.parametrize("mode", [mode for mode in StartMode if mode is not StartMode.FROM_POSITION])
def test_an_empty_table_has_no_beginning_yet(tmp_path: Path, mode: StartMode) -> None:
    table = Table(tmp_path / "w")
    if mode is StartMode.FROM_TAG:
        with pytest.raises(StreamConfigError, match="Tags: none"):
            find(table, mode, tag="t")
    else:
        assert find(table, mode, snapshot_id=1, millis=1) is None
