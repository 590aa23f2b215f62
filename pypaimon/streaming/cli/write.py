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
from functools import partial
from typing import Any, cast, get_args

import click
from rich.console import Console

from pypaimon.streaming.cdc.change_reader import ChangeFormatName, TimeUnit, format_of, reading_of
from pypaimon.streaming.cdc.new_columns import OnNewColumn
from pypaimon.streaming.cli.input_files import (
    FORMATS,
    BadInputError,
    Piece,
    Pieces,
    delimiter_by_name,
    delimiter_of,
    format_by_name,
    lines_of,
    opened,
    pieces_of,
    rows_after,
)
from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.cli.options import grouped, option
from pypaimon.streaming.cli.output import Record, print_result
from pypaimon.streaming.cli.progress_bars import LoadBar
from pypaimon.streaming.cli.tables import TableSource, on_table, refuse_without
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.errors import BadChangeError
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.writing.builder import stream_write_builder
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter

ROWS_DONE, INPUT = "paimon-stream.input-rows", "paimon-stream.input"
"""Properties of a commit: the rows of the input up to this commit, and the name of the input."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kb|mb|gb|kib|mib|gib|b)", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclass(frozen=True, slots=True)
class Every:
    """After how many rows, or bytes in memory, a commit is made; None for no limit."""

    rows: int | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str | None) -> Every:
        """Parse `10000` or `64MB`; raises click.UsageError for other texts."""
        if text is None:
            return Every()
        if text.isdecimal() and int(text):
            return Every(rows=int(text))
        match = _SIZE.fullmatch(text)
        if match is None or not (size := int(float(match[1]) * _UNITS[match[2].lower()])):
            raise click.UsageError(f"--commit-every {text!r}: give a number of rows from 1, or a size as 64MB")
        return Every(size=size)


@dataclass(frozen=True)
class InputLayout:
    form: str | None = option(
        "--format", "-f", type=click.Choice(FORMATS), help="Of the input. [default: by the name of FILE]"
    )
    delimiter: str | None = option(
        "--delimiter", metavar="CHAR", help=r"Between fields of CSV; \t is a tab. [default: comma; *.tsv: tab]"
    )


@dataclass(frozen=True)
class ChangeRecords:
    changes: ChangeFormatName | None = option(
        "--changes",
        type=click.Choice(get_args(ChangeFormatName)),
        help="Each line is a change record of this format; --format is ignored.",
    )
    on_new_column: OnNewColumn | None = option(
        "--on-new-column",
        type=click.Choice(get_args(OnNewColumn)),
        help="With --changes: what to do about a column that the table lacks. [default: fail]",
    )
    unavailable_value_placeholder: str | None = option(
        "--unavailable-value-placeholder",
        metavar="TEXT",
        help="The setting of Debezium's connector. [default: Debezium's]",
    )


@dataclass(frozen=True)
class Values:
    kind_column: str | None = option(
        "--kind-column", metavar="NAME", help=f"Column with +I, -U, +U or -D. [default: {ROW_KIND}, if there]"
    )
    time_zone: str | None = option(
        "--time-zone", metavar="NAME", help="Zone of times that come without one, such as Europe/Berlin."
    )
    time_unit: TimeUnit | None = option(
        "--time-unit", type=click.Choice(get_args(TimeUnit)), help="Unit of times that come as numbers."
    )


@dataclass(frozen=True)
class Commits:
    commit_every: str | None = option(
        "--commit-every",
        metavar="ROWS|SIZE",
        help="Commit after this many rows, or this many bytes, as 64MB. [default: at the end]",
    )
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace the table, or the partitions of the rows.")
    commit_user: str | None = option("--commit-user", metavar="NAME", help="Under whom to commit. [default: a new one]")
    resume: bool = option(
        "--resume", is_flag=True, help="Skip the part of the input that this commit user has committed."
    )
    maintain: bool = option("--maintain", is_flag=True, help="Also do what is due of paimon-stream maintain.")


@click.command(
    epilog="""\b
Examples:
  paimon-stream write db.orders orders.parquet
  paimon-stream write db.orders --format csv --delimiter ';' < orders.csv
  paimon-stream write db.days 2026-01-01.parquet --overwrite
  paimon-stream tail db.orders --format json | paimon-stream write db.copy --format jsonl
  paimon-stream write db.orders orders.jsonl --commit-every 100000 --commit-user load-2026-11-21 --resume
  kcat -C -b broker -t orders -e -q | paimon-stream write db.orders --changes debezium-json
"""
)
@on_table
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@grouped("layout", InputLayout)
@grouped("cdc", ChangeRecords)
@grouped("values", Values)
@grouped("commits", Commits)
@click.option("--json", "as_json", is_flag=True, help="Print at the end as JSON what was written.")
def write(
    source: TableSource,
    file: str,
    layout: InputLayout,
    cdc: ChangeRecords,
    values: Values,
    commits: Commits,
    as_json: bool,
) -> None:
    """Write the rows of FILE, or of stdin, into TABLE.

    All of them become visible in one commit at the end, or with --commit-every bit by bit; rows that were not committed
    when it fails are deleted. With --commit-user and --resume a later run of the same input continues after the last
    commit, so that each row is written once.

    Columns are matched by name. JSON is one object per line; CSV has a header, and an empty field is null. Values that
    come as text must fit the table's types exactly.
    """
    form = layout.form or format_by_name(file)
    _check(form, layout, cdc, commits)
    every = Every.parse(commits.commit_every)
    fields_end = delimiter_by_name(file) if layout.delimiter is None else delimiter_of(layout.delimiter)
    reading = reading_of(values.time_unit, values.time_zone)
    table = source.load()
    builder = stream_write_builder(table)
    if commits.commit_user is not None:
        builder.with_commit_user(commits.commit_user)
    if values.kind_column is not None:
        builder.with_row_kind_column(values.kind_column)
    if commits.overwrite:
        builder.with_overwrite()
    if commits.maintain:
        builder.with_maintenance("auto")
    with opened(file) as data, builder.open_sync() as writer:
        if cdc.changes is not None:
            pieces = lines_of(data)
            put = partial(_put_changes, writer, cdc.changes, cdc, values)
        else:
            pieces = pieces_of(str(form), data, table.fields, values.kind_column or ROW_KIND, reading, fields_end)
            put = partial(_put_rows, writer)
        load = _Load(source.name, os.path.basename(file), writer, every)
        if commits.resume:
            load.skip_committed()
        with load.reporting_what_is_left(), _on_interrupt(load.interrupt), LoadBar(Console(stderr=True), data) as bar:
            load.run(pieces, put, bar)
            if commits.overwrite and not load.commits:
                raise BadInputError("--overwrite: the input has no rows, so nothing was replaced")
    print_result(load.record(), load.text(), "json" if as_json else "text")


def _check(form: str | None, layout: InputLayout, cdc: ChangeRecords, commits: Commits) -> None:
    if form is None and cdc.changes is None:
        raise click.UsageError("say what the input is: --format jsonl, csv, parquet or arrow, or --changes")
    if commits.resume and commits.commit_user is None:
        raise click.UsageError("--resume needs --commit-user, under which the table records what was committed")
    if commits.overwrite and (commits.commit_every is not None or commits.resume or cdc.changes is not None):
        raise click.UsageError("--overwrite is one commit of rows: leave out --commit-every, --resume and --changes")
    if layout.delimiter is not None and (form != "csv" or cdc.changes is not None):
        raise click.UsageError("--delimiter is for CSV")
    if cdc.changes is not None:
        format_of(cdc.changes, cdc.unavailable_value_placeholder)
    else:
        refuse_without("--changes", {"--on-new-column": cdc.on_new_column})
        refuse_without(
            "--changes debezium-json", {"--unavailable-value-placeholder": cdc.unavailable_value_placeholder}
        )


def _put_rows(writer: BlockingStreamWriter, piece: Piece) -> None:
    writer.write(piece.data)


def _put_changes(
    writer: BlockingStreamWriter, form: ChangeFormatName, cdc: ChangeRecords, values: Values, piece: Piece
) -> None:
    try:
        writer.write_changes(
            piece.data,
            form,
            on_new_column=cdc.on_new_column or "fail",
            time_unit=values.time_unit,
            time_zone=values.time_zone,
            unavailable_value_placeholder=cdc.unavailable_value_placeholder,
        )
    except BadChangeError as error:
        column = "" if error.column is None else f", column {error.column!r}"
        text = f"line {piece.numbers[error.record - 1]}{column}: {error.detail}"
        raise BadInputError(text, advice=error.advice, option=error.option) from error


class _Load:
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

    def skip_committed(self) -> None:
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
        return len(self._commits)

    def run(self, pieces: Pieces, put: Callable[[Piece], None], bar: LoadBar) -> None:
        for piece in rows_after(pieces(self._room), self._passed):
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
        found = cast(dict[str, Any], self.record())
        where = _snapshots(found["first_snapshot"], found["last_snapshot"])
        passed = f", {self._passed:,} passed over" if self._passed else ""
        return f"{self._table}: {count(found['rows'], 'row')} in {count(found['commits'], 'commit')}{where}{passed}"

    @contextmanager
    def reporting_what_is_left(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            word = "interrupted" if isinstance(error, KeyboardInterrupt) else "not finished"
            fate = "may be, since their commit was under way" if self._is_committing else "are not"
            advice = (
                f"; --commit-user {self._writer.commit_user} --resume continues after them" if self._commits else ""
            )
            say(
                f"{word}: {self._committed:,} rows of the input are committed, "
                f"{self._taken - self._committed:,} that were read after them {fate}{advice}"
            )
            raise

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt, if a commit is under way after it."""
        if self._is_committing:
            self._is_interrupted = True
        else:
            raise KeyboardInterrupt

    def _room(self) -> int:
        return sys.maxsize if self._every.rows is None else self._every.rows - self._rows

    def _is_full(self) -> bool:
        if self._every.rows is not None:
            return self._rows >= self._every.rows
        return self._every.size is not None and self._size >= self._every.size

    def _commit(self) -> None:
        notes = {ROWS_DONE: str(self._taken), INPUT: self._name}
        self._is_committing = True
        report = self._writer.commit(properties=notes)
        self._commits.append(report.snapshot_id)
        self._committed = self._taken
        self._rows = self._size = 0
        self._is_committing = False
        if self._is_interrupted:
            raise KeyboardInterrupt


def _snapshots(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f" (snapshot {first})" if first == last else f" (snapshots {first} to {last})"


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at the first SIGTERM or Ctrl-C; a second one ends the process at once."""
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
