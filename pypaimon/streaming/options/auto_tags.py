"""`AutoTags`: the names of tags that are created automatically, one for each period of a table's options."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

_EPOCH = datetime(1970, 1, 1)
_DAY, _DAY_SHORT = r"(\d{1,10})-(\d\d)-(\d\d)", r"(\d{1,10})(\d\d)(\d\d)"
_DAILY = {"with-dashes": _DAY, "without-dashes": _DAY_SHORT, "without-dashes-and-spaces": _DAY_SHORT}
_HOURLY = {
    "with-dashes": rf"{_DAY} (\d\d)",
    "without-dashes": rf"{_DAY_SHORT} (\d\d)",
    "without-dashes-and-spaces": rf"{_DAY_SHORT}(\d\d)",
}
_MINUTE = rf"{_DAY_SHORT}(\d\d)(\d\d)"
_HOURS = {"daily": 24, "hourly": 1, "two-hours": 2}


class AutoTags:
    """Names and periods of automatic tags of one table.

    Attributes:
        period: The time from one tag to the next.

    Raises:
        StreamConfigError: An option cannot be read.
    """

    def __init__(self, options: TableOptions) -> None:
        period = option_keys.TAG_CREATION_PERIOD.of(options)
        formatter = option_keys.TAG_PERIOD_FORMATTER.of(options)
        duration = option_keys.TAG_CREATION_PERIOD_DURATION.of(options)
        self.period = timedelta(hours=_HOURS[period]) if duration is None else timedelta(milliseconds=duration)
        self._daily = duration is None and period == "daily"
        if duration is not None:
            pattern, self._hours = _MINUTE, "%H%M"
        elif self._daily:
            pattern, self._hours = _DAILY[formatter], ""
        else:
            formatter = "with-dashes" if period == "two-hours" else formatter
            pattern, self._hours = _HOURLY[formatter], "%H" if formatter == "without-dashes-and-spaces" else " %H"
        self._days = "-%m-%d" if duration is None and formatter == "with-dashes" else "%m%d"
        self._pattern = re.compile(pattern, re.ASCII)

    def name(self, time: datetime) -> str:
        """The tag of the period that begins at a local time."""
        return f"{time.year}{time:{self._days}{self._hours}}"

    def ended(self, time: datetime) -> datetime:
        """The begin of the last period that has ended at a local time. Periods are counted from 1970."""
        return _EPOCH + (time - _EPOCH) // self.period * self.period - self.period

    def time(self, name: str) -> datetime | None:
        """The local time of a tag; None if an automatic tag has no such name."""
        found = self._pattern.fullmatch(name.split(" ")[0] if self._daily else name)
        if found is None:
            return None
        year, month, day, *rest = (int(part) for part in found.groups())
        hour, minute = (*rest, 0, 0)[:2]
        try:
            first = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
            # A time so late that the periods after it cannot be counted is as good as a little earlier.
            last = datetime.max - 4 * self.period
            return min(first + timedelta(days=day - 1, hours=hour, minutes=minute), last)
        except (ValueError, OverflowError):
            return None

    def before(self, name: str, names: list[str]) -> str | None:
        """The automatic tag before this one, or None.

        Raises:
            StreamConfigError: An automatic tag has no such name.
        """
        time = self.time(name)
        if time is None:
            raise StreamConfigError(f"Specified tag '{name}' is not an auto-created tag.")
        moments = {each: moment for each in names if (moment := self.time(each)) is not None and moment < time}
        return max(moments, key=moments.__getitem__, default=None)
