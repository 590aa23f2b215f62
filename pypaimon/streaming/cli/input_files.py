"""Rows of a file, or of stdin, in pieces: JSON lines, CSV, Parquet, Arrow, and change records by line."""

from __future__ import annotations

import codecs
import csv
import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pypaimon.streaming.cdc.change_records import Declared, UnreadableError, parsed
from pypaimon.streaming.cdc.change_values import BadValueError, Reading, column_of
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.formats.file_format import AdaptiveBatchSize
from pypaimon.streaming.model.column_names import GivenNames

_BLOCK = 1 << 20
_MOST_OF_A_ROW = 256 << 20
_OTHER_DELIMITERS = (";", "\t", "|", ",")


class BadInputError(PaimonStreamError, ValueError):
    """The input of `write` cannot be read as its format, or does not fit the table."""


def csv_batches(source: BufferedReader, delimiter: str, known: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows as text; an empty field is null, a quoted one the empty text."""
    names = _header(source, delimiter, known)
    rows = 0
    for block in _whole_rows(source, delimiter):
        if len(names) > 1 and not block.strip(b"\r\n"):
            continue
        table = _parsed_csv(block, names, delimiter, rows)
        rows += table.num_rows
        yield from table.to_batches()


def _header(source: BufferedReader, delimiter: str, known: Collection[str]) -> list[str]:
    try:
        line = source.readline().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"the header of the input is not UTF-8: {error}") from error
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        raise BadInputError(f"the header of the input is not CSV: {error}; rows end with \\n or \\r\\n") from error
    if not names:
        raise BadInputError("the input has no header with the names of the columns")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"the header of the input has the column {twice!r} more than once")
    if len(names) == 1 and names[0] not in known:
        for other in _OTHER_DELIMITERS:
            if other in names[0]:
                raise BadInputError(f"the header of the input is one column, {names[0]!r}: --delimiter {other!r}?")
    return names


def _whole_rows(source: BufferedReader, delimiter: str) -> Iterator[bytes]:
    quoted = re.compile(rb'(?:\A|(?<=[\r\n%s]))"[^"]*(?:""[^"]*)*(?:(")|\Z)' % re.escape(delimiter.encode()))
    rest = b""
    while piece := source.read(len(rest)) if len(rest) > _BLOCK else source.read1(_BLOCK):
        rest += piece
        end = _end_of_rows(rest, quoted)
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > _MOST_OF_A_ROW:
            raise BadInputError(f"a row has more than {_MOST_OF_A_ROW >> 20} MiB: is there a quote that never ends?")
    if rest:
        fields = list(quoted.finditer(rest))
        if fields and fields[-1][1] is None:
            raise BadInputError("the input ends inside a quoted field")
        yield rest


def _end_of_rows(block: bytes, quoted: re.Pattern[bytes]) -> int:
    end = last = 0
    for field in quoted.finditer(block):
        end = block.rfind(b"\n", last, field.start()) + 1 or end
        last = field.end()
        if last == len(block):  # the field may continue in the next block
            return end
    return block.rfind(b"\n", last) + 1 or end


def _parsed_csv(block: bytes, names: list[str], delimiter: str, before: int) -> pa.Table:
    wrong: list[pyarrow.csv.InvalidRow] = []

    def note(row: pyarrow.csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(block),
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
            pyarrow.csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,
                invalid_row_handler=note,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if not wrong:
            where = f", after row {before}" if before else ""
            raise BadInputError(f"the input is not CSV{where}: {error}") from error
        first = wrong[0]
        raise BadInputError(
            f"row {before + first.number}: the header has {len(names)} columns, but this row has "
            f"{first.actual_columns}: {first.text!r}"
        ) from error


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
    return lambda most: (
        Piece(len(lines), sum(map(len, lines)), lines, numbers) for numbers, lines in _line_groups(source, most)
    )


def rows_after(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """The pieces after a number of rows."""
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
        own = [*self.types, self.kind_column]
        try:
            spelled = GivenNames(list(columns), own).renamed(own)
        except ValueError as error:
            raise BadInputError(f"{what} {numbers[0]}: {error}") from error
        for given, values in columns.items():
            name = spelled.get(given, given)
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
    if file == "-":
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        data = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    with data:
        yield data
