"""Merge engine `first-row`: the oldest record of a key is the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.engines.base import RETRACTIONS, EngineBase
from pypaimon.streaming.merge.groups import NO_ROW, Groups, Merged


@dataclass(frozen=True, slots=True)
class FirstRow(EngineBase):
    """Follows Java's `FirstRowMergeFunction`."""

    ignore_delete: bool = False

    @property
    def name(self) -> str:
        return "first-row"

    @property
    def retractions(self) -> frozenset[int]:
        """All if they are ignored, else none of them."""
        return RETRACTIONS if self.ignore_delete else frozenset()

    def merge(self, groups: Groups) -> Merged:
        """Take the oldest record with its row kind.

        Raises:
            UnsupportedTableError: There is a -U or -D, and `ignore-delete` is not set.
        """
        if not self.ignore_delete and groups.retracts.any():
            raise UnsupportedTableError(
                "The data files hold -U or -D records, which merge engine first-row cannot merge. "
                "Set the table option 'ignore-delete' = 'true' to ignore them."
            )
        oldest = groups.first(~groups.retracts)
        return Merged(np.where(oldest < 0, NO_ROW, groups.kinds[oldest]).astype(np.int8), groups.row_of(oldest))
