"""Aggregate functions of texts, arrays, maps and nested tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge.functions.base import ADD, ADD_BEFORE, SKIP, Actions, FoldingAggregator, Values
from pypaimon.streaming.merge.groups import Groups, Mask
from pypaimon.streaming.merge.ordering import identity, python_order

# Java's Character.isWhitespace, which differs from Unicode's white space.
_BLANK_CHARACTERS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000" + "".join(
    chr(code) for code in range(0x2000, 0x200B) if code != 0x2007
)


def _blank(text: str) -> bool:
    return not text.strip(_BLANK_CHARACTERS)


@dataclass(frozen=True)
class Listagg(FoldingAggregator):
    """`listagg`: joins texts by a delimiter; blank ones do not count."""

    name = "listagg"
    delimiter: str = ","  # `fields.<f>.list-agg-delimiter`
    distinct: bool = False  # Whether known parts are left out (`fields.<f>.distinct`)

    def needs_fold(self, groups: Groups, column: str, actions: Actions) -> Mask:
        if self.distinct:
            return np.ones(len(groups), dtype=np.bool_)
        return groups.any((actions != SKIP) & (actions != ADD))

    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        values = groups.values(column)
        blank = pc.equal(pc.utf8_trim(values, characters=_BLANK_CHARACTERS), "")
        used = (actions == ADD) & ~pc.fill_null(blank, True).to_numpy(zero_copy_only=False)
        # One list per group with its adjacent texts, `counts` of them.
        counts = np.add.reduceat(used.astype(np.int32), groups.starts)
        lists = pa.ListArray.from_arrays(pa.array(_offsets(counts)), values.filter(pa.array(used)))
        joined = pc.binary_join(lists, pa.scalar(self.delimiter, values.type))
        return pc.if_else(pa.array(counts > 0), joined, pa.scalar(None, values.type))

    def add(self, accumulated: Any, value: Any) -> Any:
        if value is None or _blank(value):
            return accumulated
        if accumulated is None or _blank(accumulated):
            return value
        if not self.distinct:
            return accumulated + self.delimiter + value
        separator = self.delimiter or " "
        parts = dict.fromkeys(accumulated.split(separator))
        known = len(parts)
        parts.update((part, None) for part in value.split(separator) if not _blank(part))
        return self.delimiter.join([accumulated, *list(parts)[known:]])


@dataclass(frozen=True)
class Collect(FoldingAggregator):
    """`collect`: the elements of arrays as one array; a retraction removes each of its elements once."""

    name = "collect"
    retractable = True
    # Whether equal elements come once (`fields.<f>.distinct`), in the order of their first occurrence. Java leaves
    # their order open.
    distinct: bool = False

    def needs_fold(self, groups: Groups, column: str, actions: Actions) -> Mask:
        if self.distinct:
            return np.ones(len(groups), dtype=np.bool_)
        return groups.any((actions != SKIP) & (actions != ADD) & (actions != ADD_BEFORE))

    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        used = (actions != SKIP) & groups.valid(column)
        arrays = groups.values(column).filter(pa.array(used))
        lengths = np.zeros(len(used), dtype=np.int64)
        lengths[used] = pc.list_value_length(arrays).to_numpy()
        # The elements of a group are adjacent, so only the boundaries change from arrays to groups.
        offsets = _offsets(np.add.reduceat(lengths, groups.starts))
        absent = pa.array(~groups.any(used))
        return pa.ListArray.from_arrays(pa.array(offsets), arrays.flatten(), type=arrays.type, mask=absent)

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None and value is None:
            return None
        if not self.distinct:
            return value if accumulated is None else accumulated if value is None else accumulated + value
        distinct: dict[Any, Any] = {}
        for item in [*(accumulated or ()), *(value or ())]:
            distinct.setdefault(identity(item), item)
        return list(distinct.values())

    def add_before(self, accumulated: Any, value: Any) -> Any:
        return self.add(accumulated, value)

    def retract(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or not value:
            return accumulated
        removed = [identity(item) for item in value]
        left = []
        for item in accumulated:
            if identity(item) in removed:
                removed.remove(identity(item))
            else:
                left.append(item)
        return left


class MergeMap(FoldingAggregator):
    """`merge_map`: the entries of maps as one map; the newer value of a key wins, a retraction removes its keys."""

    name = "merge_map"
    retractable = True

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return value if accumulated is None else accumulated
        return list(dict([*accumulated, *value]).items())

    def retract(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or not value:
            return accumulated
        removed = {key for key, _ in value}
        return [(key, item) for key, item in accumulated if key not in removed]


@dataclass(frozen=True)
class MergeMapWithKeyTime(FoldingAggregator):
    """`merge_map_with_keytime`: as `merge_map`, but the value with the greatest time wins; a null removes its key."""

    name = "merge_map_with_keytime"
    time: str

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return value if accumulated is None else accumulated
        result = dict(accumulated)
        for key, row in value:
            there = result.get(key)
            if row is None:
                result.pop(key, None)
            elif row[self.time] is not None and (
                there is None or there[self.time] is None or _utf16(row[self.time]) > _utf16(there[self.time])
            ):
                result[key] = row
        return list(result.items())


@dataclass(frozen=True)
class NestedUpdate(FoldingAggregator):
    """`nested_update`: arrays of rows as one nested table."""

    name = "nested_update"
    retractable = True
    field: str
    # The nested key; a newer row replaces the one with its key. Without a key rows are only appended.
    key: tuple[str, ...] = ()
    nulls: str = "merge"  # How rows with a null in the key are treated: `merge`, `ignore` or `error`
    sequence: tuple[str, ...] = ()
    limit: int = (1 << 31) - 1

    def add(self, accumulated: Any, value: Any) -> Any:
        if value is None:
            return accumulated
        there = [row for row in accumulated or () if row is not None]
        new = [row for row in value if row is not None]
        if not self.key:
            if accumulated is not None and len(accumulated) >= self.limit:
                return accumulated
            return there + new[: max(0, self.limit - len(accumulated or ()))]
        rows: dict[Any, Any] = {}
        for row in self._keyed(there):
            self._put(rows, row, limited=False)
        for row in self._keyed(new):
            self._put(rows, row, limited=True)
        return list(rows.values())

    def retract(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return accumulated
        there = [row for row in accumulated if row is not None]
        removed = [row for row in value if row is not None]
        if not self.key:
            gone = {identity(row) for row in removed}
            return [row for row in there if identity(row) not in gone]
        keys = {self._key_of(row) for row in self._keyed(removed)}
        left = {self._key_of(row): row for row in self._keyed(there)}
        return [row for key, row in left.items() if key not in keys]

    def _put(self, rows: dict[Any, Any], row: Any, *, limited: bool) -> None:
        key = self._key_of(row)
        if key in rows:
            if not self.sequence or self._age(row) >= self._age(rows[key]):
                rows[key] = row
        elif not limited or len(rows) < self.limit:
            rows[key] = row

    def _age(self, row: Any) -> tuple[Any, ...]:
        return tuple(python_order(row[name]) for name in self.sequence)

    def _key_of(self, row: Any) -> Any:
        return tuple(identity(row[name]) for name in self.key)

    def _keyed(self, rows: Iterable[Any]) -> list[Any]:
        return keyed(self.field, rows, self.key, self.nulls)


@dataclass(frozen=True)
class NestedPartialUpdate(FoldingAggregator):
    """`nested_partial_update`: a nested table whose rows of one key are updated with newer non-null values."""

    name = "nested_partial_update"
    field: str
    key: tuple[str, ...]
    nulls: str = "merge"

    def add(self, accumulated: Any, value: Any) -> Any:
        if value is None:
            return accumulated
        rows: dict[Any, Any] = {}
        present = [row for row in [*(accumulated or ()), *value] if row is not None]
        for row in keyed(self.field, present, self.key, self.nulls):
            there = rows.setdefault(tuple(identity(row[name]) for name in self.key), dict.fromkeys(row))
            there.update((name, item) for name, item in row.items() if item is not None)
        return list(rows.values())


@dataclass(frozen=True)
class ByteUnion(FoldingAggregator):
    """Functions that unite two serialized sets: `rbm32`, `rbm64`, `theta_sketch`, `hll_sketch`."""

    name: str  # type: ignore[misc]
    unite: Callable[[bytes, bytes], bytes]  # Returns the bytes of the union of the older and the newer set

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return value if accumulated is None else accumulated
        try:
            return self.unite(accumulated, value)
        except ValueError as error:
            raise UnsupportedTableError(f"Aggregate function '{self.name}' cannot read a value: {error}.") from error


def keyed(field: str, rows: Iterable[Any], key: tuple[str, ...], nulls: str) -> list[Any]:
    """Rows whose nested key is valid. Raises StreamConfigError if a key holds a null, and the option is `error`."""
    rows = list(rows)
    if nulls == "merge":
        return rows
    counted = [row for row in rows if all(row[name] is not None for name in key)]
    if nulls == "error" and len(counted) < len(rows):
        raise StreamConfigError(
            f"The nested key {list(key)} of field '{field}' holds a null, which is refused because "
            f"'fields.{field}.nested-key-null-strategy' is 'error'."
        )
    return counted


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _offsets(counts: Any) -> Any:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
