"""Metadata of the records of a file: sequence numbers, keys, number of retractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats.binary_row_encoding import encoded_columns
from pypaimon.streaming.model.system_columns import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.paimon.internals import BinaryRow, DataFileMeta, GenericRow, RowKind


class RecordBuilder:
    """Numbers the rows of one bucket in the order in which they are written."""

    def __init__(self, keys: Sequence[str], next_number: int) -> None:
        self._keys = tuple(keys)
        self._next = next_number

    def records_of(self, rows: pa.Table) -> pa.Table:
        """The records: `_KEY_<k>` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the columns of the table. The rows
        have these, and `_VALUE_KIND` (int8).
        """
        numbers = pa.array(np.arange(self._next, self._next + rows.num_rows, dtype=np.int64))
        self._next += rows.num_rows
        return numbered(rows.append_column(SEQUENCE_NUMBER, numbers), self._keys)


def numbered(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The records of numbered rows, with the columns in the order of files. The rows have the columns of the table,
    `_VALUE_KIND` (int8) and `_SEQUENCE_NUMBER` (int64).
    """
    values = rows.drop_columns([VALUE_KIND, SEQUENCE_NUMBER])
    copies = [values.schema.field(name).with_name(KEY_PREFIX + name) for name in keys]
    system = [pa.field(SEQUENCE_NUMBER, pa.int64(), False), pa.field(VALUE_KIND, pa.int8(), False)]
    columns = (values[name] for name in keys)
    return pa.Table.from_arrays(
        [*columns, rows[SEQUENCE_NUMBER], rows[VALUE_KIND], *values.columns],
        schema=pa.schema([*copies, *system, *values.schema]),
    )


_RETRACTS = pa.array([RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value], pa.int8())


class RecordFacts(Protocol):
    """Collects metadata of the records of one file."""

    key_fields: Sequence[Any]
    deletes: int

    def stored(self, schema: pa.Schema) -> list[str]:
        """The columns that are in the file."""

    def add(self, data: pa.Table) -> None:
        """Add records."""

    def sequence_range(self) -> tuple[int, int]:
        """The least and the greatest sequence number."""

    def key_range(self) -> tuple[Any, Any]:
        """The bounds as rows, usually the least and the greatest key; (None, None) without keys."""


@dataclass(slots=True)
class Counter:
    """The sequence number of the next row of a bucket of an append table."""

    next: int


class AppendedFacts:
    """Rows without a key, which are numbered in the order in which they are written."""

    key_fields: Sequence[Any] = ()
    deletes = 0

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._first = counter.next

    def stored(self, schema: pa.Schema) -> list[str]:
        return list(schema.names)

    def add(self, data: pa.Table) -> None:
        self._counter.next += data.num_rows

    def sequence_range(self) -> tuple[int, int]:
        return self._first, self._counter.next - 1

    def key_range(self) -> tuple[Any, Any]:
        return None, None


class TrackedFacts:
    """Rows that keep the sequence numbers and row ids that they have (row tracking)."""

    key_fields: Sequence[Any] = ()
    deletes = 0

    def __init__(self) -> None:
        self._sequence: list[int] = []

    def stored(self, schema: pa.Schema) -> list[str]:
        return list(schema.names)

    def add(self, data: pa.Table) -> None:
        self._sequence += _bounds(data[SEQUENCE_NUMBER])

    def sequence_range(self) -> tuple[int, int]:
        return min(self._sequence), max(self._sequence)

    def key_range(self) -> tuple[Any, Any]:
        return None, None


class GivenFacts:
    """Rows of a file whose sequence numbers are those of other files."""

    key_fields: Sequence[Any] = ()
    deletes = 0

    def __init__(self, files: Sequence[DataFileMeta]) -> None:
        least = min(int(file.min_sequence_number) for file in files)
        self._range = least, max(int(file.max_sequence_number) for file in files)

    def stored(self, schema: pa.Schema) -> list[str]:
        return list(schema.names)

    def add(self, data: pa.Table) -> None:
        pass

    def sequence_range(self) -> tuple[int, int]:
        return self._range

    def key_range(self) -> tuple[Any, Any]:
        return None, None


class KeyedFacts:
    """Records of a primary-key table, with system columns.

    Args:
        bound_fields: The columns whose values in the first and the last record are the bounds; None: the key.
    """

    def __init__(self, key_fields: Sequence[Any], thin: bool, bound_fields: Sequence[Any] | None = None) -> None:
        self.key_fields: Sequence[Any] = list(key_fields)
        self._bound_fields = self.key_fields if bound_fields is None else list(bound_fields)
        self.deletes = 0
        self._thin = thin
        self._sequence: list[int] = []
        self._bounds: list[pa.Table] = []

    def stored(self, schema: pa.Schema) -> list[str]:
        """All columns, without the copies of the key if the file is thin."""
        copies = {KEY_PREFIX + field.name for field in self.key_fields} if self._thin else set()
        return [name for name in schema.names if name not in copies]

    def add(self, data: pa.Table) -> None:
        self._sequence += _bounds(data[SEQUENCE_NUMBER])
        self.deletes += int(pc.sum(pc.is_in(data[VALUE_KIND], _RETRACTS)).as_py() or 0)
        # As in Java the bounds are those of the first and the last record. Only records of the postponed bucket are not
        # sorted.
        names = [field.name for field in self._bound_fields]
        if not self._bounds:
            self._bounds = [data.select(names).slice(0, 1)]
        self._bounds[1:] = [data.select(names).slice(data.num_rows - 1)]

    def sequence_range(self) -> tuple[int, int]:
        return min(self._sequence), max(self._sequence)

    def key_range(self) -> tuple[Any, Any]:
        first, last = (key_row(bound, self._bound_fields) for bound in self._bounds)
        return first, last


def _bounds(numbers: pa.ChunkedArray) -> list[int]:
    bounds = pc.min_max(numbers)
    return [bounds["min"].as_py(), bounds["max"].as_py()]


def key_row(key: pa.Table, fields: Sequence[Any]) -> Any:
    """A table of one row as pypaimon's row; serialised if it has nanoseconds, which Python values cannot hold."""
    columns = [key[field.name].combine_chunks() for field in fields]
    if any(pa.types.is_timestamp(column.type) and column.type.unit == "ns" for column in columns):
        return BinaryRow(encoded_columns(columns)[0], list(fields))
    return GenericRow([column[0].as_py() for column in columns], list(fields))
