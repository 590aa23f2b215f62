"""Positions that a caller protects: whether they belong to the table, by the rule of readers."""

from __future__ import annotations

from collections.abc import Iterable

from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position, of_table

_ADVICE = "Protect only positions of this table and branch, without those that a rollback has left behind."


def check_protected(directory: TableDirectory, protected: Iterable[Position | int]) -> None:
    """Check that positions belong to this table, and to its history; an id says neither.

    Raises:
        TableChangedError: One belongs to another table or branch, or the table was rolled back since.
    """
    checks = SnapshotRangeValidator(directory, with_changelogs=True)
    for each in protected:
        if isinstance(each, Position):
            position = of_table(each, directory.identity)
            checks.check_table(position, _ADVICE)
            checks.check_fingerprint(position.last_read, position.fingerprint)
