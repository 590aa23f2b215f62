"""Rows of partitions and keys in the bytes of Java's `BinaryRow`: Java tells partitions apart by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_columns import Longs, RowColumn, row_column
from pypaimon.streaming.internals import DataField, GenericRow, GenericRowSerializer, PyarrowFieldParser

_ARITY_BYTES = 4
_COMPACT_DIGITS = 18


class StoredRow(tuple[Any, ...]):
    """Values of a row as a manifest holds it: whoever names it again does so by the same bytes, whoever made them.

    Attributes:
        row: It, serialised.
    """

    row: bytes

    def __new__(cls, values: Iterable[Any], row: bytes) -> StoredRow:
        """A tuple of the values.

        Args:
            values: They.
            row: The row, serialised.
        """
        made = super().__new__(cls, values)
        made.row = row
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRow, (tuple(self), self.row)


def encoded_row(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    """A row, with the number of its fields in front, as manifests hold it.

    pypaimon's serialiser gives decimals of more than 18 digits a byte too many where the first bit of the last one is
    taken, and nulls of those, and of moments finer than milliseconds, no place behind the row: of such columns the
    bytes are made here.

    Args:
        values: As Python has them; those of a `StoredRow` are as they are stored.
        fields: Their fields.

    Raises:
        ValueError: A row has no column of such a type.
    """
    if isinstance(values, StoredRow):
        return values.row
    if not any(_is_laid_out_otherwise(field) for field in fields):
        return _pypaimons(values, fields)
    kinds = (PyarrowFieldParser.from_paimon_type(field.type) for field in fields)
    return encoded_columns([pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)])[0]


def encoded_columns(columns: Sequence[pa.Array]) -> list[bytes]:
    """As `encoded_row`, of rows of which these are the columns, of the table's types; one at least."""
    made = [row_column(column) for column in columns]
    rows = [b""] * len(columns[0])
    arity = len(columns).to_bytes(_ARITY_BYTES, "big")
    for places in layouts(made):
        for place, data in zip(places, serialised(made, places), strict=True):
            rows[place] = arity + data.tobytes()
    return rows


def all_forms(rows: Iterable[bytes], fields: Sequence[DataField]) -> set[bytes]:
    """Rows, and the bytes of the same values that Java and pypaimon have for them.

    Args:
        rows: Serialised rows.
        fields: Their fields.
    """
    found = set(rows)
    if any(_is_laid_out_otherwise(field) for field in fields):
        for row in tuple(found):
            values = decode(row, fields)
            forms = {encoded_row(values, fields), _pypaimons(values, fields)}
            # A row that is none of them has nanoseconds, which Python's values have not.
            found |= forms if row in forms else set()
    return found


def plain_row(row: bytes, fields: Sequence[DataField]) -> bytes:
    """The one form of all rows with the same values, down to microseconds.

    Args:
        row: A serialised row.
        fields: Its fields.
    """
    return encoded_row(decode(row, fields), fields) if any(map(_is_laid_out_otherwise, fields)) else row


def _pypaimons(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    return bytes(GenericRowSerializer.to_bytes(GenericRow(list(values), list(fields))))


def _is_laid_out_otherwise(field: DataField) -> bool:
    kind = PyarrowFieldParser.from_paimon_type(field.type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _COMPACT_DIGITS)
    return bool(pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"))


def layouts(columns: Sequence[RowColumn]) -> Iterator[Longs]:
    """Rows of which each column takes as many words, so that they are serialised together."""
    count = len(columns[0].null)
    same = np.zeros(count, dtype=np.int64)
    for column in columns:
        # One number for the sizes of all columns so far; numbered anew each time, so that it stays small.
        _, same = np.unique(same * (column.sizes.max(initial=0) + 1) + column.sizes, return_inverse=True)
    order = np.argsort(same, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(same[order])) + 1) if count else ()


def serialised(columns: Sequence[RowColumn], rows: Longs) -> npt.NDArray[np.uint8]:
    """Rows of one layout: header and null bits, a slot of eight bytes per field, then what does not fit in there."""
    sizes = [int(column.sizes[rows[0]]) for column in columns]
    # Eight bits of header and a null bit per field, in whole words of eight bytes.
    header = (len(columns) + 63 + 8) // 64 * 8
    offset = header + 8 * len(columns)
    data = np.zeros((len(rows), offset + sum(sizes)), dtype=np.uint8)
    for index, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        # A bit that is set says null.
        data[column.null[rows], (index + 8) // 8] |= np.uint8(1 << (index + 8) % 8)
        data[:, header + 8 * index : header + 8 * index + 8] = column.slots(rows, offset)
        if size:
            data[:, offset : offset + size] = column.behind(rows, size)
            offset += size
    return data
