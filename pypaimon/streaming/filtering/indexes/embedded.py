"""Embedded file indexes: those that are small enough to lie in the manifest entries of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.indexes.container import IndexPart, index_parts
from pypaimon.streaming.filtering.indexes.index_filter import IndexFilter, warn_of_unused
from pypaimon.streaming.filtering.statistics import Mask
from pypaimon.streaming.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate


def by_embedded_indexes(
    entries: pa.Table, predicate: Predicate, read: TableSchema, schema_of: Callable[[int], TableSchema]
) -> Mask:
    """Which files can hold a matching row. One without an index can, and one whose index cannot be read.

    Args:
        entries: Manifest entries: `embedded_index`, `schema_id`, `row_count` and `file_name`.
        predicate: The filter; names are those of `read`.
        read: The schema that is read.
        schema_of: The schema of an id.
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
    """Whether the file of an embedded index can hold a matching row; it can where the index cannot be read.

    Args:
        found: The filter, for files of its schema.
        data: The index.
        name: The file, for a warning.
        row_count: Its rows.
    """

    def content(part: IndexPart) -> bytes:
        end = part.start + part.length
        if not 0 <= part.start <= end <= len(data):
            raise ValueError(f"an index at bytes {part.start} to {end} of {len(data)} was recorded")
        return data[part.start : end]

    try:
        return found.may_match(index_parts(data), content, row_count)
    except ValueError as error:
        warn_of_unused(name, error)
        return True
