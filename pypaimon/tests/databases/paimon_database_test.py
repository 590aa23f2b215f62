"""`PaimonDatabase`: a database of another warehouse that follows one, table by table, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import PaimonDatabase, TablesFailedError, compact, copy_database
from pypaimon.streaming.databases import DatabaseEvent, TableDropped, TableRenamed
from pypaimon.streaming.errors import TargetError
from support.samples import SOAK, sample_seed
from support.stores.s3_server import S3Server
from support.tables.databases import Database, DatabaseChanges, alter, as_dicts, rows_of, write

pytestmark = [pytest.mark.server, pytest.mark.soak]

SEEDS = range(sample_seed(), sample_seed() + (60 if SOAK else 1))


@pytest.fixture
def copies(tmp_path: Path) -> Database:
    return Database(tmp_path / "copies")


def copied(database: Database, copies: Database, **settings: Any) -> list[DatabaseEvent]:
    """Copy until the latest snapshots; what was told."""
    told: list[DatabaseEvent] = []
    target = PaimonDatabase(copies.catalog, "db", **settings)
    copy_database(
        database.catalog, "db", target, configure=lambda stream: stream.with_end(latest=True).with_on_event(told.append)
    )
    return told


def names(copies: Database) -> set[str]:
    return set(copies.catalog.list_tables("db"))


def check(database: Database, copies: Database, *expected: str) -> None:
    for name in expected:
        assert as_dicts(copies.rows(name)) == as_dicts(database.rows(name)), name


def test_a_copy_without_news_commits_nothing_and_leaves_no_directory(database: Database, copies: Database) -> None:
    database.create("keyed", 1, 2, keyed=True, bucket="1")
    database.create("old", 4)
    database.create("empty")
    copied(database, copies)
    assert names(copies) == {"keyed", "old"} and copies.table("keyed").primary_keys == ["k"]
    for renamed in (False, True):
        if renamed:
            database.rename("old", "new")
            copied(database, copies)
        assert [event for event in copied(database, copies) if isinstance(event, TableDropped | TableRenamed)] == []
        assert len(list((copies.home / "keyed" / "snapshot").glob("snapshot-*"))) == 1
    database.drop("keyed")
    copied(database, copies, on_drop="drop")
    assert names(copies) == {"new"} and not list(copies.home.glob(".copied-*"))


def test_columns_are_followed(database: Database, copies: Database) -> None:
    database.create("t", keyed=True, bucket="1")
    alter(database, "t", *(SchemaChange.add_column(name, AtomicType("INT")) for name in ("a", "b", "c", "e")))
    write(database, "t", k=[1], a=[1], b=[2], c=[3], e=[4])
    copied(database, copies)
    alter(database, "t", SchemaChange.update_column_type("a", AtomicType("BIGINT")))
    # One takes the name of another that is renamed, one that of another that is dropped, and the key is renamed.
    alter(database, "t", SchemaChange.rename_column("e", "f"), SchemaChange.rename_column("b", "e"))
    alter(database, "t", SchemaChange.drop_column("c"), SchemaChange.rename_column("k", "c"))
    alter(database, "t", SchemaChange.add_column("d", AtomicType("STRING")))
    write(database, "t", c=[2], a=[1 << 40], e=[5], f=[6], d=["x"])
    copied(database, copies)
    expected = [{"c": 1, "a": 1, "e": 2, "f": 4, "d": None}, {"c": 2, "a": 1 << 40, "e": 5, "f": 6, "d": "x"}]
    assert as_dicts(copies.rows("t")) == as_dicts(database.rows("t")) == as_dicts(expected)
    assert copies.table("t").primary_keys == ["c"]
    alter(database, "t", SchemaChange.drop_column("d"))
    alter(database, "t", SchemaChange.add_column("d", AtomicType("INT")))
    write(database, "t", c=[1], a=[2], e=[7], f=[8], d=[9])
    copied(database, copies)
    check(database, copies, "t")


def test_columns_that_exchange_their_names_stop_their_table_alone(database: Database, copies: Database) -> None:
    for name in ("t", "good"):
        database.create(name)
    alter(database, "t", *(SchemaChange.add_column(name, AtomicType("INT")) for name in "ab"))
    write(database, "t", k=[1], a=[1], b=[2])
    copied(database, copies)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        alter(database, "t", SchemaChange.rename_column(old, new))
    write(database, "t", k=[2], a=[1], b=[2])
    database.write("good", 1)
    with pytest.raises(TablesFailedError, match="a, b have exchanged their names") as raised:
        copied(database, copies)
    assert isinstance(raised.value.errors["t"], TargetError)
    assert rows_of(copies, "t") == [(1, 1, 2)] and rows_of(copies, "good") == [(1,)]
    copies.drop("t")
    copied(database, copies)
    check(database, copies, "t")


def test_what_others_have_left_stops_no_table_but_that_of_its_name(database: Database, copies: Database) -> None:
    for name in ("old", "damaged"):
        database.create(name, 1)
    # A directory without a table, as a process leaves it that died, and a table that cannot be read.
    (copies.home / "new").mkdir()
    (copies.home / "damaged" / "schema").mkdir(parents=True)
    (copies.home / "damaged" / "schema" / "schema-0").write_text("{}")
    with pytest.raises(TablesFailedError, match="damaged cannot be opened") as raised:
        copied(database, copies)
    assert set(raised.value.errors) == {"damaged"}
    database.rename("old", "new")
    database.write("new", 2)
    with pytest.raises(TablesFailedError, match="damaged cannot be opened"):
        copied(database, copies)
    check(database, copies, "new")
    # It was renamed, not filled anew.
    assert len(list((copies.home / "new" / "snapshot").glob("snapshot-*"))) == 2
    assert names(copies) == {"new", "damaged"}


def test_a_database_is_not_copied_into_itself(database: Database) -> None:
    database.create("t", 1)
    with pytest.raises(TablesFailedError, match="not copied here"):
        copied(database, database)
    assert rows_of(database, "t") == [(1,)]


def test_exchanged_names_are_followed(database: Database, copies: Database) -> None:
    for name, key in (("a", 1), ("b", 2)):
        database.create(name, key)
    copied(database, copies)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        database.rename(old, new)
    for name, key in (("a", 3), ("b", 4)):
        database.write(name, key)
    copied(database, copies)
    assert names(copies) == {"a", "b"}
    check(database, copies, "a", "b")


def test_what_a_store_does_not_do_in_one_step_stops_its_table_alone(
    database: Database, server: S3Server, tmp_path: Path
) -> None:
    copies = Database(tmp_path, server.catalog("copies"))
    for name in ("same", "renamed", "recreated", "gone"):
        database.create(name, 1)
    copied(database, copies)
    database.rename("renamed", "renamed_now")
    for name in ("recreated", "gone"):
        database.drop(name)
    database.create("recreated", 2)
    database.write("same", 2)
    with pytest.raises(TablesFailedError, match="only in a store that renames a table in one step") as raised:
        copied(database, copies)
    assert set(raised.value.errors) == {"renamed_now", "recreated"}
    assert names(copies) == {"same", "renamed", "recreated", "gone"}
    assert (rows_of(copies, "same"), rows_of(copies, "recreated")) == ([(1,), (2,)], [(1,)])
    for name in ("renamed", "recreated"):
        copies.drop(name)
    copied(database, copies)
    check(database, copies, "same", "recreated", "renamed_now")


def test_changes_at_random(database: Database, copies: Database, tmp_path: Path) -> None:
    for seed in SEEDS:
        source, target = Database(tmp_path / f"w{seed}"), Database(tmp_path / f"c{seed}")
        changes = DatabaseChanges(source, seed)
        for _ in range(4):
            changes.change()
            changes.change()
            copied(source, target, on_drop="drop")
            assert names(target) == set(changes.tables), seed
            check(source, target, *changes.tables)


@pytest.mark.parametrize(
    "options", [{"deletion-vectors.enabled": "true"}, {"bucket": "-2"}], ids=["vectors", "postponed"]
)
def test_rows_of_a_copy_are_seen_before_it_is_compacted(
    database: Database, copies: Database, options: dict[str, str]
) -> None:
    """Of such a source, batch readers see what compactions have made of the rows."""
    database.create("t", 1, 2, keyed=True, **{"bucket": "1", "changelog-producer": "lookup", **options})
    compact(database.table("t"))
    database.write("t", 3)
    compact(database.table("t"))
    copied(database, copies)
    check(database, copies, "t")
    assert rows_of(copies, "t") == [(1,), (2,), (3,)]


def test_a_copy_does_not_share_the_directory_of_its_source(
    database: Database, copies: Database, tmp_path: Path
) -> None:
    """Java deletes files that the table of a directory does not name."""
    database.create("t", 1, data_file__path_directory=str(tmp_path / "elsewhere"))
    copied(database, copies)
    check(database, copies, "t")
    assert len(list((tmp_path / "elsewhere").rglob("*.parquet"))) == 1
