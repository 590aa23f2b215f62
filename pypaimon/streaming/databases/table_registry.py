"""`TableRegistry`: the tables of a database that are followed, and those that are added, dropped or renamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.databases.followed_table import FollowedTable, begin_of
from pypaimon.streaming.databases.jobs import BACKOFF, OpenJob
from pypaimon.streaming.databases.lag import TableLag
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.errors import TableMissingError
from pypaimon.streaming.model.position import Position


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a stream in one table at one moment.

    Attributes:
        table: The stream of the table, None if it is not open.
        position: After what was handed out; None if that is unknown or the table is empty.
        is_empty: Whether the last poll found no snapshot, so that all rows are still to come.
        error: The error that the table is parked for, if any.
    """

    table: FollowedTable | None
    position: Position | None = None
    is_empty: bool = False
    error: Exception | None = None

    def known_lag(self, now: float) -> TableLag:
        """The lag as far as it is already known. No IO."""
        if self.table is None or self.error is not None:
            return TableLag(error=self.error)
        return self.table.seen_lag(self.position, now, is_empty=self.is_empty)

    def measured_lag(self, monotonic: Callable[[], float]) -> TableLag:
        """The lag after asking the table for its latest snapshot."""
        if self.table is None or self.error is not None:
            return TableLag(error=self.error)
        try:
            return self.table.measured_lag(self.position, monotonic, is_empty=self.is_empty)
        except Exception as error:  # noqa: BLE001 - the answer for this table alone
            return TableLag(error=error)


@dataclass(frozen=True, slots=True)
class FailedTable:
    """A table that has no stream, because it could not be opened or its stream could not start.

    Attributes:
        identity: Of the table whose stream could not start; None if it could not be opened.
    """

    error: Exception
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class _Missing:
    """A table that listings lack, or whose name another table has.

    Attributes:
        since: The number of the first listing after which an opening finds the table under its new name.
    """

    identity: str
    since: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What follows from a listing.

    Attributes:
        openings: Tables to open.
        dropped: Names of tables that were dropped.
        suspects: Tables that are missing: they are not read until the next listing.
    """

    openings: list[OpenJob]
    dropped: list[str]
    suspects: list[FollowedTable]


class TableRegistry:
    """What is known of each table, by name. Not thread-safe; no IO.

    Tables are recognised by their identity. A table that a listing lacks may be found under another name: one that the
    next listing has too. When each of these names was opened, it was dropped.

    Args:
        places: The positions of an earlier stream, by name; None without one.

    Attributes:
        followed: The streams of tables.
        places: The position in each table, including missing ones.
        opening: Names of tables that are being opened, with the number of the listing that asked for it.
        skipped: Tables that cannot be followed, with the reason.
        failed: Tables that are parked without a stream.
        rounds: The number of listings so far.
        lost: The error that the database does not exist, if the last listing found that.
    """

    def __init__(self, places: dict[str, TablePosition] | None) -> None:
        self._given = None if places is None else frozenset(places)
        self.followed: dict[str, FollowedTable] = {}
        self.places: dict[str, TablePosition] = dict(places or {})
        self.opening: dict[str, int] = {}
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, FailedTable] = {}
        self.rounds = 0
        self.lost: Exception | None = None
        self._missing: dict[str, _Missing] = {}
        # Missing tables whose name another table has now.
        self._replaced: set[str] = set()
        # Tables that were dropped or renamed, until the caller has received the event.
        self._leaving: set[str] = set()
        # Names that are listed although the catalog has no such table.
        self._gone: set[str] = set()
        # The identity of the table that was last seen under each name.
        self._seen: dict[str, str] = {}
        # The number of the listing that asked for the last completed opening of each listed name.
        self._opened: dict[str, int] = {}
        # How often parked and skipped tables were opened in a row, and when they are due again.
        self._repeated: dict[str, tuple[int, float]] = {}

    @property
    def errors(self) -> dict[str, Exception]:
        """The errors of parked tables, by name."""
        parked = {name: table.error for name, table in self.followed.items() if table.error is not None}
        return {**{name: table.error for name, table in self.failed.items()}, **parked}

    @property
    def is_settled(self) -> bool:
        """Whether it is known of every table whether it still exists."""
        return bool(self.rounds) and not self.opening and not self._missing and not self._leaving

    @property
    def has_missing(self) -> bool:
        """Whether any table is missing."""
        return bool(self._missing)

    def progress(self) -> dict[str, TableProgress]:
        """The progress in each table, including tables that are being opened."""
        found = {name: TableProgress(None) for name in self.opening.keys() - self.skipped.keys()}
        found |= {name: TableProgress(None, error=table.error) for name, table in self.failed.items()}
        for name, table in self.followed.items():
            place = self.places.get(name)
            position, is_empty = (None, False) if place is None else (place.position, place.was_empty)
            error = table.error or table.suspicion
            found[name] = TableProgress(table, _next_up(table, position), is_empty, error)
        if self.lost is not None:
            return {name: TableProgress(None, error=self.lost) for name in found}
        return found

    def is_parked(self, name: str) -> bool:
        """Whether a table stays parked unless opening it shows otherwise."""
        table = self.followed.get(name)
        return name in self.failed or (table is not None and table.error is not None and table.suspicion is None)

    def is_followed(self, table: FollowedTable) -> bool:
        """Whether a table is followed and not suspected of being a different table."""
        return self.followed.get(table.name) is table and table.suspicion is None

    def listed(self, names: set[str], now: float) -> Listed:
        """Take the names of a listing, at a time of a clock that never goes back."""
        self.rounds += 1
        self.lost = None
        there = names - self._gone
        self._gone &= names
        suspects = []
        for name, place in self.places.items():
            if name in there or name in self._missing or name in self.opening or name in self._leaving:
                continue
            table = self.followed.get(name)
            if table is not None:
                table.suspicion = table.suspicion or TableMissingError(name)
                suspects.append(table)
            self._missing[name] = _Missing(place.identity, self.rounds)
        of_names: tuple[dict[str, Any], ...] = (self.skipped, self._opened, self._repeated)
        for known in of_names:
            for name in known.keys() - names:
                del known[name]
        openings = self._openings(names, now)
        return Listed(openings, self._dropped(there), suspects)

    def _openings(self, names: set[str], now: float) -> list[OpenJob]:
        """The listed tables to open: those that are not followed, or not read.

        Nothing polls a table that is parked or was skipped, so only opening it finds that another one has its name. It
        is opened after increasing pauses, and once for each table that is missing, which it may be.
        """
        healthy = {name for name, table in self.followed.items() if table.suspicion is None and table.error is None}
        for name in healthy & self._repeated.keys():
            del self._repeated[name]
        newest = max((missing.since for missing in self._missing.values()), default=0)
        found = []
        for name in sorted(names - healthy - self.opening.keys()):
            table = self.followed.get(name)
            if name in self.failed or name in self.skipped or (table is not None and table.error is not None):
                times, due = self._repeated.get(name, (0, now))
                if now >= due:
                    self._repeated[name] = times + 1, now + BACKOFF.pause(times + 1)
                elif self._opened.get(name, 0) >= newest:
                    continue
            found.append(self.new_opening(name))
        return found

    def _dropped(self, there: set[str]) -> list[str]:
        """Tables that the previous listing lacked too, unless one that is being opened may be such a table."""
        ruled_out = min((self._ruled_out(name) for name in self.opening if name not in self._seen), default=self.rounds)
        being_opened = {self._seen[name] for name in self.opening.keys() & self._seen.keys()}
        found = []
        for name, missing in list(self._missing.items()):
            if name in self._replaced:
                continue
            if name in there:
                del self._missing[name]
            elif missing.since < self.rounds and ruled_out >= missing.since and missing.identity not in being_opened:
                del self._missing[name]
                found.append(name)
        # Tables that could never be opened.
        found += [name for name in self.failed.keys() - there - self._leaving if name not in self.places]
        self._leaving.update(found)
        return found

    def _ruled_out(self, name: str) -> int:
        """The last listing for which a name that is being opened has none of the tables that were missing by then.

        A table that a listing lacks has its new name in the next one, so it has no name that appears later.
        """
        return self._opened.get(name, self.opening[name] - 2)

    def new_opening(self, name: str) -> OpenJob:
        """The job that opens a table. One that appears while others are already followed, or failed to open, is new."""
        self.opening[name] = self.rounds
        self._seen.pop(name, None)
        is_later = self.rounds > 1 or name in self._opened
        return OpenJob(name, is_later or (self._given is not None and name not in self._given))

    def retried(self, name: str) -> OpenJob | None:
        """Forget the error of a table without a stream; returns the job that opens it, None if one is under way."""
        del self.failed[name]
        self._repeated.pop(name, None)
        return None if name in self.opening else self.new_opening(name)

    def was_opened(self, name: str) -> None:
        """Note that an opening is complete, whatever came of it."""
        asked = self.opening.pop(name, None)
        if asked is not None:
            self._opened[name] = asked

    def place_of(self, name: str) -> TablePosition | None:
        """The position in the table of this name; None without one, or if the table was just dropped or renamed."""
        return None if name in self._leaving else self.places.get(name)

    def is_gone(self, name: str) -> bool:
        """Note that a listed table does not exist; returns whether it was known before."""
        self.was_opened(name)
        self._gone.add(name)
        return name in self.places

    def is_there(self, name: str, identity: str) -> None:
        """Note that a table exists and can be followed."""
        self._gone.discard(name)
        self._seen[name] = identity
        self.skipped.pop(name, None)

    def is_replaced(self, name: str) -> None:
        """Note that another table has the name now: the former one may be found under another name."""
        if name not in self._replaced:
            self._missing[name] = _Missing(self.places[name].identity, self.rounds + 1)
            self._replaced.add(name)

    def is_leaving(self, name: str) -> None:
        """Note that the table was dropped or renamed; `forget` follows when the caller has received the event."""
        self._leaving.add(name)
        self._missing.pop(name, None)
        self._replaced.discard(name)

    def is_elsewhere(self, name: str, identity: str) -> bool:
        """Whether the same table is known under another name."""
        return any(place.identity == identity for other, place in self.places.items() if other != name)

    def is_settled_elsewhere(self, opening: OpenJob, identity: str) -> bool:
        """Whether it is known under which names the former and the current table of a name are now.

        That takes a listing that began after the identity was read. Each name that had the current table must have been
        opened again, or be missing. If the name had a different table before, each name that may have that table now
        must be opened first, so that the table is found there instead of counting as dropped.
        """
        name = opening.name
        if opening.since is None or self.rounds < opening.since + 2:
            return False
        unknown = (self.opening.keys() | self._gone) - self._missing.keys() - self._leaving - {name}
        if any(self.places[other].identity == identity for other in unknown & self.places.keys()):
            return False
        place = self.place_of(name)
        others = self.opening.keys() - (self._replaced & self._seen.keys()) - {name}
        return place is None or all(
            self._ruled_out(other) > opening.since if other not in self._seen else self._seen[other] != place.identity
            for other in others
        )

    def former_name(self, identity: str) -> str | None:
        """The former name of a table that appears under a new name; None if it is a new table.

        From here on the former name `is_leaving`.
        """
        # Tables that were created in the same millisecond have the same identity, and cannot be distinguished.
        same = [name for name, missing in self._missing.items() if missing.identity == identity]
        if len(same) != 1:
            return None
        self.is_leaving(same[0])
        return same[0]

    def forget(self, name: str) -> tuple[FollowedTable | None, TablePosition | None]:
        """Remove a table; returns its stream and the position in it."""
        self._leaving.discard(name)
        self.failed.pop(name, None)
        return self.followed.pop(name, None), self.places.pop(name, None)


def _next_up(table: FollowedTable, position: Position | None) -> Position | None:
    if position is not None or not table.chunks:
        return position
    # Nothing of it was handed out yet, so it continues where the first buffered plan begins.
    return begin_of(table.chunks[0])
