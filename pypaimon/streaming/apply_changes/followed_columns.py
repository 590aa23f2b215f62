"""Columns of a table of a database that are kept as those of the rows that are written to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pypaimon.streaming.apply_changes.changes import RESERVED, AnyBatch
from pypaimon.streaming.apply_changes.exact_casts import is_equal_in
from pypaimon.streaming.apply_changes.saved_state import BEGIN_AGAIN, Column, SavedState
from pypaimon.streaming.errors import OtherColumnsError


def quoted(name: str) -> str:
    """A name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


class Alter(Protocol):
    """Changes of one table."""

    def create(self, columns: Sequence[Column]) -> None:
        """Make it, if it is not there."""

    def is_exact(self, old: str, new: str) -> bool:
        """Whether `change_type` gives each value of one type of Paimon what a read gives in another one."""

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


def follow(alter: Alter, batch: AnyBatch, wanted: SavedState, known: SavedState | None) -> None:
    """Make a table fit for rows: columns renamed, dropped, widened and added as in Paimon.

    A column is told by the id of its field, as everywhere in Paimon: one that was dropped and added again is new. Where
    nothing was written before the table is made, if it is not there.

    Args:
        alter: Changes the table.
        batch: The rows are of this batch.
        wanted: The columns that are written to from now on.
        known: The columns that were written to before; None: none was.

    Raises:
        StreamConfigError: Other columns are read than before, the fields inside of one are others now, or a column has
            a type to which the target does not cast the rows that are there as a read of the table does.
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
        _check(alter, known, wanted, dropped, kept)
        for column in dropped:
            alter.drop(column.name)
        _rename(alter, {old.name: now.name for old, now in kept})
        for old, now in kept:
            if old.type != now.type:
                alter.change_type(now)
    for column in alter.lacks(wanted.columns):
        alter.add(column)


def refuse_other_columns(
    known: SavedState,
    wanted: SavedState,
    held: str,
    where: str,
    is_exact: Callable[[str, str], bool] = is_equal_in,
) -> None:
    """Make sure that columns were only added, for what is there cannot follow one that is another one now.

    Args:
        known: The columns that were written to before.
        wanted: The columns that are to be written to.
        held: What is there, as the error says it.
        where: Where to begin again, as the error says it.
        is_exact: Whether values of one type of Paimon stay what they are in another one, in a column of one type.

    Raises:
        StreamConfigError: One was renamed, dropped or given another type.
    """
    now = {column.field_id: column for column in wanted.columns}
    for column in known.columns:
        found = now.get(column.field_id)
        if found is None or not _is_same(column, found, is_exact):
            raise OtherColumnsError(
                f"column '{column.name}' of type {_shown(column)} is not what {held} any more.",
                advice=f"Begin again {where}, read the columns that were read before, or {BEGIN_AGAIN}.",
                option="replace",
            )


def _is_same(old: Column, new: Column, is_exact: Callable[[str, str], bool]) -> bool:
    """Whether rows with the one column are rows with the other one, as they are."""
    if (old.name, old.type) != (new.name, new.type) or not old.inside.items() <= new.inside.items():
        return False
    pairs = [(kind, new.types.get(path, "")) for path, kind in old.types.items()]
    return all(before == now or is_exact(before, now) for before, now in pairs)


def _rename(alter: Alter, names: dict[str, str]) -> None:
    """Rename columns, which may swap their names."""
    changed = [(old, new) for old, new in names.items() if old != new]
    for number, (old, _) in enumerate(changed):
        alter.rename(old, f"{RESERVED}renamed_{number}")
    for number, (_, new) in enumerate(changed):
        alter.rename(f"{RESERVED}renamed_{number}", new)


def _check(
    alter: Alter, known: SavedState, wanted: SavedState, dropped: list[Column], kept: list[tuple[Column, Column]]
) -> None:
    """What the rows that are there cannot follow is refused."""
    before, now = {each.field_id for each in known.columns}, {each.field_id for each in wanted.columns}
    for column in known.columns:
        if column not in dropped and column.field_id not in now:
            raise _unfollowed(f"column '{column.name}' was read before, and is not now")
    for column in wanted.columns:
        if column.field_id not in before and (column.field_id or 0) <= known.highest_field_id:
            raise _unfollowed(f"column '{column.name}' was not read before")
    for old, new in kept:
        if not old.inside.items() <= new.inside.items():
            raise _unfollowed(f"fields inside of column '{new.name}' were renamed or dropped")
        if not _casts(alter, old, new):
            raise _unfollowed(f"column '{new.name}' was {_shown(old)} and is {_shown(new)} now")


def _casts(alter: Alter, old: Column, new: Column) -> bool:
    """Whether the target can make the new values of the old ones: the database's casts are not Paimon's."""
    if not old.types:
        # An older release noted the target's types alone, which are called as Paimon's are but for those of times.
        return old.type == new.type or ("TIME" not in old.type and alter.is_exact(old.type, new.type))
    pairs = [(kind, new.types.get(path, "")) for path, kind in old.types.items()]
    return all(before == now or alter.is_exact(before, now) for before, now in pairs)


def _shown(column: Column) -> str:
    return column.types.get("", column.type)


def _unfollowed(what: str) -> OtherColumnsError:
    return OtherColumnsError(
        f"The rows that the target holds cannot follow: {what}.",
        advice=f"Read the columns that were read before, or {BEGIN_AGAIN}.",
        option="replace",
    )
