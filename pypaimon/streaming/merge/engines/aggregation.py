"""Merge engine `aggregation`: every field of a key is aggregated by its own function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pypaimon.streaming.merge.engines.base import RETRACTIONS, EngineBase
from pypaimon.streaming.merge.functions.base import ADD, RETRACT, SET, Actions, FieldAggregate
from pypaimon.streaming.merge.groups import Groups, Merged, value_columns
from pypaimon.streaming.model.row_kinds import DELETE, INSERT

_IN_ANY_ORDER = frozenset(
    {
        "primary_key",
        "sum",
        "product",
        "max",
        "min",
        "bool_or",
        "bool_and",
        "hll_sketch",
        "theta_sketch",
        "rbm32",
        "rbm64",
    }
)
"""Functions whose result does not depend on the order of values."""


@dataclass(frozen=True, slots=True)
class Aggregation(EngineBase):
    """Follows Java's `AggregateMergeFunction`."""

    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)
    remove_on_delete: bool = False  # Whether a -D removes the whole row (`aggregation.remove-record-on-delete`)

    @property
    def name(self) -> str:
        return "aggregation"

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
        """Aggregate each field. Results are +I, or -D if a delete removed the row.

        Raises:
            UnsupportedTableError: A function cannot retract a value, or a number overflows.
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
