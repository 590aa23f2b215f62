"""Rows of a stream on stdout: as a table with coloured row kinds, as JSON lines, as CSV, or as Arrow."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol

import click
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.cli.messages import is_unicode
from pypaimon.streaming.cli.output import printable
from pypaimon.streaming.demo import KINDS
from pypaimon.streaming.model.json_rows import json_columns
from pypaimon.streaming.model.system_columns import ROW_KIND

FORMATS = ("table", "json", "csv", "arrow")
TABLE = "_table"
_WIDEST = 60
_QUOTED = re.compile(r'[",\r\n]')
_CHUNK = 1000


class RowWriter(Protocol):
    """Prints batches, whose first column is `_row_kind`."""

    def write(self, source: BlockingBatch, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def row_writer(form: str, schema: pa.Schema, console: Console) -> RowWriter:
    if form == "json":
        return JsonWriter()
    if form == "csv":
        return CsvWriter(schema)
    return ArrowWriter(schema) if form == "arrow" else TableWriter(schema, console)


class RowsOfTables:
    """Prints rows of several tables, with a first column `table`, in JSON the key `_table`.

    Rows whose columns differ from those of the previous rows get a header of their own.
    """

    def __init__(self, form: str, console: Console) -> None:
        self._form = form
        self._console = console
        self._schema: pa.Schema | None = None
        self._json = JsonWriter()
        self._columns: TableWriter | None = None

    def write(self, table: str, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        """Print rows of a batch of a table."""
        names = pa.array([table] * batch.num_rows, pa.string())
        if self._form == "json":
            if TABLE in batch.schema.names:
                raise click.ClickException(f"{table} has a column {TABLE} of its own: follow it alone")
            self._json.write(source, batch.add_column(0, TABLE, names))
            return
        schema = batch.schema.remove_metadata()
        if self._columns is None or schema != self._schema:
            self._schema = schema
            self._columns = TableWriter(schema, self._console, of_tables=True)
        self._columns.write_of(table, source, batch)


class JsonWriter:
    """One object per row and line, with the key `_row_kind`."""

    def write(self, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        columns, escaped = json_columns(batch), not is_unicode()
        for values in zip(*columns.values(), strict=True):
            row = json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=escaped, separators=(",", ":"))
            sys.stdout.write(row + "\n")
        sys.stdout.flush()

    def close(self) -> None: ...


class CsvWriter:
    """A header, then one line per row, always in UTF-8.

    Null is an empty field, the empty text a quoted one; nested values are JSON.
    """

    def __init__(self, schema: pa.Schema) -> None:
        if not is_unicode() and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(_csv_line(schema.names))
        sys.stdout.flush()

    def write(self, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        sys.stdout.writelines(map(_csv_line, zip(*text_columns(batch), strict=True)))
        sys.stdout.flush()

    def close(self) -> None: ...


class ArrowWriter:
    """Arrow's IPC stream format, with its end marker."""

    def __init__(self, schema: pa.Schema) -> None:
        self._out = sys.stdout.buffer
        self._writer = pa.ipc.new_stream(self._out, schema)

    def write(self, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._out.flush()

    def close(self) -> None:
        self._writer.close()
        self._out.flush()


class TableWriter:
    """Aligned columns, which only grow; the header is repeated when they do. Row kinds are coloured.

    Values are cut after 60 characters, and control characters are escaped.
    """

    def __init__(self, schema: pa.Schema, console: Console, of_tables: bool = False) -> None:
        self._console = console
        first = ["table"] if of_tables else []
        self._names = [*first, "snapshot", "", *(name for name in schema.names if name != ROW_KIND)]
        right = [_is_number(field.type) for field in schema if field.name != ROW_KIND]
        self._right = [*(False for _ in first), True, False, *right]
        self._widths = [0] * len(self._names)

    def write(self, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        self._print_all([str(source.snapshot_id)], batch)

    def write_of(self, table: str, source: BlockingBatch, batch: pa.RecordBatch) -> None:
        self._print_all([_clipped(table), str(source.snapshot_id)], batch)

    def _print_all(self, first: list[str], batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _CHUNK):
            self._write(first, batch.slice(start, _CHUNK))

    def close(self) -> None: ...

    def _write(self, first: list[str], batch: pa.RecordBatch) -> None:
        kinds, *columns = ([_clipped(value) for value in column] for column in text_columns(batch))
        repeated = ([cell] * batch.num_rows for cell in first)
        rows = list(zip(*repeated, kinds, *columns, strict=True))
        needed = [max(map(len, column)) for column in zip(*chain([self._names], rows), strict=True)]
        if any(need > width for need, width in zip(needed, self._widths, strict=True)):
            self._widths = [max(pair) for pair in zip(needed, self._widths, strict=True)]
            self._print(self._names, "bold")
        for row in rows:
            self._print(row, KINDS.get(row[len(first)], ""))

    def _print(self, cells: list[str] | tuple[str, ...], style: str) -> None:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        )
        self._console.print(Text("  ".join(aligned).rstrip(), style=style), overflow="ignore", no_wrap=True, crop=False)


def _csv_line(cells: Iterable[str | None]) -> str:
    return ",".join("" if cell is None else _csv_cell(cell) for cell in cells) + "\n"


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _QUOTED.search(text) else text


def _clipped(text: str | None) -> str:
    if text is None:
        return "null"
    shown = printable(text[: _WIDEST + 1])
    if len(shown) <= _WIDEST:
        return shown
    end = "…" if is_unicode() else "..."
    return shown[: _WIDEST - len(end)] + end


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def text_columns(batch: pa.RecordBatch) -> list[list[str | None]]:
    return [[None if value is None else _text(value) for value in values] for values in json_columns(batch).values()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
