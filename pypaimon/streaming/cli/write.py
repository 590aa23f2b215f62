"""`paimon-stream write`: rows of a file, or change records, into a table, commit by commit."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast, get_args

import click
from rich.console import Console

from pypaimon.streaming.cdc.change_reader import ChangeFormatName, TimeUnit, format_of, reading_of
from pypaimon.streaming.cdc.change_records import BadChangeError
from pypaimon.streaming.cdc.new_columns import OnNewColumn
from pypaimon.streaming.cli.bad_input import BadInputError
from pypaimon.streaming.cli.input_files import (
    FORMATS,
    Piece,
    Pieces,
    behind,
    delimiter_by_name,
    format_by_name,
    lines_of,
    pieces_of,
)
from pypaimon.streaming.cli.loading import LoadingBar
from pypaimon.streaming.cli.output import Record, tell
from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.cli.tables import TableSource, on_table
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.writing.builder import stream_write_builder
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter

ROWS_DONE, INPUT = "paimon-stream.input-rows", "paimon-stream.input"
"""Properties of a commit: how many rows of the input it and those before it hold, and what the input was called."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kb|mb|gb|kib|mib|gib|b)", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclass(frozen=True, slots=True)
class Every:
    """After how many rows, or bytes in memory, a commit is made; None: that does not count."""

    rows: int | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str | None) -> Every:
        """`10000`, or `64MB`. Raises click.UsageError if it is neither."""
        if text is None:
            return Every()
        if text.isdecimal() and int(text):
            return Every(rows=int(text))
        match = _SIZE.fullmatch(text)
        if match is None or not (size := int(float(match[1]) * _UNITS[match[2].lower()])):
            raise click.UsageError(f"--commit-every {text!r}: give a number of rows from 1, or a size as 64MB")
        return Every(size=size)


@click.command(
    epilog="""\b
Examples:
  paimon-stream write db.orders orders.parquet
  paimon-stream write db.orders --format csv --delimiter ';' < orders.csv
  paimon-stream write db.days 2026-01-01.parquet --overwrite
  paimon-stream tail db.orders --until-latest --format json | paimon-stream write db.copy --format jsonl
  paimon-stream write db.orders orders.jsonl --commit-every 100000 --commit-user load-2026-11-21 --resume
  kcat -C -b broker -t orders -e -q | paimon-stream write db.orders --changes debezium-json
"""
)
@on_table
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), help="Of the input. [default: by the name of FILE]")
@click.option("--delimiter", metavar="CHAR", help=r"Between fields of CSV; \t is a tab. [default: comma; *.tsv: tab]")
@click.option(
    "--changes",
    type=click.Choice(get_args(ChangeFormatName)),
    help="Each line is a change record of this format; --format does not count.",
)
@click.option(
    "--on-new-column",
    type=click.Choice(get_args(OnNewColumn)),
    default="fail",
    show_default=True,
    help="With --changes: what becomes of a column that the table lacks.",
)
@click.option(
    "--unavailable-value-placeholder", metavar="TEXT", help="As the connector of Debezium has it. [default: Debezium's]"
)
@click.option("--kind-column", metavar="NAME", help=f"Column with +I, -U, +U or -D. [default: {ROW_KIND}, if there]")
@click.option("--time-zone", metavar="NAME", help="Zone of times that come without one, such as Europe/Berlin.")
@click.option("--time-unit", type=click.Choice(get_args(TimeUnit)), help="Unit of times that come as numbers.")
@click.option(
    "--commit-every", metavar="ROWS|SIZE", help="Commit after so many rows, or as 64MB. [default: at the end]"
)
@click.option("--overwrite", is_flag=True, help="Replace what is there: the table, or the partitions that rows lie in.")
@click.option("--commit-user", metavar="NAME", help="Under whom to commit. [default: a new one]")
@click.option("--resume", is_flag=True, help="Pass over what this commit user has committed of the input already.")
@click.option("--json", "as_json", is_flag=True, help="Tell at the end as JSON what was written.")
def write(
    source: TableSource,
    file: str,
    form: str | None,
    delimiter: str | None,
    changes: ChangeFormatName | None,
    on_new_column: OnNewColumn,
    unavailable_value_placeholder: str | None,
    kind_column: str | None,
    time_zone: str | None,
    time_unit: TimeUnit | None,
    commit_every: str | None,
    overwrite: bool,
    commit_user: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Write the rows of FILE, or of stdin, into TABLE.

    All of them become visible in one commit at the end, or with --commit-every bit by bit; what was not committed when
    it ends otherwise is deleted. With --commit-user and --resume a later run of the same input goes on behind the last
    commit, so that each row is written once.

    Columns are matched by name. JSON is one object per line; CSV has a header, and an empty field is null. Values that
    come as text must fit the table's types exactly.
    """
    every = Every.parse(commit_every)
    form = form or format_by_name(file)
    if form is None and changes is None:
        raise click.UsageError("say what the input is: --format jsonl, csv, parquet or arrow, or --changes")
    if resume and commit_user is None:
        raise click.UsageError("--resume needs --commit-user: by it the table tells what was committed")
    if overwrite and (commit_every is not None or resume or changes is not None):
        raise click.UsageError("--overwrite is one commit of rows: leave out --commit-every, --resume and --changes")
    if delimiter is not None and (form != "csv" or changes is not None):
        raise click.UsageError("--delimiter is for CSV")
    fields_end = delimiter_by_name(file) if delimiter is None else _delimiter(delimiter)
    if source.view is not None:
        raise click.UsageError(f"a view cannot be written: give TABLE without '${source.view}'")
    reading = reading_of(time_unit, time_zone)
    if changes is not None:
        format_of(changes, unavailable_value_placeholder)
    elif unavailable_value_placeholder is not None:
        raise click.UsageError("--unavailable-value-placeholder is for --changes debezium-json")
    table = source.load()
    builder = stream_write_builder(table)
    if commit_user is not None:
        builder.with_commit_user(commit_user)
    if kind_column is not None:
        builder.with_row_kind_column(kind_column)
    if overwrite:
        builder.with_overwrite()
    with _opened(file) as data, builder.open_sync() as writer:
        if changes is not None:
            pieces = lines_of(data)
        else:
            pieces = pieces_of(str(form), data, table.fields, kind_column or ROW_KIND, reading, fields_end)
        load = _Load(source.name, os.path.basename(file), writer, every)
        if resume:
            load.pass_over()

        def put(piece: Piece) -> None:
            if changes is None:
                writer.write(piece.data)
                return
            try:
                writer.write_changes(
                    piece.data,
                    changes,
                    on_new_column=on_new_column,
                    time_unit=time_unit,
                    time_zone=time_zone,
                    unavailable_value_placeholder=unavailable_value_placeholder,
                )
            except BadChangeError as error:
                column = "" if error.column is None else f", column {error.column!r}"
                raise BadInputError(f"line {piece.numbers[error.record - 1]}{column}: {error.detail}") from error

        with (
            load.telling_what_is_left(),
            _on_interrupt(load.interrupt),
            LoadingBar.on(Console(stderr=True), data) as bar,
        ):
            load.run(pieces, put, bar)
            if overwrite and not load.commits:
                raise BadInputError("--overwrite: the input has no rows, so nothing was replaced")
    tell(load.record(), load.text(), "json" if as_json else "text")


class _Load:
    """One input on its way into a table."""

    def __init__(self, table: str, name: str, writer: BlockingStreamWriter, every: Every) -> None:
        self._table = table
        self._name = name
        self._writer = writer
        self._every = every
        self._passed = 0
        self._taken = 0
        self._committed = 0
        self._commits: list[int | None] = []
        self._rows = 0
        self._size = 0
        self._is_committing = False
        self._is_interrupted = False

    def pass_over(self) -> None:
        """Begin behind what the commit user has committed.

        Raises:
            BadInputError: That was another input.
        """
        notes = self._writer.committed_properties
        if ROWS_DONE not in notes:
            if self._writer.last_committed is not None:
                raise BadInputError(
                    f"--resume: the newest commit of {self._writer.commit_user!r} is not of paimon-stream write; give "
                    "this input a commit user of its own"
                )
            return
        if notes.get(INPUT) != self._name:
            raise BadInputError(
                f"--resume: {self._writer.commit_user!r} wrote {notes.get(INPUT)!r}, and the input is {self._name!r}; "
                "give each input a commit user of its own"
            )
        self._passed = self._committed = self._taken = int(notes[ROWS_DONE])

    @property
    def commits(self) -> int:
        """How many were made."""
        return len(self._commits)

    def run(self, pieces: Pieces, put: Callable[[Piece], None], bar: LoadingBar) -> None:
        """Write and commit all of it."""
        for piece in behind(pieces(self._room), self._passed):
            put(piece)
            self._taken += piece.rows
            self._rows += piece.rows
            self._size += piece.size
            if self._is_full():
                self._commit()
            bar.reached(self._taken, len(self._commits))
        if self._rows:
            self._commit()

    def record(self) -> Record:
        """What was done, for programs."""
        snapshots = [each for each in self._commits if each is not None]
        return {
            "table": self._table,
            "rows": self._committed - self._passed,
            "passed_over": self._passed,
            "commits": len(self._commits),
            "first_snapshot": snapshots[0] if snapshots else None,
            "last_snapshot": snapshots[-1] if snapshots else None,
            "commit_user": self._writer.commit_user,
        }

    def text(self) -> str:
        """What was done, for people."""
        found = cast(dict[str, Any], self.record())
        where = _snapshots(found["first_snapshot"], found["last_snapshot"])
        passed = f", {self._passed:,} passed over" if self._passed else ""
        return f"{self._table}: {count(found['rows'], 'row')} in {count(found['commits'], 'commit')}{where}{passed}"

    @contextmanager
    def telling_what_is_left(self) -> Iterator[None]:
        """On an error, or an interrupt, tell what of the input the table holds."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            word = "interrupted" if isinstance(error, KeyboardInterrupt) else "not finished"
            fate = "may be, for that was under way" if self._is_committing else "are not"
            advice = f"; --commit-user {self._writer.commit_user} --resume goes on behind them" if self._commits else ""
            say(
                f"{word}: {self._committed:,} rows of the input are committed, "
                f"{self._taken - self._committed:,} that were read behind them {fate}{advice}"
            )
            raise

    def interrupt(self) -> None:
        """End here; behind the commit that is under way."""
        if self._is_committing:
            self._is_interrupted = True
        else:
            raise KeyboardInterrupt

    def _room(self) -> int:
        """How many rows fit into the commit under way."""
        return sys.maxsize if self._every.rows is None else self._every.rows - self._rows

    def _is_full(self) -> bool:
        if self._every.rows is not None:
            return self._rows >= self._every.rows
        return self._every.size is not None and self._size >= self._every.size

    def _commit(self) -> None:
        notes = {ROWS_DONE: str(self._taken), INPUT: self._name}
        self._is_committing = True
        report = self._writer.commit(properties=notes)
        self._commits.append(report.snapshot)
        self._committed = self._taken
        self._rows = self._size = 0
        self._is_committing = False
        if self._is_interrupted:
            raise KeyboardInterrupt


def _delimiter(text: str) -> str:
    """A tab may be written as `\\t`. Raises click.UsageError if it is not one character that can part fields."""
    found = "\t" if text == "\\t" else text
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise click.UsageError(f"--delimiter {text!r}: give one character, as ';' or '\\t'")
    return found


def _snapshots(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f" (snapshot {first})" if first == last else f" (snapshots {first} to {last})"


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call something at the first SIGTERM or Ctrl-C; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    with on_sigterm(stop):
        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _opened(file: str) -> Iterator[BufferedReader]:
    if file == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        data = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    with data:
        yield data
