"""A transform between a table and its copy: exactly once, with the keys and kinds of the table, or refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    DictTarget,
    DuckDBDatabase,
    DuckDBTarget,
    PaimonDatabase,
    PaimonTarget,
    ParquetTarget,
    Replication,
    StreamConfigError,
    copy_database,
    copy_stream,
    replicate,
    replicate_async,
    stream_write_builder,
)
from pypaimon.streaming.errors import TablesFailedError
from pypaimon.streaming.targets import RowVersions, SoftDeletes
from support.samples import seeded
from support.tables.copied_table import keyed, stream
from support.tables.databases import Database
from support.tables.handles import batch_read
from support.tables.streamed_table import Table
from support.tables.target_places import DeltaPlace, DuckDBPlace, SQLitePlace

pytestmark = pytest.mark.slow

NEW_NAME = {"k": "id"}


def loud(rows: pa.Table) -> pa.Table:
    """One more column, and another type for one."""
    return rows.append_column("loud", pc.utf8_upper(rows["v"])).set_column(
        rows.schema.get_field_index("v"), "v", pc.cast(pc.utf8_length(rows["v"]), pa.int64())
    )


def transformed(model: dict[int, str]) -> list[dict[str, Any]]:
    return [{"id": key, "v": len(value), "loud": value.upper()} for key, value in sorted(model.items())]


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], row.get("version", 0)))


class History:
    """Random commits to a table by key, and what they make."""

    def __init__(self, home: Path, name: str, **options: str) -> None:
        self.table = Table(home, primary_key=True, **options)
        self.random = seeded(name)
        self.rows: dict[int, str] = {}
        self.deleted: dict[int, str] = {}
        self.versions: dict[tuple[int, int], str | None] = {}
        """The value of a key by key and snapshot; None if it was deleted there."""

    def commit(self) -> None:
        changes, snapshot = [], (self.table.latest() if self.rows or self.deleted else 0) + 1
        for key in self.random.sample(range(8), self.random.randint(1, 4)):
            if key in self.rows and self.random.random() < 0.4:
                value = self.deleted[key] = self.rows.pop(key)
                changes.append(("-D", key, value))
                self.versions[key, snapshot] = None
            else:
                value = f"v{self.random.randrange(1000)}"
                changes.append(("+U" if key in self.rows else "+I", key, value))
                self.rows[key] = self.versions[key, snapshot] = value
                self.deleted.pop(key, None)
        self.table.commit(changes)


PLACES: dict[str, Callable[[Path], Any]] = {
    "duckdb": DuckDBPlace,
    "sqlite": SQLitePlace,
    "delta": DeltaPlace,
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_target_holds_the_transformed_rows_after_each_run(kind: str, tmp_path: Path) -> None:
    """Runs of new programs; the transforms of some raise inside a plan."""
    history, place = History(tmp_path / "w", f"rows {kind}"), PLACES[kind](tmp_path)
    for _ in range(3):
        for _ in range(history.random.randint(1, 3)):
            history.commit()
        with suppress(ZeroDivisionError):
            replicate(
                stream(history.table), place.opened(None), transform=[NEW_NAME, loud, _raising_at(history.random)]
            )
        replicate(stream(history.table), place.opened(None), transform=[NEW_NAME, loud])
        assert by_id(place.held()) == transformed(history.rows)


def _raising_at(random: Random) -> Callable[[pa.Table], pa.Table]:
    """A function that raises at one of its first calls."""
    left = iter(range(random.randrange(2)))

    def raising(rows: pa.Table) -> pa.Table:
        return rows if next(left, None) is not None else 1 // 0

    return raising


def test_what_a_plan_has_brought_is_taken_back_if_a_transform_raises_inside_of_it(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
    table = Table(tmp_path / "w", columns=columns)
    # More than a batch holds.
    table.write(pa.table({"k": range(9000), "v": ["v" * 4000] * 9000}, columns))
    with duckdb.connect() as database:
        target, calls = DuckDBTarget(database, "copy"), []

        def second(rows: pa.Table) -> pa.Table:
            calls.append(rows)
            return rows if len(calls) == 1 else 1 // 0

        with pytest.raises(ZeroDivisionError):
            replicate(stream(table), target, transform=second)
        assert calls[0].num_rows
        # On the connection of the target, which sees what its transaction holds.
        assert database.execute("SELECT table_name FROM duckdb_tables() WHERE table_name = 'copy'").fetchall() == []
        replicate(stream(table), target)
        assert database.execute("SELECT count(*), count(DISTINCT k) FROM copy").fetchall() == [(9000, 9000)]


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (lambda rows: rows.drop_columns(["k"]), "dropped the key column 'k'"),
        (lambda rows: rows.rename_columns(["_row_kind", "id", "v"]), "dropped the key column 'k'"),
        (lambda rows: rows.set_column(1, "k", pc.add(rows["k"], 1)), "changed the key column 'k'"),
        (lambda rows: rows.set_column(1, "k", rows["k"].cast(pa.int32())), "changed the key column 'k'"),
        (lambda rows: rows.drop_columns(["_row_kind"]), "dropped the column _row_kind"),
        (lambda rows: rows.set_column(0, "_row_kind", pa.array(["-D"] * len(rows))), "changed the kinds of rows"),
        (lambda rows: rows.slice(1), "made 8 rows of 9: a row that it leaves out would stay"),
        (lambda rows: rows.append_column("n", pa.nulls(len(rows))), r"columns without a type, \['n'\]: cast them"),
        (lambda rows: rows.append_column("v", rows["v"]), r"several columns have the names \['v'\]"),
        (lambda rows: rows.to_pylist(), "has to return an Arrow table"),
        (lambda rows: None, "has to return an Arrow table"),
        ({"nope": "n"}, r"transform renames \['nope'\]"),
        ({"k": "v"}, r"several columns have the names \['v'\]"),
        ({"k": "a", "v": "a"}, "expected new names by old ones, all different"),
        ({"k": ""}, "expected new names by old ones"),
        ("id", "transform: expected a function of an Arrow table"),
        ([SoftDeletes], "transform: expected a function of an Arrow table"),
        (SoftDeletes("v"), r"the rows have columns \['v'\] already"),
        (RowVersions(version="v"), r"the rows have columns \['v'\] already"),
        (SoftDeletes(""), "SoftDeletes: column: expected a name"),
        (RowVersions(version="a", valid_from="a"), "RowVersions: give its columns different names"),
    ],
)
def test_a_transform_that_would_make_another_table_is_refused_by_name(
    transform: Any, said: str, tmp_path: Path
) -> None:
    table = Table(tmp_path / "w", primary_key=True, bucket="1")
    table.commit(range(9))
    with duckdb.connect() as database:
        target = DuckDBTarget(database, "copy")
        with pytest.raises(StreamConfigError, match=said):
            replicate(stream(table), target, transform=transform)
        assert target.load_position() is None
        assert database.execute("SELECT table_name FROM duckdb_tables() WHERE table_name = 'copy'").fetchall() == []
        with pytest.raises(StreamConfigError, match=said):
            asyncio.run(replicate_async(stream(table), target, transform=transform))


def test_rows_that_are_only_added_may_become_fewer_or_more(tmp_path: Path) -> None:
    table = Table(tmp_path / "w")
    target = ParquetTarget(tmp_path / "copy")

    def twice_if_even(rows: pa.Table) -> pa.Table:
        even = rows.filter(pc.equal(pc.bit_wise_and(rows["k"], 1), 0))
        return pa.concat_tables([even, even])

    for first in (0, 10):
        table.commit(range(first, first + 4))
        replicate(stream(table), target, transform=twice_if_even)
    with duckdb.connect() as database:
        found = database.execute(f"SELECT k FROM '{tmp_path}/copy/*.parquet' ORDER BY k").fetchall()
    assert [key for (key,) in found] == [0, 0, 2, 2, 10, 10, 12, 12]
    with pytest.raises(StreamConfigError, match="added the column _row_kind"):
        table.commit([20])
        replicate(stream(table), target, transform=lambda rows: rows.append_column("_row_kind", rows["v"]))
    with pytest.raises(StreamConfigError, match="SoftDeletes: rows of a table without a primary key"):
        replicate(stream(table), target, transform=SoftDeletes())


def test_keys_that_are_nan_stay_keys(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("k", pa.float64(), nullable=False), ("v", pa.string())])
    table = Table(tmp_path / "w", columns=columns, primary_keys=["k"], bucket="1")
    table.write(pa.table({"k": [1.0, float("nan")], "v": ["a", "b"]}, columns))
    target = DictTarget()
    replicate(table.builder().with_end(latest=True), target, transform=lambda rows: rows)
    assert sorted(row["v"] for row in target.rows.values()) == ["a", "b"]


def loud_x(rows: pa.Table) -> pa.Table:
    return rows.append_column("loud", pc.utf8_upper(rows["x"]))


def test_columns_follow_their_table_and_columns_of_the_transform_stay(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True)
    place = DuckDBPlace(tmp_path)

    def write(**row: Any) -> None:
        with stream_write_builder(table.handle()).with_commit_user("writer").open_sync() as writer:
            writer.write(pa.Table.from_pylist([{**row, "kind": "+I"}]))
            writer.commit()

    def copied(*transform: Any, **settings: Any) -> list[dict[str, Any]]:
        names = [field.name for field in table.handle().fields if field.name != "kind"]
        builder = table.builder().with_end(latest=True).with_projection(names)
        replicate(builder, place.opened(None, **settings), transform=transform)
        return sorted(place.held(), key=lambda row: row["k"])

    write(k=1, v="one")
    assert copied({"v": "w"}, lambda rows: rows.append_column("loud", rows["w"])) == [
        {"k": 1, "w": "one", "loud": "one"}
    ]
    # A column of the table is the same column under another new name, and if it is renamed in the table.
    write(k=2, v="two")
    assert copied({"v": "x"}, loud_x)[0] == {"k": 1, "x": "one", "loud": "one"}
    table.catalog.alter_table(table.name, [SchemaChange.rename_column("v", "text")], False)
    table.catalog.alter_table(table.name, [SchemaChange.add_column("n", AtomicType("INT"))], False)
    write(k=3, text="three", n=7)
    with pytest.raises(StreamConfigError, match=r"transform renames \['v'\], and the rows have columns \['k', 'text'"):
        copied({"v": "x"}, loud_x)
    assert copied({"text": "x"}, loud_x)[1:] == [
        {"k": 2, "x": "two", "loud": "TWO", "n": None},
        {"k": 3, "x": "three", "loud": "THREE", "n": 7},
    ]
    write(k=4, text="four", n=8)
    new = {"text": "x"}
    for transform, said in (
        ([new], "column 'loud' was read before, and is not now"),
        ([new, loud_x, lambda rows: rows.append_column("more", rows["x"])], "column 'more' was not read"),
        ([new, loud_x, lambda rows: rows.set_column(2, "x", pc.utf8_length(rows["x"]))], "column 'x' was read"),
        ([new, lambda rows: rows.append_column("loud", pc.utf8_length(rows["x"]))], "'loud' was VARCHAR and is"),
    ):
        with pytest.raises(StreamConfigError, match=said):
            copied(*transform)
    assert copied(new, replace=True)[3] == {"k": 4, "x": "four", "n": 8}


def test_a_paimon_table_takes_transformed_rows_and_casts_what_the_transform_made(tmp_path: Path) -> None:
    history = History(tmp_path / "w", "paimon")
    fields = [("id", pa.int64()), ("v", pa.int32()), ("loud", pa.string())]
    schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=["id"], options={"bucket": "1"})
    catalog = history.table.catalog
    for name in ("db.by_replicate", "db.by_copy"):
        catalog.create_table(name, schema, False)
    for _ in range(3):
        history.commit()
        handle = catalog.get_table("db.by_replicate")
        Replication(stream(history.table), PaimonTarget(handle), transform=[NEW_NAME, loud]).run()
        assert by_id(batch_read(handle)) == transformed(history.rows)
        handle = catalog.get_table("db.by_copy")
        with stream_write_builder(handle).with_commit_user("copy").open_sync() as writer:
            # A writer takes columns of the types of its table.
            narrow = [NEW_NAME, loud, lambda rows: rows.set_column(2, "v", rows["v"].cast(pa.int32()))]
            copy_stream(stream(history.table), writer, transform=narrow)
        assert by_id(batch_read(handle)) == transformed(history.rows)


def test_tables_of_a_database_have_transforms_of_their_own(tmp_path: Path) -> None:
    source, others = Database(tmp_path / "w"), Database(tmp_path / "other", name="other")
    source.create("plain", 1, 2)
    source.create("renamed", 1, 2, keyed=True)
    end = {"configure": lambda stream: stream.with_end(latest=True)}
    transforms = {"renamed": {"k": "id"}}
    with duckdb.connect() as database:
        copy_database(source.catalog, "db", DuckDBDatabase(database), transforms=transforms, **end)
        assert {row[0] for row in database.execute("SELECT id FROM renamed").fetchall()} == {1, 2}
        assert {row[0] for row in database.execute("SELECT k FROM plain").fetchall()} == {1, 2}
    copies = PaimonDatabase(others.catalog, "copies")
    copy_database(source.catalog, "db", copies, transforms=transforms, **end)
    assert others.catalog.get_table("copies.renamed").table_schema.primary_keys == ["id"]
    # A copy in Paimon has the columns of its table only; the other tables are copied nevertheless.
    source.write("plain", 3)
    source.write("renamed", 3)
    wider = {"renamed": [{"k": "id"}, lambda rows: rows.append_column("more", rows["id"])]}
    with pytest.raises(TablesFailedError, match="'more' is not a column of the table"):
        copy_database(source.catalog, "db", copies, transforms=wider, **end)
    assert {row["k"] for row in batch_read(others.catalog.get_table("copies.plain"))} == {1, 2, 3}
    assert {row["id"] for row in batch_read(others.catalog.get_table("copies.renamed"))} == {1, 2}


def test_a_transform_that_raises_stops_its_table_alone(tmp_path: Path) -> None:
    source, copies = Database(tmp_path / "w"), Database(tmp_path / "copies")
    for name in ("bad", "good"):
        source.create(name, 1)
    target = PaimonDatabase(copies.catalog, "db")
    end = {"configure": lambda stream: stream.with_end(latest=True)}
    with pytest.raises(TablesFailedError, match="The transform of bad raised KeyError") as raised:
        copy_database(source.catalog, "db", target, transforms={"bad": lambda rows: rows["missing"]}, **end)
    assert isinstance(raised.value.errors["bad"].__cause__, KeyError)
    assert copies.catalog.list_tables("db") == ["good"] and copies.rows("good") == [{"k": 1}]
    copy_database(source.catalog, "db", target, **end)
    assert copies.rows("bad") == [{"k": 1}]


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ({"ordres": {"k": "id"}}, r"transforms: there is no table 'ordres' in db\. Did you mean 'orders'\?"),
        ({"events": {"k": "id"}}, "transforms: table 'events' is left out by include or exclude"),
        ([{"k": "id"}], "transforms: expected a mapping by table, got builtins.list"),
    ],
)
def test_transforms_of_tables_that_are_not_copied_are_refused(tmp_path: Path, transforms: Any, message: str) -> None:
    source, copies = Database(tmp_path / "w"), Database(tmp_path / "copies")
    for name in ("orders", "events"):
        source.create(name, 1)
    given = {"exclude": "events", "configure": lambda stream: stream.with_end(latest=True)}
    target = PaimonDatabase(copies.catalog, "db")
    with pytest.raises(StreamConfigError, match=message):
        copy_database(source.catalog, "db", target, transforms=transforms, **given)
    assert copies.catalog.list_tables("db") == []


def test_a_filter_of_a_table_that_is_not_copied_is_refused(tmp_path: Path) -> None:
    source, copies = Database(tmp_path / "w"), Database(tmp_path / "copies")
    source.create("orders", 1)

    def configure(stream: Any) -> None:
        stream.with_end(latest=True).with_table("Orders", lambda builder: builder.with_filter("k > 3"))

    with pytest.raises(StreamConfigError, match="with_table: there is no table 'Orders'"):
        copy_database(source.catalog, "db", PaimonDatabase(copies.catalog, "db"), configure=configure)


def test_the_transform_of_a_table_that_was_dropped_is_no_mistake(tmp_path: Path) -> None:
    source, copies = Database(tmp_path / "w"), Database(tmp_path / "copies")
    for name in ("orders", "events"):
        source.create(name, 1)
    given = {"transforms": {"events": {"k": "id"}}, "configure": lambda stream: stream.with_end(latest=True)}
    for dropped in (False, True):
        if dropped:
            source.drop("events")
            source.write("orders", 2)
        copy_database(source.catalog, "db", PaimonDatabase(copies.catalog, "db"), **given)
    assert len(copies.rows("orders")) == 2


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_soft_deletes_keep_deleted_rows(kind: str, tmp_path: Path) -> None:
    history, place = History(tmp_path / "w", f"deletes {kind}"), PLACES[kind](tmp_path)
    # What is deleted before the copy begins is not in it.
    history.commit()
    replicate(stream(history.table), place.opened(None), transform=[SoftDeletes("gone"), NEW_NAME])
    for _ in range(6):
        history.commit()
        replicate(stream(history.table), place.opened(None), transform=[SoftDeletes("gone"), NEW_NAME])
        wanted = {**{key: (value, False) for key, value in history.rows.items()}}
        wanted |= {key: (value, True) for key, value in history.deleted.items()}
        assert {row["id"]: (row["v"], bool(row["gone"])) for row in place.held()} == wanted


SCD2 = """
SELECT id, v, valid_from, lead(valid_from) OVER same AS valid_to, version, lead(version) OVER same AS version_to
FROM copy WINDOW same AS (PARTITION BY id ORDER BY version) QUALIFY NOT is_deleted
"""


def test_row_versions_are_a_dimension_of_type_2(tmp_path: Path) -> None:
    """At every snapshot since the beginning of the copy its valid rows are those of the table."""
    history, place = History(tmp_path / "w", "versions"), DuckDBPlace(tmp_path)
    states = {}
    transform = [NEW_NAME, RowVersions()]
    for number in range(8):
        history.commit()
        states[history.table.latest()] = dict(history.rows)
        if number % 3 == 0:
            replicate(stream(history.table), place.opened(None), transform=transform)
    replicate(stream(history.table), place.opened(None), transform=transform)
    with place.connected() as database:
        rows = database.sql(SCD2).to_arrow_table().to_pylist()
    first = min(states)
    for snapshot, state in states.items():
        valid = [
            row
            for row in rows
            if row["version"] <= snapshot and (row["version_to"] is None or row["version_to"] > snapshot)
        ]
        assert {row["id"]: row["v"] for row in valid} == state
    for row in rows:
        commit = history.table.snapshot(row["version"])["timeMillis"]
        assert row["valid_from"] == datetime.fromtimestamp(commit / 1000, timezone.utc)
    assert all((row["version"] == first) or history.versions[row["id"], row["version"]] == row["v"] for row in rows)


def test_versions_are_never_replaced_silently(tmp_path: Path) -> None:
    table = keyed(tmp_path / "w")
    with duckdb.connect() as database:
        target = DuckDBTarget(database, "copy")
        replicate(stream(table), target, transform=RowVersions())
        held = database.execute("FROM copy ORDER BY ALL").fetchall()
        for _ in range(3):
            table.commit([("+U", 1, "again")])
        with pytest.raises(StreamConfigError, match=r"with_catch_up\('net'\) reads several snapshots as one"):
            replicate(stream(table).with_catch_up("net"), target, transform=RowVersions())
        table.expire(table.latest())
        with pytest.raises(StreamConfigError, match="would replace all versions"):
            replicate(stream(table).with_on_expired("full"), target, transform=RowVersions())
        assert database.execute("FROM copy ORDER BY ALL").fetchall() == held
        # Such a target would take the state for columns that it cannot follow, or for another filter.
        replacing = DuckDBTarget(database, "copy", replace=True)
        for call in (replicate, Replication):
            with pytest.raises(StreamConfigError, match="replace=True the state of the table could replace all"):
                call(stream(table), replacing, transform=[RowVersions()])
        # Without the transform it is another target: its key is that of the table alone.
        with pytest.raises(StreamConfigError, match=r"another key: \['k', 'version'\] was the target's before"):
            replicate(stream(table), target)
