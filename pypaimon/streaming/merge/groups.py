"""`Groups`: records grouped by key; `Merged`: the result of a merge engine for each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.merge.ordering import Ints, numeric_codes
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import LEVEL, PLACE, SEQUENCE_NUMBER, VALUE_KIND, WRITTEN_NUMBER

NO_ROW = -1
_NO_VALUES = (SEQUENCE_NUMBER, VALUE_KIND, WRITTEN_NUMBER, LEVEL, PLACE)

Kinds = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


def is_retract(kinds: Kinds) -> Mask:
    """A mask of the retractions (-U, -D)."""
    mask: Mask = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
    return mask


class Groups:
    """Keys with more than one record each, in key order; the records of a key from the oldest to the newest.

    Positions count the records of all groups in that order; `rows[position]` is the record's row in `batch`.
    """

    def __init__(self, batch: pa.RecordBatch, rows: Ints, starts: Ints) -> None:
        self.batch = batch
        self.rows = rows
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def ends(self) -> Ints:
        """Last position of each group."""
        return self.starts + self.sizes - 1

    @cached_property
    def ids(self) -> Ints:
        """Index of the group of each position."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @cached_property
    def positions(self) -> Ints:
        """All positions: 0, 1, 2, ..."""
        return np.arange(len(self.rows))

    @cached_property
    def kinds(self) -> Kinds:
        codes = numeric_codes(self.batch.column(VALUE_KIND))
        assert codes is not None
        return codes[self.rows]

    @cached_property
    def retracts(self) -> Mask:
        return is_retract(self.kinds)

    def last(self, mask: Mask) -> Ints:
        """Last position of each group at which the mask is true, else -1."""
        return np.maximum.reduceat(np.where(mask, self.positions, -1), self.starts)

    def first(self, mask: Mask) -> Ints:
        """First position of each group at which the mask is true, else -1."""
        beyond = len(self.rows)
        # `beyond` is greater than any position, so in a minimum it stands for "not found".
        found = np.minimum.reduceat(np.where(mask, self.positions, beyond), self.starts)
        return np.where(found == beyond, -1, found)

    def any(self, mask: Mask) -> Mask:
        return np.logical_or.reduceat(mask, self.starts)

    def row_of(self, positions: Ints) -> Ints:
        """Rows of positions; -1 for position -1."""
        return np.where(positions < 0, -1, self.rows[positions])

    def valid(self, column: str) -> Mask:
        values = self.batch.column(column)
        if values.null_count == 0:
            return np.ones(len(self.rows), dtype=np.bool_)
        mask: Mask = values.is_valid().to_numpy(zero_copy_only=False)
        return mask[self.rows]

    def values(self, column: str) -> pa.Array:
        return self.batch.column(column).take(pa.array(self.rows))

    def where(self, mask: Mask) -> Groups:
        # `cumsum(sizes) - sizes` is where each group starts after the others are removed.
        sizes = self.sizes[mask]
        return Groups(self.batch, self.rows[np.repeat(mask, self.sizes)], np.cumsum(sizes) - sizes)

    def only(self, mask: Mask) -> Groups:
        """The same groups with only the positions of the mask; every group must keep one."""
        counts = np.add.reduceat(mask.astype(np.int64), self.starts)
        return Groups(self.batch, self.rows[mask], np.cumsum(counts) - counts)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of each group: one row or none."""

    kinds: Kinds  # Row kind of each result; `NO_ROW` without a row
    rows: Ints
    # Columns that are not taken from `rows`: the row to take each value from (-1: null), or the values
    columns: Mapping[str, Ints | pa.Array] = field(default_factory=dict)


def value_columns(batch: pa.RecordBatch) -> list[str]:
    """The columns of the row, including keys, without system columns."""
    return [name for name in batch.schema.names if name not in _NO_VALUES]


def take_or_null(values: pa.Array, rows: Any) -> pa.Array:
    """Values at rows; null for row -1."""
    absent = rows < 0
    return values.take(pa.array(rows, mask=absent) if absent.any() else pa.array(rows))
