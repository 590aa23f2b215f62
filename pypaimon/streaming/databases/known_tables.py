"""`KnownTables`: which tables of a database are followed, and what becomes of those that come, go and are renamed."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import Opening
from pypaimon.streaming.databases.lag_meter import Standing, next_up
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.errors import TableMissingError


@dataclass(frozen=True, slots=True)
class Listed:
    """What follows from a look at which tables there are.

    Attributes:
        openings: Tables that are to be opened.
        dropped: Names of tables that are gone for good.
        suspects: Tables that are not where they were: they are not read until the next look.
    """

    openings: list[Opening]
    dropped: list[str]
    suspects: list[FollowedTable]


class KnownTables:
    """Names, by what is known of them. Not thread-safe; asks for nothing.

    A table is found again by its identity. One that is not where it was is missing until the next look, for it may be
    found under another name; then it is dropped.

    Args:
        places: Where an earlier stream stood, by name; None: there was none.

    Attributes:
        followed: The streams of tables.
        places: Where the stream stands in each table, those that are missing too.
        opening: Tables that are about to be opened.
        skipped: Those that cannot be followed, and why.
        failed: Those that could not be opened, and why.
        rounds: Looks at which tables there are, so far.
        lost: That there is no database any more, by the last look; None: there is one.
    """

    def __init__(self, places: dict[str, TablePlace] | None) -> None:
        self._given = None if places is None else frozenset(places)
        self.followed: dict[str, FollowedTable] = {}
        self.places: dict[str, TablePlace] = dict(places or {})
        self.opening: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, Exception] = {}
        self.rounds = 0
        self.lost: Exception | None = None
        # By name, which tables are not where they were.
        self._missing: dict[str, str] = {}
        # Missing tables in whose place there is another one.
        self._replaced: set[str] = set()
        # Those that are dropped, or have another name, which is not told yet.
        self._leaving: set[str] = set()
        # Names that are listed, of which the catalog says that there is no table.
        self._gone: set[str] = set()
        # Which table was seen last under each name.
        self._seen: dict[str, str] = {}

    @property
    def errors(self) -> dict[str, Exception]:
        """Why tables are parked, by name."""
        parked = {name: table.error for name, table in self.followed.items() if table.error is not None}
        return {**self.failed, **parked}

    @property
    def is_settled(self) -> bool:
        """Whether it is known of every table whether it is there."""
        return bool(self.rounds) and not self.opening and not self._missing and not self._leaving

    @property
    def has_missing(self) -> bool:
        """Whether a table is not where it was."""
        return bool(self._missing)

    def standings(self) -> dict[str, Standing]:
        """Where the stream stands in each table, and in those that are about to be opened."""
        found = {name: Standing(None) for name in self.opening - self.skipped.keys()}
        found |= {name: Standing(None, error=error) for name, error in self.failed.items()}
        for name, table in self.followed.items():
            place = self.places.get(name)
            position, is_empty = (None, False) if place is None else (place.position, place.was_empty)
            error = table.error or table.suspicion
            found[name] = Standing(table, next_up(table, position), is_empty, error)
        if self.lost is not None:
            return {name: Standing(None, error=self.lost) for name in found}
        return found

    def is_followed(self, table: FollowedTable) -> bool:
        """Whether a table is followed, and is what it was for all that is known."""
        return self.followed.get(table.name) is table and table.suspicion is None

    def listed(self, names: set[str]) -> Listed:
        """These tables there are now."""
        self.rounds += 1
        self.lost = None
        there = names - self._gone
        self._gone &= names
        dropped = self._dropped(there)
        suspects = []
        for name, place in self.places.items():
            if name in there or name in self._missing or name in self.opening or name in self._leaving:
                continue
            table = self.followed.get(name)
            if table is not None:
                table.suspicion = table.suspicion or TableMissingError(name)
                suspects.append(table)
            self._missing[name] = place.identity
        for name in self.skipped.keys() - names:
            del self.skipped[name]
        known = {name for name, table in self.followed.items() if table.suspicion is None}
        # What was skipped may be another table by now.
        known |= self.failed.keys() | self.opening
        return Listed([self.new_opening(name) for name in sorted(names - known)], dropped, suspects)

    def _dropped(self, there: set[str]) -> list[str]:
        """Those that were missing before this look, too: unless what came meanwhile may be one of them."""
        found = []
        for name in list(self._missing):
            if name in self._replaced:
                continue
            if name in there:
                del self._missing[name]
            elif not self.opening:
                del self._missing[name]
                found.append(name)
        # What never could be opened.
        found += [name for name in self.failed.keys() - there - self._leaving if name not in self.places]
        self._leaving.update(found)
        return found

    def new_opening(self, name: str) -> Opening:
        """A table that is to be opened. One that came while others were followed already is new."""
        self.opening.add(name)
        self._seen.pop(name, None)
        return Opening(name, self.rounds > 1 or (self._given is not None and name not in self._given))

    def place_of(self, name: str) -> TablePlace | None:
        """Where the stream stands in the table of this name; None: nowhere, or it is told soon that it has gone."""
        return None if name in self._leaving else self.places.get(name)

    def is_gone(self, name: str) -> bool:
        """There is no table of this name, though it is listed. Says whether there was one."""
        self.opening.discard(name)
        self._gone.add(name)
        return name in self.places

    def is_there(self, name: str, identity: str) -> None:
        """There is a table of this name, which can be followed."""
        self._gone.discard(name)
        self._seen[name] = identity
        self.skipped.pop(name, None)

    def is_replaced(self, name: str) -> None:
        """There is another table where one was: that one may be found under another name."""
        self._missing[name] = self.places[name].identity
        self._replaced.add(name)

    def is_leaving(self, name: str) -> None:
        """The table of this name is dropped, or has another name; `forget` follows once that is told."""
        self._leaving.add(name)
        self._missing.pop(name, None)
        self._replaced.discard(name)

    def is_elsewhere(self, name: str, identity: str) -> bool:
        """Whether a table of this identity is known under another name."""
        return any(place.identity == identity for other, place in self.places.items() if other != name)

    def is_settled_elsewhere(self, opening: Opening, identity: str) -> bool:
        """Whether it is known by now where else there are the tables that a name stood for, and stands for.

        For that a look at which tables there are has to be taken that began after the identity was known, and each name
        that had the table of now has to be looked at, or to be missing. If it was another one, each name that may have
        that one now goes first, so that it is found there.
        """
        name = opening.name
        if opening.since is None or self.rounds < opening.since + 2:
            return False
        unknown = (self.opening | self._gone) - self._missing.keys() - self._leaving - {name}
        if any(self.places[other].identity == identity for other in unknown & self.places.keys()):
            return False
        place = self.place_of(name)
        return place is None or not any(self._may_have(other, place.identity) for other in self.opening - {name})

    def _may_have(self, name: str, identity: str) -> bool:
        """Whether a table may be found under a name that is about to be opened, where it was not before."""
        seen = self._seen.get(name)
        return seen is None or (seen == identity and self.place_of(name) is None)

    def former_name(self, identity: str) -> str | None:
        """The name under which a table was followed that is new under another one; None: it is new, for all we know.

        From here on the former name `is_leaving`.

        Tables that were made in the same millisecond have one identity: which of them it is nobody can tell.
        """
        same = [name for name, missing in self._missing.items() if missing == identity]
        if len(same) != 1:
            return None
        self.is_leaving(same[0])
        return same[0]

    def forget(self, name: str) -> tuple[FollowedTable | None, TablePlace | None]:
        """Have nothing to do with a table any more; its stream, and where that stood."""
        self._leaving.discard(name)
        self.failed.pop(name, None)
        return self.followed.pop(name, None), self.places.pop(name, None)
