"""`TimePattern`: parses local times by a pattern of Java's `DateTimeFormatter`, with the same result as Java.

Letters for years, months and days as numbers, and for hours, minutes, seconds and fractions are known; a pattern with
any other is refused. Times are nanoseconds since 1970 on the local clock, because Java's years exceed Python's.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal, TypeAlias

NANOS = 10**9
_DAY = 86_400 * NANOS
_MOST_YEAR = 999_999_999
_CENTURY = 2000
_DIGITS = re.compile(r"[0-9]*")
_ELEMENT = re.compile(r"''|'(?:[^']|'')+'|([A-Za-z])\1*|.", re.DOTALL)
_SIGNED = r"((?:-(?!0+(?!\d)))?\d{1,%d})"
_DEFAULT = re.compile(
    rf"{_SIGNED % 9}-{_SIGNED % 2}-{_SIGNED % 2}(?: {_SIGNED % 2}:{_SIGNED % 2}:{_SIGNED % 2}(?:\.(\d{{1,9}}))?)?",
    re.ASCII,
)
_LONG_MONTHS = (1, 3, 5, 7, 8, 10, 12)

Values: TypeAlias = dict[str, int]
"""Parsed numbers by the letters of their fields."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of a pattern, as Java's `NumberPrinterParser` parses it.

    Attributes:
        letter: The field.
        least: Digits at least.
        most: Digits at most.
        sign: None: it has no sign; `minus`: it may be negative; `padded`: it may, and a plus precedes more than `least`
            digits.
        reserved: Digits right after it that belong to the next numbers.
    """

    letter: str
    least: int
    most: int
    sign: Literal["minus", "padded"] | None = None
    reserved: int = 0

    def parse(self, text: str, start: int, values: Values) -> int | None:
        """Parse the number at a place into `values`. Returns the place after it; None: there is no such number."""
        sign = text[start : start + 1] if self.sign and text[start : start + 1] in ("+", "-") else ""
        if sign == "+" and self.sign == "minus":
            return None
        first = start + len(sign)
        found = _DIGITS.match(text, first, first + self.most + self.reserved)
        assert found is not None
        count = len(found[0])
        if self.reserved:
            count = min(count, max(self.least, count - self.reserved))
        digits = found[0][:count]
        if count < self.least or (sign == "-" and not int(digits)):
            return None
        if self.sign == "padded" and sign != "-" and (sign == "+") != (count > self.least):
            return None
        value = self._value(digits, negative=sign == "-")
        return first + count if values.setdefault(self.letter, value) == value else None

    def text(self, values: Values) -> str:
        value = values[self.letter]
        if self.letter == "S":
            return f"{value:09}"[: self.least]
        return str(value % 100 if self.letter in "yu" and self.most == 2 else value).rjust(self.least, "0")

    def _value(self, digits: str, *, negative: bool) -> int:
        if self.letter == "S":
            return int(digits.ljust(9, "0"))
        value = -int(digits) if negative else int(digits)
        return value + _CENTURY if self.letter in "yu" and self.most == 2 else value


@dataclass(frozen=True, slots=True)
class _Text:
    _text: str

    def parse(self, text: str, start: int, values: Values) -> int | None:
        return start + len(self._text) if text.startswith(self._text, start) else None

    def text(self, values: Values) -> str:
        return self._text


class _Sequence:
    """Parts one after the other; an optional part that does not fit leaves the text to the next one."""

    def __init__(self, optional: bool) -> None:
        self._optional = optional
        self._parts: list[_Number | _Text | _Sequence] = []
        # The number from which the digits of those right after it are reserved, as in Java
        self._open: int | None = None

    def append(self, part: _Number | _Text | _Sequence) -> None:
        """Append a part. Numbers of a fixed width keep their digits from a number right before them."""
        if not isinstance(part, _Number):
            self._open = None
        elif self._open is not None:
            before = self._parts[self._open]
            assert isinstance(before, _Number)
            fixed = part.sign is None
            self._parts[self._open] = replace(before, reserved=before.reserved + part.most if fixed else 0)
            self._open = self._open if fixed else len(self._parts)
        else:
            self._open = len(self._parts)
        self._parts.append(part)

    def parse(self, text: str, start: int, values: Values) -> int | None:
        tried = dict(values)
        place = start
        for part in self._parts:
            after = part.parse(text, place, tried)
            if after is None:
                return start if self._optional else None
            place = after
        values.update(tried)
        return place

    def text(self, values: Values) -> str:
        return "".join(part.text(values) for part in self._parts)


class TimePattern:
    """A pattern of Java's `DateTimeFormatter`, such as `yyyy-MM-dd[ HH:mm]`; None: Java's default of Paimon.

    The default is a date, `2026-11-21` or `2026-1-2`, with or without a time, `08:30:00.5`, and any number counts:
    month 13 is in the next year.

    Raises:
        ValueError: It is not a pattern, or has a part that is unknown here, which the message names.
    """

    def __init__(self, pattern: str | None) -> None:
        self._sequence = None if pattern is None else _parsed(pattern)

    def nanos(self, text: str) -> int | None:
        """The time that a text says, at midnight if it is a date; None if it says none."""
        if self._sequence is None:
            found = _DEFAULT.fullmatch(text)
            return None if found is None else _lenient(found.groups())
        values: Values = {}
        return _resolved(values) if self._sequence.parse(text, 0, values) == len(text) else None

    def exact_nanos(self, text: str) -> int | None:
        """As `nanos`; None too if the pattern writes the time as another text, as it does that of 31 April."""
        nanos = self.nanos(text)
        if nanos is None or self._sequence is None:
            return nanos
        try:
            time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=nanos // NANOS)
        except OverflowError:
            return None
        numbers = (time.year, time.year, time.month, time.day, time.hour, time.minute, time.second, nanos % NANOS)
        return nanos if self._sequence.text(dict(zip("yuMdHmsS", numbers, strict=True))) == text else None


def local_nanos(local: datetime) -> int:
    """A local time as `TimePattern.nanos` returns it."""
    gone = local.replace(tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (gone.days * 86_400 + gone.seconds) * NANOS + gone.microseconds * 1000


def _parsed(pattern: str) -> _Sequence:
    open_parts = [_Sequence(optional=False)]
    for element in _ELEMENT.finditer(pattern):
        found = element[0]
        if element[1]:
            open_parts[-1].append(_number(found))
        elif found == "[":
            open_parts.append(_Sequence(optional=True))
        elif found == "]" and len(open_parts) > 1:
            open_parts[-2].append(open_parts.pop())
        elif found in ("{", "}", "#", "'", "]"):
            raise ValueError(f"{found!r} has no meaning there")
        else:
            text = found[1:-1].replace("''", "'") if len(found) > 2 else found[:1]
            open_parts[-1].append(_Text(text))
    while len(open_parts) > 1:
        open_parts[-2].append(open_parts.pop())
    return open_parts[0]


def _number(letters: str) -> _Number:
    letter, count = letters[0], len(letters)
    if letter in "yu" and count <= 18:
        return _Number(letter, 2, 2) if count == 2 else _Number(letter, count, 19, "minus" if count < 4 else "padded")
    if letter in "MdHms" and count <= 2:
        return _Number(letter, 2, 2) if count == 2 else _Number(letter, 1, 19, "minus")
    if letter == "S" and count <= 9:
        return _Number(letter, count, count)
    raise ValueError(f"{letters!r} is not supported here")


def _lenient(groups: Sequence[str | None]) -> int | None:
    year, month, day, hour, minute, second = (int(each or 0) for each in groups[:6])
    seconds = (hour * 60 + minute) * 60 + second
    time = _midnight(year, month, day) + seconds * NANOS + int((groups[6] or "").ljust(9, "0"))
    return time if _midnight(-_MOST_YEAR, 1, 1) <= time < _midnight(_MOST_YEAR + 1, 1, 1) else None


def _resolved(values: Values) -> int | None:
    """A date and time of parsed numbers, as Java's resolver style SMART has it: 31 April is 30 April."""
    year, month, day = _year(values), values.get("M", 0), values.get("d", 0)
    if year is None or not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if month == 2:
        day = min(day, 29 if isleap(year) else 28)
    elif month not in _LONG_MONTHS:
        day = min(day, 30)
    time = _time(values)
    return None if time is None else _midnight(year, month, day) + time


def _year(values: Values) -> int | None:
    year = values.get("u")
    of_era = values.get("y")
    if of_era is not None:
        if not 1 <= of_era <= _MOST_YEAR:
            return None
        found = of_era if year is None or year > 0 else 1 - of_era
        year = found if year is None or year == found else None
    return None if year is None or abs(year) > _MOST_YEAR else year


def _time(values: Values) -> int | None:
    """The nanoseconds since midnight; None: a number is out of range. Without an hour only the date counts."""
    hour, minute, second, nanos = (values.get(letter) for letter in "HmsS")
    if hour is not None and _has_gap(minute, second, nanos):
        # Java ignores such a time, without looking at its numbers.
        return 0
    if (hour, minute or 0, second or 0, nanos or 0) == (24, 0, 0, 0):
        return _DAY
    for value, end in ((hour, 24), (minute, 60), (second, 60)):
        if value is not None and not 0 <= value < end:
            return None
    return 0 if hour is None else ((hour * 60 + (minute or 0)) * 60 + (second or 0)) * NANOS + (nanos or 0)


def _has_gap(minute: int | None, second: int | None, nanos: int | None) -> bool:
    """Whether a number follows one that is missing."""
    if minute is None:
        return second is not None or nanos is not None
    return second is None and nanos is not None


def _midnight(year: int, month: int, day: int) -> int:
    """The nanoseconds from 1970 to a day of the Gregorian calendar; months and days may be beyond their ranges."""
    year, month = year + (month - 1) // 12, (month - 1) % 12
    # Years from March on, so that the leap day is the last one.
    if month < 2:
        year, month = year - 1, month + 12
    leap_days = year // 4 - year // 100 + year // 400
    days = 365 * year + leap_days + (153 * (month - 2) + 2) // 5 + day - 1
    return (days - 719_468) * _DAY
