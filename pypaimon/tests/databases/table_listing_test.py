"""Which names of a directory are tables, and how few requests find them and their schemas."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pypaimon import CatalogFactory
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.errors import NoDatabaseError, StoreError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.paimon import internals
from support.tables.databases import Database
from support.tables.handles import catalog_with_database

_METHODS = ("new_input_stream", "exists", "list_status", "get_file_status")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the requests of all local FileIO objects, by method."""
    counts: Counter[str] = Counter()

    def counted(name: str, method: Any) -> Any:
        def call(file_io: Any, *arguments: Any) -> Any:
            counts[name] += 1
            return method(file_io, *arguments)

        return call

    def opened(path: str, mode: str) -> Any:
        counts["open"] += 1
        return open(path, mode)

    for name in _METHODS:
        monkeypatch.setattr(LocalFileIO, name, counted(name, getattr(LocalFileIO, name)))
    monkeypatch.setattr(internals, "open", opened, raising=False)
    return counts


def names(catalog: Any) -> set[str]:
    return TablesOfDatabase(catalog, "db").names()


def test_tables_are_found_without_the_status_of_each(tmp_path: Path, asked: Counter[str]) -> None:
    catalog = catalog_with_database(tmp_path, "db")
    for number in range(50):
        (tmp_path / "db.db" / f"t{number}").mkdir()
    asked.clear()
    assert names(catalog) == {f"t{number}" for number in range(50)}
    assert asked == {"exists": 1, "list_status": 1}


@pytest.mark.slow
def test_a_table_is_opened_without_the_status_of_each_schema(tmp_path: Path, asked: Counter[str]) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    asked.clear()
    opened = TablesOfDatabase(database.catalog, "db").open("t", 1, time.monotonic)
    assert opened is not None
    opened.close()
    # The hint, the snapshot, the one after it, and the schema.
    assert asked == {"list_status": 1, "open": 4}


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("home", ["w", "a b%41ü"])
def test_names_are_those_of_the_catalog(tmp_path: Path, scheme: str, home: str) -> None:
    warehouse = tmp_path / home
    place = warehouse.as_uri() if scheme else str(warehouse)
    catalog = catalog_with_database(warehouse, "db", CatalogFactory.create({"warehouse": place}))
    directory = warehouse / "db.db"
    for name in ("plain", "sp ace", "ünicode", ".hidden", "nested.db", "with%41"):
        (directory / name).mkdir()
    (directory / "file").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (directory / "link").symlink_to(tmp_path / "elsewhere")
    (directory / "link to a file").symlink_to(directory / "file")
    (directory / "dangling").symlink_to(tmp_path / "nowhere")
    (directory / "circle").symlink_to(directory / "circle")
    assert {"plain", "link", "nested.db"} <= names(catalog)
    assert names(catalog) == set(catalog.list_tables("db"))


def test_a_table_that_appears_during_the_listing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_with_database(tmp_path, "db")
    (tmp_path / "db.db" / "old").mkdir()
    (tmp_path / "db.db" / "gone").mkdir()
    (tmp_path / "db.db" / "new").mkdir()

    def earlier(path: Any) -> Any:
        (tmp_path / "db.db" / "gone").rmdir()
        return nullcontext(each for each in os.scandir(path) if each.name == "old")

    monkeypatch.setattr(internals, "os", SimpleNamespace(path=os.path, scandir=earlier))
    assert names(catalog) == {"old", "new"}


def test_a_listing_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_with_database(tmp_path, "db")
    (tmp_path / "db.db" / "t").mkdir()

    def fail(*_: Any) -> Any:
        raise TimeoutError("the mount does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(internals, "os", SimpleNamespace(path=os.path, scandir=fail))
        with pytest.raises(StoreError, match="does not answer"):
            names(catalog)
    monkeypatch.setattr(LocalFileIO, "list_status", fail)
    with pytest.raises(StoreError, match="does not answer"):
        names(catalog)


def test_a_database_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path, "another")
    with pytest.raises(NoDatabaseError):
        names(catalog)


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_database_that_is_dropped_during_the_listing_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool, when: str
) -> None:
    catalog, listing = catalog_with_database(tmp_path, "db"), LocalFileIO.list_status
    if not is_empty:
        (tmp_path / "db.db" / "t").mkdir()

    def drop(file_io: Any, path: str) -> Any:
        found = listing(file_io, path) if when == "after" else None
        shutil.rmtree(tmp_path / "db.db")
        return listing(file_io, path) if found is None else found

    monkeypatch.setattr(LocalFileIO, "list_status", drop)
    with pytest.raises(NoDatabaseError):
        names(catalog)


def test_a_file_io_of_ones_own_is_asked_by_its_own_listing(tmp_path: Path) -> None:
    class Own(LocalFileIO):
        def get_file_status(self, path: str) -> Any:
            if path.endswith("hidden"):
                raise FileNotFoundError(path)
            return super().get_file_status(path)

    catalog = catalog_with_database(tmp_path, "db")
    for name in ("t", "hidden"):
        (tmp_path / "db.db" / name).mkdir()
    catalog.file_io = Own()
    assert names(catalog) == {"t"}
    assert Store(Own()).list_names(str(tmp_path / "db.db")) == ["t"]
    wrapped = LocalFileIO()
    wrapped.get_file_status = catalog.file_io.get_file_status  # type: ignore[method-assign]
    assert Store(wrapped).list_names(str(tmp_path / "db.db")) == ["t"]


@pytest.mark.parametrize("scheme", [False, True])
def test_names_of_a_directory_need_no_status(tmp_path: Path, asked: Counter[str], scheme: bool) -> None:
    home = tmp_path / "a b"
    home.mkdir()
    for name in ("schema-0", "schema 1", "ü%41"):
        (home / name).write_text("{}")
    store = Store(LocalFileIO())
    assert sorted(store.list_names(home.as_uri() if scheme else str(home))) == ["schema 1", "schema-0", "ü%41"]
    assert asked == {"list_status": 1}
    assert store.list_names(str(tmp_path / "missing")) == []
    assert store.list_names(str(home / "schema-0")) == ["schema-0"]
