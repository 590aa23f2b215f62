"""Merge engine `deduplicate`: the newest record of a key is the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pypaimon.streaming.merge.engines.base import EngineBase
from pypaimon.streaming.merge.groups import NO_ROW, Groups, Merged


@dataclass(frozen=True, slots=True)
class Deduplicate(EngineBase):
    """Follows Java's `DeduplicateMergeFunction`."""

    ignore_delete: bool = False  # Whether -U and -D are ignored. Writers drop them, but those of Paimon 0.7 did not.

    @property
    def name(self) -> str:
        return "deduplicate"

    def merge(self, groups: Groups) -> Merged:
        newest = groups.last(~groups.retracts) if self.ignore_delete else groups.ends
        return Merged(np.where(newest < 0, NO_ROW, groups.kinds[newest]).astype(np.int8), groups.row_of(newest))
