"""Tables of Iceberg hold what a table of Paimon holds; what they cannot hold, and what others did to them, is told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    IcebergTarget,
    StreamConfigError,
    Target,
    UnsupportedTableError,
    replicate,
)
from pypaimon.streaming.targets.lakes.iceberg_target import IcebergRows
from pypaimon.streaming.testing import SmallTable, check_target
from support.crash.killed_target import in_order
from support.samples import sample_seed, some
from support.tables.target_places import IcebergPlace

pytestmark = pytest.mark.slow

KEYED, APPENDED = ("id",), ()
either = pytest.mark.parametrize("keys", some("Iceberg", [KEYED, APPENDED], 1), ids=str)


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """A table with keys, of one row."""
    table = SmallTable(tmp_path / "w")
    table.commit({"id": 1, "name": "one"})
    return table


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path)


@pytest.fixture
def target(place: IcebergPlace) -> Target:
    return place.opened(KEYED)


@pytest.fixture
def catalog(place: IcebergPlace) -> Iterator[SqlCatalog]:
    with place.connected() as found:
        yield found


@either
def test_it_is_right(place: IcebergPlace, keys: tuple[str, ...]) -> None:
    check_target(partial(place.opened, keys), place.held, keys=keys, histories=1, seed=sample_seed())


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
    ("time", pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    ("mo.ney", pa.decimal128(20, 2), Decimal("-123456789012345678.90")),
    ("list", pa.list_(pa.int32()), [1, None]),
    ("row", pa.struct([("at", pa.timestamp("ms")), ("more", pa.list_(pa.string()))]), {"at": None, "more": ["x"]}),
    ("map", pa.map_(pa.string(), pa.int64()), [("k", 1)]),
]


def test_values_of_every_type_come_out_as_they_are(tmp_path: Path, target: Target, place: IcebergPlace) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _ in _VALUES)])
    source = SmallTable(tmp_path / "w", columns=columns)
    row = {name: value for name, _, value in _VALUES}
    source.commit({"id": 1}, {"id": 2})
    replicate(source.builder(), target)
    source.commit(("-U", {"id": 1}), ("+U", {"id": 1, **row}))
    replicate(source.builder(), target)
    assert in_order(place.held()) == [{"id": 1, **row}, {"id": 2, **dict.fromkeys(row)}]


@pytest.mark.parametrize("name", ["int", "Text", "by`tes", "a day", "micros", "local", "time", "money"])
def test_columns_of_other_types_are_the_key(tmp_path: Path, name: str, place: IcebergPlace) -> None:
    kind, value = next((kind, value) for each, kind, value in _VALUES if each.replace(".", "") == name)
    columns = pa.schema([pa.field(name, kind, nullable=False), ("more", pa.int64())])
    source = SmallTable(tmp_path / "w", keys=[name], columns=columns)
    target = place.opened((name,))
    for more in range(2):
        source.commit({name: value, "more": more})
        replicate(source.builder(), target)
    assert place.held() == [{name: value, "more": 1}]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.list_(pa.timestamp("ns"))], ids=str)
def test_what_iceberg_cannot_hold_is_refused_before_it_is_written(
    tmp_path: Path, target: Target, kind: pa.DataType
) -> None:
    source = SmallTable(tmp_path / "w", columns=pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    source.commit({"id": 1})
    with pytest.raises(UnsupportedTableError, match=r"column 'odd'.*with_projection"):
        replicate(source.builder(), target)
    assert target.position() is None


def test_several_columns_are_the_key_and_nulls_are_equal(tmp_path: Path, place: IcebergPlace) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    target = place.opened(("id", "name"))
    for amount in (1.0, 2.0):
        source.commit(*({"id": key, "name": name, "amount": amount} for key in range(2) for name in ("a", None)))
        replicate(source.builder(), target)
    found, expected = (sorted(rows, key=str) for rows in (place.held(), source.rows()))
    assert found == [row for row in expected if row["amount"] == 2.0]


@pytest.mark.parametrize("keys", [("amount",), ("amount", "name"), ("name", "number", "amount")], ids=str)
def test_nulls_and_nans_of_keys_are_equal(tmp_path: Path, place: IcebergPlace, keys: tuple[str, ...]) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    target = place.opened(keys)
    amounts, rest = (None, float("nan"), 1.5), [(name, number) for name in ("a", None) for number in (1, None)]
    for identity in range(2):
        source.commit(
            *(
                {"id": identity, "amount": amount, "name": name, "number": number}
                for amount in amounts
                for name, number in rest
            )
        )
        replicate(source.builder(), target)
        source.commit({"id": 7, "amount": 2.0, "name": "untouched", "number": 3})
        replicate(source.builder(), target)
    found = [[row[key] for key in keys] for row in place.held() if row["amount"] != 2.0]
    assert len(found) == {1: 3, 2: 6, 3: 12}[len(keys)]
    assert len({str(key) for key in found}) == len(found)
    assert {row["id"] for row in place.held()} == {1, 7}


def test_a_name_without_namespace_is_refused(catalog: SqlCatalog) -> None:
    with pytest.raises(StreamConfigError, match="its namespace"):
        IcebergTarget(catalog, "orders")


def test_a_column_that_others_dropped_before_is_followed(
    source: SmallTable, target: Target, place: IcebergPlace, catalog: SqlCatalog
) -> None:
    replicate(source.builder(), target)
    with catalog.load_table("db.copy").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("number")
    source.alter(SchemaChange.drop_column("number"))
    source.commit({"id": 2})
    replicate(source.builder(), target)
    assert in_order(place.held()) == in_order(source.rows())


def test_columns_follow_and_a_type_that_iceberg_does_not_promote_is_refused(
    source: SmallTable, target: Target, place: IcebergPlace
) -> None:
    replicate(source.builder(), target)
    source.alter(SchemaChange.rename_column("name", "title"), SchemaChange.rename_column("amount", "name"))
    source.alter(SchemaChange.drop_column("number"), SchemaChange.add_column("number", AtomicType("STRING")))
    source.commit({"id": 2, "title": "two", "number": "2"})
    before = replicate(source.builder(), target)
    rows = in_order(place.held())
    assert rows == in_order(source.rows())
    assert [row["title"] for row in rows] == ["one", "two"]
    source.alter(SchemaChange.update_column_type("name", AtomicType("STRING")))
    source.commit({"id": 3, "name": "x"})
    with pytest.raises(StreamConfigError, match=r"column 'name' was DOUBLE and is STRING now"):
        replicate(source.builder(), target)
    assert target.position() == before
    assert in_order(place.held()) == rows


@pytest.mark.parametrize("keys", [KEYED, APPENDED], ids=["keys", "no keys"])
def test_who_commits_in_the_same_moment_has_the_plan_refused(
    tmp_path: Path, catalog: SqlCatalog, keys: tuple[str, ...], place: IcebergPlace
) -> None:
    source = SmallTable(tmp_path / "committed", keys=keys)
    source.commit({"id": 1})
    target = place.opened(keys)
    replicate(source.builder(), target)
    source.commit({"id": 2})
    rows = IcebergRows(catalog, "db.copy", keys)
    saved = rows.saved()
    assert saved is not None
    with source.builder().with_start(position=target.position()).open_sync() as stream:
        (batch,) = stream
        rows.begin(saved)
        rows.write(batch)
        assert rows.save(batch.plan_after.to_json(), saved) is not None
        with place.connected() as theirs:
            theirs.load_table("db.copy").append(pa.table({"id": pa.array([9], pa.int64())}))
        with pytest.raises(StreamConfigError, match=r"Others have committed .* in the same moment"):
            rows.commit()
        rows.roll_back()
    assert rows.saved() == saved
    assert [row["id"] for row in in_order(place.held())] == [1, 9]
    replicate(source.builder(), target)
    assert [row["id"] for row in in_order(place.held())] == [1, 2, 9]
    assert catalog.load_table("db.copy").properties.get("commit.retry.num-retries") is None


def test_a_table_that_others_rolled_back_is_told_and_one_that_is_gone_is_filled_anew(
    source: SmallTable, target: Target, place: IcebergPlace, catalog: SqlCatalog
) -> None:
    replicate(source.builder(), target)
    source.commit({"id": 2})
    replicate(source.builder(), target)
    table = catalog.load_table("db.copy")
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(StreamConfigError, match="rolled it back"):
        replicate(source.builder(), target)
    catalog.drop_table("db.copy")
    replicate(source.builder(), target)
    assert in_order(place.held()) == in_order(source.rows())
