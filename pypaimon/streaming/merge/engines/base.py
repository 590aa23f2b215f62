"""`MergeEngine`: the protocol of merge engines, and their common base."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pypaimon.streaming.merge.groups import Groups, Merged
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE

RETRACTIONS = frozenset({UPDATE_BEFORE, DELETE})
"""The row kinds of retractions."""


class MergeEngine(Protocol):
    """How the records of one key become one row. Immutable.

    Attributes:
        name: The value of the option `merge-engine`.
        sequence: The fields that order the records of a key, before `_SEQUENCE_NUMBER`; may be empty.
        ascending: Whether the greatest of `sequence` is the newest.
        wants_levels: Whether batches must hold the level of each record's file, `_LEVEL` (int32).
        retractions: Which of the kinds -U and -D it accepts. It refuses records of the others.
    """

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def sequence(self) -> tuple[str, ...]: ...

    @property
    def ascending(self) -> bool: ...

    @property
    def wants_levels(self) -> bool: ...

    @property
    def retractions(self) -> frozenset[int]: ...

    @property
    def depends_on_order(self) -> bool: ...

    def needs(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns that merging these columns needs in addition."""

    def merge(self, groups: Groups) -> Merged:
        """Merge keys that have more than one record; a single record stays unchanged."""


@dataclass(frozen=True, slots=True)
class EngineBase:
    """The common part of all engines."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    ascending: bool = True
    wants_levels: bool = False

    @property
    def retractions(self) -> frozenset[int]:
        """Both kinds, unless an engine overrides this."""
        return RETRACTIONS

    @property
    def depends_on_order(self) -> bool:
        """True, unless an engine overrides this."""
        return True

    def needs(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Keys and sequence fields that are not among the columns."""
        there = set(columns)
        return tuple(dict.fromkeys(name for name in (*self.keys, *self.sequence) if name not in there))
