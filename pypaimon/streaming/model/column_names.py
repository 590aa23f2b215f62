"""`GivenNames`: which given column means which column of a table, wherever rows are matched with one by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


class GivenNames:
    """Names of given columns.

    A column of the table is meant by the given one of the same name, otherwise by one whose name differs only in case,
    unless that is the name of another column of the table.

    Args:
        own: Names of the columns of the table.
        case_sensitive: Whether names must agree in case.
    """

    def __init__(self, names: Sequence[str], own: Collection[str], *, case_sensitive: bool = False) -> None:
        self._names = names
        self._own = frozenset(own)
        self._case_sensitive = case_sensitive

    def find(self, wanted: str) -> int | None:
        """The position of the column that means one of the table, or None. Raises ValueError if several mean it."""
        same = [position for position, name in enumerate(self._names) if name == wanted]
        if not same and not self._case_sensitive:
            others = ((position, name) for position, name in enumerate(self._names) if name not in self._own)
            same = [position for position, name in others if name.lower() == wanted.lower()]
        if len(same) > 1:
            raise ValueError(f"columns {quoted([self._names[each] for each in same])} all mean '{wanted}'")
        return same[0] if same else None

    def renamed(self, wanted: Iterable[str]) -> dict[str, str]:
        """The table's names of given columns that are spelled otherwise. Raises ValueError as `find`."""
        found = ((self.find(name), name) for name in wanted)
        spelled = ((self._names[position], name) for position, name in found if position is not None)
        return {given: name for given, name in spelled if given != name}


def quoted(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(f"'{name}'" for name in names)
