"""`paimon-stream` on several tables of a database: `tail`, `lag` and `consumers list` of a pattern."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import ConsumerManager
from pypaimon.streaming.cli.lag import LagOfTables
from pypaimon.streaming.cli.output import Record
from pypaimon.streaming.cli.tables import TableSource
from pypaimon.streaming.cli.tables_of_pattern import TableChoice, TablesOfPattern, say_failures
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.errors import StoreError
from support.docs.cli_runs import Program
from support.tables.databases import Database

pytestmark = pytest.mark.slow


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Three tables with two snapshots, and one of another kind."""
    database = Database(tmp_path)
    for name in ("orders_eu", "orders_us", "orders_old"):
        database.create(name, 1)
        database.write(name, 2, 3)
    database.create("people", 7)
    return database


def save(database: Database, name: str, next_snapshot: int, consumer: str = "etl") -> None:
    table = database.catalog.get_table(f"db.{name}")
    ConsumerManager(table.file_io, table.table_path).reset_consumer(consumer, Consumer(next_snapshot))


def test_tail_prints_the_rows_of_all_tables_as_json(database: Database, program: Program) -> None:
    found = program("tail", "db.orders_*", "--exclude", ".*_old", "--until-latest", "-f", "json")
    assert (found.code, found.err) == (0, "")
    assert sorted(found.lines) == sorted(
        f'{{"_table":"{name}","_row_kind":"+I","k":{k}}}' for name in ("orders_eu", "orders_us") for k in (1, 2, 3)
    )


def test_tail_prints_one_table_with_a_column_for_the_name(database: Database, program: Program) -> None:
    found = program("tail", "db.*", "--include", "orders_eu|people", "--until-latest")
    assert found.code == 0
    header, *rows = (line.split() for line in found.lines)
    assert header == ["table", "snapshot", "k"]
    # A longer name has the header come again.
    expected = [*(["orders_eu", "2", "+I", str(k)] for k in (1, 2, 3)), ["people", "1", "+I", "7"]]
    assert sorted(row for row in rows if row != header) == expected


def test_tail_begins_where_it_is_asked_to_and_ends_after_some_rows(database: Database, program: Program) -> None:
    found = program("tail", "db.orders_?u", "--start", "earliest", "-n", "2", "-f", "json")
    assert [record["k"] for record in found.records] == [1, 2]


def test_a_name_with_characters_of_patterns_can_be_given(database: Database, program: Program) -> None:
    database.create("t[1]", 5)
    database.create("t1", 6)
    assert program("tail", "db.t[[]1]", "--until-latest", "-f", "json").records == [
        {"_table": "t[1]", "_row_kind": "+I", "k": 5}
    ]


def test_tail_saves_progress_in_each_table(database: Database, program: Program) -> None:
    run = ("tail", "db.orders_*", "--until-latest", "-f", "json", "--consumer-id", "etl")
    assert len(program(*run).records) == 9
    database.write("orders_us", 4)
    assert program(*run).records == [{"_table": "orders_us", "_row_kind": "+I", "k": 4}]


def test_tail_says_which_tables_it_passes_over_and_which_it_could_not_read(
    database: Database, program: Program
) -> None:
    database.create("orders_bad", keyed=True, bucket="1", merge_engine="partial-update")
    (database.home / "orders_eu" / "snapshot" / "snapshot-2").write_bytes(b"{}")
    found = program("tail", "db.orders_*", "--until-latest", "-f", "json")
    assert found.code == 1
    assert {record["_table"] for record in found.records} == {"orders_us", "orders_old"}
    assert "orders_bad is passed over" in found.err
    assert "1 tables were not read to the end. orders_eu: " in found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("db.*", "-f", "csv"), "--format csv goes with one table"),
        (("db.*", "-f", "arrow"), "--format arrow goes with one table"),
        (("db.*", "--filter", "k > 1"), "--filter goes with one table, not with db.*"),
        (("db.*", "--columns", "k"), "--columns goes with one table"),
        (("db.*", "--commits", "-f", "json"), "--commits goes with one table"),
        (("db.*", "--table-option", "scan.mode=latest"), "--table-option goes with one table"),
        (("db.*", "--start", "3"), "--start 3 is a place in one table"),
        (("db.*$audit_log",), "one by one"),
        (("db.people", "--include", "x"), "give TABLE as 'db.*'"),
        (("db.*", "--include", "("), "invalid regular expression"),
        (("none.*", "--until-latest"), "no database 'none'"),
    ],
)
def test_what_does_not_go_with_several_tables_is_refused(
    database: Database, program: Program, arguments: tuple[str, ...], message: str
) -> None:
    found = program("tail", *arguments)
    assert (found.code, found.out) == (2, "") and message in found.err


def test_where_nothing_matches_it_says_so(database: Database, program: Program) -> None:
    found = program("tail", "db.none_*", "--until-latest")
    assert (found.code, found.out, found.err) == (0, "", "no table matches db.none_*\n")
    found = program("lag", "db.none_*", "--max-lag", "1")
    assert (found.code, found.out) == (3, "") and "no consumers to compare with --max-lag 1" in found.err


def test_lag_shows_the_worst_first_and_a_line_for_all(database: Database, program: Program) -> None:
    save(database, "orders_eu", 3)
    save(database, "orders_us", 1)
    save(database, "orders_old", 2)
    found = program("lag", "db.*", "-f", "json")
    assert (found.code, found.err) == (0, "")
    shown = [(each["table"], each["consumer"], each["snapshots"], each["rows"]) for each in found.records]
    assert shown[:1] == [("(all)", "", 3, 5)]
    assert shown[1:] == [("orders_us", "etl", 2, 3), ("orders_old", "etl", 1, 2), ("orders_eu", "etl", 0, 0)]
    assert found.records[0]["seconds"] == found.records[1]["seconds"] > 0
    header, total, *rest = program("lag", "db.*").lines
    assert header.split()[:4] == ["table", "consumer", "state", "snapshots"]
    assert total.split()[0] == "(all)" and len(rest) == 3


@pytest.mark.parametrize(("limit", "code"), [("2", 0), ("1", 3), ("1d", 0), ("0s", 3)])
def test_max_lag_holds_every_table(database: Database, program: Program, limit: str, code: int) -> None:
    save(database, "orders_us", 1)
    save(database, "orders_old", 3)
    found = program("lag", "db.orders_*", "--max-lag", limit)
    assert found.code == code
    assert ("consumer etl of orders_us is" in found.err) == (code == 3)
    assert "orders_old" not in found.err


def test_what_is_not_known_of_a_table_is_above_every_limit(database: Database, program: Program) -> None:
    save(database, "orders_eu", 1)
    save(database, "orders_us", 3)
    save(database, "people", 2)
    (database.home / "orders_eu" / "snapshot" / "snapshot-1").unlink()
    (database.home / "orders_us" / "schema" / "schema-0").write_bytes(b"{}")
    found = program("lag", "db.*", "etl", "--max-lag", "1000", "-f", "json")
    assert found.code == 3
    states = {each["table"]: each["state"] for each in found.records}
    assert states["orders_eu"] == "expired" and states["orders_us"] == "failed"
    assert states["orders_old"] == "no such consumer" and states["people"] == "caught up"
    assert found.records[0]["snapshots"] is None
    lines = sorted(found.err.splitlines())
    assert [line.partition(":")[2].split()[0] for line in lines] == ["consumer", "orders_us", "there"]
    assert "consumer etl of orders_eu is expired" in lines[0] and "no consumer etl of orders_old" in lines[2]
    # Without a limit a table that cannot be read is a failure all the same.
    found = program("lag", "db.*")
    assert found.code == 1 and "orders_us" in found.err


def test_consumers_of_several_tables(database: Database, program: Program) -> None:
    save(database, "orders_eu", 3)
    save(database, "people", 1, "other")
    found = program("consumers", "list", "db.*", "-f", "json")
    assert (found.code, found.err) == (0, "")
    shown = [(each["table"], each["consumer"], each["next_snapshot"], each["lag"]) for each in found.records]
    assert shown == [("orders_eu", "etl", 3, 0), ("people", "other", 1, 1)]
    (database.home / "orders_us" / "schema" / "schema-0").write_bytes(b"{}")
    found = program("consumers", "list", "db.*", "-f", "json")
    assert found.code == 1 and len(found.records) == 2 and "orders_us" in found.err
    assert json.loads(found.lines[0])["table"] == "orders_eu"


def test_a_store_that_fails_for_some_tables_may_be_asked_again(
    database: Database, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(source: TableSource, _: Any) -> list[Record]:
        if source.name == "db.orders_us":
            raise StoreError("it failed")
        return []

    source = TableSource("db.*", None, {"warehouse": str(program.warehouse)}, {})
    pattern = TablesOfPattern.of(source, TableChoice(None, None))
    assert pattern is not None
    measured = LagOfTables(pattern, (), measure)
    assert [each["table"] for each in measured.records()] == ["(all)", "orders_us"]
    assert say_failures(measured.failures) == 75
    assert capsys.readouterr().err == "paimon-stream: orders_us: it failed\n"
