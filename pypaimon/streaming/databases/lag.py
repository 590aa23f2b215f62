"""`DatabaseLag` and `TableLag`: the lag of a stream of a database, in total and for each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class TableLag:
    """The lag of one table, from what was handed out to its latest snapshot `age` seconds ago. None means unknown.

    Attributes:
        snapshots: Snapshots that are still to come; a full state counts as one.
        rows: Records of these snapshots, before filters: exact, or None.
        seconds: Age of the first of these snapshots; 0 when caught up.
        age: Seconds since the last poll, None before the first.
        error: Why the lag is unknown: the error that the table is parked for, or that of asking for its lag.
    """

    snapshots: int | None = None
    rows: int | None = None
    seconds: float | None = None
    age: float | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class DatabaseLag:
    """The lag of a stream of a database. None means unknown, never zero.

    Attributes:
        tables: The lag of each table, by name, including parked tables.
        is_listed: Whether the tables were listed.
    """

    tables: Mapping[str, TableLag] = field(default_factory=dict)
    is_listed: bool = True

    @property
    def snapshots(self) -> int | None:
        """Snapshots of all tables together; None if unknown for any table."""
        return self._of_all(sum, lambda lag: lag.snapshots)

    @property
    def rows(self) -> int | None:
        """Records of all tables together; None if unknown for any table."""
        return self._of_all(sum, lambda lag: lag.rows)

    @property
    def seconds(self) -> float | None:
        """Age of the oldest snapshot that is still to come, 0 when caught up; None if unknown for any table."""
        return self._of_all(lambda values: max(values, default=0.0), lambda lag: lag.seconds)

    @property
    def age(self) -> float | None:
        """Seconds since the oldest of the last polls of all tables; None if any table was never polled."""
        return self._of_all(lambda values: max(values, default=0.0), lambda lag: lag.age)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the tables whose lag is unknown, including parked tables."""
        return tuple(sorted(name for name, lag in self.tables.items() if lag.snapshots is None))

    def _of_all(self, together: Callable[[list[N]], N], value: Callable[[TableLag], N | None]) -> N | None:
        found = [value(lag) for lag in self.tables.values()]
        known = [each for each in found if each is not None]
        return together(known) if self.is_listed and len(known) == len(found) else None
