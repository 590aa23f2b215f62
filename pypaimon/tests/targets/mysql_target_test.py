"""A table of MySQL holds what a table of Paimon holds, exactly once, although its changes of tables are not undone."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import MySQLTarget, StreamConfigError, UnsupportedTableError, replicate
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.testing import SmallTable, check_target
from support import programs
from support.crash.killed_target import in_order, race
from support.samples import SOAK, sample_seed, some
from support.stores.mysql_server import mariadb
from support.tables.target_places import MySQLPlace

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.java, pytest.mark.xdist_group("mysql")]


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    """The socket of a server."""
    with mariadb() as found:
        yield found


@pytest.fixture
def place(socket: str, request: pytest.FixtureRequest) -> MySQLPlace:
    """A database of the test's own."""
    place = MySQLPlace(socket, f"d{abs(hash(request.node.name))}")
    place.execute(f"CREATE DATABASE {place.database}", database=None)
    return place


@pytest.mark.parametrize("keys", some("MySQL", [("id",), ()], 1))
def test_it_is_right(place: MySQLPlace, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not SOAK:
        # Its client is Python, in which tracing the lines takes long.
        monkeypatch.setattr(import_module("pypaimon.streaming.testing.check_target"), "_KILLS", 1)
    check_target(
        partial(place.opened, keys),
        place.held,
        keys=keys,
        schema_changes=False,
        nans=False,
        infinities=False,
        histories=1,
        seed=sample_seed(),
    )


_NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 5)
_VALUES: list[tuple[str, pa.DataType, Any, Any]] = [
    ("bool", pa.bool_(), True, 1),
    ("tiny", pa.int8(), -128, -128),
    ("big", pa.int64(), 2**63 - 1, 2**63 - 1),
    ("double", pa.float64(), 1e300, 1e300),
    ("tenth", pa.float64(), 0.1, 0.1),
    ("text", pa.string(), 'it\'s "ä" \U0001f600 % \\ \n', 'it\'s "ä" \U0001f600 % \\ \n'),
    ("bytes", pa.binary(), b"\0\xff'\\", b"\0\xff'\\"),
    ("day", pa.date32(), dt.date(1, 1, 1), dt.date(1, 1, 1)),
    ("micros", pa.timestamp("us"), _NOON, _NOON),
    ("local", pa.timestamp("us", "UTC"), _NOON.replace(tzinfo=dt.timezone.utc), _NOON),
    ("time", pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.timedelta(hours=1, minutes=2, seconds=3, milliseconds=4)),
    ("money", pa.decimal128(38, 2), Decimal("-123456789012345678.90"), Decimal("-123456789012345678.90")),
]


def test_values_of_every_type_come_out_as_they_are(place: MySQLPlace, tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _, _ in _VALUES)])
    source = SmallTable(tmp_path, columns=columns)
    source.commit({"id": 1, **{name: value for name, _, value, _ in _VALUES}}, {"id": 2})
    replicate(source.builder(), place.opened(None))
    assert in_order(place.held()) == [
        {"id": 1, **{name: value for name, _, _, value in _VALUES}},
        {"id": 2, **{name: None for name, _, _, _ in _VALUES}},
    ]


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (pa.list_(pa.int32()), [1], UnsupportedTableError),
        (pa.timestamp("ns"), 1, UnsupportedTableError),
        (pa.float64(), float("nan"), StreamConfigError),
        (pa.float32(), float("inf"), StreamConfigError),
    ],
)
def test_what_it_cannot_hold_is_refused(
    place: MySQLPlace, tmp_path: Path, kind: pa.DataType, value: Any, error: type[Exception]
) -> None:
    source = SmallTable(tmp_path, columns=pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    source.commit({"id": 1, "odd": value})
    target = place.opened(None)
    with pytest.raises(error, match=r"column 'odd'.*with_projection"):
        replicate(source.builder(), target)
    assert target.load_position() is None


def test_texts_that_differ_in_case_or_in_spaces_are_keys_of_their_own(place: MySQLPlace, tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("code", pa.string(), nullable=False)])
    source = SmallTable(tmp_path, "code", columns)
    codes = ["a", "A", "a ", "ä", "", " "]
    source.commit(*({"id": number, "code": code} for number, code in enumerate(codes)))
    replicate(source.builder(), target := place.opened(None))
    source.commit(("-D", {"id": 2, "code": "a "}), ("-U", {"id": 0, "code": "a"}), ("+U", {"id": 7, "code": "a"}))
    replicate(source.builder(), target)
    assert {row["code"]: row["id"] for row in place.held()} == {"a": 7, "A": 1, "ä": 3, "": 4, " ": 5}
    assert place.primary_key("copy") == ["code"]
    source.commit({"id": 8, "code": "x" * 2000})
    with pytest.raises(TargetError, match="too long"):
        replicate(source.builder(), target)
    assert len(place.held()) == 5


def test_other_keys_may_be_null(place: MySQLPlace, tmp_path: Path) -> None:
    source = SmallTable(tmp_path, keys=())
    for amount in (1.0, 2.0):
        source.commit(*({"id": 1, "name": name, "amount": amount} for name in (None, "a")))
        replicate(source.builder(), place.opened(("id", "name")))
    assert [row["amount"] for row in place.held()] == [2.0, 2.0]
    assert place.primary_key("copy") == []


def test_columns_are_added_and_other_changes_are_refused(place: MySQLPlace, tmp_path: Path) -> None:
    source = SmallTable(tmp_path)
    replicate(source.builder(), place.opened(None))
    assert place.held() == [] and place.primary_key("copy") == ["id"], "a source without rows"
    source.commit({"id": 1, "name": "a"})
    replicate(source.builder(), place.opened(None))
    source.alter(SchemaChange.add_column("more", AtomicType("STRING")))
    source.commit({"id": 2, "more": "m"})
    before = replicate(source.builder(), place.opened(None))
    assert {row["id"]: row["more"] for row in place.held()} == {1: None, 2: "m"}
    source.alter(SchemaChange.rename_column("name", "title"))
    source.commit({"id": 3, "title": "t"})
    with pytest.raises(StreamConfigError, match=r"column 'name' .* is not what the table holds"):
        replicate(source.builder(), place.opened(None))
    assert place.opened(None).load_position() == before
    replicate(source.builder(), place.opened(None, replace=True))
    assert [row["title"] for row in in_order(place.held())] == ["a", None, "t"]


@pytest.mark.nightly
@pytest.mark.parametrize("is_killed", some("MySQL begun", [True, False], 1))
def test_of_two_programs_that_begin_at_the_same_time_one_fills_the_table(
    place: MySQLPlace, tmp_path: Path, is_killed: bool
) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    source.commit(*({"id": number} for number in range(10)))
    outcomes = race(tmp_path / "w", partial(place.opened, ()), is_killed=is_killed)
    assert "done" in outcomes and {*outcomes} <= {"done", "StreamConfigError", "TargetError"}
    source.commit({"id": 10})
    replicate(source.builder(), place.opened(()))
    assert [row["id"] for row in in_order(place.held())] == list(range(11))


_DIES = """
import os, signal, sys
import pymysql
from pypaimon import CatalogFactory
from pypaimon.streaming import MySQLTarget, replicate, stream_read_builder

socket, database, warehouse, dies_at, replace = sys.argv[1:]
connection = pymysql.connect(unix_socket=socket, user="root", database=database, charset="utf8mb4")

class Dying(pymysql.cursors.Cursor):
    def execute(self, query, args=None):
        if dies_at in str(query):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(query, args)

connection.cursorclass = Dying
source = CatalogFactory.create({"warehouse": warehouse}).get_table("db.small")
replicate(stream_read_builder(source).with_end(latest=True), MySQLTarget(connection, "copy", replace=bool(replace)))
"""
_STATEMENTS = ["CREATE TABLE IF NOT EXISTS", "INSERT INTO", "SET position", "DROP TABLE", "FOR UPDATE"]


@pytest.mark.parametrize(
    ("dies_at", "replaces"), some("MySQL killed", [(each, more) for each in _STATEMENTS for more in (False, True)], 2)
)
def test_a_program_killed_before_a_statement_leaves_rows_that_the_next_one_can_continue_from(
    place: MySQLPlace, tmp_path: Path, dies_at: str, replaces: bool
) -> None:
    """Also the program that filled the table before: it never takes rows for its own that are gone."""
    former, source = SmallTable(tmp_path / "former", keys=()), SmallTable(tmp_path / "w", keys=())
    former.commit({"id": 0})
    source.commit({"id": 1})
    if replaces:
        replicate(former.builder(), place.opened(()))
    arguments = [place.socket, place.database, str(tmp_path / "w"), dies_at, "yes" if replaces else ""]
    killed = programs.run([sys.executable, "-c", _DIES, *arguments], capture_output=True, check=False)
    if killed.returncode == 0:
        assert dies_at == "DROP TABLE" and not replaces
    else:
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if replaces:
        former.commit({"id": 9})
        try:
            replicate(former.builder(), place.opened(()))
        except StreamConfigError:
            replicate(former.builder(), place.opened((), replace=True))
        assert [row["id"] for row in in_order(place.held())] == [0, 9]
    replicate(source.builder(), place.opened((), replace=replaces))
    assert [row["id"] for row in place.held()] == [1]


def test_a_lock_of_others_is_an_error_that_may_pass(place: MySQLPlace, tmp_path: Path) -> None:
    source = SmallTable(tmp_path)
    source.commit({"id": 1})
    replicate(source.builder(), place.opened(None))
    source.commit({"id": 2})
    with closing(place.connected()) as connection, closing(place.connected()) as other:
        target = MySQLTarget(connection, "copy")
        with connection.cursor() as cursor, other.cursor() as holding:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            holding.execute("SELECT * FROM _paimon_positions FOR UPDATE")
        with source.builder().with_start(position=target.load_position()).open_sync() as stream:
            batch = next(stream)
            with pytest.raises(TargetError, match="as a whole, or not at all") as caught:
                target.apply(batch)
        assert caught.value.retriable
        other.rollback()
        replicate(source.builder(), target)
    assert [row["id"] for row in in_order(place.held())] == [1, 2]


def test_connections_and_tables_that_cannot_be_rolled_back_are_refused(place: MySQLPlace, tmp_path: Path) -> None:
    with closing(place.connected(autocommit=True)) as connection, pytest.raises(StreamConfigError, match="by itself"):
        MySQLTarget(connection, "copy")
    with closing(place.connected(charset="latin1")) as connection, pytest.raises(StreamConfigError, match="utf8mb4"):
        MySQLTarget(connection, "copy")
    place.execute("CREATE TABLE copy (id BIGINT, name TEXT, number INT, amount DOUBLE) ENGINE=MyISAM")
    source = SmallTable(tmp_path, keys=())
    source.commit({"id": 1})
    with pytest.raises(StreamConfigError, match="MyISAM, which cannot roll back"):
        replicate(source.builder(), place.opened(()))
    assert place.held() == []
