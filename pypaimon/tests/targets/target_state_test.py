"""A target knows what its rows are of: it refuses another stream, whoever's rows it finds, and a second beginner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc_postgres
import adbc_driver_sqlite.dbapi as adbc_sqlite
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    BlockingBatch,
    DictTarget,
    DuckDBTarget,
    PaimonTarget,
    PostgresTarget,
    SQLiteTarget,
    StreamConfigError,
    StreamReadBuilder,
    compact,
    replicate,
)
from pypaimon.streaming.options.read_scope import ReadScope
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.targets import Target
from pypaimon.streaming.targets.target_state import SavedState, is_of_older_release
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import race
from support.samples import some
from support.tables.target_places import LOCAL_PLACES, DeltaPlace, IcebergPlace, Keys, PostgresPlace, Rows, SQLitePlace

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.xdist_group("postgres")]

ALL = [*LOCAL_PLACES, "Postgres", "Paimon"]


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """A table without keys, with rows in both buckets."""
    table = SmallTable(tmp_path / "w", keys=())
    table.commit(*({"id": number, "number": number} for number in range(10)))
    return table


class PaimonPlace:
    def __init__(self, directory: Path) -> None:
        self._table = SmallTable(directory / "copy", keys=())

    def opened(self, keys: Keys, *, replace: bool = False) -> Target:
        return PaimonTarget(self._table.table, replace=replace)

    def held(self) -> Rows:
        return self._table.rows()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Of the kind that the test is run with."""
    if request.param == "Postgres":
        return PostgresPlace(request.getfixturevalue("address"), f"state {abs(hash(request.node.name)) % 10**9}")
    return PaimonPlace(tmp_path) if request.param == "Paimon" else LOCAL_PLACES[request.param](tmp_path)


def of_kinds(*names: str, count: int | None = None) -> Any:
    """The kinds that a test is run with: some of them, all in the long form."""
    return pytest.mark.parametrize("place", some("saved states", names, count or (len(names) + 1) // 2), indirect=True)


def ids(rows: Rows) -> list[int]:
    return sorted(row["id"] for row in rows)


def batches(builder: StreamReadBuilder) -> list[BlockingBatch]:
    with builder.open_sync() as stream:
        return list(stream)


OTHERS: dict[str, tuple[Callable[[StreamReadBuilder], Any], str]] = {
    "filter": (lambda builder: builder.with_filter("number < 7"), "another filter: number > 5 was read before"),
    "no filter": (lambda builder: builder, "no filter is read now"),
    "shard": (lambda builder: builder.with_filter("number > 5").with_shard(0, 2), "shard 0 of 2 is read now"),
    "buckets": (lambda builder: builder.with_filter("number > 5").with_buckets([1]), "buckets 1 is read now"),
}


@of_kinds(*ALL, count=1)
@pytest.mark.parametrize("other", OTHERS)
def test_other_rows_than_before_are_refused_before_one_is_written(source: SmallTable, place: Any, other: str) -> None:
    """Also where nothing new is there to be read, and where the stream was opened by hand."""
    replicate(source.builder().with_filter("number > 5"), place.opened(()))
    change, text = OTHERS[other]
    builder = source.builder()
    change(builder)
    for _ in range(2):
        with pytest.raises(StreamConfigError, match=text):
            replicate(builder, place.opened(()))
        assert ids(place.held()) == [6, 7, 8, 9]
        source.commit({"id": 20, "number": 8})
    target = place.opened(())
    (batch, *_) = batches(source.builder().with_start(position=target.load_position()))
    with pytest.raises(StreamConfigError, match="does not continue what the target holds"):
        target.apply(batch)
    replicate(source.builder().with_filter("number > 5"), place.opened(()))
    assert ids(place.held()) == [6, 7, 8, 9, 20, 20]


def test_a_dict_refuses_other_rows_than_it_holds(source: SmallTable) -> None:
    target = DictTarget("id")
    replicate(source.builder().with_filter("number > 5"), target)
    source.commit({"id": 10, "number": 1})
    with pytest.raises(StreamConfigError, match="no filter is read now"):
        replicate(source.builder(), target)
    assert sorted(target.rows) == [6, 7, 8, 9]


@of_kinds(*ALL, count=2)
def test_a_target_that_may_replace_begins_with_the_state_once(source: SmallTable, place: Any) -> None:
    replicate(source.builder().with_filter("number > 5"), place.opened(()))
    replicate(source.builder(), target := place.opened((), replace=True))
    assert ids(place.held()) == list(range(10))
    before = target.load_position()
    assert replicate(source.builder(), target) == before
    source.commit({"id": 10})
    (batch,) = batches(source.builder().with_start(position=before))
    assert not batch.begins_state
    replicate(source.builder(), place.opened((), replace=True))
    assert ids(place.held()) == list(range(11))


@of_kinds("DuckDB", "SQLite", "Postgres", "Delta", "Iceberg", count=1)
def test_another_key_is_refused_and_a_renamed_one_is_the_same(tmp_path: Path, place: Any) -> None:
    source = SmallTable(tmp_path / "keyed", options={"changelog-producer": "lookup"})
    source.commit({"id": 1, "name": "a"})
    compact(source.table)
    replicate(source.builder(), place.opened(("id",)))
    with pytest.raises(StreamConfigError, match=r"another key: \['id'\] was the target's before, and \['id', 'name'\]"):
        replicate(source.builder(), place.opened(("id", "name")))
    if not isinstance(place, DeltaPlace):
        source.alter(SchemaChange.rename_column("id", "number_of_it"))
        source.commit({"number_of_it": 1, "name": "b"})
        compact(source.table)
        replicate(source.builder(), place.opened(("number_of_it",)))
        assert [row["name"] for row in place.held()] == ["b"]


def test_the_filter_of_a_renamed_column_is_the_same(source: SmallTable) -> None:
    database = duckdb.connect()
    replicate(source.builder().with_filter("number > 5"), DuckDBTarget(database, "t"))
    source.alter(SchemaChange.rename_column("number", "count"))
    source.commit({"id": 10, "count": 10})
    replicate(source.builder().with_filter("count > 5"), DuckDBTarget(database, "t"))
    assert database.sql("SELECT id FROM t ORDER BY id").fetchall() == [(6,), (7,), (8,), (9,), (10,)]


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("number > 5", "(number>5)", True),
        ("number > 5 and id = 1", "id = 1 and number > 5", True),
        ("number in (1, 2)", "number in (2, 1)", True),
        ("number > 5", "number >= 5", False),
        ("number > 5", "id > 5", False),
        ("name = '5'", "name = '6'", False),
        ("number > 5 and id = 1", "number > 5 or id = 1", False),
    ],
)
def test_filters_are_equal_that_keep_the_same_rows(source: SmallTable, one: str, other: str, are_equal: bool) -> None:
    scopes = [resolved(source.builder().with_filter(each)).scope for each in (one, other)]
    assert (scopes[0] == scopes[1]) is are_equal


def test_numbers_of_numpy_are_those_of_python(source: SmallTable) -> None:
    builders = [source.builder() for _ in range(2)]
    for builder, value in zip(builders, (5, np.int32(5)), strict=True):
        builder.with_filter(builder.new_predicate_builder().greater_than("number", value))
    assert resolved(builders[0]).scope == resolved(builders[1]).scope == ReadScope("#2 > 5")


def test_a_function_of_buckets_may_know_those_of_the_table_alone(source: SmallTable) -> None:
    scopes = [
        resolved(source.builder().with_bucket_filter(owned.__getitem__)).scope
        for owned in ([True, False], [True, False], [False, True])
    ]
    assert scopes[0] == scopes[1] != scopes[2]


def test_a_column_of_any_name_may_be_in_a_state_of_an_older_release() -> None:
    state = {"highest": 0, "columns": [[0, "scope", "BIGINT", {}]]}
    assert is_of_older_release(None) and is_of_older_release(json.dumps(state))
    assert not is_of_older_release(json.dumps({**state, "scope": {}}))


@of_kinds("Delta", "Iceberg", "Paimon", count=2)
def test_rows_that_no_target_has_written_stay(source: SmallTable, place: Any, tmp_path: Path) -> None:
    match place:
        case DeltaPlace():
            write_deltalake(tmp_path / "copy", pa.table({"id": [7]}))
        case IcebergPlace():
            with place.connected() as catalog:
                catalog.create_namespace("db")
                catalog.create_table("db.copy", pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
        case PaimonPlace():
            place._table.commit({"id": 7})
    before = place.held()
    with pytest.raises(StreamConfigError, match="holds rows already that this target has not written"):
        replicate(source.builder(), place.opened(()))
    assert place.held() == before
    replicate(source.builder(), place.opened((), replace=True))
    assert ids(place.held()) == list(range(10))


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "done"])
@of_kinds("SQLite", "Parquet", "Delta", "Iceberg", "Postgres", count=2)
def test_of_two_programs_that_begin_at_the_same_time_one_fills_the_table(
    source: SmallTable, place: Any, tmp_path: Path, is_killed: bool
) -> None:
    """SQLite does not wait for the one that is killed, and of Parquet files the second one wins."""
    outcomes = race(tmp_path / "w", partial(place.opened, ()), is_killed=is_killed)
    assert {*outcomes} <= {"done", "StreamConfigError", "TargetError"}
    assert "done" in outcomes or (is_killed and isinstance(place, SQLitePlace))
    assert ids(place.held()) == (list(range(10)) if "done" in outcomes else [])
    source.commit({"id": 10})
    replicate(source.builder(), place.opened(()))
    assert ids(place.held()) == list(range(11))


@pytest.mark.parametrize("is_there", [True, False], ids=["a table that is there", "a new table"])
def test_of_two_connections_of_duckdb_that_begin_at_the_same_time_one_fills_the_table(
    source: SmallTable, is_there: bool
) -> None:
    with duckdb.connect() as database:
        if is_there:
            database.execute("CREATE TABLE t (id BIGINT, name VARCHAR, number INTEGER, amount DOUBLE)")
        one, other = DuckDBTarget(database, "t"), DuckDBTarget(database.cursor(), "t")
        with source.builder().open_sync(batch_bytes=1) as stream:
            *first, last = stream
        for batch in first:
            one.apply(batch)
        # DuckDB has a new table conflict at once, and rows when they are committed.
        loser, rest = (one, [last]) if is_there else (other, [*first, last])
        if is_there:
            for batch in (*first, last):
                other.apply(batch)
        with pytest.raises(StreamConfigError, match=r"in the same moment|others write to it"):
            for batch in rest:
                loser.apply(batch)
        if not is_there:
            one.apply(last)
        assert replicate(source.builder(), other) == replicate(source.builder(), one)
        assert database.sql("SELECT count(*) FROM t").fetchall() == [(10,)]


# ---- names and places ----


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Any]:
    """A connection."""
    with adbc_sqlite.connect(str(tmp_path / "it.sqlite")) as connection:
        yield connection


@pytest.fixture
def server(address: str) -> Iterator[Any]:
    """A connection to Postgres."""
    with adbc_postgres.connect(address) as connection:
        yield connection


def fetched(connection: Any, query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchall() if cursor.description else None
    connection.commit()
    return found


@pytest.mark.parametrize("second", ["main.orders", "Orders", "MAIN.ORDERS"])
@pytest.mark.parametrize("kind", ["DuckDB", "SQLite"])
def test_a_table_is_the_same_however_its_name_is_spelled(
    source: SmallTable, sqlite: Any, kind: str, second: str
) -> None:
    if kind == "DuckDB":
        database = duckdb.connect()
        opened, query = (lambda name: DuckDBTarget(database, name)), (lambda text: database.execute(text).fetchall())
    else:
        opened, query = partial(SQLiteTarget, sqlite), partial(fetched, sqlite)
    for number, name in enumerate(["orders", second, "orders"]):
        replicate(source.builder(), opened(name))
        source.commit({"id": 100 + number})
    assert query("SELECT count(*), count(DISTINCT id) FROM orders") == [(12, 12)]
    assert query("SELECT name FROM _paimon_positions") == [("orders",)]


def test_a_table_of_postgres_is_the_same_with_its_schema_and_without(source: SmallTable, address: str) -> None:
    with adbc_postgres.connect(address) as connection:
        for number, name in enumerate(["spelled", "public.spelled", "spelled"]):
            replicate(source.builder(), PostgresTarget(connection, name))
            source.commit({"id": 100 + number})
        assert fetched(connection, "SELECT count(*), count(DISTINCT id) FROM spelled") == [(12, 12)]


def test_positions_are_next_to_their_table(source: SmallTable, address: str) -> None:
    """So that a role that owns its schema, and nothing else, can use a target."""
    with adbc_postgres.connect(address) as connection:
        for statement in ("CREATE ROLE etl LOGIN", "CREATE SCHEMA sales AUTHORIZATION etl"):
            fetched(connection, statement)
        with adbc_postgres.connect(address.replace("user=postgres", "user=etl")) as own:
            replicate(source.builder(), PostgresTarget(own, "sales.orders"))
        where = "SELECT schemaname::TEXT FROM pg_tables WHERE tablename = '_paimon_positions' AND tableowner = 'etl'"
        assert fetched(connection, where) == [("sales",)]


OLD_PLACES = {
    "DuckDB": ("s.orders", "main._paimon_positions", "s._paimon_positions"),
    "DuckDB, spelled": ("Main.Orders", "main._paimon_positions", "main._paimon_positions"),
    "SQLite": ("Main.Orders", "main._paimon_positions", "main._paimon_positions"),
    "Postgres": ("s.orders", "public._paimon_positions", "s._paimon_positions"),
}


@pytest.mark.parametrize("kind", OLD_PLACES)
def test_a_state_of_an_older_release_is_found_moved_and_gone_on_from(
    source: SmallTable, sqlite: Any, server: Any, kind: str
) -> None:
    """It is where tables without a schema are, under the name as it was given, and knows neither rows nor keys."""
    name, former, here = OLD_PLACES[kind]
    if kind.startswith("DuckDB"):
        database = duckdb.connect()
        opened, query = (lambda: DuckDBTarget(database, name)), (lambda text: database.execute(text).fetchall())
        query("CREATE SCHEMA s")
    elif kind == "SQLite":
        opened, query = partial(SQLiteTarget, sqlite, name), partial(fetched, sqlite)
    else:
        opened, query = partial(PostgresTarget, server, name), partial(fetched, server)
        query("CREATE SCHEMA s")
    position = replicate(source.builder(), opened())
    ((text,),) = query(f"SELECT columns FROM {here}")
    state = json.loads(text)
    old = json.dumps({"highest": state["highest"], "columns": state["columns"]})
    query(f"DELETE FROM {here} WHERE lower(name) = 'orders'")
    query(f"CREATE TABLE IF NOT EXISTS {former} (name VARCHAR(50), position TEXT, columns TEXT)")
    assert position is not None
    query(f"INSERT INTO {former} (name, position, columns) VALUES ('{name}', '{position.to_json()}', '{old}')")
    assert opened().load_position() == position
    assert query(f"SELECT lower(name) FROM {here}") == [("orders",)]
    assert query(f"SELECT name FROM {former} WHERE name = '{name}'") == []
    source.commit({"id": 10})
    replicate(source.builder(), opened())
    assert query(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(11, 11)]
    ((text,),) = query(f"SELECT columns FROM {here}")
    assert SavedState.from_json(text).scope is not None and SavedState.from_json(text).keys == ()


def test_names_that_postgres_would_cut_are_refused_and_indexes_get_names_of_their_own(
    tmp_path: Path, address: str
) -> None:
    source = SmallTable(tmp_path / "w", keys=())
    source.commit({"id": 1})
    with adbc_postgres.connect(address) as connection:
        with pytest.raises(StreamConfigError, match="cuts names after 63 bytes"):
            PostgresTarget(connection, "x" * 64, ["id"])
        for end in "ab":
            replicate(source.builder(), PostgresTarget(connection, "x" * 62 + end, ["id"]))
        indexes = fetched(connection, "SELECT indexname::TEXT FROM pg_indexes WHERE tablename LIKE 'xxx%'")
        assert len({name for (name,) in indexes}) == 2


@of_kinds("DuckDB", "SQLite", "Postgres", "Delta", "Iceberg", count=2)
def test_names_of_the_targets_own_are_refused_at_once(tmp_path: Path, place: Any) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("_Paimon_x", pa.int64())])
    source = SmallTable(tmp_path / "reserved", columns=columns)
    source.commit({"id": 1, "_Paimon_x": 1})
    for keys in (("id",), ()):
        with pytest.raises(
            StreamConfigError, match="column '_Paimon_x': names that begin with '_paimon_' are reserved"
        ):
            replicate(source.builder(), place.opened(keys))
        assert place.held() == []


@pytest.mark.parametrize(("name", "is_refused"), [("xmin", True), ("rowid", False), ("ROWID", False), ("oid", False)])
def test_columns_that_databases_have_of_their_own(tmp_path: Path, address: str, name: str, is_refused: bool) -> None:
    """Those of PostgreSQL are refused by name. SQLite calls the number of a row otherwise, if a column has the name."""
    source = SmallTable(
        tmp_path / "w", columns=pa.schema([pa.field("id", pa.int64(), nullable=False), (name, pa.int64())])
    )
    source.commit({"id": 1, name: 7}, {"id": 2, name: 7}, {"id": 3})
    place = SQLitePlace(tmp_path)
    replicate(source.builder(), target := place.opened(("id",)))
    source.commit(("-U", {"id": 1, name: 7}), ("+U", {"id": 1, name: 8}), ("-D", {"id": 3}))
    replicate(source.builder(), target)
    assert sorted((row["id"], row[name]) for row in place.held()) == [(1, 8), (2, 7)]
    if is_refused:
        with adbc_postgres.connect(address) as connection, pytest.raises(StreamConfigError, match=f"column '{name}'"):
            replicate(source.builder(), PostgresTarget(connection, "of_the_system", ["id"]))
