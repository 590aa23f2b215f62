"""`paimon-stream` as a whole: where its catalog comes from, what it says of errors, help and version."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.cli import tables as cli_tables
from pypaimon.streaming.cli.app import _SUMMARIES
from pypaimon.streaming.cli.app import program as commands
from pypaimon.streaming.cli.tables import refuse_unknown
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import ConsumerConflictError, IOTimeoutError, StoreError
from pypaimon.streaming.model.time_zone import time_zone
from support.docs.cli_runs import PROGRAM, Program, subcommands
from support.docs.doc_pages import DOCS
from support.tables.orders import catalog, events, orders
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

TAIL = ("tail", "db.orders", "--until-latest", "--format", "json", "--start", "2")


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path / "warehouse", capsys)


@pytest.fixture
def tables(program: Program) -> Any:
    found = catalog(program.warehouse)
    orders(found)
    return found


def test_the_catalog_comes_from_options(tables: Any, program: Program) -> None:
    found = program.bare(*TAIL, "-o", f"warehouse={program.warehouse}", "-o", "metastore=filesystem")
    assert len(found.records) == 3


def test_the_catalog_comes_from_a_file(tables: Any, program: Program, tmp_path: Path) -> None:
    config = tmp_path / "catalog.yaml"
    config.write_text(f"metastore: filesystem\nwarehouse: {program.warehouse}\n")
    assert len(program.bare(*TAIL, "--config", str(config)).records) == 3


def test_the_catalog_comes_from_pypaimons_file(
    tables: Any, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paimon.yaml").write_text(f"warehouse: {program.warehouse}\n")
    monkeypatch.chdir(tmp_path)
    assert len(program.bare(*TAIL).records) == 3


def test_the_catalog_comes_from_the_environment(tables: Any, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_STREAM_TAIL_WAREHOUSE", str(program.warehouse))
    assert len(program.bare(*TAIL).records) == 3


def test_options_of_the_catalog_may_stand_anywhere(
    tables: Any, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = str(program.warehouse)
    assert len(program.bare("-w", warehouse, *TAIL).records) == 3
    assert len(program.bare("-w", "/nowhere", *TAIL, "-w", warehouse).records) == 3
    for words in (("-w", warehouse, "consumers", "list"), ("consumers", "-w", warehouse, "list")):
        assert program.bare(*words, "db.orders").err == "db.orders has no consumers\n"
    monkeypatch.setenv("PAIMON_STREAM_WAREHOUSE", "/nowhere")
    monkeypatch.setenv("PAIMON_STREAM_TAIL_WAREHOUSE", "/nowhere")
    assert len(program.bare("-w", warehouse, *TAIL).records) == 3
    with pytest.raises(Exception, match=r"db\.nothing does not exist"):
        program.bare("tail", "db.nothing", "-w", warehouse, "--debug")


def test_every_option_that_the_documentation_names_may_be_given() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    keys = {key for cell in cells for key in re.findall(r"`([a-z][a-z.-]+)`", cell)}
    assert len(keys) > 40
    refuse_unknown(keys)


def test_options_of_the_table_may_be_given(tables: Any, program: Program) -> None:
    found = program("tail", "db.orders", "--until-latest", "-f", "json", "--table-option", "scan.snapshot-id=4")
    assert [row["_row_kind"] for row in found.records] == ["-D"]


def test_commands_that_change_tables_take_no_view(tables: Any, program: Program) -> None:
    """The change was made to the table itself."""
    commands = (
        "branch create TABLE b",
        "compact TABLE",
        "copy TABLE db.copy --create",
        "files TABLE",
        "maintain TABLE",
        "materialize-deletion-vectors TABLE",
        "partitions list TABLE",
        "remove-missing-files TABLE",
        "rescale TABLE 2",
        "rewrite-file-index TABLE",
        "rollback TABLE --to-snapshot 1 --yes",
        "tag create TABLE t",
        "write TABLE rows.jsonl",
    )
    for command in commands:
        found = program(*command.replace("TABLE", "db.orders$ro").split())
        place = "SOURCE" if command.startswith("copy") else "TABLE"
        assert found.code == 2 and f"takes no view: give {place} without '$ro'" in found.err, command


def test_views_are_named_as_in_paimon(tables: Any, program: Program) -> None:
    found = program("tail", "db.orders$audit_log", "--until-latest", "-f", "json", "--start", "2")
    assert [row["rowkind"] for row in found.records] == ["-U", "+U", "-D"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("tail", "db.nothing"), 1, "paimon-stream: table db.nothing does not exist; db has orders\n"),
        (("tail", "orders"), 2, "'orders' names no database"),
        (("tail", "db.orders$snapshots"), 1, "add its name to the table's: 'db.table$audit_log'"),
        (("tail", "db.orders", "--filter", "nothing = 1"), 2, "nothing"),
        (("tail", "db.orders", "--columns", "id,nothing"), 2, "paimon-stream: --columns: there is no column 'nothing'"),
        (("tail", "db.orders", "--columns", "id,id"), 2, "paimon-stream: --columns: a column is named twice"),
        (("tail", "db.orders", "--blob-place", ""), 2, "paimon-stream: --blob-place: '' is not a directory"),
        (("tail", "db.orders", "--start", "9999999d"), 2, "--start '9999999d': give latest-full"),
        (("tail", "db.orders", "--start", "99999999999d"), 2, "--start '99999999999d': give latest-full"),
        (("lag", "db.orders", "--max-lag", "99999999999d"), 2, "--max-lag '99999999999d': give a number"),
        (("tail", "db.orders", "--table-option", "scan.mod=latest"), 2, "Did you mean 'scan.mode'?"),
        (("tail", "db.orders", "--table-option", "merge-engin=x"), 2, "Did you mean 'merge-engine'?"),
        (("tail", "db.orders", "--table-option", "latest"), 2, "expected KEY=VALUE, got"),
        (("tail", "db.orders", "--table-option", "time-zone=Asia/Shangai"), 2, "there is no time zone 'Asia/Shangai'"),
        (("tail", "db.orders", "--consumer-id", "a/b"), 2, "'a/b'"),
        (("nothing",), 2, "No such command 'nothing'"),
        (("consumers", "reset", "db.orders", "etl"), 2, "Missing option '--to'"),
        (("tail", "--nothing"), 2, "No such option"),
        (("explain",), 2, "Missing argument 'TABLE'"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    tables: Any, program: Program, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found = program(*arguments) if len(arguments) > 1 else program.bare(*arguments)
    assert (found.code, found.out) == (code, "")
    assert message in found.err
    assert (found.err.startswith("paimon-stream: "), found.err.count("\n")) == (True, 1)


def test_without_a_catalog_it_says_how_to_give_one(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = program.bare("tail", "db.orders")
    assert found.code == 2
    assert "--warehouse" in found.err


def test_a_file_that_is_not_a_catalog_is_refused(program: Program, tmp_path: Path) -> None:
    config = tmp_path / "catalog.yaml"
    for text in ("a: [", "- a", "a: {b: c}"):
        config.write_text(text)
        assert program.bare("tail", "db.orders", "--config", str(config)).code == 2


def test_the_stack_of_an_error_can_be_had(program: Program) -> None:
    with pytest.raises(Exception, match=r"db\.nothing does not exist"):
        program.bare("--debug", "tail", "db.nothing", "-w", str(program.warehouse))


def test_it_reports_its_version(program: Program) -> None:
    assert program.bare("--version").out == f"paimon-stream, version {metadata.version('pypaimon-streaming')}\n"


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The words of each command, and it; groups too."""
    yield (), commands
    for name, command in subcommands(commands).items():
        yield (name,), command
        if isinstance(command, click.Group):
            yield from (((name, each), below) for each, below in subcommands(command).items())


@pytest.mark.parametrize("words", [words for words, _ in every_command()], ids=" ".join)
def test_every_command_has_help_with_examples(program: Program, words: tuple[str, ...]) -> None:
    found = program.bare(*words, "--help")
    assert (found.code, found.err) == (0, "")
    assert re.search(rf"Examples?:\n +paimon-stream {' '.join(words)}", found.out)


def test_every_command_has_json(program: Program) -> None:
    for words, command in every_command():
        if words != ("demo",) and not isinstance(command, click.Group):
            assert "json" in program.bare(*words, "--help").out, words


@pytest.mark.parametrize("words", [(), ("consumers",)])
def test_without_a_command_it_shows_help(program: Program, words: tuple[str, ...]) -> None:
    found = program.bare(*words)
    assert "Commands:\n" in found.out + found.err


def test_examples_are_runs_that_the_program_understands() -> None:
    texts = [command.epilog for _, command in every_command()]
    lines = [line for text in texts if text for line in re.findall(r"^ +paimon-stream (.+)$", text, re.MULTILINE)]
    assert len(lines) >= 15
    for line in lines:
        name, *arguments = takewhile(lambda word: word not in ("|", "||", "<", ">"), shlex.split(line))
        group: click.Command = commands
        while isinstance(group, click.Group):
            group = subcommands(group)[name]
            if isinstance(group, click.Group):
                name, *arguments = arguments
        group.make_context(name, arguments)


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('gone', name='click')\n")
    result = subprocess.run(PROGRAM, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, check=False)
    assert result.returncode == 1
    assert result.stderr == "paimon-stream: click is missing; pip install 'pypaimon-streaming[cli]' brings it\n"


_LOADED = """
import atexit, sys
import paimon_stream
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
paimon_stream.main()
"""


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["--help"], {"pyarrow", "pypaimon.catalog.catalog", "pandas", "polars", "rich"}),
        (["lag", "db.t"], {"pandas", "polars"}),
        (["consumers", "list", "db.t"], {"pandas", "polars"}),
        pytest.param(["snapshots", "db.t"], {"pandas", "polars"}, marks=pytest.mark.nightly),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_what_a_command_does_not_need_is_not_imported(tmp_path: Path, words: list[str], left_out: set[str]) -> None:
    Table(tmp_path).commit([1])
    place = {"PAIMON_STREAM_WAREHOUSE": str(tmp_path)}
    command = [sys.executable, "-c", _LOADED, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **place})
    loaded = set(result.stderr.split())
    assert "pypaimon.streaming.cli.app" in loaded and not left_out & loaded


def test_the_summaries_begin_as_the_help_of_each_command() -> None:
    for name, command in subcommands(commands).items():
        first = (command.help or "").split("\n\n")[0].replace("\n", " ")
        assert _SUMMARIES[name].partition(",")[0].rstrip(".") in first


def test_the_demo_is_a_command(program: Program) -> None:
    found = program.bare("demo", "--seconds", "0.5", "--interval", "0.1", "--plain")
    assert (found.code, found.err) == (0, "")
    assert "equal the table" in found.out


def test_retry_does_all_of_it_again_while_what_fails_may_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_tables, "Backoff", partial(Backoff, first_pause=0.001))
    failures: list[Exception] = [StoreError("throttled"), IOTimeoutError("hangs"), ConsumerConflictError("another")]

    @click.command()
    @cli_tables.on_table
    @cli_tables.retry_option
    def fails(source: cli_tables.TableSource) -> None:
        assert source.patient
        raise failures.pop(0)

    with pytest.raises(ConsumerConflictError):
        fails.main(["db.t", "--warehouse", "w", "--retry"], standalone_mode=False)
    pause = "; trying again after a pause"
    assert capsys.readouterr().err == f"paimon-stream: throttled{pause}\npaimon-stream: hangs{pause}\n"


def test_all_that_only_reads_can_be_asked_to_retry() -> None:
    retrying = {words[-1] for words, command in every_command() if any(each.name == "retry" for each in command.params)}
    # A copy continues at its position, compaction and maintenance with the remaining files.
    assert retrying - {"copy", "compact", "maintain"} == {*"tail lag explain snapshots doctor files list show".split()}


def test_start_takes_what_with_start_takes(tmp_path: Path) -> None:
    zone, noon = time_zone("UTC"), datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    position = '{"x": 1}'
    given = {
        "earliest": {"mode": "earliest"},
        "3": {"snapshot_id": 3},
        "full:3": {"snapshot_id": 3, "full": True},
        "tag:v1": {"tag": "v1"},
        "full:tag:v1": {"tag": "v1", "full": True},
        "2026-11-21T12:00": {"timestamp": noon},
        "creation-time:2026-11-21T12:00Z": {"creation_time": noon},
        "file-creation-time:2h": {"file_creation_time": noon - timedelta(hours=2)},
        f"position:{position}": {"position": position},
    }
    assert {text: cli_tables.start_of(text, zone, noon) for text in given} == given
    arguments = set(inspect.signature(StreamReadBuilder.with_start).parameters) - {"self"}
    assert {name for each in given.values() for name in each} == arguments
    builder = stream_read_builder(orders(catalog(tmp_path)))
    for each in given.values():
        if "position" not in each:
            builder.with_start(**each)
    for text in ("full:earliest", "creation-time:soon", "full:"):
        with pytest.raises(click.UsageError, match="--help has the others"):
            cli_tables.start_of(text, zone)


def test_a_shell_completes_the_names_of_tables(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events(catalog(tmp_path), commits=0)
    orders(catalog(tmp_path))
    shell = ShellComplete(commands, {}, "paimon-stream", "_PAIMON_STREAM_COMPLETE")

    def completed(*words: str, incomplete: str) -> list[str]:
        return [str(each.value) for each in shell.get_completions(list(words), incomplete)]

    place = ("--warehouse", str(tmp_path))
    assert completed(*place, "tail", incomplete="db.o") == ["db.orders"]
    assert completed("lag", *place, incomplete="") == ["db.events", "db.orders"]
    assert completed("lag", incomplete="db.") == []
    monkeypatch.setenv("PAIMON_STREAM_WAREHOUSE", str(tmp_path))
    assert completed("consumers", "list", incomplete="d") == ["db.events", "db.orders"]
    assert completed("lag", incomplete="other.") == []


def test_tables_are_listed(program: Program) -> None:
    assert program("tables").err == "the catalog has no tables\n"
    events(catalog(program.warehouse), commits=0)
    orders(catalog(program.warehouse))
    assert [line.strip() for line in program("tables").lines] == ["table", "db.events", "db.orders"]
    assert program("tables", "db", "-f", "json").records == [{"table": "db.events"}, {"table": "db.orders"}]
    found = program("tables", "dbs")
    assert (found.code, found.err) == (
        2,
        "paimon-stream: There is no database 'dbs' in this catalog. Did you mean 'db'?\n",
    )


def test_a_shell_completes_the_options_of_a_table() -> None:
    shell = ShellComplete(commands, {}, "paimon-stream", "_PAIMON_STREAM_COMPLETE")
    found = [each.value for each in shell.get_completions(["tail", "--table-option"], "scan.bu")]
    assert found == ["scan.bucket="]
    assert (
        shell.get_completions(["compact", "--table-option"], "compaction.size-r")[0].value == "compaction.size-ratio="
    )
