"""`paimon-stream tail`: rows and changes in every format, starts, filters, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming.cli.app import run
from pypaimon.streaming.cli.tables import start_of
from pypaimon.streaming.model.time_zone import time_zone
from support.docs.cli_runs import Program
from support.samples import some
from support.tables.handles import create_table, write_by_stream
from support.tables.orders import CHANGES, ORDERS, append, catalog, change, create_orders, events, orders, write
from support.tables.streamed_table import expire
from support.tables.written_tables import key_value_table, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ALL = [{"_row_kind": kind, "id": key, "status": status, "amount": amount} for _, kind, key, status, amount in CHANGES]


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path)


def tail(program: Program, *arguments: str) -> list[dict[str, Any]]:
    found = program("tail", "db.orders", "--until-latest", "--format", "json", *arguments)
    assert (found.code, found.err) == (0, "")
    return found.records


def test_prints_changes_as_json(tables: Any, program: Program) -> None:
    orders(tables)
    assert tail(program, "--start", "2", "--columns", "id,status,amount") == ALL


def test_prints_the_state_first(tables: Any, program: Program) -> None:
    change(create_orders(tables), "+I", (1, "placed", 1.5))
    assert tail(program) == [{"_row_kind": "+I", "id": 1, "status": "placed", "amount": 1.5, "op": "+I"}]


def test_filters_with_sql(tables: Any, program: Program) -> None:
    orders(tables)
    found = tail(program, "--start", "earliest", "--columns", "id", "--filter", "id = 1 AND id IN (1, 3)")
    assert found == [{"_row_kind": kind, "id": 1} for kind in ("+I", "-U", "+U")]


def test_prints_csv_with_one_header(tables: Any, program: Program) -> None:
    orders(tables)
    found = program("tail", "db.orders", "--until-latest", "-f", "csv", "--start", "2", "--columns", "id,amount")
    rows = list(csv.reader(io.StringIO(found.out)))
    assert rows == [["_row_kind", "id", "amount"], ["-U", "1", "1.5"], ["+U", "1", "1.5"], ["-D", "2", ""]]


def test_csv_distinguishes_an_empty_text_from_null(tables: Any, program: Program) -> None:
    table = create_orders(tables)
    write(table, [{"id": n, "status": text, "op": "+I"} for n, text in enumerate(["", None, 'a "b"', "c,d\n"])], ORDERS)
    found = program("tail", "db.orders", "--until-latest", "-f", "csv", "--columns", "id,status")
    assert sorted(found.out.split("+I,")) == ['0,""\n', "1,\n", '2,"a ""b"""\n', '3,"c,d\n"\n', "_row_kind,id,status\n"]


def test_prints_an_aligned_table(tables: Any, program: Program) -> None:
    orders(tables)
    found = program("tail", "db.orders", "--until-latest", "--start", "2", "--columns", "id,status,amount")
    assert found.lines == [
        "snapshot      id  status  amount",
        "       2  -U   1  placed     1.5",
        "       3  +U   1  paid       1.5",
        "       4  -D   2  placed    null",
    ]


def test_columns_of_a_table_only_grow_and_values_are_cut_after_60_characters(tables: Any, program: Program) -> None:
    table = create_orders(tables)
    for row in ((1, "y" * 60, 1.5), (2, "z" * 61, 2.5), (3, "s", 1234567.5)):
        change(table, "+I", row)
    found = program("tail", "db.orders", "--until-latest", "--start", "earliest", "--columns", "id,status,amount")

    def line(snapshot: Any, kind: str, key: Any, status: str, amount: str, width: int = 6) -> str:
        return f"{snapshot:>8}  {kind:2}  {key:>2}  {status:60}  {amount:>{width}}"

    assert found.lines == [
        line("snapshot", "", "id", "status", "amount"),
        line(1, "+I", 1, "y" * 60, "1.5"),
        line(2, "+I", 2, "z" * 59 + "…", "2.5"),
        line("snapshot", "", "id", "status", "amount", 9),
        line(3, "+I", 3, "s", "1234567.5", 9),
    ]


def test_a_table_spells_out_what_would_move_the_cursor(tables: Any, program: Program) -> None:
    change(create_orders(tables), "+I", (1, "\x1b[2J\n" + "x" * 100, 1.5))
    (row,) = program("tail", "db.orders", "--until-latest", "--columns", "status").lines[1:]
    assert r"\x1b[2J\nxxx" in row
    assert row.endswith("x…")


def test_prints_an_arrow_stream(tables: Any, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(tables)
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content))
    assert program("tail", "db.orders", "--until-latest", "-f", "arrow", "--start", "2", "--columns", "id").code == 0
    table = pa.ipc.open_stream(content.getvalue()).read_all()
    assert table.to_pydict() == {"_row_kind": ["-U", "+U", "-D"], "id": [1, 1, 2]}


def test_json_holds_every_type(tables: Any, program: Program) -> None:
    schema = pa.schema(
        [
            ("decimal", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("time", pa.timestamp("us")),
            ("bytes", pa.binary()),
            ("number", pa.float64()),
            ("names", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    tables.create_table("db.orders", Schema.from_pyarrow_schema(schema), False)
    row = {
        "decimal": Decimal("1.50"),
        "day": datetime(2026, 11, 21).date(),
        "time": datetime(2026, 11, 21, 8, 30),
        "bytes": b"\x00\x01",
        "number": float("nan"),
        "names": ["a", None],
        "counts": [("a", 1)],
    }
    write(tables.get_table("db.orders"), [row], schema)
    assert tail(program) == [
        {
            "_row_kind": "+I",
            "decimal": "1.50",
            "day": "2026-11-21",
            "time": "2026-11-21T08:30:00",
            "bytes": "AAE=",
            "number": "nan",
            "names": ["a", None],
            "counts": {"a": 1},
        }
    ]


def test_ends_after_this_many_rows(tables: Any, program: Program) -> None:
    orders(tables)
    assert tail(program, "--start", "2", "--columns", "id,status,amount", "-n", "2") == ALL[:2]
    events(tables)
    found = program("tail", "db.events", "-n", "3", "--format", "csv", "--consumer-id", "etl")
    assert (found.code, len(found.out.splitlines())) == (0, 4)
    again = program("tail", "db.events", "-n", "3", "--format", "csv", "--consumer-id", "etl")
    assert again.out == found.out, "the plan was not read to its end"


def test_adds_the_commit_to_each_row(tables: Any, program: Program) -> None:
    table = orders(tables)
    found = tail(program, "--start", "2", "--columns", "id", "--commits")
    assert [row["_snapshot_id"] for row in found] == [2, 3, 4]
    times = [table.snapshot_manager().get_snapshot_by_id(number).time_millis for number in (2, 3, 4)]
    shown = [datetime.fromisoformat(row["_commit_time"].replace("Z", "+00:00")) for row in found]
    assert [round(time.timestamp() * 1000) for time in shown] == times
    arguments = ("tail", "db.orders", "--until-latest", "--commits")
    assert program(*arguments, "--format", "csv").out.startswith("_row_kind,_snapshot_id,_commit_time,id,")
    refused = program(*arguments)
    assert (refused.code, "--commits" in refused.err) == (2, True)


def test_what_a_filter_leaves_out_and_what_has_expired(tables: Any, program: Program) -> None:
    table = orders(tables)
    shown = [
        [row["_row_kind"] for row in tail(program, "--start", "2", "--filter", "status = 'placed'", *unmatched)]
        for unmatched in ((), ("--unmatched", "drop"))
    ]
    assert shown == [["-U", "-D", "-D"], ["-U", "-D"]]
    refused = program("tail", "db.orders", "--unmatched", "drop")
    assert (refused.code, "--unmatched goes with --filter" in refused.err) == (2, True)
    assert len(tail(program, "--consumer-id", "etl")) == 1
    for status in ("shipped", "delivered"):
        change(table, "+U", (1, status, 1.5))
    expire(Path(table.table_path), 6)
    found = program("tail", "db.orders", "--until-latest", "--consumer-id", "etl")
    assert (found.code, "expired" in found.err) == (1, True)
    assert "--on-expired" in found.err
    assert "on_expired=" not in found.err
    arguments = ("--consumer-id", "etl", "--on-expired", "full", "--columns", "status")
    assert [row["status"] for row in tail(program, *arguments)] == ["delivered"]


def test_the_warehouse_comes_from_the_environment(
    tables: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders(tables)
    monkeypatch.setenv("PAIMON_STREAM_WAREHOUSE", str(tmp_path))
    assert run(["tail", "db.orders", "--until-latest", "--start", "4", "--format", "json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_consumer_continues_where_it_was(tables: Any, program: Program) -> None:
    table = orders(tables)
    assert len(tail(program, "--start", "earliest", "--consumer-id", "etl")) == 5
    change(table, "+I", (3, "placed", 2.5))
    assert [row["id"] for row in tail(program, "--consumer-id", "etl")] == [3]


def test_nothing_to_read_ends_at_once(tables: Any, program: Program) -> None:
    create_orders(tables)
    assert tail(program) == []


def test_an_interrupt_ends_it_cleanly(tables: Any, program: Program) -> None:
    orders(tables)
    with program.start("tail", "db.orders", "--follow", "--format", "json") as running:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["id"] == 1
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=600)
    assert (running.returncode, rest, errors) == (130, "", "")


def test_a_termination_saves_what_was_printed(tables: Any, program: Program) -> None:
    table = events(tables)
    with program.start(
        "tail", "db.events", "--follow", "--format", "json", "--consumer-id", "etl", "--poll", "0.05"
    ) as running:
        assert running.stdout is not None
        for _ in range(9):
            running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        rest, errors = running.communicate(timeout=600)
    assert (running.returncode, rest, errors) == (0, "", "")
    append(table, 7)
    found = program("tail", "db.events", "--until-latest", "--format", "json", "--consumer-id", "etl")
    assert [row["value"] for row in found.records] == [70, 71, 72]


@pytest.mark.parametrize("end", [("--until-latest",), ("-n", "6000")], ids=str)
def test_a_termination_before_the_wanted_end_is_not_a_success(
    program: Program, tmp_path: Path, end: tuple[str, ...]
) -> None:
    """The rows of a snapshot fill the pipe, so the first one is still being printed."""
    table = key_value_table(tmp_path, **{"changelog-producer": "input"})
    with table.writer("maker").open_sync() as writer:
        for _ in range(2):
            writer.write(rows(*range(3000), value="x" * 100))
            writer.commit()
    with program.start("tail", "db.w", "--follow", "--start", "earliest", "--format", "json", *end) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        rest, errors = running.communicate(timeout=600)
    assert (running.returncode, errors) == (130, "")
    assert rest.count("\n") < 3000


@pytest.mark.parametrize("form", some("broken pipes", ["json", "table"], 1))
def test_a_broken_pipe_ends_it_quietly(tables: Any, program: Program, form: str) -> None:
    table = events(tables)
    with program.start("tail", "db.events", "--follow", "--format", form, "--poll", "0.05") as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        append(table, 8)
        code, errors = running.wait(timeout=600), running.stderr.read()
    assert (code, errors) == (141, "")


NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ("latest", {"mode": "latest"}),
        ("compacted-full", {"mode": "compacted-full"}),
        ("42", {"snapshot_id": 42}),
        ("tag:v1", {"tag": "v1"}),
        ("90s", {"timestamp": NOW - timedelta(seconds=90)}),
        ("1.5h", {"timestamp": NOW - timedelta(minutes=90)}),
        ("2026-11-21T11:30:00Z", {"timestamp": NOW - timedelta(minutes=30)}),
        ("2026-11-21T12:30+01:00", {"timestamp": NOW - timedelta(minutes=30)}),
        ("2026-11-20", {"timestamp": datetime(2026, 11, 20, tzinfo=timezone.utc)}),
    ],
)
def test_starts(text: str, keywords: dict[str, Any]) -> None:
    assert start_of(text, time_zone(None), NOW) == keywords


@pytest.mark.parametrize("text", ["", "yesterday", "-3", "10x", "2026-13-01"])
def test_an_invalid_start_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(repr(text))):
        start_of(text, time_zone(None), NOW)


def test_nanoseconds_are_printed_without_pandas(tables: Any, program: Program) -> None:
    """Which the program does not import, and Python's own times lack."""
    nanos = pa.timestamp("ns")
    columns = pa.schema([("at", nanos), ("all", pa.list_(pa.struct([("in", nanos)])))])
    table = create_table(tables, "nanos", columns)
    write_by_stream(table, pa.table({"at": pa.array([-1], nanos), "all": [[{"in": 1}, None]]}, columns))
    with program.start("tail", "db.nanos", "--format", "json") as running:
        printed, errors = running.communicate(timeout=600)
    assert (running.returncode, errors) == (0, "")
    first, second = "1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000000001"
    assert json.loads(printed) == {"_row_kind": "+I", "at": first, "all": [{"in": second}, None]}
