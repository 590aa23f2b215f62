"""Random lives of databases in a store that is slow and fails: what is told and handed out gives each row once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector

from pypaimon.streaming import BlockingDatabaseStream
from pypaimon.streaming.databases import DatabaseEvent, DatabasePosition, TableAdded, TableDropped, TableRenamed
from support.samples import SOAK, sample_seed
from support.stores.s3_server import BUCKET, S3Server
from support.tables.databases import Database, keys
from support.waits import until

pytestmark = [pytest.mark.server, pytest.mark.soak]

SEEDS = 150 if SOAK else 1
NAMES = ("a", "b", "c", "d")


class SlowCatalog:
    """A catalog whose answers come late, and now and then are errors that pass."""

    def __init__(self, catalog: Any, chance: random.Random) -> None:
        self._catalog = catalog
        self._chance = chance
        self._lock = threading.Lock()
        self.is_quick = False

    def list_tables(self, database: str) -> Any:
        found = self._catalog.list_tables(database)
        self._delay()
        return found

    def get_table(self, identifier: Any) -> Any:
        self._delay()
        return self._catalog.get_table(identifier)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def _delay(self) -> None:
        with self._lock:
            draw = self._chance.random()
        if self.is_quick:
            return
        if draw < 0.1:
            raise OSError("AWS Error SLOW_DOWN during HeadObject: HTTP status 503")
        threading.Event().wait(draw / 5)


class Held:
    """What one who follows a stream holds of each table, by its events and rows."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[int]] = {}
        self.told: list[DatabaseEvent] = []

    def on_event(self, event: DatabaseEvent) -> None:
        self.told.append(event)
        if isinstance(event, TableAdded):
            self.rows.setdefault(event.table, Counter())
        elif isinstance(event, TableDropped):
            del self.rows[event.table]
        elif isinstance(event, TableRenamed):
            assert event.table not in self.rows
            self.rows[event.table] = self.rows.pop(event.former)

    def take(self, stream: BlockingDatabaseStream) -> None:
        for batch in stream:
            self.rows[batch.table].update(keys(batch))


def change(database: Database, chance: random.Random, number: int) -> None:
    """Something happens to the tables."""
    there = database.catalog.list_tables("db")
    free = [name for name in NAMES if name not in there]
    what = chance.choice(["create", "drop", "rename", "exchange", "replace", "take", "write", "write"])
    if what == "create" and free:
        database.create(chance.choice(free), *([number] if chance.random() < 0.5 else []))
    elif what == "drop" and there:
        database.drop(chance.choice(there))
    elif what == "rename" and there and free:
        database.rename(chance.choice(there), chance.choice(free))
    elif what == "exchange" and len(there) > 1:
        one, other = chance.sample(there, 2)
        for old, new in ((one, "between"), (other, one), ("between", other)):
            database.rename(old, new)
    elif what == "replace" and there and free:
        # It is renamed, and another one takes its name.
        name = chance.choice(there)
        database.rename(name, chance.choice(free))
        database.create(name, number)
    elif what == "take" and len(there) > 1:
        # It takes the name of one that is dropped.
        one, other = chance.sample(there, 2)
        database.drop(one)
        database.rename(other, one)
    elif there:
        database.write(chance.choice(there), number)


@pytest.mark.parametrize("seed", range(sample_seed(), sample_seed() + SEEDS))
def test_each_row_comes_once_whatever_names_tables_have(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    database, held = Database(tmp_path), Held()
    for number, name in enumerate("ab"):
        database.create(name, number)
    position = DatabasePosition("db")
    for run in range(3):
        catalog = SlowCatalog(database.catalog, random.Random(chance.random()))
        builder = database.stream(catalog=catalog).with_start(position=position).with_on_event(held.on_event)
        with builder.open_sync() as stream:
            reader = threading.Thread(target=held.take, args=(stream,))
            reader.start()
            for step in range(chance.randrange(1, 6)):
                change(database, chance, 100 * run + step + 10)
            stream.stop()
            reader.join()
            position = stream.position
        # While nobody reads.
        for step in range(chance.randrange(3)):
            change(database, chance, 100 * run + step + 50)
    catalog.is_quick = True
    last = (
        database.stream(catalog=catalog)
        .with_start(position=position)
        .with_end(latest=True)
        .with_on_event(held.on_event)
    )
    with last.open_sync() as stream:
        held.take(stream)
    expected = {name: Counter(row["k"] for row in database.rows(name)) for name in database.catalog.list_tables("db")}
    assert held.rows == expected, held.told


def moved(server: S3Server, old: str, new: str, copied: Callable[[], object] = lambda: None) -> None:
    """Rename as object stores do: each object is copied, then (once `copied` has returned) each is deleted."""
    store, home = server.file_system(), f"{BUCKET}/{old}"
    paths = [info.path for info in store.get_file_info(FileSelector(home, recursive=True)) if info.is_file]
    for path in sorted(paths):
        store.copy_file(path, f"{BUCKET}/{new}{path.removeprefix(home)}")
    copied()
    for path in sorted(paths):
        store.delete_file(path)


def test_a_table_is_renamed_in_an_object_store(server: S3Server, tmp_path: Path) -> None:
    database, held = Database(tmp_path, server.catalog("w")), Held()
    for number, name in enumerate("abc"):
        database.create(name, number)
    builder = database.stream().with_end(latest=True).with_on_event(held.on_event)
    with builder.open_sync() as stream:
        held.take(stream)
        position = stream.position
    moved(server, "w/db.db/a", "w/db.db/a_now")
    database.write("a_now", 10)
    # The name of another one.
    database.drop("c")
    moved(server, "w/db.db/b", "w/db.db/c")
    with builder.with_start(position=position).open_sync() as stream:
        held.take(stream)
    assert held.rows == {"a_now": Counter([0, 10]), "c": Counter([1])}
    assert {TableRenamed("a_now", "a"), TableDropped("c"), TableRenamed("c", "b")} <= set(held.told)


def test_a_rename_that_takes_long_is_reported_as_a_new_table_and_a_dropped_one(
    server: S3Server, tmp_path: Path
) -> None:
    database, held = Database(tmp_path, server.catalog("long")), Held()
    database.create("a", 0)
    with database.stream().with_on_event(held.on_event).open_sync() as stream:
        reader = threading.Thread(target=held.take, args=(stream,))
        reader.start()
        until(lambda: held.rows == {"a": Counter([0])})
        both = {"a": Counter([0]), "a_now": Counter([0])}
        moved(server, "long/db.db/a", "long/db.db/a_now", copied=lambda: until(lambda: held.rows == both))
        database.write("a_now", 10)
        until(lambda: held.rows == {"a_now": Counter([0, 10])})
        stream.stop()
        reader.join()
    assert held.told == [TableAdded("a"), TableAdded("a_now"), TableDropped("a")]
