"""`OptionValues`: typed values of a table's string options, parsed as in Java, with errors that name the option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, TypeVar

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.time_zone import zone_of

E = TypeVar("E", bound=Enum)

_DURATION_MILLIS = {
    **dict.fromkeys(("ns", "nano", "nanosecond", "nanoseconds"), 1e-6),
    **dict.fromkeys(("us", "µs", "micro", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("ms", "milli", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZE_BYTES = {
    **dict.fromkeys(("b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_BOOLEANS = {"true": True, "false": False}
_BOOLEANS_OF_PYPAIMON = {
    **_BOOLEANS,
    **dict.fromkeys(("1", "yes", "on"), True),
    **dict.fromkeys(("0", "no", "off"), False),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?$")


class OptionValues(Mapping[str, Any]):
    """A table's options, read-only, with typed access; an absent key gives the default.

    A table's own options are texts. `table.copy({...})` also accepts Python values, as pypaimon does: booleans,
    numbers, members of an `Enum`, `timedelta`, `MemorySize`.

    Args:
        options: Values by key.
        strict: Accept only `true` and `false` as booleans, not the other words of pypaimon.
    """

    def __init__(self, options: Mapping[str, Any], *, strict: bool = False) -> None:
        self._options = options
        self._booleans = _BOOLEANS if strict else _BOOLEANS_OF_PYPAIMON

    def __getitem__(self, key: str) -> Any:
        return self._options[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def with_value(self, key: str, value: str) -> OptionValues:
        """These options with one more."""
        return OptionValues({**self._options, key: value})

    def text(self, *keys: str) -> str | None:
        """The value of the first key that is set (aliases after the main key)."""
        for key in keys:
            if self._options.get(key) is not None:
                return _as_text(self._options[key])
        return None

    def boolean(self, key: str, default: bool) -> bool:
        """`true` or `false` in any case; unless strict, `1`, `yes`, `on` and their opposites too."""
        value = self.text(key)
        if value is None:
            return default
        found = self._booleans.get(value.strip().lower())
        if found is None:
            raise _unreadable(key, value, "true or false")
        return found

    def number(self, key: str, default: float) -> float:
        """A number, with a fraction or without."""
        value = self.text(key)
        if value is None:
            return default
        try:
            return float(value.strip())
        except ValueError:
            raise _unreadable(key, value, "a number") from None

    def integer(self, *keys: str, least: int | None = None, most: int | None = None) -> int | None:
        """A whole number, from `least` up to `most`."""
        value = self.text(*keys)
        if value is None:
            return None
        try:
            found = int(value.strip())
        except ValueError:
            found = None
        if found is None or (least is not None and found < least) or (most is not None and found > most):
            bounds = (f" {word} {bound}" for word, bound in (("from", least), ("to", most)) if bound is not None)
            raise _unreadable(keys[0], value, "a whole number" + "".join(bounds))
        return found

    def one_of(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """One of the allowed words, in any case; `_` counts as `-`."""
        value = self.text(key)
        if value is None:
            return default
        word = _word(value)
        if word not in allowed:
            raise _unreadable(key, value, "one of " + ", ".join(allowed))
        return word

    def member(self, key: str, kind: type[E], default: E) -> E:
        """A member of an enum by its value, or by its name as in pypaimon; in any case, `_` counts as `-`.

        Java ignores case too (`OptionsUtils.convertToEnum`), so every value that Java accepts is accepted here.
        """
        value = self.text(key)
        if value is None:
            return default
        for each in kind:
            if _word(value) in (_word(str(each.value)), _word(each.name)):
                return each
        raise _unreadable(key, value, "one of " + ", ".join(str(each.value) for each in kind))

    def duration_millis(self, key: str, least: int = 0) -> int | None:
        """A duration such as `10 s`, `1 d` or `500 ms` (a bare number is milliseconds), in milliseconds."""
        bound = f" from {least} ms" if least else ""
        wanted = f"a duration{bound} such as '10 s' or '1 d'"
        scaled = self._scaled(key, _DURATION_MILLIS, "ms", wanted)
        if scaled is not None and int(scaled) < least:
            raise _unreadable(key, str(self.text(key)), wanted)
        return None if scaled is None else int(scaled)

    def size_bytes(self, key: str, default: int) -> int:
        """A size such as `128 mb` (a bare number is bytes), in bytes."""
        scaled = self._scaled(key, _SIZE_BYTES, "b", "a size such as '128 mb'")
        return default if scaled is None else int(scaled)

    def _scaled(self, key: str, units: Mapping[str, float], bare: str, wanted: str) -> float | None:
        value = self.text(key)
        if value is None:
            return None
        match = re.fullmatch(r"(\d+)\s*([^\d\s]*)", value.strip().lower())
        if match is None or (match[2] or bare) not in units:
            raise _unreadable(key, value, wanted)
        return int(match[1]) * units[match[2] or bare]

    def local_timestamp_millis(self, key: str) -> int | None:
        """A time such as `2026-11-21 05:21:11.768` or `2026-11-21` in the time zone of the table, in milliseconds."""
        value = self.text(key)
        if value is None:
            return None
        match = _TIMESTAMP.match(value.strip())
        try:
            if match is None:
                raise ValueError(value)
            year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
            micros = int((match[7] or "").ljust(6, "0")[:6] or 0)
            moment = datetime(year, month, day, hour, minute, second, micros)
        except ValueError:
            raise _unreadable(key, value, "a time such as '2026-11-21 05:21:11.768'") from None
        return (zone_of(self._options).moment(moment) - _EPOCH) // timedelta(milliseconds=1)


def _as_text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)} ms"
    return str(value)


def _word(text: str) -> str:
    return text.strip().lower().replace("_", "-")


def _unreadable(key: str, value: str, wanted: str) -> StreamConfigError:
    return StreamConfigError(f"Could not parse value '{value}' for key '{key}'. Set {wanted}.")
