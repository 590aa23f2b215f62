"""Delta tables hold what a table of Paimon holds; what they cannot hold, and what others did to them, is told."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    DeltaTarget,
    StreamConfigError,
    Target,
    TargetError,
    UnsupportedTableError,
    replicate,
)
from pypaimon.streaming.targets.lakes.delta_target import DeltaRows
from pypaimon.streaming.testing import SmallTable, check_target
from support.crash.killed_target import in_order
from support.samples import sample_seed, some
from support.tables.target_places import DeltaPlace

pytestmark = pytest.mark.slow

KEYED, APPENDED = ("id",), ()
either = pytest.mark.parametrize("keys", some("Delta", [KEYED, APPENDED], 1), ids=str)


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """A table with keys, of one row."""
    table = SmallTable(tmp_path / "w")
    table.commit({"id": 1, "name": "one"})
    return table


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path)


@pytest.fixture
def target(place: DeltaPlace) -> Target:
    return place.opened(KEYED)


@either
def test_it_is_right(place: DeltaPlace, keys: tuple[str, ...]) -> None:
    check_target(
        partial(place.opened, keys),
        place.held,
        keys=keys,
        schema_changes=False,
        histories=1,
        seed=sample_seed(),
    )


_NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 5)
_VALUES: list[tuple[str, pa.DataType, Any]] = [
    ("bool", pa.bool_(), True),
    ("tiny", pa.int8(), -128),
    ("small", pa.int16(), -(2**15)),
    ("int", pa.int32(), -(2**31)),
    ("big", pa.int64(), 2**63 - 1),
    ("float", pa.float32(), 0.5),
    ("double", pa.float64(), 1e300),
    ("Text", pa.string(), 'it\'s "ä"\n'),
    ("by`tes", pa.binary(), b"\0\xff"),
    ("a day", pa.date32(), dt.date(1, 1, 1)),
    ("millis", pa.timestamp("ms"), _NOON.replace(microsecond=5000)),
    ("micros", pa.timestamp("us"), _NOON),
    ("local", pa.timestamp("us", "UTC"), _NOON.replace(tzinfo=dt.timezone.utc)),
    ("mo.ney", pa.decimal128(20, 2), Decimal("-123456789012345678.90")),
    ("list", pa.list_(pa.int32()), [1, None]),
    (
        "row",
        pa.struct([("at", pa.timestamp("ms")), ("more", pa.list_(pa.string()))]),
        {"at": _NOON.replace(microsecond=0), "more": ["x"]},
    ),
    ("map", pa.map_(pa.string(), pa.int64()), [("k", 1)]),
]


def test_values_of_every_type_come_out_as_they_are(tmp_path: Path, target: Target, place: DeltaPlace) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _ in _VALUES)])
    source = SmallTable(tmp_path / "w", columns=columns)
    row = {name: value for name, _, value in _VALUES}
    source.commit({"id": 1}, {"id": 2})
    replicate(source.builder(), target)
    source.commit(("-U", {"id": 1}), ("+U", {"id": 1, **row}))
    replicate(source.builder(), target)
    assert in_order(place.held()) == [{"id": 1, **row}, {"id": 2, **dict.fromkeys(row)}]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time32("ms"), pa.list_(pa.timestamp("ns"))], ids=str)
def test_what_delta_cannot_hold_is_refused_before_it_is_written(
    tmp_path: Path, target: Target, kind: pa.DataType
) -> None:
    source = SmallTable(tmp_path / "w", columns=pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    source.commit({"id": 1})
    with pytest.raises(UnsupportedTableError, match=r"column 'odd'.*with_projection"):
        replicate(source.builder(), target)
    assert target.position() is None


def test_several_columns_are_the_key_and_nulls_are_equal(tmp_path: Path, place: DeltaPlace) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    target = place.opened(("id", "name"))
    for amount in (1.0, 2.0):
        source.commit(*({"id": key, "name": name, "amount": amount} for key in range(2) for name in ("a", None)))
        replicate(source.builder(), target)
    found, expected = (sorted(rows, key=str) for rows in (place.held(), source.rows()))
    assert found == [row for row in expected if row["amount"] == 2.0]


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
    assert target.position() == before
    with source.builder().with_start("latest-full").open_sync() as stream:
        for batch in stream:
            target.apply(batch)
    assert [row["title"] for row in in_order(place.held())] == ["one", None, "three"]


@pytest.mark.parametrize("keys", [KEYED, APPENDED], ids=["keys", "no keys"])
def test_who_commits_in_the_same_moment_has_the_plan_refused(
    tmp_path: Path, keys: tuple[str, ...], place: DeltaPlace
) -> None:
    source = SmallTable(tmp_path / "committed", keys=keys)
    source.commit({"id": 1})
    replicate(source.builder(), place.opened(keys))
    source.commit({"id": 2})
    path = str(tmp_path / "copy")
    rows = DeltaRows(path, keys, None)
    saved = rows.saved()
    assert saved is not None
    position = place.opened(keys).position()
    with source.builder().with_start(position=position).open_sync() as stream:
        (batch,) = stream
        rows.begin(saved)
        rows.write(batch)
        assert rows.save(batch.plan_after.to_json(), saved) is not None
        write_deltalake(path, pa.table({"id": [9], "name": ["theirs"]}), mode="append", schema_mode="merge")
        with pytest.raises(StreamConfigError, match=r"Others have committed .* in the same moment"):
            rows.commit()
        rows.roll_back()
    assert rows.saved() == saved
    assert [row["id"] for row in in_order(place.held())] == [1, 9]
    replicate(source.builder(), place.opened(keys))
    assert [row["id"] for row in in_order(place.held())] == [1, 2, 9]


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


def test_a_position_that_is_lost_is_told_and_a_table_that_is_gone_is_filled_anew(
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
def test_a_table_that_others_restored_is_told(
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
    assert target.position() == position, "what it notes is there"
    DeltaTable(path).restore(0)
    source.commit({"id": 3})
    for told in (target, place.opened(KEYED)):
        with pytest.raises(StreamConfigError, match=r"others have restored it"):
            replicate(source.builder(), told)
    DeltaTable(path).restore(current)
    assert target.position() == position
    DeltaTable(path).restore(DeltaTable(path).history(1)[0]["version"] - 1)
    with pytest.raises(StreamConfigError, match=r"others have restored it"):
        target.position()
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


def test_a_place_that_is_no_table_is_told(source: SmallTable, tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("mine")
    with pytest.raises(TargetError, match="Delta table"):
        replicate(source.builder(), DeltaTarget(tmp_path / "file" / "copy"))
