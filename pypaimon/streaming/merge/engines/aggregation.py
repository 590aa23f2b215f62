"""Merge engine `aggregation`: every field of a key is aggregated by a function of its own."""

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
"""Functions whose result is the same whichever value comes first."""


@dataclass(frozen=True, slots=True)
class Aggregation(EngineBase):
    """Follows Java's `AggregateMergeFunction`.

    Attributes:
        aggregates: The aggregate of each field.
        remove_on_delete: Whether a -D removes the whole row (`aggregation.remove-record-on-delete`).
    """

    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)
    remove_on_delete: bool = False

    @property
    def name(self) -> str:
        return "aggregation"

    @property
    def retractions(self) -> frozenset[int]:
        """Those that all functions can take back; a -D that removes the row needs none of them."""
        if all(each.takes_back for each in self.aggregates.values()):
            return RETRACTIONS
        return frozenset({DELETE}) if self.remove_on_delete else frozenset()

    @property
    def depends_on_order(self) -> bool:
        """Whether a -D removes what came before it, or a function looks at the order."""
        functions = {each.aggregator.name for each in self.aggregates.values()}
        return self.remove_on_delete or not functions <= _IN_ANY_ORDER

    def merge(self, groups: Groups) -> Merged:
        """Aggregates each field; results are +I, or -D where a delete removed the row.

        Raises:
            UnsupportedTableError: A function cannot take back a value, or a number overflows.
        """
        actions: Actions = np.where(groups.retracts, RETRACT, ADD).astype(np.int8)
        kinds = np.full(len(groups), INSERT, dtype=np.int8)
        if self.remove_on_delete:
            deletes = groups.kinds == DELETE
            # A delete begins the row anew with its own values; it removes the row if nothing comes behind it.
            actions[deletes] = SET
            kinds[deletes[groups.ends]] = DELETE
        columns = {name: self.aggregates[name].apply(groups, name, actions) for name in value_columns(groups.batch)}
        return Merged(kinds, groups.row_of(groups.ends), columns)
