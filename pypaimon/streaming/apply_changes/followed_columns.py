"""Columns of a table of a database that are kept as those of the rows that are written to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.errors import StreamConfigError


def quoted(name: str) -> str:
    """A name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """A column that rows are written to.

    Attributes:
        field_id: Id of the field of the Paimon table; None for a column that is none.
        name: What it is called.
        type: Its type in the database.
        inside: Ids of the fields inside of it, by their paths.
    """

    field_id: int | None
    name: str
    type: str
    inside: dict[str, int]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that were written to.

    Attributes:
        highest_field_id: The highest id of any field of the Paimon table at that time: greater ones came later.
        columns: The columns.
    """

    highest_field_id: int
    columns: tuple[Column, ...]

    def to_json(self) -> str:
        """What `from_json` reads."""
        columns = [[each.field_id, each.name, each.type, each.inside] for each in self.columns]
        return json.dumps({"highest": self.highest_field_id, "columns": columns})

    @staticmethod
    def from_json(text: str) -> Columns:
        """Read what `to_json` wrote.

        Raises:
            StreamConfigError: The text is something else.
        """
        try:
            value = json.loads(text)
            return Columns(value["highest"], tuple(Column(*each) for each in value["columns"]))
        except (ValueError, TypeError, LookupError) as error:
            raise StreamConfigError(
                f"the columns that are saved with the position are damaged: {text[:100]!r}. Drop the table: its "
                "position() is None then, and a stream from the state on fills it anew."
            ) from error

    @staticmethod
    def of(batch: AnyBatch, described: Sequence[tuple[str, str]]) -> Columns:
        """The columns of a batch, whose names and types in the database are given."""
        fields = {field.name: field for field in batch.schema.fields}
        columns = []
        for name, kind in described:
            field = fields.get(name)
            inside = {} if field is None else dict(_inside(field.type, ""))
            columns.append(Column(None if field is None else int(field.id), name, kind, inside))
        return Columns(int(batch.schema.highest_field_id), tuple(columns))


class Alter(Protocol):
    """Changes of one table."""

    def create(self, columns: Sequence[Column]) -> None:
        """Make it, if it is not there."""

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        """Those that it has not."""

    def drop(self, name: str) -> None:
        """Drop a column, if it is there."""

    def add(self, column: Column) -> None:
        """Add a column."""

    def change_type(self, column: Column) -> None:
        """Give a column another type."""

    def rename(self, old: str, new: str) -> None:
        """Rename a column."""


def follow(alter: Alter, batch: AnyBatch, wanted: Columns, known: Columns | None) -> None:
    """Make a table fit for rows: columns renamed, dropped, widened and added as in Paimon.

    A column is told by the id of its field, as everywhere in Paimon: one that was dropped and added again is new. Where
    nothing was written before the table is made, if it is not there.

    Args:
        alter: Changes the table.
        batch: The rows are of this batch.
        wanted: The columns that are written to from now on.
        known: The columns that were written to before; None: none was.

    Raises:
        StreamConfigError: Other columns are read than before, or the fields inside of one are others now; or a type
            depends on a time zone.
    """
    if wanted == known:
        return
    if known is None:
        alter.create(wanted.columns)
    else:
        left = {int(field.id) for field in batch.schema.fields}
        dropped = [each for each in known.columns if each.field_id is not None and each.field_id not in left]
        new = {each.field_id: each for each in wanted.columns if each.field_id is not None}
        kept = [(each, new[each.field_id]) for each in known.columns if each.field_id in new]
        _check(known, wanted, dropped, kept)
        for column in dropped:
            alter.drop(column.name)
        _rename(alter, {old.name: now.name for old, now in kept})
        for old, now in kept:
            if old.type != now.type:
                alter.change_type(now)
    for column in alter.lacks(wanted.columns):
        alter.add(column)


def refuse_other_columns(known: Columns, wanted: Columns, held: str, where: str) -> None:
    """Make sure that columns were only added, for what is there cannot follow one that is another one now.

    Args:
        known: The columns that were written to before.
        wanted: The columns that are to be written to.
        held: What is there, as the error says it.
        where: Where to begin anew, as the error says it.

    Raises:
        StreamConfigError: One was renamed, dropped or given another type.
    """
    now = {column.field_id: column for column in wanted.columns}
    for column in known.columns:
        found = now.get(column.field_id)
        if found is None or (found.name, found.type) != (column.name, column.type):
            raise StreamConfigError(
                f"column '{column.name}' of type {column.type} is not what {held} any more. Begin anew {where}, or "
                "read the columns that were read before."
            )


def _rename(alter: Alter, names: dict[str, str]) -> None:
    """Rename columns, which may swap their names."""
    changed = {old: new for old, new in names.items() if old != new}
    for old in changed:
        alter.rename(old, f"_paimon_{old}")
    for old, new in changed.items():
        alter.rename(f"_paimon_{old}", new)


def _check(known: Columns, wanted: Columns, dropped: list[Column], kept: list[tuple[Column, Column]]) -> None:
    """What the rows that are there cannot follow is refused."""
    before, now = {each.field_id for each in known.columns}, {each.field_id for each in wanted.columns}
    for column in known.columns:
        if column not in dropped and column.field_id not in now:
            raise _unfollowed(f"column '{column.name}' was read before, and is not now")
    for column in wanted.columns:
        if column.field_id not in before and (column.field_id or 0) <= known.highest_field_id:
            raise _unfollowed(f"column '{column.name}' was not read before")
    for old, new in kept:
        if old.type != new.type and (_has_zone(old.type) or _has_zone(new.type)):
            # The database would make them of the rows that are there, in a time zone of its own.
            raise _unfollowed(f"column '{new.name}' was {old.type} and is {new.type} now, which depends on a time zone")
        if not old.inside.items() <= new.inside.items():
            raise _unfollowed(f"fields inside of column '{new.name}' were renamed or dropped")


def _has_zone(kind: str) -> bool:
    """Whether a type of DuckDB or PostgreSQL holds a TIMESTAMP WITH LOCAL TIME ZONE."""
    return "TIMESTAMPTZ" in kind or "WITH TIME ZONE" in kind


def _unfollowed(what: str) -> StreamConfigError:
    return StreamConfigError(
        f"The table of the database cannot follow: {what}. Read the columns that were read before, or drop the table: "
        "its position() is None then, and a stream from the state on fills it anew."
    )


def _inside(kind: Any, path: str) -> Iterator[tuple[str, int]]:
    """The fields inside of a type, with their ids."""
    for field in getattr(kind, "fields", ()):
        yield f"{path}.{field.name}", int(field.id)
        yield from _inside(field.type, f"{path}.{field.name}")
    for part in ("element", "key", "value"):
        if hasattr(kind, part):
            yield from _inside(getattr(kind, part), f"{path}[{part}]")
