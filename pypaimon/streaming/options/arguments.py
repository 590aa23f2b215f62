"""Checks of arguments: each names the call, the value and what is allowed."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, TypeVar, cast

from pypaimon.streaming.errors import StreamConfigError

E = TypeVar("E", bound=Enum)


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
