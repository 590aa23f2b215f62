"""`IndexFilter`: whether a file can hold a row that matches a filter, by its file index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pypaimon.streaming.filtering.filters import Bound, and_parts, bound_of, columns_of
from pypaimon.streaming.filtering.statistics import Mask
from pypaimon.streaming.indexes.bitmap import BitmapIndex
from pypaimon.streaming.indexes.bloom_filter import BloomFilterIndex
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType, key_type
from pypaimon.streaming.indexes.container import IndexPart, index_parts
from pypaimon.streaming.indexes.range_bitmap import BsiIndex, RangeBitmapIndex
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.paimon.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

_LOG = StreamLog(__name__)

_KINDS: Mapping[str, Callable[[bytes, KeyType], ColumnIndex]] = {
    "bloom-filter": BloomFilterIndex,
    "bitmap": BitmapIndex,
    "range-bitmap": RangeBitmapIndex,
    "bsi": BsiIndex,
}

Content = Callable[[IndexPart], bytes | None]
"""Returns the bytes of an index; None: do not use it."""


def warn_of_unused(file: str, error: Exception) -> None:
    """Log that the index of a file is not used; the file is read then."""
    _LOG.warning("index_unused", "not using the index of %(file)s: %(error)s", file=file, error=str(error))


class IndexFilter:
    """A filter over files of one schema; `only` are the columns of `read` whose values are in the files, None: all that
    were written. Any row may match a leaf whose operator, types or missing index leave it undecided.
    """

    def __init__(
        self, predicate: Predicate, written: TableSchema, read: TableSchema, only: frozenset[str] | None = None
    ) -> None:
        self._predicate = predicate
        stored = {field.id: field for field in written.fields}
        looked_at = columns_of(predicate) if only is None else columns_of(predicate) & only
        self._columns: dict[str, _IndexedField] = {}
        for field in read.fields:
            if field.name in looked_at and field.id in stored:
                keys = key_type(stored[field.id].type, field.type)
                if keys is not None:
                    self._columns[field.name] = _IndexedField(stored[field.id].name, keys, arrow_type(field.type))
        self.columns = frozenset(column.stored_name for column in self._columns.values())

    def may_match(self, parts: Mapping[str, list[IndexPart]], content: Content, row_count: int) -> bool:
        """Whether a file may hold a matching row. Raises ValueError if an index is damaged, of another version, or of a
        file with another number of rows. `content` returns their bytes, and is called at most once for each.
        """
        indexes: dict[str, list[ColumnIndex]] = {}

        def indexes_of(column: _IndexedField) -> list[ColumnIndex]:
            name = column.stored_name
            if name not in indexes:
                indexes[name] = _opened(parts.get(name, ()), content, column.keys, row_count)
            return indexes[name]

        rows = self._rows(self._predicate, indexes_of)
        return rows is None or bool(rows)

    def _rows(self, predicate: Predicate, indexes_of: Callable[[_IndexedField], list[ColumnIndex]]) -> BitMap | None:
        if predicate.method == "and":
            return _all_of(self._rows(part, indexes_of) for part in and_parts(predicate))
        if predicate.method == "or":
            found = BitMap()
            for part in predicate.literals or ():
                rows = self._rows(part, indexes_of)
                if rows is None:
                    return None
                found |= rows
            return found
        column = self._columns.get(str(predicate.field))
        if column is None:
            return None
        return _all_of(column.rows(predicate, index) for index in indexes_of(column))


class _IndexedField:
    """A column of the filter."""

    def __init__(self, stored_name: str, keys: KeyType, kind: pa.DataType) -> None:
        self.stored_name = stored_name
        self.keys = keys
        self._kind = kind

    def rows(self, leaf: Predicate, index: ColumnIndex) -> BitMap | None:
        """Rows that may match a leaf; None: any."""
        if leaf.method in ("isNull", "isNotNull"):
            return _nulls(index) if leaf.method == "isNull" else index.valid()
        try:
            bounds = [bound_of(literal, self._kind) for literal in leaf.literals or ()]
        except (TypeError, ValueError, ArithmeticError, pa.ArrowException):
            return None  # of another type than the column
        known = [bound for bound in bounds if bound is not None]
        test = _TESTS.get(leaf.method) if self.keys.ordered else _ON_EQUAL_KEYS.get(leaf.method)
        # Nor is a null among the literals evaluated here.
        return None if test is None or not known or len(known) < len(bounds) else test(self, known, index)

    def among(self, bounds: Sequence[Bound], index: ColumnIndex) -> BitMap | None:
        keys: list[Key] = []
        for bound in bounds:
            if bound.exact and bound.scalar is not None:
                key = self.keys.of_literal(bound.scalar)
                # Zeros of both signs are equal, but have different keys.
                keys += [0.0, -0.0] if self.keys.is_floating and key == 0 else [key]
        return index.one_of(keys)

    def others(self, bounds: Sequence[Bound], index: ColumnIndex) -> BitMap | None:
        """Rows with none of these values, but not null."""
        valid = index.valid()
        # An index that knows nulls also knows the rows of each value.
        found = None if valid is None else self.among(bounds, index)
        return None if valid is None or found is None else valid - found

    def below(self, bound: Bound, inclusive: bool, index: ColumnIndex) -> BitMap | None:
        if bound.scalar is None:
            return index.valid() if bound.above else BitMap()
        inclusive = inclusive or not bound.exact
        return index.below(self._key(bound.scalar, above=inclusive), inclusive)

    def above(self, bound: Bound, inclusive: bool, index: ColumnIndex) -> BitMap | None:
        if bound.scalar is None:
            return BitMap() if bound.above else index.valid()
        inclusive = inclusive and bound.exact
        return index.above(self._key(bound.scalar, above=not inclusive), inclusive)

    def outside(self, bounds: Sequence[Bound], index: ColumnIndex) -> BitMap | None:
        low, high = self.below(bounds[0], False, index), self.above(bounds[1], False, index)
        return None if low is None or high is None else low | high

    def _key(self, scalar: pa.Scalar, *, above: bool) -> Key:
        """The key of a scalar; for zero the greatest (`above`) or the least of its two keys."""
        key = self.keys.of_literal(scalar)
        return (0.0 if above else -0.0) if self.keys.is_floating and key == 0 else key


def _opened(parts: Iterable[IndexPart], content: Content, keys: KeyType, row_count: int) -> list[ColumnIndex]:
    found = []
    for part in parts:
        data = content(part) if part.kind in _KINDS else None
        if data is None:
            continue
        index = _KINDS[part.kind](data, keys)
        if index.row_count not in (None, row_count):
            raise ValueError(f"it is an index of {index.row_count} rows, the file has {row_count}")
        found.append(index)
    return found


def _nulls(index: ColumnIndex) -> BitMap | None:
    valid = index.valid()
    return None if valid is None or index.row_count is None else BitMap(range(index.row_count)) - valid


def _all_of(answers: Iterable[BitMap | None]) -> BitMap | None:
    known = [rows for rows in answers if rows is not None]
    return reduce(and_, known) if known else None


_Test = Callable[[_IndexedField, Sequence[Bound], ColumnIndex], BitMap | None]
_ON_EQUAL_KEYS: Mapping[str, _Test] = {"equal": _IndexedField.among, "in": _IndexedField.among}
_TESTS: Mapping[str, _Test] = {
    **_ON_EQUAL_KEYS,
    "notEqual": _IndexedField.others,
    "notIn": _IndexedField.others,
    "lessThan": lambda column, bounds, index: column.below(bounds[0], False, index),
    "lessOrEqual": lambda column, bounds, index: column.below(bounds[0], True, index),
    "greaterThan": lambda column, bounds, index: column.above(bounds[0], False, index),
    "greaterOrEqual": lambda column, bounds, index: column.above(bounds[0], True, index),
    "between": lambda column, bounds, index: _all_of(
        [column.above(bounds[0], True, index), column.below(bounds[1], True, index)]
    ),
    "notBetween": _IndexedField.outside,
}


def by_embedded_indexes(
    entries: pa.Table, predicate: Predicate, read: TableSchema, schema_of: Callable[[int], TableSchema]
) -> Mask:
    """Which files can hold a matching row; a missing or unreadable index keeps the file. The entries have
    `embedded_index`, `schema_id`, `row_count` and `file_name`.
    """
    keep = np.ones(entries.num_rows, dtype=bool)
    rows = np.flatnonzero(pc.is_valid(entries["embedded_index"]).to_numpy())
    filters: dict[int, IndexFilter] = {}
    columns = entries.select(["schema_id", "file_name", "embedded_index", "row_count"]).take(pa.array(rows)).to_pydict()
    for row, schema_id, name, data, count in zip(rows.tolist(), *columns.values(), strict=True):
        found = filters.get(schema_id)
        if found is None:
            found = filters[schema_id] = IndexFilter(predicate, schema_of(schema_id), read)
        if found.columns:
            keep[row] = embedded_may_match(found, data, name, count)
    return keep


def embedded_may_match(found: IndexFilter, data: bytes, name: str, row_count: int) -> bool:
    """Whether the file of an embedded index can hold a matching row; true if the index cannot be read."""

    def content(part: IndexPart) -> bytes:
        end = part.start + part.length
        if not 0 <= part.start <= end <= len(data):
            raise ValueError(f"an index at bytes {part.start} to {end} is out of range: there are {len(data)}")
        return data[part.start : end]

    try:
        return found.may_match(index_parts(data), content, row_count)
    except ValueError as error:
        warn_of_unused(name, error)
        return True
