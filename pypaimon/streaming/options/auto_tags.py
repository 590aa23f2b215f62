"""`AutoTags`: the time that the name of an automatic tag stands for, by the options that it was made with.

Follows Java's `TagPeriodHandler`, which parses names leniently: a month 13 is the January after it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues

_DAY, _DAY_SHORT = r"(\d{1,10})-(\d\d)-(\d\d)", r"(\d{1,10})(\d\d)(\d\d)"
_DAILY = {"with-dashes": _DAY, "without-dashes": _DAY_SHORT, "without-dashes-and-spaces": _DAY_SHORT}
_HOURLY = {
    "with-dashes": rf"{_DAY} (\d\d)",
    "without-dashes": rf"{_DAY_SHORT} (\d\d)",
    "without-dashes-and-spaces": rf"{_DAY_SHORT}(\d\d)",
}
_MINUTE = rf"{_DAY_SHORT}(\d\d)(\d\d)"


class AutoTags:
    """Names of automatic tags of one table.

    Args:
        options: Options of the table.

    Raises:
        StreamConfigError: An option cannot be read.
    """

    def __init__(self, options: OptionValues) -> None:
        period = options.one_of("tag.creation-period", ("daily", "hourly", "two-hours"), "daily")
        formatter = options.one_of("tag.period-formatter", tuple(_DAILY), "with-dashes")
        self._daily = False
        if options.duration_millis("tag.creation-period-duration") is not None:
            self._pattern = re.compile(_MINUTE, re.ASCII)
        elif period == "daily":
            self._daily = True
            self._pattern = re.compile(_DAILY[formatter], re.ASCII)
        else:
            self._pattern = re.compile(_HOURLY["with-dashes" if period == "two-hours" else formatter], re.ASCII)

    def time(self, name: str) -> datetime | None:
        """The local time of a tag; None if an automatic tag has no such name."""
        found = self._pattern.fullmatch(name.split(" ")[0] if self._daily else name)
        if found is None:
            return None
        year, month, day, *rest = (int(part) for part in found.groups())
        hour, minute = (*rest, 0, 0)[:2]
        try:
            first = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
            return first + timedelta(days=day - 1, hours=hour, minutes=minute)
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
