"""`paimon-stream write`: files and pipes of every format, commits, messages, runs that are resumed, and bad input."""

from __future__ import annotations

import codecs
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from pypaimon import Schema

from support.docs.cli_runs import Outcome, Program
from support.tables.handles import batch_read, batch_table, catalog_with_database

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("sum", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    found = catalog_with_database(tmp_path)
    for name in ("t", "copy"):
        options = {"bucket": "1"}
        schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["id"], options=options)
        found.create_table(f"db.{name}", schema, False)
    return found


def held(catalog: Any, name: str = "t") -> list[dict[str, Any]]:
    found = batch_read(catalog.get_table(f"db.{name}"))
    return sorted(found, key=lambda row: row["id"])


def ids(catalog: Any) -> list[int]:
    return [row["id"] for row in held(catalog)]


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": list(numbers),
            "name": [None if number % 3 == 0 else f"n, {number}" for number in numbers],
            "sum": [Decimal(number) / 4 for number in numbers],
            "at": [number * 10**15 + number for number in numbers],
            "raw": [bytes([number, 255]) for number in numbers],
            "tags": [["a", None], [], None] * (len(numbers) // 3) + [None] * (len(numbers) % 3),
        },
        schema=SCHEMA,
    )


def lines(tmp_path: Path, *numbers: Any, name: str = "rows.jsonl") -> str:
    path = tmp_path / name
    path.write_text("".join(json.dumps({"id": number}) + "\n" for number in numbers))
    return str(path)


@contextmanager
def piped(content: bytes) -> Iterator[TextIO]:
    """stdin that is a pipe; it takes what a pipe holds."""
    read, write = os.pipe()
    with open(write, "wb") as end:
        end.write(content)
    with open(read) as stdin:
        yield stdin


@pytest.mark.parametrize("form", ["parquet", "feather", "arrow"])
def test_files_of_arrow_by_their_names(program: Program, catalog: Any, tmp_path: Path, form: str) -> None:
    path = str(tmp_path / f"rows.{form}")
    table = rows(*range(9))
    if form == "parquet":
        pa.parquet.write_table(table, path)
    elif form == "feather":
        pa.feather.write_feather(table, path)
    else:
        with pa.ipc.new_stream(path, SCHEMA) as writer:
            writer.write_table(table)
    found = program("write", "db.t", path, "--commit-user", "me")
    assert found == Outcome(0, "db.t: 9 rows in 1 commit (snapshot 1)\n", "")
    assert held(catalog) == table.to_pylist()


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_tail_prints_can_be_written_again(
    program: Program, catalog: Any, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa.parquet.write_table(rows(*range(9)), tmp_path / "rows.parquet")
    assert program("write", "db.t", str(tmp_path / "rows.parquet")).code == 0
    printed = program("tail", "db.t", "--until-latest", "-f", form).out
    with piped(printed.encode()) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = program("write", "db.copy", "-f", "jsonl" if form == "json" else form, "--json")
    assert (found.code, found.err, found.records[0]["rows"]) == (0, "", 9)
    assert held(catalog, "copy") == held(catalog) == rows(*range(9)).to_pylist()


def test_a_pipe_from_tail_as_a_program(
    program: Program, catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa.parquet.write_table(rows(*range(9)), tmp_path / "rows.parquet")
    assert program("write", "db.t", str(tmp_path / "rows.parquet")).code == 0
    with program.start("tail", "db.t", "--until-latest", "--format", "arrow") as tail:
        monkeypatch.setattr(sys, "stdin", tail.stdout)
        found = program("write", "db.copy", "--format", "arrow")
        assert (tail.wait(600), found.code, found.err) == (0, 0, "")
    assert held(catalog, "copy") == rows(*range(9)).to_pylist()


@pytest.mark.parametrize("write", [pa.parquet.write_table, pa.feather.write_feather])
def test_files_that_are_read_from_their_end_through_a_pipe(
    program: Program, catalog: Any, tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rows(1, 2, 3), str(tmp_path / "rows"))
    with piped((tmp_path / "rows").read_bytes()) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        form = "parquet" if write is pa.parquet.write_table else "arrow"
        assert program("write", "db.t", "--format", form).code == 0
    assert ids(catalog) == [1, 2, 3]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_names_of_columns_may_differ_in_case(program: Program, catalog: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    path.write_text('{"ID": 1, "Name": "a"}\n' if form == "jsonl" else "ID,Name\n1,a\n")
    assert program("write", "db.t", str(path)).code == 0
    assert [(row["id"], row["name"]) for row in held(catalog)] == [(1, "a")]
    path.write_text('{"ID": 2, "Id": 3}\n' if form == "jsonl" else "ID,Id\n2,3\n")
    found = program("write", "db.t", str(path))
    assert found.code == 1 and "columns 'ID', 'Id' all mean 'id'" in found.err


def test_row_kinds_come_from_a_column(program: Program, catalog: Any, tmp_path: Path) -> None:
    kinds = [("+I", 1), ("+I", 2), ("-D", 1)]
    for name in ("_row_kind", "op"):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"{name},id\n" + "".join(f"{kind},{number}\n" for kind, number in kinds))
        option = [] if name == "_row_kind" else ["--kind-column", name]
        assert program("write", "db.t", str(path), *option).code == 0
        assert ids(catalog) == [2]
    (tmp_path / "bad.csv").write_text("_row_kind,id\n+X,1\n")
    found = program("write", "db.t", str(tmp_path / "bad.csv"))
    assert found.code == 1 and "expected +I, -U, +U or -D, got '+X'" in found.err


def test_empty_fields_of_csv_are_null_and_quoted_ones_are_not(program: Program, catalog: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b'\xef\xbb\xbfid,name,sum\n1,,\n2,"",1.5\n3,"a\nb, ""c""",\n')
    assert program("write", "db.t", str(tmp_path / "rows.csv")).code == 0
    assert [(row["name"], row["sum"]) for row in held(catalog)] == [
        (None, None),
        ("", Decimal("1.50")),
        ('a\nb, "c"', None),
    ]


@pytest.mark.parametrize(("every", "commits"), [("4", 3), ("1B", 1), ("10", 1), ("1 kib", 1), ("3", 4)])
def test_commits_come_after_this_many_rows_or_bytes(
    program: Program, catalog: Any, tmp_path: Path, every: str, commits: int
) -> None:
    found = program(
        "write", "db.t", lines(tmp_path, *range(10)), "--commit-every", every, "--json", "--commit-user", "me"
    )
    assert (found.code, found.err) == (0, "")
    assert found.records == [
        {
            "table": "db.t",
            "rows": 10,
            "passed_over": 0,
            "commits": commits,
            "first_snapshot": 1,
            "last_snapshot": commits,
            "commit_user": "me",
        }
    ]
    assert ids(catalog) == list(range(10))


def test_only_a_commit_user_that_was_named_keeps_snapshots(program: Program, catalog: Any, tmp_path: Path) -> None:
    kept = tmp_path / "db.db" / "t" / "consumer"
    assert program("write", "db.t", lines(tmp_path, 1)).code == 0
    assert list(kept.iterdir()) == []
    assert program("write", "db.t", lines(tmp_path, 2), "--commit-user", "load").code == 0
    assert sorted(path.name for path in kept.iterdir()) == ["consumer-load", "sink-load"]
    assert program("write", "db.t", lines(tmp_path), "--resume", "--commit-user", "empty").code == 0
    assert ids(catalog) == [1, 2]


def test_an_empty_input_commits_nothing(program: Program, catalog: Any, tmp_path: Path) -> None:
    assert program("write", "db.t", lines(tmp_path)).out == "db.t: 0 rows in 0 commits\n"
    assert held(catalog) == []


def test_a_run_that_failed_continues_after_its_commits(program: Program, catalog: Any, tmp_path: Path) -> None:
    arguments = ["--commit-every", "2", "--commit-user", "load", "--resume"]
    first = program("write", "db.t", lines(tmp_path, 1, 2, 3, 4, "x", 6, 7), *arguments)
    assert first.code == 1
    assert first.err.splitlines() == [
        "paimon-stream: not finished: 4 rows of the input are committed, 0 that were read after them are not; "
        "--commit-user load --resume continues after them",
        "paimon-stream: line 5, column 'id': 'x' does not fit BIGINT NOT NULL: expected a whole number",
    ]
    assert ids(catalog) == [1, 2, 3, 4]
    second = program("write", "db.t", lines(tmp_path, 1, 2, 3, 4, 5, 6, 7), *arguments)
    assert second.out == "db.t: 3 rows in 2 commits (snapshots 3 to 4), 4 passed over\n"
    assert ids(catalog) == [1, 2, 3, 4, 5, 6, 7]
    assert program("write", "db.t", lines(tmp_path, *range(1, 8)), *arguments).out == (
        "db.t: 0 rows in 0 commits, 7 passed over\n"
    )
    short = program("write", "db.t", lines(tmp_path, 1, 2), *arguments)
    assert short.code == 1 and "7 rows were committed, but the input has only 2" in short.err
    other = program("write", "db.t", lines(tmp_path, 1, name="other.jsonl"), *arguments)
    assert other.code == 1 and "wrote 'rows.jsonl', and the input is 'other.jsonl'" in other.err


@pytest.mark.parametrize(
    ("name", "options", "delimiter"),
    [("a.csv", ["--delimiter", ";"], ";"), ("a.csv", ["--delimiter", r"\t"], "\t"), ("a.tsv", [], "\t")],
)
def test_other_delimiters(
    program: Program, catalog: Any, tmp_path: Path, name: str, options: list[str], delimiter: str
) -> None:
    (tmp_path / name).write_text(f'id{delimiter}name\n1{delimiter}"a{delimiter}b"\n2{delimiter}c,d\n')
    assert program("write", "db.t", str(tmp_path / name), *options).code == 0
    assert [row["name"] for row in held(catalog)] == [f"a{delimiter}b", "c,d"]


def test_an_object_without_fields_is_a_row_of_nulls(program: Program, catalog: Any, tmp_path: Path) -> None:
    catalog.create_table(
        "db.nulls", Schema.from_pyarrow_schema(pa.schema([("id", pa.int64()), ("v", pa.string())])), False
    )
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n{}\n")
    outcome = program("write", "db.nulls", str(path))
    assert "2 rows in 1 commit" in outcome.out
    found = batch_table(catalog.get_table("db.nulls"))
    assert found.to_pylist() == [{"id": None, "v": None}] * 2


def test_a_header_alone_is_not_a_row(program: Program, catalog: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n\n")
    found = program("write", "db.t", str(tmp_path / "a.csv"))
    assert (found.code, found.out) == (0, "db.t: 0 rows in 0 commits\n")


def test_overwrite_replaces_what_is_there(program: Program, catalog: Any, tmp_path: Path) -> None:
    for numbers in ((1, 2, 3), (2, 5)):
        assert program("write", "db.t", lines(tmp_path, *numbers), "--overwrite").code == 0
        assert ids(catalog) == [*numbers]


def test_overwrite_with_nothing_replaces_nothing(program: Program, catalog: Any, tmp_path: Path) -> None:
    """The pipe may have ended because the program before it failed."""
    assert program("write", "db.t", lines(tmp_path, 1, 2)).code == 0
    found = program("write", "db.t", lines(tmp_path), "--overwrite")
    assert found.code == 1 and "the input has no rows, so nothing was replaced" in found.err
    assert ids(catalog) == [1, 2]


def test_new_columns_are_those_of_change_records(program: Program, catalog: Any, tmp_path: Path) -> None:
    found = program("write", "db.t", lines(tmp_path, 1), "--on-new-column", "add")
    assert found.code == 2 and "--on-new-column goes with --changes" in found.err


def test_change_records_by_line(program: Program, catalog: Any, tmp_path: Path) -> None:
    records = [
        {"op": "c", "before": None, "after": {"id": 1, "name": "a"}},
        {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}},
        None,
        {"op": "c", "before": None, "after": {"id": 2, "name": "c", "extra": 1}},
    ]
    path = tmp_path / "changes.json"
    path.write_text("\n".join(map(json.dumps, records)).replace("null\n", "\nnull\n"))
    arguments = ["write", "db.t", str(path), "--changes", "debezium-json", "--commit-every", "2"]
    failed = program(*arguments)
    assert failed.code == 1 and "2 rows of the input are committed" in failed.err
    assert "line 5, column 'extra': db.t lacks this column" in failed.err and "choose --on-new-column add" in failed.err
    assert program(*arguments, "--on-new-column", "add").code == 0
    assert [(row["id"], row["name"], row["extra"]) for row in held(catalog)] == [(1, "b", None), (2, "c", 1)]


def test_a_byte_order_mark_is_not_part_of_the_first_line(program: Program, catalog: Any, tmp_path: Path) -> None:
    for name, rest in (("rows.jsonl", []), ("changes.json", ["--changes", "maxwell-json"])):
        key = len(rest)
        row = {"id": key, "name": "ä"}
        path = tmp_path / name
        for blank in (b"", b"\n"):
            line = json.dumps({"type": "insert", "data": row} if rest else row).encode()
            path.write_bytes(codecs.BOM_UTF8 + blank + line)
            assert program("write", "db.t", str(path), *rest).code == 0
    assert ids(catalog) == [0, 2]


def test_the_placeholder_of_a_connector(program: Program, catalog: Any, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    path.write_text(json.dumps({"op": "c", "before": None, "after": {"id": 1, "name": "left out"}}))
    arguments = ["write", "db.t", str(path), "--unavailable-value-placeholder", "left out"]
    found = program(*arguments, "--changes", "debezium-json")
    assert found.code == 1 and "line 1, column 'name': the database did not send the value" in found.err
    found = program(*arguments, "--changes", "maxwell-json")
    assert found.code == 2 and "--unavailable-value-placeholder: expected None for 'maxwell-json'" in found.err
    found = program(*arguments, "--format", "jsonl")
    assert found.code == 2 and "goes with --changes debezium-json" in found.err


def test_errors_name_the_line_of_the_input_also_after_skipped_lines(
    program: Program, catalog: Any, tmp_path: Path
) -> None:
    path = tmp_path / "changes.json"
    keys = (1, 2, 3, "x", 5)
    path.write_text("\n".join(json.dumps({"type": "insert", "data": {"id": key}}) for key in keys))
    arguments = ["write", "db.t", str(path), "--changes", "maxwell-json", "--commit-user", "load", "--resume"]
    for every in ("3", "2"):
        found = program(*arguments, "--commit-every", every)
        assert found.code == 1 and "line 4, column 'id': 'x' does not fit" in found.err
    assert ids(catalog) == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("form", "content"), [("jsonl", b'{"id": 1}\n{"id": 2}\n{"id": 3}\n'), ("csv", b"id\n1\n2\n3\n")]
)
def test_an_interrupt_discards_what_was_not_committed(
    program: Program,
    catalog: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    content: bytes,
    number: signal.Signals,
) -> None:
    """Also while it waits for a pipe that has nothing new."""

    first = tmp_path / "db.db" / "t" / "snapshot" / "snapshot-1"

    def interrupt() -> None:
        while not first.exists():
            pass
        os.kill(os.getpid(), number)

    read, write = os.pipe()
    with open(write, "wb") as end, open(read) as stdin, ThreadPoolExecutor() as pool:
        end.write(content)
        end.flush()
        monkeypatch.setattr(sys, "stdin", stdin)
        waiting = pool.submit(interrupt)
        found = program("write", "db.t", "-f", form, "--commit-every", "2")
        waiting.result()
    assert (found.code, found.out) == (130, "")
    assert "interrupted: 2 rows of the input are committed" in found.err
    assert ids(catalog) == [1, 2]
    assert len(list((tmp_path / "db.db" / "t" / "bucket-0").iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b"{", "line 1: it is not JSON"),
        ("a.jsonl", b'{"id": 1}\n\n[1]', "line 3: expected a JSON object, got list"),
        ("a.jsonl", b"null", "line 1: expected a JSON object, got null"),
        ("a.jsonl", b'{"id": 1}\n{"idd": 2}', "line 2: the table has no column 'idd'"),
        ("a.jsonl", b'{"id": null}', "BIGINT NOT NULL, and a row holds null"),
        ("a.csv", b"", "no header"),
        ("a.csv", b"\xff\n1", "is not UTF-8"),
        ("a.csv", b"id,name\n1,a\n\n2\n", "row 2: the header has 2 columns, but this row has 1: '2'"),
        ("a.csv", b"id,name\n1,a,b\n", "row 1: the header has 2 columns, but this row has 3: '1,a,b'"),
        ("a.csv", b"id,name,name\n1,a,b\n", "the column 'name' more than once"),
        ("a.csv", b"id;name\n1;a\n", "the header of the input is one column, 'id;name': --delimiter ';'?"),
        ("a.csv", b'id,name\n1,"a\n2,b\n', "ends inside a quoted field"),
        ("a.csv", b"id,name\n1,\xff\n", "the input is not CSV"),
        ("a.csv", b"id,sum\n1,2\n2,1.005\n", "row 2, column 'sum': '1.005' does not fit DECIMAL(10, 2)"),
        ("a.parquet", b"no parquet at all", "the input is not Parquet"),
        ("a.arrow", b"no arrow at all", "the input is not Arrow"),
    ],
)
def test_bad_input_is_reported_in_a_line(
    program: Program, catalog: Any, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found = program("write", "db.t", str(tmp_path / name))
    assert found.code == 1 and said in found.err.splitlines()[-1]
    assert held(catalog) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rows.dat"], "say what the input is"),
        (["nowhere.csv"], "nowhere.csv: No such file or directory"),
        (["rows.csv", "--commit-every", "0"], "--commit-every '0': give a number of rows from 1, or a size as 64MB"),
        (["rows.csv", "--commit-every", "much"], "give a number of rows"),
        (["rows.csv", "--resume"], "--resume needs --commit-user"),
        (["rows.csv", "--time-zone", "Mars"], "there is no time zone 'Mars'"),
        (["rows.csv", "--commit-user", "a/b"], "a/b"),
        (["rows.csv", "--delimiter", ";;"], "--delimiter ';;': give one character"),
        (["rows.jsonl", "--delimiter", ";"], "--delimiter is for CSV"),
        (["rows.csv", "--overwrite", "--commit-every", "2"], "--overwrite is one commit of rows"),
    ],
)
def test_wrong_usage(program: Program, catalog: Any, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "rows.csv").write_text("id\n")
    name, *options = arguments
    found = program("write", "db.t", str(tmp_path / name), *options)
    assert found.code == 2 and said in found.err
