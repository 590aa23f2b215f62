"""Rows of a file, or of stdin, in pieces: JSON lines, CSV, Parquet, Arrow, and change records by line."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import click
import pyarrow as pa
import pyarrow.parquet

from pypaimon.streaming.cdc.change_records import Declared, UnreadableError, parsed
from pypaimon.streaming.cdc.change_values import BadValueError, Reading, column_of
from pypaimon.streaming.cli.csv_input import BadInputError, csv_batches
from pypaimon.streaming.formats.batch_sizes import AdaptiveBatchSize

FORMATS = ("jsonl", "csv", "parquet", "arrow")
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}
_MOST_ROWS = 10_000
_MOST_LINE_BYTES = 8 << 20
_NOTHING_DECLARED = Declared()


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of the input.

    Attributes:
        size: Approximate bytes in memory.
        numbers: Line numbers of change records in the input, from 1.
    """

    rows: int
    size: int
    data: Any
    numbers: Sequence[int] = ()


Pieces = Callable[[Callable[[], int]], Iterator[Piece]]
"""Yields the pieces of an input; the argument returns the most rows that the next piece may have."""


def format_by_name(name: str) -> str | None:
    return _ENDINGS.get(os.path.splitext(name)[1].lower())


def delimiter_by_name(name: str) -> str:
    return "\t" if os.path.splitext(name)[1].lower() == ".tsv" else ","


def pieces_of(
    form: str, source: BufferedReader, fields: Sequence[Any], kind_column: str, reading: Reading, delimiter: str = ","
) -> Pieces:
    if form == "parquet":
        return lambda most: _of_batches(_parquet_batches(source), most)
    if form == "arrow":
        return lambda most: _of_batches(_arrow_batches(source), most)
    typed = _Typed({field.name: field.type for field in fields}, kind_column, reading)
    if form == "csv":
        known = {*typed.types, kind_column}
        return lambda most: _typed_pieces(_of_batches(csv_batches(source, delimiter, known), most), typed)
    return lambda most: _json_pieces(source, typed, most)


def lines_of(source: BufferedReader) -> Pieces:
    """The lines of a file, without blank ones."""
    return lambda most: (
        Piece(len(lines), sum(map(len, lines)), lines, numbers) for numbers, lines in _line_groups(source, most)
    )


def rows_after(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """The pieces after a number of rows.

    Raises:
        BadInputError: The input has fewer rows.
    """
    left = rows
    for piece in pieces:
        if piece.rows <= left:
            left -= piece.rows
            continue
        if left:
            rest = piece.data[left:] if isinstance(piece.data, list) else piece.data.slice(left)
            yield Piece(piece.rows - left, piece.size, rest, piece.numbers[left:])
            left = 0
        else:
            yield piece
    if left:
        raise BadInputError(
            f"--resume: {rows:,} rows were committed, but the input has only {rows - left:,}: it is another one"
        )


@dataclass(frozen=True, slots=True)
class _Typed:
    types: dict[str, Any]
    kind_column: str
    reading: Reading

    def table(self, columns: dict[str, list[Any]], what: str, numbers: Sequence[int]) -> pa.Table:
        arrays = {}
        for name, values in columns.items():
            if name not in self.types and name != self.kind_column:
                first = next((index for index, value in enumerate(values) if value is not None), 0)
                raise BadInputError(f"{what} {numbers[first]}: the table has no column {name!r}")
            try:
                arrays[name] = (
                    column_of(values, self.types[name], _NOTHING_DECLARED, self.reading)
                    if name in self.types
                    else pa.array(values, pa.string())
                )
            except BadValueError as error:
                text = f"{what} {numbers[error.index]}, column {name!r}: {error}"
                raise BadInputError(text, advice=error.advice, option=error.option) from error
            except (ValueError, TypeError) as error:
                raise BadInputError(f"{what} {numbers[0]}, column {name!r}: {error}") from error
        return pa.table(arrays)


def _json_pieces(source: BufferedReader, typed: _Typed, most: Callable[[], int]) -> Iterator[Piece]:
    for numbers, lines in _line_groups(source, most):
        rows = [_row(line, number) for number, line in zip(numbers, lines, strict=True)]
        # Objects without fields are rows of nulls.
        names = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(list(typed.types)[:1])
        table = typed.table({name: [row.get(name) for row in rows] for name in names}, "line", numbers)
        yield Piece(len(rows), table.nbytes, table)


def _row(line: bytes, number: int) -> Any:
    try:
        row = parsed(line)
    except UnreadableError as error:
        raise BadInputError(f"line {number}: {error}") from error
    if row is None:
        raise BadInputError(f"line {number}: expected a JSON object, got null")
    return row


def _typed_pieces(pieces: Iterator[Piece], typed: _Typed) -> Iterator[Piece]:
    row = 1
    for piece in pieces:
        columns = dict(zip(piece.data.column_names, (each.to_pylist() for each in piece.data.columns), strict=True))
        table = typed.table(columns, "row", range(row, row + piece.rows))
        yield Piece(piece.rows, table.nbytes, table)
        row += piece.rows


def _line_groups(source: BufferedReader, most: Callable[[], int]) -> Iterator[tuple[list[int], list[bytes]]]:
    every = chain([source.readline().removeprefix(codecs.BOM_UTF8)], source)
    numbered = ((number, line) for number, line in enumerate(every, 1) if line.strip())
    while True:
        numbers: list[int] = []
        lines: list[bytes] = []
        size = 0
        for number, line in islice(numbered, min(most(), _MOST_ROWS)):
            numbers.append(number)
            lines.append(line)
            size += len(line)
            if size >= _MOST_LINE_BYTES:
                break
        if not lines:
            return
        yield numbers, lines


def _of_batches(batches: Iterator[pa.RecordBatch], most: Callable[[], int]) -> Iterator[Piece]:
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            rows = batch.slice(start, min(most(), _MOST_ROWS))
            yield Piece(rows.num_rows, rows.nbytes, pa.Table.from_batches([rows]))
            start += rows.num_rows


def _parquet_batches(source: BufferedReader) -> Iterator[pa.RecordBatch]:
    with _naming_format("Parquet"), _seekable(source) as file:
        parquet, pace = pyarrow.parquet.ParquetFile(file), AdaptiveBatchSize(_MOST_ROWS)
        for batch in parquet.iter_batches(batch_size=pace.rows):
            yield batch
            pace.record(batch.num_rows, batch.nbytes)
            # Arrow reads the batch size before each batch.
            parquet.reader.set_batch_size(pace.rows)


def _arrow_batches(source: BufferedReader) -> Iterator[pa.RecordBatch]:
    with _naming_format("Arrow"):
        if source.peek(6)[:6] == b"ARROW1":
            with _seekable(source) as file, pa.ipc.open_file(file) as found:
                for index in range(found.num_record_batches):
                    yield found.get_batch(index)
        else:
            yield from pa.ipc.open_stream(source)


@contextmanager
def _naming_format(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise BadInputError(f"the input is not {name}: {error}") from error


@contextmanager
def _seekable(source: BufferedReader) -> Iterator[BinaryIO]:
    if source.seekable():
        yield source
        return
    with tempfile.TemporaryFile() as file:
        while block := source.read(1 << 20):
            file.write(block)
        file.seek(0)
        yield file


def delimiter_of(text: str) -> str:
    """The value of `--delimiter`: a tab may be written as `\\t`. Raises click.UsageError unless it is one character."""
    found = "\t" if text == "\\t" else text
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise click.UsageError(f"--delimiter {text!r}: give one character, as ';' or '\\t'")
    return found


@contextmanager
def opened(file: str) -> Iterator[BufferedReader]:
    """The input: a file, or `-` for stdin."""
    if file == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        data = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    with data:
        yield data
