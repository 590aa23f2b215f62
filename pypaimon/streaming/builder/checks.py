"""Checks of what is given to the builder: each names the call, the value and what is allowed, before the first read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar, cast

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import FileStoreTable
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.start import NAMED_STARTS, Start, StartMode
from pypaimon.streaming.options.stream_options import End

E = TypeVar("E", bound=Enum)
_CHAIN = "chain-table.enabled"
_OTHER_BRANCHES = (
    "scan.fallback-branch",
    "scan.primary-branch",
    "scan.fallback-snapshot-branch",
    "scan.fallback-delta-branch",
)
_TIMED_STARTS = {
    "timestamp": StartMode.FROM_TIMESTAMP,
    "file_creation_time": StartMode.FROM_FILE_CREATION_TIME,
    "creation_time": StartMode.FROM_CREATION_TIMESTAMP,
}


def refuse_unstreamable(table: Any) -> None:
    """Refuse what has no snapshots of one branch to follow.

    Raises:
        UnsupportedTableError: It is no table of Paimon's own format, or one that reads several branches.
    """
    if not isinstance(table, FileStoreTable):
        raise UnsupportedTableError(
            f"{type(table).__name__} cannot be streamed: only tables of Paimon's own format have snapshots to follow. "
            "For a view of one (audit_log, binlog, ro, row_tracking) use stream_read_builder(table, view=...)."
        )
    options = OptionValues(table.table_schema.options)
    for key in (*_OTHER_BRANCHES, *((_CHAIN,) if options.boolean(_CHAIN, False) else ())):
        if options.text(key) is not None:
            raise UnsupportedTableError(
                f"Tables with '{key}' = '{options.text(key)}' cannot be streamed: a stream follows one branch. "
                "Load the branch to follow, 'db.table$branch_<name>', without this option."
            )


def start(given: dict[str, Any], full: Any) -> Start:
    """The start that exactly one of the arguments of `with_start` asks for."""
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = "nothing" if not chosen else " and ".join(chosen)
        raise StreamConfigError(f"with_start: {what} given; give exactly one of {', '.join(given)}")
    (name,) = chosen
    value, what = given[name], f"with_start: {name}"
    if typed(bool, "with_start: full", full) and name not in ("snapshot_id", "tag"):
        raise StreamConfigError(f"with_start: full=True goes with snapshot_id or tag, not with {name}")
    if name == "mode":
        if value not in NAMED_STARTS:
            named = ", ".join(NAMED_STARTS)
            raise StreamConfigError(f"with_start({value!r}): choose one of {named}, or give a keyword")
        return Start(StartMode(value))
    if name == "snapshot_id":
        mode = StartMode.FROM_SNAPSHOT_FULL if full else StartMode.FROM_SNAPSHOT
        return Start(mode, snapshot_id=typed(int, what, value))
    if name == "tag":
        return Start(StartMode.FROM_TAG, tag=typed(str, what, value), full=full)
    if name == "position":
        position = Position.from_json(value) if isinstance(value, str) else typed(Position, what, value)
        return Start(StartMode.FROM_POSITION, position=position)
    return Start(_TIMED_STARTS[name], millis=millis(what, value))


def end(latest: Any, snapshot_id: Any, timestamp: Any, watermark: Any) -> tuple[End | None, int | None]:
    """The bound that exactly one of the arguments of `with_end` asks for, or a greatest watermark."""
    chosen = [each for each in (snapshot_id, timestamp, watermark) if each is not None]
    if len(chosen) + typed(bool, "with_end: latest", latest) != 1:
        raise StreamConfigError("with_end: give exactly one of latest=True, snapshot_id, timestamp, watermark")
    if watermark is not None:
        return None, typed(int, "with_end: watermark", watermark)
    if snapshot_id is not None:
        return End(snapshot_id=typed(int, "with_end: snapshot_id", snapshot_id)), None
    if timestamp is not None:
        return End(millis=millis("with_end: timestamp", timestamp)), None
    return End(latest=True), None


def known_columns(what: str, names: Iterable[Any], known: set[str]) -> tuple[str, ...]:
    """Names of columns, or of fields in them (`row.field`), that are there."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or (name not in known and name.split(".")[0] not in known):
            raise StreamConfigError(f"{what}: there is no column {name!r}; columns: {', '.join(sorted(known))}")
    return names


def millis(what: str, value: Any) -> int:
    """Epoch milliseconds of an aware datetime, or as they are."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise StreamConfigError(f"{what}={value!r} has no time zone: give an aware datetime, or epoch milliseconds")
        return round(value.timestamp() * 1000)
    return cast(int, typed(int, what, value))


def typed(kind: type, what: str, value: Any) -> Any:
    """A value of this type; True is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StreamConfigError(f"{what}: expected {kind.__name__}, got {value!r} ({type(value).__name__})")
    return value


def at_least(bound: int, what: str, value: Any) -> int:
    """A whole number that is not too small."""
    if cast(int, typed(int, what, value)) < bound:
        raise StreamConfigError(f"{what}: {value} is less than {bound}")
    return cast(int, value)


def choice(kind: type[E], what: str, value: Any) -> E:
    """One of the words of an enum."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in kind)
        raise StreamConfigError(f"{what}={value!r}: choose one of {allowed}") from None
