"""What a merge engine is, and what all of them have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pypaimon.streaming.merge.groups import Groups, Merged
from pypaimon.streaming.model.row_kinds import DELETE, UPDATE_BEFORE

RETRACTIONS = frozenset({UPDATE_BEFORE, DELETE})
"""The kinds that take rows back."""


class MergeEngine(Protocol):
    """How the records of one key become one row. Immutable.

    Attributes:
        name: The value of the option `merge-engine`.
        keys: The primary key without partition columns.
        sequence: The fields that order the records of a key, before `_SEQUENCE_NUMBER`; empty if none.
        ascending: Whether the greatest of `sequence` is the newest.
        wants_levels: Whether batches must hold the level of each record's file, `_LEVEL` (int32).
        retractions: Which of the kinds -U and -D it takes; a record of another one it refuses.
        depends_on_order: Whether it matters which of two records is the newer one.
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
        """The columns that merging needs beside these, so that these come out right."""

    def merge(self, groups: Groups) -> Merged:
        """Merges keys that have more than one record; a single record stays as it is."""


@dataclass(frozen=True, slots=True)
class EngineBase:
    """What every engine has."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    ascending: bool = True
    wants_levels: bool = False

    @property
    def retractions(self) -> frozenset[int]:
        """Both, unless an engine says otherwise."""
        return RETRACTIONS

    @property
    def depends_on_order(self) -> bool:
        """It does, unless an engine says otherwise."""
        return True

    def needs(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Keys and sequence fields."""
        there = set(columns)
        return tuple(dict.fromkeys(name for name in (*self.keys, *self.sequence) if name not in there))
