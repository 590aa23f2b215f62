"""`MergeEngine`, and the engines `deduplicate`, `first-row` and `aggregation`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.functions.base import ADD, RETRACT, SET, Actions, FieldAggregate
from pypaimon.streaming.merge.groups import NO_ROW, Groups, Merged, value_columns
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_BEFORE

RETRACTIONS = frozenset({UPDATE_BEFORE, DELETE})
"""The row kinds of retractions."""


@dataclass(frozen=True, slots=True)
class MergeEngine(ABC):
    """How the records of one key become one row. Immutable."""

    name: ClassVar[str]  # The value of the option `merge-engine`
    keys: tuple[str, ...]
    sequence: tuple[str, ...] = ()  # The fields that order the records of a key, before `_SEQUENCE_NUMBER`
    ascending: bool = True  # Whether the greatest of `sequence` is the newest
    wants_levels: bool = False  # Whether batches must hold the level of each record's file, `_LEVEL` (int32)

    @property
    def retractions(self) -> frozenset[int]:
        """Which of the kinds -U and -D it accepts. It refuses records of the others."""
        return RETRACTIONS

    @property
    def depends_on_order(self) -> bool:
        return True

    @property
    def takes_newest(self) -> bool:
        """Whether the result of a merge is always the newest record."""
        return False

    def needs(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns that merging these columns needs in addition: keys and sequence fields."""
        there = set(columns)
        return tuple(dict.fromkeys(name for name in (*self.keys, *self.sequence) if name not in there))

    @abstractmethod
    def merge(self, groups: Groups) -> Merged:
        """Merge keys that have more than one record; a single record stays unchanged."""


@dataclass(frozen=True, slots=True)
class Deduplicate(MergeEngine):
    """Follows Java's `DeduplicateMergeFunction`."""

    name = "deduplicate"
    ignore_delete: bool = False  # Whether -U and -D are ignored. Writers drop them, but those of Paimon 0.7 did not.

    @property
    def takes_newest(self) -> bool:
        return not self.ignore_delete

    def merge(self, groups: Groups) -> Merged:
        newest = groups.last(~groups.retracts) if self.ignore_delete else groups.ends
        return Merged(np.where(newest < 0, NO_ROW, groups.kinds[newest]).astype(np.int8), groups.row_of(newest))


@dataclass(frozen=True, slots=True)
class FirstRow(MergeEngine):
    """Follows Java's `FirstRowMergeFunction`."""

    name = "first-row"
    ignore_delete: bool = False

    @property
    def retractions(self) -> frozenset[int]:
        """All if they are ignored, else none of them."""
        return RETRACTIONS if self.ignore_delete else frozenset()

    def merge(self, groups: Groups) -> Merged:
        """Take the oldest record with its row kind. Raises UnsupportedTableError if there is a -U or -D, and
        `ignore-delete` is not set.
        """
        if not self.ignore_delete and groups.retracts.any():
            raise UnsupportedTableError(
                "The data files hold -U or -D records, which merge engine first-row cannot merge. "
                "Set the table option 'ignore-delete' = 'true' to ignore them."
            )
        oldest = groups.first(~groups.retracts)
        return Merged(np.where(oldest < 0, NO_ROW, groups.kinds[oldest]).astype(np.int8), groups.row_of(oldest))


_IN_ANY_ORDER = frozenset(
    "primary_key sum product max min bool_or bool_and hll_sketch theta_sketch rbm32 rbm64".split()
)
"""Functions whose result does not depend on the order of values."""


@dataclass(frozen=True, slots=True)
class Aggregation(MergeEngine):
    """Follows Java's `AggregateMergeFunction`."""

    name = "aggregation"
    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)
    remove_on_delete: bool = False  # Whether a -D removes the whole row (`aggregation.remove-record-on-delete`)

    @property
    def retractions(self) -> frozenset[int]:
        """All if every function can retract. A -D that removes the row needs no function."""
        if all(each.accepts_retractions for each in self.aggregates.values()):
            return RETRACTIONS
        return frozenset({DELETE}) if self.remove_on_delete else frozenset()

    @property
    def depends_on_order(self) -> bool:
        """Whether a -D removes the records before it, or a function depends on the order."""
        functions = {each.aggregator.name for each in self.aggregates.values()}
        return self.remove_on_delete or not functions <= _IN_ANY_ORDER

    def merge(self, groups: Groups) -> Merged:
        """Aggregate each field. Results are +I, or -D if a delete removed the row. Raises UnsupportedTableError if a
        function cannot retract a value, or a number overflows.
        """
        actions: Actions = np.where(groups.retracts, RETRACT, ADD).astype(np.int8)
        kinds = np.full(len(groups), INSERT, dtype=np.int8)
        if self.remove_on_delete:
            deletes = groups.kinds == DELETE
            # A delete restarts the row with its own values. It removes the row if no record comes after it.
            actions[deletes] = SET
            kinds[deletes[groups.ends]] = DELETE
        columns = {name: self.aggregates[name].apply(groups, name, actions) for name in value_columns(groups.batch)}
        return Merged(kinds, groups.row_of(groups.ends), columns)
