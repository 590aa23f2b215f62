"""Rows of a file, or of stdin, in pieces: JSON lines, CSV, Parquet, Arrow, and change records by line."""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet

from pypaimon.streaming.cdc.change_records import Declared, UnreadableError, parsed
from pypaimon.streaming.cdc.change_values import BadValueError, Reading, column_of
from pypaimon.streaming.cli.bad_input import BadInputError
from pypaimon.streaming.cli.csv_input import csv_batches
from pypaimon.streaming.formats.row_pace import RowPace

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
    """Some rows that follow each other.

    Attributes:
        rows: How many: rows, or lines of change records.
        size: Bytes that they take in memory, about.
        data: Arrow's rows; of change records their lines.
        numbers: Of the lines in the input, from 1; of change records only.
    """

    rows: int
    size: int
    data: Any
    numbers: Sequence[int] = ()


Pieces = Callable[[Callable[[], int]], Iterator[Piece]]
"""Gives the pieces of an input; each has at most as many rows as the function says that is given."""


def format_by_name(name: str) -> str | None:
    """The format that the name of a file tells; None: it tells none."""
    return _ENDINGS.get(os.path.splitext(name)[1].lower())


def delimiter_by_name(name: str) -> str:
    """What stands between the fields of a CSV file of this name."""
    return "\t" if os.path.splitext(name)[1].lower() == ".tsv" else ","


def pieces_of(
    form: str,
    source: BufferedReader,
    fields: Sequence[Any],
    kind_column: str,
    reading: Reading,
    delimiter: str = ",",
) -> Pieces:
    """The rows of a file in the columns of a table.

    Args:
        form: One of `FORMATS`.
        source: The file, from its beginning.
        fields: pypaimon's fields of the table.
        kind_column: A column that the table lacks and rows may have nevertheless: their kinds.
        reading: How times are read that come as text.
        delimiter: Between the fields of CSV.
    """
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
    """The lines of a file as they are, blank ones left out."""
    return lambda most: (
        Piece(len(lines), sum(map(len, lines)), lines, numbers) for numbers, lines in _line_groups(source, most)
    )


def behind(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """The pieces behind a number of rows.

    Raises:
        BadInputError: There are not as many.
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
            f"--resume: {rows:,} rows were committed, and the input has {rows - left:,}: it is another one"
        )


@dataclass(frozen=True, slots=True)
class _Typed:
    """Values as text or JSON into the types of a table's columns."""

    types: dict[str, Any]
    kind_column: str
    reading: Reading

    def table(self, columns: dict[str, list[Any]], what: str, numbers: Sequence[int]) -> pa.Table:
        """Columns in their types; the rows are called `what`, with their numbers."""
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
                raise BadInputError(f"{what} {numbers[error.index]}, column {name!r}: {error}") from error
            except (ValueError, TypeError) as error:
                raise BadInputError(f"{what} {numbers[0]}, column {name!r}: {error}") from error
        return pa.table(arrays)


def _json_pieces(source: BufferedReader, typed: _Typed, most: Callable[[], int]) -> Iterator[Piece]:
    for numbers, lines in _line_groups(source, most):
        rows = [_row(line, number) for number, line in zip(numbers, lines, strict=True)]
        # Objects without fields are rows too, of nulls.
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
    """Lines that are not blank, and their numbers. A byte order mark at the beginning is no part of the first one."""
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
    with _telling_what_is_wrong("Parquet"), _seekable(source) as file:
        parquet, pace = pyarrow.parquet.ParquetFile(file), RowPace(_MOST_ROWS)
        for batch in parquet.iter_batches(batch_size=pace.rows):
            yield batch
            pace.took(batch.num_rows, batch.nbytes)
            # Arrow looks at the size of a batch whenever it decodes one.
            parquet.reader.set_batch_size(pace.rows)


def _arrow_batches(source: BufferedReader) -> Iterator[pa.RecordBatch]:
    """Arrow's stream format, or its file format (Feather)."""
    with _telling_what_is_wrong("Arrow"):
        if source.peek(6)[:6] == b"ARROW1":
            with _seekable(source) as file, pa.ipc.open_file(file) as found:
                for index in range(found.num_record_batches):
                    yield found.get_batch(index)
        else:
            yield from pa.ipc.open_stream(source)


@contextmanager
def _telling_what_is_wrong(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise BadInputError(f"the input is no {name}: {error}") from error


@contextmanager
def _seekable(source: BufferedReader) -> Iterator[BinaryIO]:
    """The file itself, or a copy on disk of what comes through a pipe."""
    if source.seekable():
        yield source
        return
    with tempfile.TemporaryFile() as file:
        while block := source.read(1 << 20):
            file.write(block)
        file.seek(0)
        yield file
