"""`Records`: rows with their row kinds."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.model import row_kinds


@dataclass(frozen=True, slots=True)
class Records:
    """Records with their row kinds.

    Attributes:
        batch: The fields that were read (and system columns that were asked for).
        kinds: Their row kinds as int8 codes; None: all +I.
    """

    batch: pa.RecordBatch
    kinds: pa.Array | None = None

    def keep(self, mask: pa.Array) -> Records:
        """Those for which the mask is true."""
        if mask.true_count == len(mask):
            return self
        return Records(self.batch.filter(mask), None if self.kinds is None else self.kinds.filter(mask))


def adding(kinds: pa.Array) -> pa.Array:
    """Which records add a row, or set it."""
    return pc.is_in(kinds, value_set=pa.array([row_kinds.INSERT, row_kinds.UPDATE_AFTER], pa.int8()))
