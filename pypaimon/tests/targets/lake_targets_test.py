"""What tables of Delta and of Iceberg have in common: each holds what a table of Paimon holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pypaimon.streaming import StreamConfigError, UnsupportedTableError, replicate
from pypaimon.streaming.targets.lakes.delta_target import DeltaRows
from pypaimon.streaming.targets.lakes.iceberg_target import IcebergRows
from pypaimon.streaming.testing import SmallTable, check_target
from support.crash.killed_target import in_order
from support.samples import sample_seed, some
from support.tables.target_places import DeltaPlace, IcebergPlace

pytestmark = pytest.mark.slow

KEYED, APPENDED = ("id",), ()


@dataclass(frozen=True)
class Lake:
    """What differs between the two.

    Attributes:
        follows_columns: Whether columns are renamed and dropped with those of the source.
        rows: Opens the rows of the target `copy`.
        append: Appends a row with an id to the target `copy`, as another program.
    """

    place: Callable[[Path], Any]
    follows_columns: bool
    has_times: bool
    refused: tuple[pa.DataType, ...]
    rows: Callable[[Any, tuple[str, ...]], Any]
    append: Callable[[Any, int], None]


def append_to_iceberg(place: IcebergPlace, key: int) -> None:
    with place.connected() as catalog:
        catalog.load_table("db.copy").append(pa.table({"id": pa.array([key], pa.int64())}))


LAKES = {
    "Delta": Lake(
        DeltaPlace,
        False,
        False,
        (pa.timestamp("ns"), pa.time32("ms"), pa.list_(pa.timestamp("ns"))),
        lambda place, keys: DeltaRows(str(place.directory / "copy"), keys, None),
        lambda place, key: write_deltalake(
            str(place.directory / "copy"),
            pa.table({"id": [key], "name": ["theirs"]}),
            mode="append",
            schema_mode="merge",
        ),
    ),
    "Iceberg": Lake(
        IcebergPlace,
        True,
        True,
        (pa.timestamp("ns"), pa.list_(pa.timestamp("ns"))),
        lambda place, keys: IcebergRows(place.catalog(), "db.copy", keys),
        append_to_iceberg,
    ),
}
both = pytest.mark.parametrize("name", LAKES)


@pytest.mark.parametrize(
    ("name", "keys"), [(name, keys) for name in LAKES for keys in some(name, [KEYED, APPENDED], 1)]
)
@pytest.mark.usefixtures("few_kills")
def test_it_is_right(tmp_path: Path, name: str, keys: tuple[str, ...]) -> None:
    place = LAKES[name].place(tmp_path)
    check_target(
        partial(place.opened, keys),
        place.held,
        keys=keys,
        schema_changes=LAKES[name].follows_columns,
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
    ("time", pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    ("mo.ney", pa.decimal128(20, 2), Decimal("-123456789012345678.90")),
    ("list", pa.list_(pa.int32()), [1, None]),
    (
        "row",
        pa.struct([("at", pa.timestamp("ms")), ("more", pa.list_(pa.string()))]),
        {"at": _NOON.replace(microsecond=0), "more": ["x"]},
    ),
    ("row of null", pa.struct([("at", pa.timestamp("ms")), ("more", pa.int64())]), {"at": None, "more": 1}),
    ("map", pa.map_(pa.string(), pa.int64()), [("k", 1)]),
]


@both
def test_values_of_every_type_come_out_as_they_are(tmp_path: Path, name: str) -> None:
    place, values = LAKES[name].place(tmp_path), _VALUES
    if not LAKES[name].has_times:
        values = [each for each in values if not pa.types.is_time(each[1])]
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _ in values)])
    source, target = SmallTable(tmp_path / "w", columns=columns), place.opened(KEYED)
    row = {name: value for name, _, value in values}
    source.commit({"id": 1}, {"id": 2})
    replicate(source.builder(), target)
    source.commit(("-U", {"id": 1}), ("+U", {"id": 1, **row}))
    replicate(source.builder(), target)
    assert in_order(place.held()) == [{"id": 1, **row}, {"id": 2, **dict.fromkeys(row)}]


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in LAKES for kind in LAKES[name].refused], ids=str)
def test_a_type_that_it_lacks_is_refused_before_it_is_written(tmp_path: Path, name: str, kind: pa.DataType) -> None:
    target = LAKES[name].place(tmp_path).opened(KEYED)
    source = SmallTable(tmp_path / "w", columns=pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    source.commit({"id": 1})
    with pytest.raises(UnsupportedTableError, match=r"column 'odd'.*with_projection"):
        replicate(source.builder(), target)
    assert target.load_position() is None


@both
def test_several_columns_are_the_key_and_nulls_are_equal(tmp_path: Path, name: str) -> None:
    place, source = LAKES[name].place(tmp_path), SmallTable(tmp_path / "w", keys=())
    target = place.opened(("id", "name"))
    for amount in (1.0, 2.0):
        source.commit(*({"id": key, "name": name, "amount": amount} for key in range(2) for name in ("a", None)))
        replicate(source.builder(), target)
    found, expected = (sorted(rows, key=str) for rows in (place.held(), source.rows()))
    assert found == [row for row in expected if row["amount"] == 2.0]


@both
@pytest.mark.parametrize("keys", [KEYED, APPENDED], ids=["keys", "no keys"])
def test_a_plan_is_refused_if_others_commit_in_the_same_moment(
    tmp_path: Path, name: str, keys: tuple[str, ...]
) -> None:
    lake, source = LAKES[name], SmallTable(tmp_path / "committed", keys=keys)
    place = lake.place(tmp_path)
    source.commit({"id": 1})
    replicate(source.builder(), place.opened(keys))
    source.commit({"id": 2})
    rows = lake.rows(place, keys)
    saved = rows.saved()
    assert saved is not None
    with source.builder().with_start(position=place.opened(keys).load_position()).open_sync() as stream:
        (batch,) = stream
        rows.begin(saved)
        rows.write(batch)
        assert rows.save(batch.plan_after.to_json(), saved) is not None
        lake.append(place, 9)
        with pytest.raises(StreamConfigError, match=r"Others have committed .* in the same moment"):
            rows.commit()
        rows.roll_back()
    assert rows.saved() == saved
    assert [row["id"] for row in in_order(place.held())] == [1, 9]
    replicate(source.builder(), place.opened(keys))
    assert [row["id"] for row in in_order(place.held())] == [1, 2, 9]
    if name == "Iceberg":
        with place.connected() as catalog:
            assert catalog.load_table("db.copy").properties.get("commit.retry.num-retries") is None
