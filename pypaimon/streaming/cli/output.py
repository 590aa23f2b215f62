"""Output of commands apart from rows of streams: records, as a table or as one JSON object per line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import click
from rich.console import Console
from rich.table import Table

from pypaimon.streaming.cli.messages import is_unicode, shown, shown_value
from pypaimon.streaming.model.time_zone import time_zone

C = TypeVar("C")
Value: TypeAlias = str | int | float | datetime | Mapping[str, Any] | Sequence[Any] | None
Record: TypeAlias = Mapping[str, Value]

FORMATS = ("table", "json")
_UNKNOWN = "unknown"
# Wide enough for any row, since lines of a file or a pipe are not wrapped.
_WIDE = 100_000


class _Stdout(Console):
    """Raises BrokenPipeError, which the program handles, if the reader of a pipe has gone."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def format_option(command: C) -> C:
    """Give a command `--format table|json`."""
    option = click.option(
        "--format",
        "-f",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="json: one object per line, null for unknown values.",
    )
    return cast(C, option(cast(Any, command)))


def console() -> Console:
    """stdout: in colour on a terminal, with unwrapped lines elsewhere."""
    stdout = _Stdout(highlight=False, markup=False, emoji=False)
    return stdout if stdout.is_terminal else _Stdout(highlight=False, markup=False, emoji=False, width=_WIDE)


def show(records: Iterable[Record], columns: Sequence[str], form: str, empty: str) -> None:
    found = list(records)
    if not found:
        click.echo(shown(empty), err=True)
    elif form == "json":
        for record in found:
            sys.stdout.write(to_json(record) + "\n")
        sys.stdout.flush()
    else:
        console().print(table_of(found, columns))


def with_blanks(records: Iterable[Record]) -> list[Record]:
    """Records for a table on screen in which None says that there is nothing, not that something is unknown."""
    return [{name: "" if value is None else value for name, value in each.items()} for each in records]


def print_result(record: Record, text: str, form: str) -> None:
    click.echo(to_json(record) if form == "json" else shown(text))


def to_json(record: Record) -> str:
    """One line of JSON; times in ISO 8601, and no secrets."""
    return json.dumps(shown_value(record), ensure_ascii=not is_unicode(), default=lambda value: value.isoformat())


def table_of(records: Iterable[Record], columns: Sequence[str]) -> Table:
    rows = list(records)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = any(isinstance(row.get(column), (int, float)) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in columns), style=cast(Any, row.get("style")))
    return table


def cell(value: Value) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, datetime):
        return time_zone(None).local(value).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return span(value)
    return printable(shown(str(value)))


def span(seconds: float) -> str:
    """A span of time for people: `850 ms`, `12.3 s`, `4 min`, `2:05:00`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return str(timedelta(seconds=round(seconds)))


def printable(text: str) -> str:
    """The text with characters escaped that would move the cursor or break the line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
