"""Columns of a target that change as those of its Paimon table; and changes of types that keep all values.

After any other change of a type the values in the target would need a cast, and the casts of databases are not
Paimon's: of 2.7 Paimon makes the INT 2, and others 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from pypaimon.streaming.errors import OtherColumnsError
from pypaimon.streaming.model.data_types import parameter, root
from pypaimon.streaming.paimon.internals import AtomicType
from pypaimon.streaming.targets.changes import RESERVED, AnyBatch
from pypaimon.streaming.targets.target_state import BEGIN_AGAIN, Column, SavedState, field_ids

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
# Java's length of STRING and BYTES.
_UNLIMITED = 2**31 - 1
_DEFAULT_PRECISION = 6
_VARYING = {"CHAR": "VARCHAR", "VARCHAR": "VARCHAR", "BINARY": "VARBINARY", "VARBINARY": "VARBINARY"}
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME")


def is_wider(old: str, new: str) -> bool:
    """Whether a change of a type of Paimon keeps all values, as numbers and as text."""
    before, after = _kinds(old, new)
    if before in _DIGITS and after in _DIGITS:
        return _DIGITS[after] >= _DIGITS[before]
    if (before, after) in (("TINYINT", "DOUBLE"), ("SMALLINT", "DOUBLE"), ("INT", "DOUBLE"), ("FLOAT", "DOUBLE")):
        return True
    if before == after == "DECIMAL":
        return _scale(old) == _scale(new) and _precision(old) <= _precision(new)
    if after == _VARYING.get(before):
        return _length(old) <= _length(new)
    return before == after and before in _TIMES and _unit(old) == _unit(new) and _precision(old) <= _precision(new)


def is_equal_in(old: str, new: str) -> bool:
    """As `is_wider`, or with more digits: the same numbers and times, but other texts."""
    before, after = _kinds(old, new)
    if is_wider(old, new):
        return True
    if after == "DECIMAL" and before in (*_DIGITS, "DECIMAL"):
        whole = _DIGITS[before] if before in _DIGITS else _precision(old) - _scale(old)
        scale = 0 if before in _DIGITS else _scale(old)
        return scale <= _scale(new) and whole <= _precision(new) - _scale(new)
    return before == after and before in _TIMES and _precision(old) <= _precision(new)


def _kinds(old: str, new: str) -> tuple[str, str]:
    return root(AtomicType(old)), root(AtomicType(new))


def _length(kind: str) -> int:
    length = parameter(AtomicType(kind))
    return _UNLIMITED if length is None else length


def _precision(kind: str) -> int:
    precision = parameter(AtomicType(kind))
    return _DEFAULT_PRECISION if precision is None else precision


def _unit(kind: str) -> int:
    """0 to 3: seconds, milliseconds, microseconds, nanoseconds."""
    return (_precision(kind) + 2) // 3


def _scale(kind: str) -> int:
    found = re.search(r",\s*(\d+)", kind)
    return int(found[1]) if found else 0


class Alter(Protocol):
    def create(self, columns: Sequence[Column]) -> None: ...

    def is_exact(self, old: str, new: str) -> bool:
        """Whether `change_type` casts each value from one Paimon type to another as a read of the table does."""

    def lacks(self, columns: Sequence[Column]) -> list[Column]: ...

    def drop(self, name: str) -> None: ...

    def add(self, column: Column) -> None: ...

    def change_type(self, column: Column) -> None:
        """Change the type of a column, and cast its values."""

    def rename(self, old: str, new: str) -> None: ...


def evolve_columns(alter: Alter, batch: AnyBatch, wanted: SavedState, known: SavedState | None) -> None:
    """Rename, drop, widen and add columns of a target as in Paimon; create the table before the first rows.

    Columns are matched by field id, as everywhere in Paimon: a column that was dropped and added again is a new one.

    Args:
        known: The columns that were written to before, or None.
    """
    if wanted == known:
        return
    if known is None:
        alter.create(wanted.columns)
    else:
        left = field_ids(batch.schema)
        dropped = [each for each in known.columns if each.field_id is not None and each.field_id not in left]
        new = {each.identity: each for each in wanted.columns}
        kept = [(each, new[each.identity]) for each in known.columns if each.identity in new]
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
    known: SavedState, wanted: SavedState, held: str, where: str, is_exact: Callable[[str, str], bool] = is_equal_in
) -> None:
    now = {column.identity: column for column in wanted.columns}
    for column in known.columns:
        found = now.get(column.identity)
        if found is None or not _is_same(column, found, is_exact):
            raise OtherColumnsError(
                f"column '{column.name}' of type {_shown(column)} is not what {held} any more.",
                advice=f"Begin again {where}, read the columns that were read before, or {BEGIN_AGAIN}.",
                option="replace",
            )


def _is_same(old: Column, new: Column, is_exact: Callable[[str, str], bool]) -> bool:
    if (old.name, old.type) != (new.name, new.type) or not old.inside.items() <= new.inside.items():
        return False
    pairs = [(kind, new.types.get(path, "")) for path, kind in old.types.items()]
    return all(before == now or is_exact(before, now) for before, now in pairs)


def _rename(alter: Alter, names: dict[str, str]) -> None:
    changed = [(old, new) for old, new in names.items() if old != new]
    for number, (old, _) in enumerate(changed):
        # Columns may swap their names, so all of them get a free name first.
        alter.rename(old, f"{RESERVED}renamed_{number}")
    for number, (_, new) in enumerate(changed):
        alter.rename(f"{RESERVED}renamed_{number}", new)


def _check(
    alter: Alter, known: SavedState, wanted: SavedState, dropped: list[Column], kept: list[tuple[Column, Column]]
) -> None:
    before, now = {each.identity for each in known.columns}, {each.identity for each in wanted.columns}
    for column in known.columns:
        if column not in dropped and column.identity not in now:
            raise _unfollowed(f"column '{column.name}' was read before, and is not now")
    for column in wanted.columns:
        if column.identity not in before and (column.field_id or 0) <= known.highest_field_id:
            raise _unfollowed(f"column '{column.name}' was not read before")
    for old, new in kept:
        if not old.inside.items() <= new.inside.items():
            raise _unfollowed(f"fields inside of column '{new.name}' were renamed or dropped")
        if not _casts(alter, old, new):
            raise _unfollowed(f"column '{new.name}' was {_shown(old)} and is {_shown(new)} now")


def _casts(alter: Alter, old: Column, new: Column) -> bool:
    if not old.types:
        # An older release saved only the types of the target. Except for times they have the names of Paimon's types.
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
