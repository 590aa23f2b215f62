"""Merge engine `partial-update`: newer non-null values update the row, as a whole or by sequence groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.engines.engine import RETRACTIONS, MergeEngine
from pypaimon.streaming.merge.functions.base import (
    ADD,
    ADD_BEFORE,
    RETRACT,
    SET,
    SET_RETRACT,
    SKIP,
    Actions,
    FieldAggregate,
    LastNonNullValue,
    LastValue,
)
from pypaimon.streaming.merge.groups import Groups, Mask, Merged, value_columns
from pypaimon.streaming.merge.ordering import Ints, ranks
from pypaimon.streaming.model.row_kinds import DELETE, INSERT

_FILL = FieldAggregate(LastNonNullValue())
_REPLACE = FieldAggregate(LastValue())


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Fields that are updated together, by the newest value of their own sequence fields."""

    sequence: tuple[str, ...]
    fields: tuple[str, ...]
    removes: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.sequence + self.fields


@dataclass(frozen=True, slots=True)
class PartialUpdate(MergeEngine):
    """Follows Java's `PartialUpdateMergeFunction`."""

    name = "partial-update"
    groups: tuple[SequenceGroup, ...] = ()  # The sequence groups. Other fields take the newest value that is not null.
    # The aggregates of fields of sequence groups. Their other fields are replaced.
    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)
    ignore_delete: bool = False
    remove_on_delete: bool = False  # Whether a -D removes the row (`partial-update.remove-record-on-delete`)

    @property
    def retractions(self) -> frozenset[int]:
        """Both if an option says what they do and each aggregate of a sequence group can retract."""
        said = self.ignore_delete or self.remove_on_delete or self.groups
        possible = self.ignore_delete or all(each.accepts_retractions for each in self.aggregates.values())
        return RETRACTIONS if said and possible else frozenset()

    def needs(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Keys, sequence fields, and those of sequence groups that hold a column or that remove rows."""
        wanted = set(columns)
        names = [*self.keys, *self.sequence]
        for group in self.groups:
            if group.removes or wanted.intersection(group.columns):
                names += group.sequence
        return tuple(dict.fromkeys(name for name in names if name not in wanted))

    def merge(self, groups: Groups) -> Merged:
        """Update each row.

        Results are +I, or -D if the newest record removed the row or all records are retractions.
        """
        opening = groups.retracts & (groups.positions == groups.starts[groups.ids])
        # A retraction that comes first starts the row with its own values, even if it is otherwise ignored.
        actions: Actions = np.where(groups.retracts, np.where(opening, SET, SKIP), ADD).astype(np.int8)
        aggregates: dict[str, tuple[FieldAggregate, Actions]] = {}
        if self.groups:
            there = set(groups.batch.schema.names)
            present = [group for group in self.groups if group.removes or there.intersection(group.columns)]
            removed = self._in_sequence(groups, present, opening, aggregates)
        else:
            removed = self._removed(groups)
        # The record that removes the row restarts it with its own values.
        actions[removed] = SET
        kinds = np.where(removed[groups.ends] | ~groups.any(~groups.retracts), DELETE, INSERT).astype(np.int8)
        columns = {}
        for name in value_columns(groups.batch):
            aggregate, chosen = aggregates.get(name, (_FILL, actions))
            columns[name] = aggregate.apply(groups, name, chosen)
        newest = groups.ends
        if self.ignore_delete:
            # If all records are retractions (-1), take the first one.
            newest = np.maximum(groups.last(~groups.retracts), groups.starts)
        return Merged(kinds, groups.row_of(newest), columns)

    def _removed(self, groups: Groups) -> Mask:
        if self.ignore_delete or not groups.retracts.any():
            return np.zeros(len(groups.rows), dtype=np.bool_)
        if not self.remove_on_delete:
            raise UnsupportedTableError(
                "The data files hold -U or -D records, which merge engine partial-update cannot merge by itself. Set "
                "'ignore-delete' = 'true' (ignore them), 'partial-update.remove-record-on-delete' = 'true' (a -D "
                "removes the row), or 'fields.<g>.sequence-group' (records retract the fields of their group)."
            )
        mask: Mask = groups.kinds == DELETE
        return mask

    def _in_sequence(
        self,
        groups: Groups,
        sequence_groups: list[SequenceGroup],
        opening: Mask,
        aggregates: dict[str, tuple[FieldAggregate, Actions]],
    ) -> Mask:
        counted = ~groups.retracts | opening | (not self.ignore_delete)
        ages = [_ages(groups, group.sequence) for group in sequence_groups]
        newest = [_newest(groups, age, counted) for age in ages]
        removed = np.zeros(len(groups.rows), dtype=np.bool_)
        if any(group.removes for group in sequence_groups):
            removed = _removals(groups, [group.removes for group in sequence_groups], ages, newest)
        for group, age, is_newest in zip(sequence_groups, ages, newest, strict=True):
            # The action of each record on sequence fields (`sequence`), on fields without an aggregate (`replacing`),
            # and on aggregated fields (`aggregating`).
            sequence = np.where(is_newest, ADD, SKIP)
            adding = np.where(is_newest, ADD, np.where(age > 0, ADD_BEFORE, SKIP))
            if self.ignore_delete:
                replacing = aggregating = np.where(opening, SET, np.where(groups.retracts, SKIP, adding))
            else:
                # The retraction that starts a row sets its values, and retracts them if it has a sequence.
                opened = np.where(age > 0, SET_RETRACT, SET)
                taking = np.where(opening, opened, RETRACT)
                replacing = np.where(groups.retracts, np.where(is_newest | opening, taking, SKIP), adding)
                aggregating = np.where(groups.retracts, np.where((age > 0) | opening, taking, SKIP), adding)
            sequence = np.where(opening | removed, SET, sequence).astype(np.int8)
            aggregates.update(dict.fromkeys(group.sequence, (_REPLACE, sequence)))
            for name in group.fields:
                aggregate = self.aggregates.get(name)
                chosen = np.where(removed, SET, replacing if aggregate is None else aggregating).astype(np.int8)
                aggregates[name] = (aggregate or _REPLACE, chosen)
        return removed


def _ages(groups: Groups, sequence: tuple[str, ...]) -> Ints:
    """The sequence of each position as a number; 0 if all sequence fields are null, so the group is unchanged."""
    ages = ranks(groups.values(sequence[0]))
    for name in sequence[1:]:
        following = ranks(groups.values(name))
        # Combine the ranks as digits of one number, and rank that again, so that it stays below 64 bits.
        both = ages * (following.max() + 1) + following
        ages = np.where(both > 0, np.unique(both, return_inverse=True)[1] + 1, 0)
    return ages


def _newest(groups: Groups, ages: Ints, counted: Mask) -> Mask:
    # The numbers of each group are above those of the group before, so the running maximum restarts in each group.
    leveled = groups.ids * (ages.max() + 1) + np.where(counted, ages, 0)
    mask: Mask = counted & (ages > 0) & (leveled == np.maximum.accumulate(leveled))
    return mask


def _removals(groups: Groups, removing: list[bool], ages: list[Ints], newest: list[Mask]) -> Mask:
    """Which records remove the row. A removal sets the sequence of every group, so `newest` is corrected."""
    removed = np.zeros(len(groups.rows), dtype=np.bool_)
    deletes = groups.kinds == DELETE
    candidates = np.zeros(len(groups.rows), dtype=np.bool_)
    for removes, age in zip(removing, ages, strict=True):
        if removes:
            candidates |= deletes & (age > 0)
    # Whether a record is the newest depends on the removals before it, so such groups are processed record by record.
    # `held` is the sequence of each sequence group so far.
    for group in np.flatnonzero(groups.any(candidates)).tolist():
        held = [0] * len(ages)
        for position in range(int(groups.starts[group]), int(groups.ends[group]) + 1):
            here = [int(age[position]) for age in ages]
            takes = [now > 0 and now >= before for now, before in zip(here, held, strict=True)]
            if deletes[position] and any(took and removes for took, removes in zip(takes, removing, strict=True)):
                # Its aggregates need not retract. Java fails on one that cannot in a group before the
                # removing one, and so does its writer: such tables do not exist.
                removed[position] = True
                held = here
            else:
                held = [now if took else before for now, before, took in zip(here, held, takes, strict=True)]
            for mask, took in zip(newest, takes, strict=True):
                mask[position] = took
    return removed
