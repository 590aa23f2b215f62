"""Tables of Iceberg hold what a table of Paimon holds; what they cannot hold, and what others did to them, is told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import IcebergTarget, StreamConfigError, replicate
from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import in_order
from support.tables.target_places import IcebergPlace

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

pytestmark = pytest.mark.slow

KEYED = ("id",)
_NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 5)


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path)


@pytest.fixture
def catalog(place: IcebergPlace) -> Iterator[SqlCatalog]:
    with place.connected() as found:
        yield found


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("int", pa.int32(), -(2**31)),
        ("Text", pa.string(), 'it\'s "ä"\n'),
        ("by`tes", pa.binary(), b"\0\xff"),
        ("a day", pa.date32(), dt.date(1, 1, 1)),
        ("micros", pa.timestamp("us"), _NOON),
        ("local", pa.timestamp("us", "UTC"), _NOON.replace(tzinfo=dt.timezone.utc)),
        ("time", pa.time32("ms"), dt.time(1, 2, 3, 4000)),
        ("money", pa.decimal128(20, 2), Decimal("-123456789012345678.90")),
    ],
)
def test_columns_of_other_types_are_the_key(
    tmp_path: Path, name: str, kind: pa.DataType, value: Any, place: IcebergPlace
) -> None:
    columns = pa.schema([pa.field(name, kind, nullable=False), ("more", pa.int64())])
    source = SmallTable(tmp_path / "w", keys=[name], columns=columns)
    target = place.opened((name,))
    for more in range(2):
        source.commit({name: value, "more": more})
        replicate(source.builder(), target)
    assert place.held() == [{name: value, "more": 1}]


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
    assert target.load_position() == before
    assert in_order(place.held()) == rows


def test_a_table_that_others_rolled_back_is_reported_and_one_that_is_gone_is_filled_again(
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
