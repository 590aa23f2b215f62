"""`TimeZone`: converts between moments and local times with the rules of Java's `java.time`.

Only this module knows time zones: `zone_of` is the zone of a table handle or a stream, `time_zone` a zone by its name.
Without a name it is the zone of the process, as it is that of the JVM in Java.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.paimon.handles import ReadableTable

TIME_ZONE = "time-zone"
"""The option that names the zone of a table's readers and writers."""

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of Arrow's timestamps in a second, by their unit."""

_Seconds: TypeAlias = npt.NDArray[np.int64]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = 86_400
_FIRST, _LAST = (
    int((datetime(*day, tzinfo=timezone.utc) - _EPOCH).total_seconds()) for day in ((2, 1, 1), (9999, 1, 1))
)
# Offsets are looked up in spans of 2^25 seconds, about a year, each of which is sampled once. The changes of every zone
# of the tz database are more than two steps apart.
_SPAN_BITS, _STEP = 25, 1 << 17
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d\d?)(?::?(\d\d))?")
_UTC_NAMES = frozenset(
    prefix + name
    for prefix in ("", "Etc/")
    for name in ("UTC", "GMT", "UT", "UCT", "Z", "Zulu", "Universal", "Greenwich", "GMT0", "GMT+0", "GMT-0")
)
# Java's `ZoneId.SHORT_IDS` that are not in the tz database.
_SHORT = dict(
    each.split("=")
    for each in (
        "ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires ART=Africa/Cairo "
        "AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka CAT=Africa/Harare CNT=America/St_Johns "
        "CST=America/Chicago CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris IET=America/Indianapolis "
        "IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia NET=Asia/Yerevan NST=Pacific/Auckland PLT=Asia/Karachi "
        "PNT=America/Phoenix PRT=America/Puerto_Rico PST=America/Los_Angeles SST=Pacific/Guadalcanal "
        "VST=Asia/Ho_Chi_Minh"
    ).split()
)


class TimeZone:
    """The rules of a zone, as in Java's `java.time`.

    A local time that occurs twice is the first of the two moments. A skipped local time is moved by the gap.

    Args:
        name: The name of the zone; None: the zone of the process.
        offset_at: Returns the offset from UTC in seconds at a moment, given in seconds since 1970.

    Attributes:
        name: The name of the zone; None: the zone of the process.
    """

    def __init__(self, name: str | None, offset_at: Callable[[int], int]) -> None:
        self.name = name
        self._offset_at = offset_at
        self._spans: dict[int, tuple[_Seconds, _Seconds]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return time_zone, (self.name,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeZone) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_utc(self) -> bool:
        return self.name in _UTC_NAMES

    def offset(self, second: int) -> int:
        return int(self._offset_at(min(max(second, _FIRST), _LAST)))

    def offset_of_clock(self, second: int) -> int:
        """The offset at a local time, given in seconds since 1970."""
        return int(self._looked_up(np.array([second]), of_wall_clocks=True)[0])

    def offsets(self, seconds: _Seconds) -> _Seconds:
        return self._looked_up(seconds, of_wall_clocks=False)

    def shows(self, clocks: Iterable[tuple[int, int]]) -> bool:
        """Whether these moments have these local times; both in seconds since 1970."""
        return all(self.offset(moment) == clock - moment for moment, clock in clocks)

    def wall_clocks(self, moments: pa.Array) -> pa.Array:
        """Local times, as timestamps without a zone, of moments, which are timestamps of UTC.

        Raises:
            pa.ArrowInvalid: A time is out of the range of the unit.
        """
        per_second = PER_SECOND[moments.type.unit]
        return _moved(moments, self.offsets(_seconds(moments)) * per_second, pa.timestamp(moments.type.unit))

    def moments(self, wall_clocks: pa.Array) -> pa.Array:
        """The inverse of `wall_clocks`: moments, as timestamps of UTC, of local times.

        Raises:
            pa.ArrowInvalid: A time is out of the range of the unit.
        """
        unit = wall_clocks.type.unit
        offsets = self._looked_up(_seconds(wall_clocks), of_wall_clocks=True)
        return _moved(wall_clocks, -offsets * PER_SECOND[unit], pa.timestamp(unit, "UTC"))

    def wall_millis(self, millis: int) -> int:
        """The local time at a moment, both in milliseconds since 1970."""
        return millis + 1000 * self.offset(millis // 1000)

    def millis(self, wall_millis: int) -> int:
        """The inverse of `wall_millis`."""
        return wall_millis - 1000 * self.offset_of_clock(wall_millis // 1000)

    def now(self) -> datetime:
        return self.local(datetime.now(timezone.utc))

    def local(self, moment: datetime) -> datetime:
        """The local time at a moment: aware, with the offset at that moment."""
        gone = moment - _EPOCH
        ahead = timedelta(seconds=self.offset(gone.days * _DAY + gone.seconds))
        return moment.astimezone(timezone(ahead))

    def moment(self, wall_clock: datetime) -> datetime:
        """The moment (aware) of a local time; an aware datetime is returned as it is."""
        if wall_clock.tzinfo is not None:
            return wall_clock
        gone = wall_clock.replace(tzinfo=timezone.utc) - _EPOCH
        offset = self.offset_of_clock(gone.days * _DAY + gone.seconds)
        return wall_clock.replace(tzinfo=timezone(timedelta(seconds=offset)))

    def _looked_up(self, seconds: _Seconds, *, of_wall_clocks: bool) -> _Seconds:
        # Offsets do not change outside of these bounds, and damaged timestamps must not fill the cache of spans.
        seconds = np.clip(seconds, _FIRST, _LAST)
        numbers = seconds >> _SPAN_BITS
        offsets = np.empty(len(seconds), np.int64)
        for number in np.unique(numbers).tolist():
            of_span = numbers == number
            changes, known = self._span(number)
            if of_wall_clocks:
                # The offset before a change counts for local times that occur twice, and for those that are skipped.
                changes = changes + np.maximum(known[:-1], known[1:])
            offsets[of_span] = known[np.searchsorted(changes, seconds[of_span], side="right")]
        return offsets

    def _span(self, number: int) -> tuple[_Seconds, _Seconds]:
        """The moments at which the offset changes in a span and one day around it, and the offsets."""
        found = self._spans.get(number)
        if found is None:
            first, last = (number << _SPAN_BITS) - _DAY, ((number + 1) << _SPAN_BITS) + _DAY
            changes, offsets = [], [self.offset(first)]
            for end in range(first + _STEP, last + _STEP, _STEP):
                offset = self.offset(end)
                if offset != offsets[-1]:
                    changes.append(self._change(end - _STEP, end))
                    offsets.append(offset)
            found = self._spans[number] = np.array(changes, np.int64), np.array(offsets, np.int64)
        return found

    def _change(self, before: int, after: int) -> int:
        last = self.offset(after)
        return before + bisect_left(range(before, after), True, key=lambda second: self.offset(second) == last)


@lru_cache(maxsize=256)
def zone_by_clocks(shown: frozenset[tuple[int, int]], first: int, last: int) -> TimeZone | None:
    """The zone in which these moments have these local times; None if several such zones differ in between.

    Args:
        shown: Moments and local times, in seconds since 1970.
        first: The first moment at which the zones must agree.
    """
    zones = [zone for name in _names() if (zone := time_zone(name)).shows(shown)]
    return zones[0] if zones and are_alike(zones, first, last) else None


@lru_cache(maxsize=1)
def _names() -> list[str]:
    """The zones of the tz database, whose listing walks through its directories."""
    return sorted(available_timezones())


def are_alike(zones: Sequence[TimeZone], first: int, last: int) -> bool:
    """Whether all zones have the same local time from one moment to another, in seconds since 1970."""
    if len(zones) < 2:
        return True
    first, last = max(first, _FIRST), min(last, _LAST)
    for number in range(first >> _SPAN_BITS, (last >> _SPAN_BITS) + 1):
        # Between the changes of all zones the offsets are constant, so comparing around each change is enough.
        bounds = max(first, number << _SPAN_BITS), min(last, ((number + 1) << _SPAN_BITS) - 1)
        changes = {each for zone in zones for each in zone._span(number)[0].tolist()}
        points = (point for each in changes for point in (each - 1, each) if bounds[0] <= point <= bounds[1])
        moments = np.array([*bounds, *points])
        if len({zone.offsets(moments).tobytes() for zone in zones}) > 1:
            return False
    return True


def zone_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The option that names the zone, if it is set."""
    return {key: value for key, value in options.items() if key == TIME_ZONE}


def zone_of(options: Mapping[str, Any]) -> TimeZone:
    """The zone that the options of a table or its handle name, else that of the process."""
    return option_zone(options.get(TIME_ZONE))


def zone_of_table(table: ReadableTable) -> TimeZone:
    return zone_of(table.options.options.to_map())


def option_zone(name: Any) -> TimeZone:
    """A zone by the value of the option; None: that of the process."""
    try:
        return time_zone(None if name is None else str(name))
    except ValueError as error:
        raise StreamConfigError(f"Option '{TIME_ZONE}': {error}.") from None


def time_zone(name: str | None) -> TimeZone:
    """A zone by its name in the tz database, or by an offset as in Java (`+08:00`, `GMT-5`); None: of the process.

    Raises:
        ValueError: The name is unknown.
    """
    if name is None:
        return _of_process(os.environ.get("TZ"), time.tzname, time.timezone, time.altzone)
    return _of_name(name)


@lru_cache(maxsize=1024)
def _of_name(name: str) -> TimeZone:
    if name in _UTC_NAMES:
        return TimeZone(name, lambda second: 0)
    match = _OFFSET.fullmatch(name)
    if match is not None:
        ahead = int(match[2]) * 3600 + int(match[3] or 0) * 60
        if ahead <= 18 * 3600 and int(match[3] or 0) < 60:
            ahead = -ahead if match[1] == "-" else ahead
            # The name as in Java's `TimeZone`, because these names are stored in files.
            return TimeZone(f"GMT{match[1]}{int(match[2]):02}:{match[3] or '00'}", lambda second: ahead)
    try:
        zone = ZoneInfo(_SHORT.get(name, name))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}; give a name such as 'Asia/Shanghai' or '+08:00'") from None

    def offset_at(second: int) -> int:
        offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    return TimeZone(name, offset_at)


@lru_cache(maxsize=4)
def _of_process(*_: Any) -> TimeZone:
    """The zone of the process. The arguments are its settings, so that the cache follows a change of them."""
    return TimeZone(None, _local_offset)


def _local_offset(second: int) -> int:
    try:
        return time.localtime(second).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        # Some systems cannot convert times before 1970 or far in the future.
        return time.localtime(min(max(second, 0), 1 << 31)).tm_gmtoff


def _seconds(timestamps: pa.Array) -> _Seconds:
    ticks = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    found: _Seconds = np.floor_divide(ticks, PER_SECOND[timestamps.type.unit])
    return found


def _moved(timestamps: pa.Array, ticks: _Seconds, kind: pa.DataType) -> pa.Array:
    return pc.add_checked(timestamps.cast(pa.int64()), pa.array(ticks)).cast(kind)
