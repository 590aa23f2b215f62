"""Checks of arguments. Each raises `StreamConfigError` with the call, the value and what is allowed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, cast

from pypaimon.streaming.errors import StreamConfigError

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


_FEWEST_MILLIS = 100_000_000_000
"""Fewer milliseconds are a time before March 1973, long before Paimon. They were probably meant as seconds."""


def millis(what: str, value: Any) -> int:
    """Epoch milliseconds of an aware datetime, of an ISO 8601 text or of an int; 0 is before everything.

    Raises:
        StreamConfigError: The value is not a time, has no time zone, or is in seconds.
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
    """Check the type of an argument; True is not an int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StreamConfigError(f"{what}: expected {kind.__name__}, got {value!r} ({type(value).__name__})")
    return value


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a wrong one probably means; None if no name is like it."""
    from difflib import get_close_matches  # only errors need it

    # Below 0.7 names of another meaning are found, such as `table` for `tail`.
    return next(iter(get_close_matches(name, known, n=1, cutoff=0.7)), None)


def did_you_mean(name: str | None) -> str:
    """The hint that follows an error about a wrong name; empty without a name that was probably meant."""
    return "" if name is None else f" Did you mean '{name}'?"


def list_of(kind: type[T], call: str, given: Any, what: str) -> tuple[T, ...]:
    """Check that an argument is a list of one type. A text is not one, though it can be iterated."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise StreamConfigError(f"{call}({given!r}): give a list of {what}")
    return tuple(typed(kind, call, each) for each in given)


def needed(what: str, value: Any, expected: str, *names: str) -> Any:
    """Check that an argument has these attributes. They identify a protocol, or an object of another library.

    Args:
        what: The call and its argument.
        expected: What the value should be, for the error.
        names: Names of the attributes.

    Raises:
        StreamConfigError: The value lacks an attribute, or is a class.
    """
    if isinstance(value, type) or not all(hasattr(value, name) for name in names):
        raise StreamConfigError(f"{what}: expected {expected}, got {shown(value)}")
    return value


def _with_attributes(expected: str, *names: str) -> Callable[[str, Any], Any]:
    """A check of an argument that `needed` recognises by its attributes."""

    def check(what: str, value: Any) -> Any:
        return needed(what, value, expected, *names)

    return check


a_table = _with_attributes("a table, as catalog.get_table(...) gives it", "identifier")
a_builder = _with_attributes("the builder of a stream, as stream_read_builder(...) gives it", "open_sync", "new_read")
a_batch = _with_attributes("a batch, as a stream gives it", "is_first", "plan_after")
a_target = _with_attributes("a target with load_position() and apply(batch)", "load_position", "apply")
a_catalog = _with_attributes("a catalog of pypaimon", "get_table", "list_tables")


def a_function(what: str, value: Any) -> Any:
    """Check that an argument can be called."""
    if not callable(value):
        raise StreamConfigError(f"{what}: expected a function, got {shown(value)}")
    return value


def a_path(what: str, value: Any) -> str:
    """Check that an argument is a path or URI, and return it as text."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise StreamConfigError(f"{what}: expected a path, got {shown(value)}")
    return os.fspath(value)


def a_name(what: str, value: Any) -> str:
    """Check that an argument is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise StreamConfigError(f"{what}: expected a name (str), got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value for an error: texts and numbers as they are, others as their type, so that no password is shown."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    if kind is str:
        # A URL may hold a password.
        return repr(re.sub(r"//[^/@]*@", "//...@", value)) + " (str)"
    is_plain = kind in (int, float, bool, type(None))
    return f"{value!r} ({kind.__name__})" if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def at_least(bound: int, what: str, value: Any) -> int:
    """Check that an argument is an int of at least `bound`."""
    if cast(int, typed(int, what, value)) < bound:
        raise StreamConfigError(f"{what}: {value} is less than {bound}")
    return cast(int, value)


def finite_seconds(what: str, value: Any, *, above_zero: bool = False) -> float:
    """The seconds of a duration, a finite number or a timedelta, which is at least 0 or (`above_zero`) greater.

    Raises:
        StreamConfigError: The argument is something else.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (above_zero and not value):
        raise StreamConfigError(f"{what}: expected seconds {'above' if above_zero else 'from'} 0, got {value!r}")
    return float(value)


def choice(kind: type[E], what: str, value: Any) -> E:
    """Check that an argument is a value of an enum, and return the member."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in kind)
        raise StreamConfigError(f"{what}={value!r}: choose one of {allowed}") from None


def places_of_arguments(call: str, given: Iterable[str]) -> tuple[str, ...]:
    """Directories that may hold blobs, as `with_blob_places` takes them.

    Raises:
        StreamConfigError: A value is not a directory, or one that a FileIO cannot read.
    """
    found = list_of(str, call, given, "directories")
    for each in found:
        if not each or each.lower().startswith(("http:", "https:")):
            raise StreamConfigError(f"{call}: {each!r} is not a directory that the table's FileIO can read")
    return found
