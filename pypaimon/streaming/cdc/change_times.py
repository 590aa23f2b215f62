"""Timestamps, days and times of day from text and integers, exactly: a value that would be cut is refused."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.time_zone import TimeZone

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PER_DAY = {"d": 1, **{unit: 86_400 * each for unit, each in _PER_SECOND.items()}}
_NANOS = 10**9
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_TIME = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?"
_DAY = r"(\d{4})-(\d\d)-(\d\d)"
_DAY_TEXT = re.compile(rf"{_DAY}(?:[ T]00:00:00(?:\.0{{1,9}})?)?", re.ASCII)
_TIME_TEXT = re.compile(rf"(?=..:){_TIME}", re.ASCII)
_MOMENT_TEXT = re.compile(rf"{_DAY}(?:[ T]{_TIME})?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII)


def day(value: Any, unit: str | None = None) -> int:
    """Days since 1970 of ISO text, of a `date`, or of a number of `unit` since 1970.

    Args:
        unit: Unit of integers; None: days.

    Raises:
        ValueError: It is not a day, or a timestamp other than midnight.
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    if _is_whole(value):
        days, rest = divmod(int(value), _PER_DAY.get(unit or "d", 1))
        if rest:
            raise ValueError("it is finer than the column, which holds days")
        return days
    match = _DAY_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a day as 2026-11-21, or days since 1970")
    return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY


def time_of_day(value: Any, unit: str | None) -> int:
    """Milliseconds since midnight of `12:34:56.789`, or of a number of `unit`.

    Raises:
        ValueError: It is not a time of day, or finer than a millisecond.
    """
    if _is_whole(value):
        nanos = int(value) * (_NANOS // _PER_SECOND[_known(unit)])
    else:
        match = _TIME_TEXT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError("expected a time of day as 12:34:56.789")
        nanos = _nanos(match.groups())
    if not 0 <= nanos < 86_400 * _NANOS:
        raise ValueError("it is not a time of day")
    if nanos % 10**6:
        raise ValueError("it is finer than a millisecond, and Paimon's files hold times of day in milliseconds")
    return nanos // 10**6


def moment(
    value: Any, unit: str | None, *, target: str, local: bool, zone: TimeZone | None, is_clock: bool = False
) -> int:
    """A timestamp in units since 1970, of local time or of UTC.

    As in Java's `LocalDateTime.atZone`, a local time that occurs twice means the first one, and one that is skipped
    counts on from before the change of the clock: in spring 02:30 is 03:30.

    Args:
        target: Unit of the result: `s`, `ms`, `us` or `ns`.
        local: Whether the column is TIMESTAMP WITH LOCAL TIME ZONE, so that the result counts from 1970 in UTC.
        zone: Zone of local times; None: not known.

    Raises:
        ValueError: It is not a timestamp, is finer than `target`, or `zone` is needed and not known.
    """
    if _is_whole(value):
        nanos = int(value) * (_NANOS // _PER_SECOND[_known(unit)])
        if is_clock:
            nanos = _in_zone(nanos, None, local, zone)
    else:
        wall, offset = _wall(value)
        nanos = _in_zone(wall, offset, local, zone)
    step = _NANOS // _PER_SECOND[target]
    if nanos % step:
        raise ValueError(f"it is finer than the column, which holds {target}")
    return nanos // step


def _wall(value: Any) -> tuple[int, int | None]:
    """Nanoseconds since 1970 of local time, and by how many seconds it is ahead of UTC."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        gone = value.replace(tzinfo=None) - _EPOCH
        seconds = None if offset is None else int(offset.total_seconds())
        return (gone.days * 86_400 + gone.seconds) * _NANOS + gone.microseconds * 1000, seconds
    match = _MOMENT_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a moment as 2026-11-21 12:34:56.789, or as 2026-11-21T12:34:56Z")
    year, month, number, *time, zone = match.groups()
    days = date(int(year), int(month), int(number)).toordinal() - _EPOCH_DAY
    return days * 86_400 * _NANOS + _nanos(time), None if zone is None else _offset(zone)


def _in_zone(wall: int, offset: int | None, local: bool, zone: TimeZone | None) -> int:
    if offset is None:
        if not local:
            return wall
        if zone is None:
            raise StreamConfigError(
                "it has no time zone, and the column needs one.",
                advice="Give it with time_zone=...",
                option="time_zone",
            )
        return wall - zone.offset_of_clock(wall // _NANOS) * _NANOS
    instant = wall - offset * _NANOS
    if local:
        return instant
    if zone is None:
        raise StreamConfigError(
            "it has a time zone, and the column does not: a column of type TIMESTAMP WITH LOCAL TIME ZONE takes it.",
            advice="Or give the zone of the column's local times with time_zone=...",
            option="time_zone",
        )
    return instant + zone.offset(instant // _NANOS) * _NANOS


def _offset(zone: str) -> int:
    if zone in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60
    return -seconds if zone[0] == "-" else seconds


def _nanos(parts: Any) -> int:
    hour, minute, second, fraction = parts
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("it is not a time of day")
    return (hours * 3600 + minutes * 60 + seconds) * _NANOS + int((fraction or "").ljust(9, "0"))


def _known(unit: str | None) -> str:
    if unit not in _PER_SECOND:
        raise StreamConfigError(
            "the unit of a number is not known.",
            advice="Send the schema with the records, or give it with time_unit='ms', 'us' or 'ns'.",
            option="time_unit",
        )
    return unit


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
