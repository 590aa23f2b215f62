"""CSV as Arrow's text, parsed block by block on the caller's thread.

Arrow's own streaming reader reads ahead on a thread of its own: a signal has to wait there for a quiet pipe, and a
program that ends meanwhile may crash.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from io import BufferedReader

import pyarrow as pa
import pyarrow.csv

from pypaimon.streaming.errors import PaimonStreamError

_BLOCK = 1 << 20
_MOST_OF_A_ROW = 256 << 20
_OTHER_DELIMITERS = (";", "\t", "|", ",")


class BadInputError(PaimonStreamError, ValueError):
    """The input of `write` cannot be read as its format, or does not fit the table."""


def csv_batches(source: BufferedReader, delimiter: str, known: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows as text; an empty field is null, a quoted one the empty text.

    Raises:
        BadInputError: The header is missing or names a column twice, a row has more or fewer fields, or the text is not
            UTF-8.
    """
    names = _header(source, delimiter, known)
    rows = 0
    for block in _whole_rows(source, delimiter):
        if len(names) > 1 and not block.strip(b"\r\n"):
            continue
        table = _parsed(block, names, delimiter, rows)
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
    """Offset of the end of the last whole row of a block; 0 if no row is complete."""
    end = last = 0
    for field in quoted.finditer(block):
        end = block.rfind(b"\n", last, field.start()) + 1 or end
        last = field.end()
        if last == len(block):  # the field may continue in the next block
            return end
    return block.rfind(b"\n", last) + 1 or end


def _parsed(block: bytes, names: list[str], delimiter: str, before: int) -> pa.Table:
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
