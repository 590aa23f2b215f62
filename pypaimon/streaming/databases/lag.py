"""`DatabaseLag` and `TableLag`: how far a stream of a database is behind, in all and table by table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class TableLag:
    """Distance from what was handed out of a table to what was its latest snapshot `age` seconds ago. None: unknown.

    Attributes:
        snapshots: Snapshots from the next one to that one, both included; a state that is still to come is one.
        rows: Records that the stream is given for them, before filters: exact, or None.
        seconds: Age of the first of them; 0 when caught up.
        age: Seconds since it was looked whether there is more; None: that was never done.
        error: Why nothing is known: what the table is parked for, or what asking for its lag has met. None otherwise.
    """

    snapshots: int | None = None
    rows: int | None = None
    seconds: float | None = None
    age: float | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class DatabaseLag:
    """How far a stream of a database is behind. None is "unknown", never zero.

    Attributes:
        tables: The lag of each table, by name; of those that have failed too.
        is_listed: Whether it was found out by now which tables there are.
    """

    tables: Mapping[str, TableLag] = field(default_factory=dict)
    is_listed: bool = True

    @property
    def snapshots(self) -> int | None:
        """Snapshots of all tables together; None if those of any are unknown."""
        return self._of_all(sum, lambda lag: lag.snapshots)

    @property
    def rows(self) -> int | None:
        """Records of all tables together; None if those of any are unknown."""
        return self._of_all(sum, lambda lag: lag.rows)

    @property
    def seconds(self) -> float | None:
        """Age of the oldest snapshot that was not handed out, 0 when caught up; None if that of any is unknown."""
        return self._of_all(lambda values: max(values, default=0.0), lambda lag: lag.seconds)

    @property
    def age(self) -> float | None:
        """Seconds since the table was looked at for which that was the longest ago; None if any never was."""
        return self._of_all(lambda values: max(values, default=0.0), lambda lag: lag.age)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the tables that are behind by nobody knows how many snapshots: those that have failed too."""
        return tuple(sorted(name for name, lag in self.tables.items() if lag.snapshots is None))

    def _of_all(self, together: Callable[[list[N]], N], value: Callable[[TableLag], N | None]) -> N | None:
        found = [value(lag) for lag in self.tables.values()]
        known = [each for each in found if each is not None]
        return together(known) if self.is_listed and len(known) == len(found) else None
