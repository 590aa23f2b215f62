"""`Aggregator`: the base of aggregate functions, and the functions that select one of the values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.groups import Groups, Mask
from pypaimon.streaming.merge.ordering import Ints, numeric_codes, ranks

SKIP, ADD, ADD_BEFORE, RETRACT, SET, SET_RETRACT = range(6)
"""The action of a record on an aggregate: none; add the value; add it before the others (it has an older sequence in a
sequence group); retract it; replace the aggregate; replace and retract."""

Actions = npt.NDArray[np.int8]
Values: TypeAlias = Any
"""The rows to take values from (`Ints`, -1: null), or the values (`pa.Array`)."""


class Aggregator(ABC):
    """One aggregate function for one field, as Java's `FieldAggregator` of that name; immutable.

    `merge` works in columns, for groups with only `vectorized_actions` that do not need a fold. `fold` goes record by
    record and supports every action.
    """

    name: ClassVar[str]
    retractable: ClassVar[bool] = False
    vectorized_actions: ClassVar[frozenset[int]] = frozenset({SKIP, ADD, ADD_BEFORE})
    resets_on_set: ClassVar[bool] = True
    """Whether continuing after a replaced value equals starting with that value."""

    @abstractmethod
    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        """One value per group."""

    def needs_fold(self, groups: Groups, column: str, actions: Actions) -> Mask:
        return groups.any(~np.isin(actions, list(self.vectorized_actions)))

    @abstractmethod
    def fold(self, groups: Groups, column: str, actions: Actions) -> Values:
        """One value per group, record by record."""


@dataclass(frozen=True, slots=True)
class FieldAggregate:
    """How a field is aggregated."""

    aggregator: Aggregator
    ignore_retract: bool = False  # Whether retractions are ignored (`fields.<f>.ignore-retract`)

    @property
    def accepts_retractions(self) -> bool:
        return self.ignore_retract or self.aggregator.retractable

    def apply(self, groups: Groups, column: str, actions: Actions) -> Values:
        """One value per group. Raises UnsupportedTableError if a value is retracted from a function that cannot
        retract.
        """
        function = self.aggregator
        if self.ignore_retract:
            actions = np.where(actions == RETRACT, SKIP, np.where(actions == SET_RETRACT, SET, actions)).astype(np.int8)
        groups, actions = _with_split_retractions(groups, actions)
        if not function.retractable and (actions == RETRACT).any():
            raise UnsupportedTableError(
                f"The data files hold -U or -D records, and aggregate function '{function.name}' of field '{column}' "
                f"cannot retract values. To ignore such records set 'fields.{column}.ignore-retract' = 'true'."
            )
        if function.resets_on_set:
            actions = _restarted(groups, actions)
        folds = function.needs_fold(groups, column, actions)
        if not folds.any():
            return function.merge(groups, column, actions)
        if folds.all():
            return function.fold(groups, column, actions)
        vectorized = ~folds
        merged = function.merge(groups.where(vectorized), column, actions[vectorized[groups.ids]])
        folded = function.fold(groups.where(folds), column, actions[folds[groups.ids]])
        # Restore the order of the groups.
        order = np.argsort(np.concatenate([np.flatnonzero(vectorized), np.flatnonzero(folds)]))
        if isinstance(merged, pa.Array):
            return pa.concat_arrays([merged, folded]).take(pa.array(order))
        return np.concatenate([merged, folded])[order]


def _with_split_retractions(groups: Groups, actions: Actions) -> tuple[Groups, Actions]:
    twice = actions == SET_RETRACT
    if not twice.any():
        return groups, actions
    counts = 1 + twice
    # The position of each record after those before it were split.
    begins = np.cumsum(counts) - counts
    apart = np.repeat(actions, counts)
    apart[begins[twice]] = SET
    apart[begins[twice] + 1] = RETRACT
    return Groups(groups.batch, np.repeat(groups.rows, counts), begins[groups.starts]), apart


def _restarted(groups: Groups, actions: Actions) -> Actions:
    replaced = actions == SET
    if not replaced.any():
        return actions
    # Records before the last replacement do not count, and the group starts with the replacement.
    before = groups.positions < groups.last(replaced)[groups.ids]
    return np.where(before, SKIP, np.where(replaced, ADD, actions)).astype(np.int8)


class SelectingAggregator(Aggregator):
    """Functions whose result is one of the values, or null. They select rows and do not read values."""

    def merge(self, groups: Groups, column: str, actions: Actions) -> Ints:
        return groups.row_of(self.pick(groups, column, actions))

    @abstractmethod
    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        """Position of each group's result; -1: null."""

    def fold(self, groups: Groups, column: str, actions: Actions) -> Ints:
        raise AssertionError(f"{self.name} is never folded")


class LastValue(SelectingAggregator):
    """`last_value`: the newest value, null or not; a retraction leaves null."""

    name = "last_value"
    retractable = True
    vectorized_actions = frozenset({SKIP, ADD, ADD_BEFORE, RETRACT})

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        return _unless_retracted(groups.last((actions == ADD) | (actions == RETRACT)), actions)


class LastNonNullValue(SelectingAggregator):
    """`last_non_null_value`: the newest value that is not null; the retraction of a value leaves null."""

    name = "last_non_null_value"
    retractable = True
    vectorized_actions = frozenset({SKIP, ADD, ADD_BEFORE, RETRACT})

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        valid = groups.valid(column)
        newest = groups.last(valid & ((actions == ADD) | (actions == RETRACT)))
        picked = _unless_retracted(newest, actions)
        older = valid & (actions == ADD_BEFORE)
        if not older.any():
            return picked
        # A value of an older sequence counts only without a newer value, or after that was retracted.
        later = groups.first(older & (groups.positions > newest[groups.ids]))
        return np.where(picked < 0, later, picked)


class PrimaryKeyValue(SelectingAggregator):
    """`primary_key`: the value of the newest record of any row kind."""

    name = "primary_key"
    retractable = True
    vectorized_actions = frozenset({SKIP, ADD, RETRACT})

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        return groups.last(actions != SKIP)


class FirstValue(SelectingAggregator):
    """`first_value`: the value of the oldest record, null or not.

    Java's function keeps the first value that it gets. In a sequence group a record with an older sequence replaces it.
    """

    name = "first_value"
    vectorized_actions = frozenset({SKIP, ADD, ADD_BEFORE, SET})
    resets_on_set = False

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        given = (actions == ADD) | (actions == ADD_BEFORE)
        opening = groups.positions == groups.first(given)[groups.ids]
        return groups.last((actions == SET) | np.where(opening, actions == ADD, actions == ADD_BEFORE))


class FirstNonNullValue(SelectingAggregator):
    """`first_non_null_value`: the oldest value that is not null."""

    name = "first_non_null_value"
    vectorized_actions = frozenset({SKIP, ADD})
    resets_on_set = False

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        return groups.first((actions == ADD) & groups.valid(column))

    def fold(self, groups: Groups, column: str, actions: Actions) -> Ints:
        """Treat older sequences and replaced values as Java's state machine does."""
        valid = [*groups.valid(column).tolist(), False]
        chosen = actions.tolist()
        results = []
        for start, size in zip(groups.starts.tolist(), groups.sizes.tolist(), strict=True):
            kept, closed = -1, False
            for position in range(start, start + size):
                if chosen[position] == SET:
                    kept = position
                elif chosen[position] == ADD and not closed and valid[position]:
                    kept, closed = position, True
                elif chosen[position] == ADD_BEFORE:
                    if not closed and valid[kept]:
                        closed = True
                    else:
                        kept = position
            results.append(kept)
        return groups.row_of(np.array(results, dtype=np.int64))


@dataclass(frozen=True)
class MinMax(SelectingAggregator):
    """`max` and `min`, for booleans `bool_or` and `bool_and`. Nulls do not count."""

    name: str  # type: ignore[misc]
    greatest: bool

    def pick(self, groups: Groups, column: str, actions: Actions) -> Ints:
        values = groups.values(column)
        codes: Any = numeric_codes(values)
        if codes is None:
            codes = ranks(values)
        counted = (actions != SKIP) & groups.valid(column)
        # Records that do not count get the worst code. The first record with the best code is selected.
        limits = np.iinfo(codes.dtype)
        if self.greatest:
            best = np.maximum.reduceat(np.where(counted, codes, limits.min), groups.starts)
        else:
            best = np.minimum.reduceat(np.where(counted, codes, limits.max), groups.starts)
        return groups.first(counted & (codes == best[groups.ids]))


def _unless_retracted(positions: Ints, actions: Actions) -> Ints:
    # Index -1 reads the last action, which the first condition excludes.
    return np.where((positions >= 0) & (actions[positions] == RETRACT), -1, positions)


class FoldingAggregator(Aggregator):
    """Functions that compute new values by adding and retracting one value at a time."""

    vectorized_actions: ClassVar[frozenset[int]] = frozenset()
    resets_on_set = False

    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        return self.fold(groups, column, actions)

    @abstractmethod
    def add(self, accumulated: Any, value: Any) -> Any:
        """Add a newer value; either may be None."""

    def add_before(self, accumulated: Any, value: Any) -> Any:
        """Add an older value."""
        return self.add(value, accumulated)

    def retract(self, accumulated: Any, value: Any) -> Any:
        raise AssertionError(f"{self.name} is not retractable")

    def load(self, values: pa.Array) -> list[Any]:
        return list(values.to_pylist())

    def store(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind)

    def fold(self, groups: Groups, column: str, actions: Actions) -> Values:
        values = self.load(groups.values(column))
        chosen = actions.tolist()
        steps = {ADD: self.add, ADD_BEFORE: self.add_before, RETRACT: self.retract, SET: _replace, SKIP: _keep}
        results = []
        for start, size in zip(groups.starts.tolist(), groups.sizes.tolist(), strict=True):
            accumulated = None
            for position in range(start, start + size):
                accumulated = steps[chosen[position]](accumulated, values[position])
            results.append(accumulated)
        return self.store(results, groups.batch.schema.field(column).type)


def _replace(_accumulated: Any, value: Any) -> Any:
    return value


def _keep(accumulated: Any, _value: Any) -> Any:
    return accumulated
