"""Statistics of columns in the metadata of a file: bounds and nulls, as `metadata.stats-mode` asks for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import GenericRow, SimpleStats

_TRUNCATE = re.compile(r"TRUNCATE\((\d+)\)")
_SURROGATES = (0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF


@dataclass(frozen=True, slots=True)
class StatsMode:
    """Which statistics of one column are kept."""

    counts: bool
    bounds: bool
    length: int | None = None  # Bounds of texts are cut to this many characters; None: they are not cut

    @staticmethod
    def parse(text: str, key: str) -> StatsMode:
        name = text.strip().upper()
        if name in ("NONE", "COUNTS", "FULL"):
            return StatsMode(name != "NONE", name == "FULL")
        found = _TRUNCATE.fullmatch(name)
        if found is None or int(found[1]) < 1:
            raise StreamConfigError(f"'{key}': expected none, counts, full or truncate(n) from 1, got {text!r}.")
        return StatsMode(True, True, int(found[1]))


NONE = StatsMode(False, False)
FULL = StatsMode(True, True)


@dataclass(frozen=True, slots=True)
class StatsModes:
    """Which statistics of the columns of a table are kept."""

    modes: dict[str, StatsMode]
    dense: bool  # Whether columns without statistics are left out (`metadata.stats-dense-store`)

    @staticmethod
    def of(options: TableOptions, names: Sequence[str], general: str | None = None) -> StatsModes:
        """Read the modes from options. Columns without a mode of their own have the `general` one; None: that of the
        table.
        """
        key = option_keys.METADATA_STATS_MODE
        mode = StatsMode.parse(general or key.of(options), key.name)
        keep = option_keys.METADATA_STATS_KEEP_FIRST_N_COLUMNS.of(options)
        modes = {}
        for position, name in enumerate(names):
            of_field = option_keys.FIELDS_STATS_MODE.of_field(name)
            own = of_field.of(options)
            if own is not None:
                modes[name] = StatsMode.parse(own, of_field.name)
            else:
                modes[name] = NONE if 0 <= keep <= position else mode
        return StatsModes(modes, option_keys.METADATA_STATS_DENSE_STORE.of(options))


class ColumnBounds:
    """Least and greatest value of one column, chunk by chunk."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._unknown = not _has_bounds(kind)
        self._found: list[pa.Scalar] = []
        self._has_values = False
        self.nulls = 0

    def add(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        if column.null_count == len(column):
            return
        self._has_values = True
        if self._unknown:
            return
        if pa.types.is_floating(self._kind) and pc.any(pc.is_nan(column)).as_py():
            # NaN is greater than all in Java, and equal to none in SQL.
            self._unknown = True
            return
        bounds = pc.min_max(column)
        self._found += [bounds["min"], bounds["max"]]

    def values(self, mode: StatsMode) -> tuple[Any, Any]:
        """The bounds as Python values; (None, None) if they are unknown."""
        if self._unknown or not self._found or not mode.bounds:
            return None, None
        bounds = pc.min_max(pa.array(self._found, self._kind))
        try:
            least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        except (ValueError, OverflowError):
            # A date beyond those of Python.
            return None, None
        if pa.types.is_floating(self._kind):
            # Java orders -0.0 before 0.0, which are equal in SQL.
            return (-0.0 if least == 0 else least), (0.0 if greatest == 0 else greatest)
        if mode.length is None or not isinstance(least, str):
            return least, greatest
        greatest = _cut_above(greatest, mode.length)
        return (None, None) if greatest is None else (least[: mode.length], greatest)

    def misleads(self, mode: StatsMode) -> bool:
        """Whether readers would take all values for null because there are no bounds.

        Spark with Java 1.3 and later, and Flink with 2.0, answer MIN, MAX and ORDER BY with LIMIT from the bounds of
        numbers and dates. They read a file instead if its statistics lack the column.
        """
        by_bounds = pa.types.is_floating(self._kind) or pa.types.is_date(self._kind)
        return by_bounds and self._has_values and mode.bounds and self.values(mode) == (None, None)


class FileStatistics:
    """The statistics of one file."""

    def __init__(self, fields: Sequence[Any], schema: pa.Schema, modes: StatsModes) -> None:
        self._modes = modes
        self._fields = list(fields)
        self._columns = {
            field.name: ColumnBounds(schema.field(field.name).type)
            for field in fields
            if modes.modes[field.name].counts
        }

    @staticmethod
    def of_keys(fields: Sequence[Any], schema: pa.Schema) -> FileStatistics:
        """Statistics of the key, with uncut bounds."""
        return FileStatistics(fields, schema, StatsModes({field.name: FULL for field in fields}, False))

    @property
    def names(self) -> list[str] | None:
        """The columns with statistics; None: all columns."""
        names = [field.name for field in self._fields_with_statistics()]
        return None if len(names) == len(self._fields) else names

    def add(self, data: pa.Table) -> None:
        for name, bounds in self._columns.items():
            bounds.add(data[name])

    def result(self) -> SimpleStats:
        least, greatest, nulls = [], [], []
        fields = self._fields_with_statistics()
        for field in fields:
            bounds = self._columns.get(field.name)
            low, high = (None, None) if bounds is None else bounds.values(self._modes.modes[field.name])
            least.append(low)
            greatest.append(high)
            nulls.append(None if bounds is None else bounds.nulls)
        return SimpleStats(GenericRow(least, fields), GenericRow(greatest, fields), nulls)

    def _fields_with_statistics(self) -> list[Any]:
        if not self._modes.dense:
            return self._fields
        return [
            field
            for field in self._fields
            if (bounds := self._columns.get(field.name)) is not None
            and not bounds.misleads(self._modes.modes[field.name])
        ]


def _has_bounds(kind: pa.DataType) -> bool:
    # Java 1.x compares bytes signed, and skips files that hold the row.
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if pa.types.is_nested(kind) or is_bytes:
        return False
    # pypaimon's rows hold microseconds, so the greatest value would be too small.
    return not (pa.types.is_timestamp(kind) and kind.unit == "ns")


def _cut_above(value: str, length: int) -> str | None:
    """The value if it is short enough, otherwise the least short one above it; None if there is no such value."""
    if len(value) <= length:
        return value
    for position in range(length - 1, -1, -1):
        following = ord(value[position]) + 1
        if following == _SURROGATES[0]:
            following = _SURROGATES[1]
        if following <= _LAST_CHARACTER:
            return value[:position] + chr(following)
    return None
