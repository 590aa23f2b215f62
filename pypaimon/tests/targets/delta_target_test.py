"""Delta tables hold what a table of Paimon holds; what they cannot hold, and what others did to them, is told."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DeltaTarget, StreamConfigError, UnsupportedTableError, replicate
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import in_order
from support.tables.target_places import DeltaPlace

pytestmark = pytest.mark.slow

KEYED, APPENDED = ("id",), ()


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path)


_NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 5)


def test_a_change_that_changes_no_row_moves_the_position(source: SmallTable, target: Target) -> None:
    before = replicate(source.builder(), target)
    source.commit(("-D", {"id": 7}))
    after = replicate(source.builder(), target)
    assert before is not None and after is not None and after > before


def test_columns_are_added_and_others_come_with_a_full_state_only(
    source: SmallTable, target: Target, place: DeltaPlace
) -> None:
    replicate(source.builder(), target)
    source.alter(SchemaChange.add_column("at", AtomicType("TIMESTAMP(6)")))
    source.commit({"id": 2, "at": _NOON})
    before = replicate(source.builder(), target)
    assert [row["at"] for row in in_order(place.held())] == [None, _NOON]
    source.alter(SchemaChange.rename_column("name", "title"))
    source.commit({"id": 3, "title": "three"})
    with pytest.raises(StreamConfigError, match=r"column 'name' .* is not what the Delta table holds"):
        replicate(source.builder(), target)
    assert target.load_position() == before
    with source.builder().with_start("latest-full").open_sync() as stream:
        for batch in stream:
            target.apply(batch)
    assert [row["title"] for row in in_order(place.held())] == ["one", None, "three"]


def test_others_may_compact_vacuum_and_checkpoint(
    source: SmallTable, target: Target, tmp_path: Path, place: DeltaPlace
) -> None:
    for number in range(2, 5):
        replicate(source.builder(), target)
        table = DeltaTable(tmp_path / "copy")
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()
        source.commit({"id": number})
    replicate(source.builder(), place.opened(KEYED))
    assert in_order(place.held()) == in_order(source.rows())
    assert len(list((tmp_path / "copy" / "_paimon").iterdir())) == 1


def test_a_position_that_is_lost_is_reported_and_a_table_that_is_gone_is_filled_again(
    source: SmallTable, target: Target, tmp_path: Path, place: DeltaPlace
) -> None:
    replicate(source.builder(), target)
    (file,) = (tmp_path / "copy" / "_paimon").iterdir()
    text = file.read_text()
    for damage in (lambda: file.write_text(text[:-20]), file.unlink):
        damage()
        with pytest.raises(TargetError, match=r"position in _paimon/.* delete the table"):
            replicate(source.builder(), target)
    shutil.rmtree(tmp_path / "copy")
    replicate(source.builder(), target)
    assert in_order(place.held()) == source.rows()


@pytest.mark.parametrize("others", [False, True], ids=["alone", "after others"])
def test_a_table_that_others_restored_is_reported(
    source: SmallTable, target: Target, place: DeltaPlace, tmp_path: Path, others: bool
) -> None:
    path = tmp_path / "copy"
    replicate(source.builder(), target)
    source.commit({"id": 2})
    position = replicate(source.builder(), target)
    if others:
        for _ in range(2):
            write_deltalake(path, pa.table({"id": [9]}), mode="append", schema_mode="merge")
        DeltaTable(path).restore(2)
    current = DeltaTable(path).version()
    assert target.load_position() == position, "what it notes is there"
    DeltaTable(path).restore(0)
    source.commit({"id": 3})
    for told in (target, place.opened(KEYED)):
        with pytest.raises(StreamConfigError, match=r"others have restored it"):
            replicate(source.builder(), told)
    DeltaTable(path).restore(current)
    assert target.load_position() == position
    DeltaTable(path).restore(DeltaTable(path).history(1)[0]["version"] - 1)
    with pytest.raises(StreamConfigError, match=r"others have restored it"):
        target.load_position()
    shutil.rmtree(path)
    replicate(source.builder(), target)
    assert in_order(place.held()) == in_order(source.rows())


def test_files_of_positions_that_were_never_committed_go_with_the_next_commit(
    source: SmallTable, place: DeltaPlace, tmp_path: Path
) -> None:
    replicate(source.builder(), place.opened(KEYED))
    folder = tmp_path / "copy" / "_paimon"
    folder.joinpath("position-0000000000000001.json").write_text("{")
    source.commit({"id": 2})
    replicate(source.builder(), place.opened(KEYED))
    assert len(list(folder.iterdir())) == 1


def test_columns_whose_names_differ_only_in_case_are_refused(tmp_path: Path, place: DeltaPlace) -> None:
    source = SmallTable(tmp_path / "w", keys=(), columns=pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    source.commit({"a": 1, "A": 2})
    with pytest.raises(UnsupportedTableError, match=r"\['a', 'A'\] differ only in case"):
        replicate(source.builder(), place.opened(APPENDED))


def test_a_place_that_is_not_a_table_is_reported(source: SmallTable, tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("mine")
    with pytest.raises(TargetError, match="Delta table"):
        replicate(source.builder(), DeltaTarget(tmp_path / "file" / "copy"))
