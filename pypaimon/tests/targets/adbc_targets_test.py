"""Tables of SQLite and PostgreSQL hold what a table of Paimon holds; what they cannot hold, or refuse, is told."""

from __future__ import annotations

import datetime as dt
import hashlib
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc_postgres
import adbc_driver_sqlite.dbapi as adbc_sqlite
import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import PostgresTarget, SQLiteTarget, StreamConfigError, UnsupportedTableError, replicate
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.testing import SmallTable, check_target
from support import programs
from support.samples import sample_seed, some

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.xdist_group("postgres")]

KEYED, APPENDED = ("id",), ()


class Database:
    """One of both: how to connect to it, and its target."""

    def __init__(self, target: Callable[..., Any], connect: Callable[[], Any], prefix: str) -> None:
        self.target, self.connect, self._prefix = target, connect, prefix
        self.connection = connect()

    def named(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def execute(self, query: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            connection.commit()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table; none where it is not there."""
        with self.connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute(f'SELECT * FROM "{self.named(name)}"')
            except connection.Error:
                return []
            return list(cursor.fetch_arrow_table().to_pylist())

    def let_go(self, name: str, keys: tuple[str, ...]) -> Any:
        """A target of a connection that is closed when it is let go."""
        target = self.target(connection := self.connect(), self.named(name), keys)
        weakref.finalize(target, connection.close)
        return target

    def opened(self, name: str = "copy", keys: tuple[str, ...] = KEYED, connection: Any = None) -> Any:
        return self.target(connection or self.connection, self.named(name), keys)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The one that the test is run with."""
    if request.param == "SQLite":
        found = Database(SQLiteTarget, lambda: adbc_sqlite.connect(str(tmp_path / "copy.sqlite")), "it's ")
    else:
        address = request.getfixturevalue("address")
        # Names of tests are longer than those that Postgres has.
        prefix = f"it's {hashlib.sha256(request.node.name.encode()).hexdigest()[:16]} "
        found = Database(PostgresTarget, lambda: adbc_postgres.connect(address), prefix)
    yield found
    found.connection.close()


both = pytest.mark.parametrize("database", ["SQLite", "Postgres"], indirect=True)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize(
    ("database", "keys"),
    some("ADBC", [(name, keys) for name in ("SQLite", "Postgres") for keys in (KEYED, APPENDED)], 1),
    indirect=["database"],
)
# A program that is killed on its way out of `with ... cursor()` does not close it; this driver tells so in tests.
@pytest.mark.filterwarnings("ignore:A adbc_driver_manager.dbapi.Cursor was not explicitly close:ResourceWarning")
@pytest.mark.usefixtures("few_kills")
def test_it_is_right(database: Database, keys: tuple[str, ...]) -> None:
    check_target(
        lambda name: database.let_go(name, keys),
        database.rows,
        keys=keys,
        nans=database.target is not SQLiteTarget,
        histories=1,
        seed=sample_seed(),
    )


_NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 5)
_VALUES: list[tuple[str, pa.DataType, Any, Any]] = [
    ("bool", pa.bool_(), True, 1),
    ("tiny", pa.int8(), -128, -128),
    ("small", pa.int16(), -(2**15), -(2**15)),
    ("int", pa.int32(), -(2**31), -(2**31)),
    ("big", pa.int64(), 2**63 - 1, 2**63 - 1),
    ("float", pa.float32(), 0.5, 0.5),
    ("double", pa.float64(), 1e300, 1e300),
    ("text", pa.string(), 'it\'s "ä"\n', 'it\'s "ä"\n'),
    ("bytes", pa.binary(), b"\0\xff", b"\0\xff"),
    ("day", pa.date32(), dt.date(1, 1, 1), "0001-01-01"),
    ("millis", pa.timestamp("ms"), _NOON.replace(microsecond=5000), "1969-12-31T12:00:00.005"),
    ("micros", pa.timestamp("us"), _NOON, "1969-12-31T12:00:00.000005"),
    ("local", pa.timestamp("us", "UTC"), _NOON.replace(tzinfo=dt.timezone.utc), "1969-12-31T12:00:00.000005"),
    ("time", pa.time32("ms"), dt.time(1, 2, 3, 4000), "01:02:03.004"),
    ("money", pa.decimal128(20, 2), Decimal("-123456789012345678.90"), "-123456789012345678.90"),
]


@both
def test_values_of_every_type_come_out_as_they_are(database: Database, tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, kind) for name, kind, _, _ in _VALUES)])
    source = SmallTable(tmp_path / "w", columns=columns)
    source.commit({"id": 1, **{name: value for name, _, value, _ in _VALUES}}, {"id": 2})
    replicate(source.builder(), database.opened())
    values, nulls = in_order(database.rows("copy"))
    is_sqlite = database.target is SQLiteTarget
    expected = {name: text if is_sqlite else value for name, _, value, text in _VALUES}
    if not is_sqlite:
        values["money"] = Decimal(values["money"])
    assert values == {"id": 1, **expected}
    assert nulls == {"id": 2, **dict.fromkeys(expected)}


@pytest.mark.parametrize(
    ("kind", "value", "database_name", "error"),
    [
        (pa.list_(pa.int32()), [1], "SQLite", UnsupportedTableError),
        (pa.list_(pa.int32()), [1], "Postgres", UnsupportedTableError),
        (pa.timestamp("ns"), 1, "Postgres", UnsupportedTableError),
        (pa.float64(), float("nan"), "SQLite", StreamConfigError),
    ],
)
def test_what_it_cannot_hold_is_refused_before_it_is_written(
    tmp_path: Path, address: str, kind: pa.DataType, value: Any, database_name: str, error: type[Exception]
) -> None:
    source = SmallTable(tmp_path, columns=pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd", kind)]))
    source.commit({"id": 1, "odd": value})
    with adbc_sqlite.connect() if database_name == "SQLite" else adbc_postgres.connect(address) as connection:
        target = (SQLiteTarget if database_name == "SQLite" else PostgresTarget)(connection, "refused", KEYED)
        with pytest.raises(error, match=r"column 'odd'.*with_projection"):
            replicate(source.builder(), target)
        assert target.load_position() is None


@both
def test_several_columns_are_the_key_and_nulls_are_equal(database: Database, tmp_path: Path) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    target = database.opened(keys=("id", "name"))
    for amount in (1.0, 2.0):
        source.commit(*({"id": key, "name": name, "amount": amount} for key in range(2) for name in ("a", None)))
        replicate(source.builder(), target)
    assert in_order(database.rows("copy")) == in_order([row for row in source.rows() if row["amount"] == 2.0])


@both
def test_targets_of_one_table_take_turns(database: Database, tmp_path: Path) -> None:
    """What one has saved, the other one finds where a stream begins."""
    source = SmallTable(tmp_path / "w", keys=())
    with database.connect() as connection:
        targets = database.opened(keys=()), database.opened(keys=(), connection=connection)
        for number in range(4):
            source.commit({"id": number})
            replicate(source.builder(), targets[number % 2])
    assert [row["id"] for row in in_order(database.rows("copy"))] == [0, 1, 2, 3]


_DIES = """
import os, signal, sys
from importlib import import_module
from pypaimon.streaming import PostgresTarget, SQLiteTarget, replicate, stream_read_builder
from pypaimon import CatalogFactory

name, place, warehouse, table = sys.argv[1:]
connection = import_module(f"adbc_driver_{name}.dbapi").connect(place)

class Dying:
    def __init__(self):
        self.commits = 0
    def commit(self):
        self.commits += 1
        if self.commits == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        connection.commit()
    def __getattr__(self, name):
        return getattr(connection, name)

source = CatalogFactory.create({"warehouse": warehouse}).get_table("db.small")
target = (SQLiteTarget if name == "sqlite" else PostgresTarget)(Dying(), table)
builder = stream_read_builder(source).with_start(snapshot_id=1, full=True).with_catch_up("replay")
replicate(builder.with_end(latest=True), target)
"""


@pytest.mark.parametrize("database", some("killed before a commit", ["SQLite", "Postgres"], 1), indirect=True)
def test_a_copy_killed_before_its_commit_continues_exactly_once(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The first commit makes the table of positions, and the second one is that of the state."""
    source = SmallTable(tmp_path / "w", keys=())
    for number in range(3):
        source.commit({"id": number})
    is_sqlite = database.target is SQLiteTarget
    place = str(tmp_path / "copy.sqlite") if is_sqlite else request.getfixturevalue("address")
    arguments = ["sqlite" if is_sqlite else "postgresql", place, str(tmp_path / "w"), database.named("copy")]
    killed = programs.run([sys.executable, "-c", _DIES, *arguments], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert [row["id"] for row in database.rows("copy")] == [0]
    replicate(source.builder(), database.opened(keys=()))
    assert [row["id"] for row in in_order(database.rows("copy"))] == [0, 1, 2]


def test_a_connection_that_commits_by_itself_is_refused(address: str) -> None:
    with adbc_sqlite.connect(autocommit=True) as connection, pytest.raises(StreamConfigError, match="by itself"):
        SQLiteTarget(connection, "copy")
    with adbc_postgres.connect(address, autocommit=True) as connection, pytest.raises(StreamConfigError):
        PostgresTarget(connection, "copy")


def test_a_full_disk_leaves_nothing_half_applied(tmp_path: Path) -> None:
    source = SmallTable(tmp_path / "w")
    source.commit({"id": 1})
    file = str(tmp_path / "copy.sqlite")
    with adbc_sqlite.connect(file) as connection, connection.cursor() as cursor:
        target = SQLiteTarget(connection, "copy", KEYED)
        replicate(source.builder(), target)
        before = target.load_position()
        cursor.execute("PRAGMA max_page_count = 1")
        source.commit(*({"id": key, "name": "x" * 500} for key in range(100)))
        with pytest.raises(TargetError, match=r"full.*continues where the table stands"):
            replicate(source.builder(), target)
        assert target.load_position() == before
        cursor.execute("PRAGMA max_page_count = 1000000")
        replicate(source.builder(), target)
        cursor.execute("SELECT count(*) FROM copy")
        assert cursor.fetchall() == [(100,)]


def test_a_connection_that_is_lost_is_reported_and_another_one_continues(tmp_path: Path, address: str) -> None:
    source = SmallTable(tmp_path / "w")
    source.commit({"id": 1})
    connection = adbc_postgres.connect(address)
    target = PostgresTarget(connection, "lost", KEYED)
    replicate(source.builder(), target)
    source.commit({"id": 2})
    with adbc_postgres.connect(address) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        cursor.fetchall()
        with pytest.raises(TargetError, match="table lost"):
            replicate(source.builder(), target)
        replicate(source.builder(), PostgresTarget(other, "lost", KEYED))
        cursor.execute("SELECT id FROM lost ORDER BY id")
        assert cursor.fetchall() == [(1,), (2,)]
    connection.close()


def test_a_table_with_its_database_named(tmp_path: Path) -> None:
    source = SmallTable(tmp_path / "w")
    source.commit({"id": 1}, {"id": 2})
    with adbc_sqlite.connect(str(tmp_path / "main.sqlite")) as connection, connection.cursor() as cursor:
        target = SQLiteTarget(connection, "main.copy", KEYED)
        replicate(source.builder(), target)
        source.commit(("-D", {"id": 1}))
        replicate(source.builder(), target)
        cursor.execute("SELECT id FROM main.copy")
        assert cursor.fetchall() == [(2,)]


KEY_OF = (
    "SELECT string_agg(a.attname::TEXT, ',' ORDER BY array_position(i.indkey, a.attnum)) FROM pg_index i "
    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
    "WHERE i.indrelid = '{}'::REGCLASS AND i.indisprimary"
)


def keys_of(connection: Any, table: str) -> Any:
    """The primary key of a table of Postgres."""
    with connection.cursor() as cursor:
        cursor.execute(KEY_OF.format(table))
        ((found,),) = cursor.fetchall()
    connection.rollback()
    return found


def test_a_table_of_postgres_has_the_primary_key_of_its_source(tmp_path: Path, address: str) -> None:
    """Also after its columns were renamed. A foreign key to it is checked when a plan is committed."""
    columns = pa.schema(
        [pa.field(name, pa.int32(), nullable=False) for name in ("day", "id")] + [("name", pa.string())]
    )
    source = SmallTable(tmp_path / "w", ["day", "id"], columns)
    source.commit({"day": 1, "id": 1, "name": "a"}, {"day": 1, "id": 2, "name": "b"})
    with adbc_postgres.connect(address) as connection, connection.cursor() as cursor:
        target = PostgresTarget(connection, "with_key")
        replicate(source.builder(), target)
        assert keys_of(connection, "with_key") == "day,id"
        cursor.execute(
            "CREATE TABLE refers (day INT, id INT, "
            "FOREIGN KEY (day, id) REFERENCES with_key DEFERRABLE INITIALLY DEFERRED)"
        )
        cursor.execute("INSERT INTO refers VALUES (1, 1)")
        connection.commit()
        source.commit(("-U", {"day": 1, "id": 1, "name": "a"}), ("+U", {"day": 1, "id": 1, "name": "c"}))
        replicate(source.builder(), target)
        cursor.execute("DROP TABLE refers")
        connection.commit()
        source.alter(SchemaChange.rename_column("id", "number"))
        source.commit({"day": 1, "number": 3, "name": "d"})
        replicate(source.builder(), target)
        cursor.execute("SELECT number, name FROM with_key ORDER BY number")
        assert cursor.fetchall() == [(1, "c"), (2, "b"), (3, "d")]
        assert keys_of(connection, "with_key") == "day,number"


def test_a_table_of_postgres_that_is_there_keeps_its_keys_and_other_keys_may_be_null(
    tmp_path: Path, address: str
) -> None:
    keyed, unkeyed = SmallTable(tmp_path / "keyed"), SmallTable(tmp_path / "unkeyed", keys=())
    with adbc_postgres.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE theirs (id BIGINT, name TEXT, number INT, amount FLOAT8)")
        connection.commit()
        targets = PostgresTarget(connection, "theirs"), PostgresTarget(connection, "of_nulls", ["id", "name"])
        for source, target in zip((keyed, unkeyed), targets, strict=True):
            for amount in (1.0, 2.0):
                source.commit({"id": 1, "name": None, "amount": amount})
                replicate(source.builder(), target)
        for table in ("theirs", "of_nulls"):
            assert keys_of(connection, table) is None
            cursor.execute(f"SELECT amount FROM {table}")
            assert cursor.fetchall() == [(2.0,)]
            cursor.execute(f"SELECT count(*) FROM pg_indexes WHERE tablename = '{table}'")
            assert cursor.fetchall() == [(1,)]


def test_a_table_in_a_schema(tmp_path: Path, address: str) -> None:
    source = SmallTable(tmp_path / "w")
    source.commit({"id": 1}, {"id": 2})
    with adbc_postgres.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "My"')
        connection.commit()
        target = PostgresTarget(connection, "My.Copy", KEYED)
        replicate(source.builder(), target)
        source.commit(("-D", {"id": 1}))
        replicate(source.builder(), target)
        cursor.execute('SELECT id FROM "My"."Copy"')
        assert cursor.fetchall() == [(2,)]
