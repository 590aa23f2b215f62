"""Estimates of the decoded size of rows in a Parquet file, from its footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": 16}
"""Bytes of a value, by physical type; 16 are those of decimals, the usual FIXED_LEN_BYTE_ARRAY, in Arrow."""
_OFFSET = 4
_REPEATED = ("DICTIONARY", "DELTA_BYTE_ARRAY")
"""In names of encodings that store a text, or its prefix, once for many rows."""
_HARMLESS = 128 << 20
"""Below this many bytes even the worst case needs no estimate: each value as long as all stored bytes."""
_SPREAD = 4
_MOST_OF_A_REFERENCE = 4
"""Most bytes of a reference to an entry of a dictionary; a plain value takes at least as many."""


@dataclass(frozen=True, slots=True)
class _LeafColumn:
    """A column of a Parquet file that holds values."""

    index: int
    path: str
    width: int | None


class ParquetSizes:
    """The sizes of rows, of some columns."""

    def __init__(self, file: pq.ParquetFile, schema: pa.Schema, columns: Sequence[str]) -> None:
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self._rows = [group.num_rows for group in groups]
        self._sizes = [group.total_byte_size for group in groups]
        # Columns of texts or bytes that are dictionary-encoded throughout: Arrow can return them as dictionaries
        self.references: list[str] = []
        # Most bytes of a value in the other columns whose encoding stores values once for many rows; 0 if there are no
        # such columns
        self.longest = 0
        is_flat = len(file.schema) == len(schema)
        if not is_flat or sum(self._sizes) * metadata.num_rows > _HARMLESS:
            self._look_at(_leaves(file, frozenset(columns)), groups, schema)
        self._group = self._passed = 0

    def _look_at(self, leaves: Sequence[_LeafColumn], groups: Sequence[pq.RowGroupMetaData], schema: pa.Schema) -> None:
        stored, decoded = [0] * len(groups), [0] * len(groups)
        for leaf in leaves:
            sizes, counts, repeats = [], [], False
            for number, group in enumerate(groups):
                chunk = group.column(leaf.index)
                size, count = chunk.total_uncompressed_size, chunk.num_values
                sizes.append(size)
                counts.append(count)
                stored[number] += size
                decoded[number] += size + _OFFSET * count if leaf.width is None else leaf.width * count
                repeats = repeats or (leaf.width is None and size * count > _HARMLESS and _stores_once(chunk))
            if repeats and _is_flat_text(schema, leaf.path) and sum(sizes) <= _MOST_OF_A_REFERENCE * sum(counts):
                self.references.append(leaf.path)
            elif repeats:
                self.longest = max(self.longest, *sizes)
        self._sizes = [max(pair[0], pair[1] // _SPREAD) for pair in zip(stored, decoded, strict=True)]

    def rows(self, size: int) -> int:
        """How many of the next rows fit into `size` bytes, or `_SPREAD` times as many decoded ones; at least one.

        Texts and bytes that encodings store once count once.
        """
        found, passed = 0, self._passed
        for group in range(self._group, len(self._rows)):
            count = self._rows[group] - passed
            fit = size * self._rows[group] // max(self._sizes[group], 1)
            if fit < count:
                found += fit
                break
            found += count
            size -= self._sizes[group] * count // max(self._rows[group], 1)
            passed = 0
        return max(1, found)

    def passed(self, rows: int) -> None:
        """Advance by some rows."""
        self._passed += rows
        while self._group < len(self._rows) and self._passed >= self._rows[self._group]:
            self._passed -= self._rows[self._group]
            self._group += 1


def _leaves(file: pq.ParquetFile, wanted: frozenset[str]) -> list[_LeafColumn]:
    schema = file.schema
    found = []
    for index in range(len(schema)):
        column = schema.column(index)
        if column.path in wanted or column.path.partition(".")[0] in wanted:
            found.append(_LeafColumn(index, column.path, _width(column)))
    return found


def _width(column: pq.ColumnSchema) -> int | None:
    kind = column.physical_type
    return None if kind == "BYTE_ARRAY" else max(column.length, _WIDTHS[kind])


def _is_flat_text(schema: pa.Schema, path: str) -> bool:
    index = schema.get_field_index(path)
    if index < 0:
        return False
    kind = schema.field(index).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def _stores_once(chunk: pq.ColumnChunkMetaData) -> bool:
    return any(word in encoding for encoding in chunk.encodings for word in _REPEATED)
