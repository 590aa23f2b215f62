"""`paimon-stream copy 'db.*'`: the tables of a database into others of the same names."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import duckdb
import pytest

from support.docs.cli_runs import Outcome, Program
from support.tables.databases import Database, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path / "w", capsys)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(tmp_path / "w")
    for name in ("orders", "people", "orders_old"):
        database.create(name, 1, 2)
    return database


def held(file: Path, schema: str = "db") -> dict[str, list[int]]:
    """The rows of each table of a file of DuckDB."""
    query = "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? AND table_name NOT LIKE '_paimon%'"
    with duckdb.connect(str(file)) as connection:
        names = [name for (name,) in connection.execute(query, [schema]).fetchall()]
        rows = {name: connection.execute(f'SELECT k FROM "{schema}"."{name}" ORDER BY k').fetchall() for name in names}
    return {name: [k for (k,) in each] for name, each in rows.items()}


def test_each_run_continues_where_the_last_one_ended(program: Program, database: Database, tmp_path: Path) -> None:
    file = tmp_path / "copy.duckdb"
    run = ("copy", "db.*", "--to-duckdb", str(file), "--exclude", ".*_old")
    assert program(*run) == Outcome(0, f"db.* -> {file}: 2 tables\n", "")
    assert held(file) == {"orders": [1, 2], "people": [1, 2]}
    database.write("orders", 3)
    database.rename("people", "persons")
    found = program(*run, "--json")
    assert found.records == [{"source": "db.*", "target": str(file), "next": {"orders": 3, "persons": 2}}]
    assert found.err == "paimon-stream: people was renamed to persons\n"
    assert held(file) == {"orders": [1, 2, 3], "persons": [1, 2]}
    database.drop("persons")
    assert program(*run, "--on-drop", "drop").err == "paimon-stream: persons was dropped\n"
    assert held(file) == {"orders": [1, 2, 3]}
    assert program("copy", "db.*", "--include", ".*_old", "--to-duckdb", str(file), "--to-schema", "other").code == 0
    assert held(file, "other") == {"orders_old": [1, 2]}


def test_into_another_warehouse(program: Program, database: Database, tmp_path: Path) -> None:
    run = ("copy", "db.*", "--exclude", ".*_old", "--to-warehouse", str(tmp_path / "copies"))
    assert program(*run) == Outcome(0, f"db.* -> {tmp_path / 'copies'}: 2 tables\n", "")
    database.write("orders", 3)
    database.drop("people")
    found = program(*run, "--on-drop", "drop", "--json")
    assert found.records == [{"source": "db.*", "target": str(tmp_path / "copies"), "next": {"orders": 3}}]
    copies = Database(tmp_path / "copies")
    assert copies.catalog.list_tables("db") == ["orders"] and rows_of(copies, "orders") == [(1,), (2,), (3,)]
    assert program(*run, "--to-database", "other").code == 0
    assert rows_of(Database(tmp_path / "copies", name="other"), "orders") == [(1,), (2,), (3,)]


def test_an_error_stops_one_table_alone(program: Program, database: Database, tmp_path: Path) -> None:
    file = tmp_path / "copy.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE SCHEMA db; CREATE TABLE db.people AS SELECT 42 AS k")
    found = program("copy", "db.*", "--to-duckdb", str(file))
    assert (found.code, found.out) == (1, "")
    assert "1 tables were not read to the end. people: a table" in found.err
    assert held(file) == {"orders": [1, 2], "orders_old": [1, 2], "people": [42]}


def test_it_continues_with_each_change_until_it_is_asked_to_end(
    program: Program, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "copy.duckdb"
    database.create("orders_seen", 1)
    run = ("copy", "db.orders*", "--to-duckdb", str(file))
    assert program(*run).code == 0
    database.rename("orders_seen", "orders_told")
    with program.start(*run, "--follow", "--poll", "0.01", "--json") as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "paimon-stream: orders_seen was renamed to orders_told\n"
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate()
    assert (running.returncode, err) == (0, "")
    assert json.loads(out)["next"] == {"orders": 2, "orders_old": 2, "orders_told": 2}
    assert held(file) == {"orders": [1, 2], "orders_old": [1, 2], "orders_told": [1]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("db.*",), "where to copy the tables? Give --to-duckdb FILE or --to-warehouse PATH"),
        (("db.*", "--to-duckdb", "f", "--to-warehouse", "w"), "--to-warehouse does not go with --to-duckdb"),
        (("db.*", "--to-warehouse", "w", "--drop-columns"), "--drop-columns goes with --to-duckdb"),
        (("db.*", "--to-duckdb", "f", "--to-database", "x"), "--to-database goes with --to-warehouse"),
        (("db.orders", "db.copy", "--to-warehouse", "w"), "--to-warehouse goes with the tables of a database"),
        (("db.*", "db.copy"), "TARGET goes with one table, not with db.*"),
        (("db.*", "--to-duckdb", "f", "--columns", "k"), "--columns goes with one table, not with db.*"),
        (("db.*", "--to-duckdb", "f", "--create"), "--create goes with one table"),
        (("db.*", "--to-duckdb", "f", "--table-option", "scan.mode=latest"), "--table-option goes with one table"),
        (("db.orders", "--to-duckdb", "f"), "--to-duckdb goes with the tables of a database: give SOURCE as 'db.*'"),
        (("db.orders", "db.copy", "--drop-columns"), "--drop-columns goes with the tables of a database"),
        (("db.orders",), "where to copy db.orders? Give TARGET"),
        (("none.*", "--to-duckdb", "f"), "no database 'none'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    program: Program, database: Database, arguments: tuple[str, ...], message: str
) -> None:
    found = program("copy", *arguments)
    assert (found.code, found.out) == (2, "") and message in found.err
    assert not Path("f").exists()


def test_without_duckdb_it_says_what_is_missing(
    program: Program, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    found = program("copy", "db.*", "--to-duckdb", "f")
    assert found.code == 2 and "pip install 'pypaimon-streaming[duckdb]'" in found.err


def test_where_nothing_matches_it_says_so(program: Program, database: Database, tmp_path: Path) -> None:
    found = program("copy", "db.none_*", "--to-duckdb", str(tmp_path / "f"))
    assert found == Outcome(0, f"db.none_* -> {tmp_path / 'f'}: 0 tables\n", "no table matches db.none_*\n")
