"""Checks of arguments: each names the call, the value and what is allowed."""

from __future__ import annotations

import math
import os
import re
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar, cast

from pypaimon.streaming.errors import StreamConfigError

E = TypeVar("E", bound=Enum)


_FEWEST_MILLIS = 100_000_000_000
"""Fewer milliseconds are a time before March 1973, when there were no tables; as seconds they are one of today."""


def millis(what: str, value: Any) -> int:
    """Epoch milliseconds of an aware datetime, of its ISO 8601 text, or as they are; 0 is before everything.

    Raises:
        StreamConfigError: It is no time, has no time zone, or is given in seconds.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError:
            raise StreamConfigError(
                f"{what}={value!r}: expected a time as in ISO 8601, such as '2026-11-22T08:30:00Z'"
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise StreamConfigError(
                f"{what}={value.isoformat()!r} has no time zone: add Z or an offset, or give an aware datetime"
            )
        return round(value.timestamp() * 1000)
    number = cast(int, typed(int, what, value))
    if 0 < number < _FEWEST_MILLIS:
        raise StreamConfigError(
            f"{what}={number}: these would be milliseconds, of {1970 + number // 31_557_600_000}; for seconds give "
            f"{number * 1000}"
        )
    return number


def typed(kind: type, what: str, value: Any) -> Any:
    """A value of this type; True is no number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StreamConfigError(f"{what}: expected {kind.__name__}, got {value!r} ({type(value).__name__})")
    return value


def needed(what: str, value: Any, expected: str, *names: str) -> Any:
    """A value that has these attributes, as an object of another library or a protocol is told by them.

    Args:
        what: The call and its argument.
        value: The value.
        expected: What it should be, as the error says it.
        names: The attributes.

    Raises:
        StreamConfigError: It lacks one, or is a class.
    """
    if isinstance(value, type) or not all(hasattr(value, name) for name in names):
        raise StreamConfigError(f"{what}: expected {expected}, got {shown(value)}")
    return value


def a_table(what: str, value: Any) -> Any:
    """A table of pypaimon.

    Raises:
        StreamConfigError: It is something else, such as its name.
    """
    return needed(what, value, "a table, as catalog.get_table(...) gives it", "identifier")


def a_builder(what: str, value: Any) -> Any:
    """The builder of a stream.

    Raises:
        StreamConfigError: It is something else, such as a table.
    """
    return needed(what, value, "the builder of a stream, as stream_read_builder(...) gives it", "open_sync", "new_read")


def a_batch(what: str, value: Any) -> Any:
    """A batch of a stream.

    Raises:
        StreamConfigError: It is something else, such as its rows.
    """
    return needed(what, value, "a batch, as a stream gives it", "is_first", "plan_after")


def a_target(what: str, value: Any) -> Any:
    """A target of one table.

    Raises:
        StreamConfigError: It is something else, such as its class.
    """
    return needed(what, value, "a target with position() and apply(batch)", "position", "apply")


def a_function(what: str, value: Any) -> Any:
    """Something that can be called.

    Raises:
        StreamConfigError: It is something else.
    """
    if not callable(value):
        raise StreamConfigError(f"{what}: expected a function, got {shown(value)}")
    return value


def a_catalog(what: str, value: Any) -> Any:
    """A catalog of pypaimon.

    Raises:
        StreamConfigError: It is something else, such as its warehouse.
    """
    return needed(what, value, "a catalog of pypaimon", "get_table", "list_tables")


def a_path(what: str, value: Any) -> str:
    """A path or URI, as text.

    Raises:
        StreamConfigError: It is something else.
    """
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise StreamConfigError(f"{what}: expected a path, got {shown(value)}")
    return os.fspath(value)


def a_name(what: str, value: Any) -> str:
    """A name: a text that is not empty.

    Raises:
        StreamConfigError: It is something else.
    """
    if not isinstance(value, str) or not value:
        raise StreamConfigError(f"{what}: expected a name (str), got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value in an error: texts and numbers, and of others the type alone, so that no password is shown."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    if kind is str:
        # An address may have a password.
        return repr(re.sub(r"//[^/@]*@", "//...@", value)) + " (str)"
    is_plain = kind in (int, float, bool, type(None))
    return f"{value!r} ({kind.__name__})" if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def at_least(bound: int, what: str, value: Any) -> int:
    """A whole number that is not too small."""
    if cast(int, typed(int, what, value)) < bound:
        raise StreamConfigError(f"{what}: {value} is less than {bound}")
    return cast(int, value)


def finite_seconds(what: str, value: Any, *, above_zero: bool = False) -> float:
    """A finite number of seconds, from 0 on or above it."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (above_zero and not value):
        raise StreamConfigError(f"{what}: expected seconds {'above' if above_zero else 'from'} 0, got {value!r}")
    return float(value)


def choice(kind: type[E], what: str, value: Any) -> E:
    """One of the words of an enum."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in kind)
        raise StreamConfigError(f"{what}={value!r}: choose one of {allowed}") from None
