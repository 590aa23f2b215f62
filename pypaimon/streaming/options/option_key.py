"""`OptionKey`: an option of a table, with the kind of its value and its default. `option_keys` has them all.

A table's own options are texts, which are parsed as in Java. `table.copy({...})` also accepts Python values, as
pypaimon does: booleans, numbers, members of an `Enum`, `timedelta`, `MemorySize`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum, Flag, auto
from typing import Any, Generic, TypeAlias, TypeVar

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.time_zone import zone_of

V = TypeVar("V")
D = TypeVar("D")
E = TypeVar("E", bound=Enum)

TableOptions: TypeAlias = Mapping[str, Any]
"""The options of a table by their names."""

_DURATION_MILLIS = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-6),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
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


class Use(Flag):
    """The parts of the library that use an option. Those without any are accepted and ignored."""

    READ = auto()
    WRITE = auto()
    COMPACT = auto()
    MAINTAIN = auto()


_NO_USE = Use(0)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Maintenance of Java's writers that this library does not do.

    Attributes:
        instead: What to do instead.
        of_every_commit: Whether every commit of Java, or of its engines, does it. Otherwise a writer of Java does it,
            unless the table is `write-only`.
    """

    instead: str
    of_every_commit: bool = False


@dataclass(frozen=True, slots=True)
class Kind(Generic[V]):
    """The kind of an option's values.

    Attributes:
        name: The kind, for the documentation.
        wanted: What an error asks for.
        parse: The value of a text; None if it has none. Also gets all options, because a time depends on the zone.
    """

    name: str
    wanted: str
    parse: Callable[[str, TableOptions], V | None]

    def read(self, key: str, text: str, options: TableOptions) -> V:
        """Parse a text.

        Raises:
            StreamConfigError: The text cannot be parsed; the error names the key.
        """
        found = self.parse(text, options)
        if found is None:
            raise StreamConfigError(f"Could not parse value '{text}' for key '{key}'. Set {self.wanted}.")
        return found


@dataclass(frozen=True, slots=True)
class OptionKey(Generic[V, D]):
    """One option.

    Attributes:
        name: Its name; `#` stands for the name of a field.
        kind: The kind of its values.
        default: The value of a table that does not set it, as in Java.
        use: The parts of the library that use it.
        meaning: What it does here, for the documentation.
        aliases: Java's fallback keys: former names, which count if `name` is not set.
        left_out: What the option asks a writer to do, and a writer here does not.
    """

    name: str
    kind: Kind[V]
    default: D
    use: Use = _NO_USE
    meaning: str = ""
    aliases: tuple[str, ...] = ()
    left_out: LeftOut | None = None

    def __str__(self) -> str:
        return self.name

    def of(self, options: TableOptions) -> V | D:
        """The value among options, or the default.

        Raises:
            StreamConfigError: The value cannot be parsed.
        """
        key = self.set_as(options)
        return self.default if key is None else self.kind.read(key, _as_text(options[key]), options)

    def text(self, options: TableOptions) -> str | None:
        """The value as it was set; None if it is not set."""
        key = self.set_as(options)
        return None if key is None else _as_text(options[key])

    def set_as(self, options: TableOptions) -> str | None:
        """The name under which the option is set; None if it is not set."""
        return next((key for key in (self.name, *self.aliases) if options.get(key) is not None), None)

    def of_field(self, field: str) -> OptionKey[V, D]:
        """The option of one field."""
        return replace(self, name=self.name.replace("#", field))

    @property
    def last(self) -> OptionKey[V, D]:
        """The option by the last part of its name."""
        return replace(self, name=self.name.rpartition(".")[2])


def _as_text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)} ms"
    return str(value)


def whole(least: int | None = None, most: int | None = None) -> Kind[int]:
    """Whole numbers, from `least` up to `most`."""

    def parse(text: str, _: TableOptions) -> int | None:
        try:
            found = int(text.strip())
        except ValueError:
            return None
        return None if (least is not None and found < least) or (most is not None and found > most) else found

    bounds = "".join(f" {word} {bound}" for word, bound in (("from", least), ("to", most)) if bound is not None)
    return Kind(f"number{bounds}", f"a whole number{bounds}", parse)


def one_of(*allowed: str) -> Kind[str]:
    """One of some words, in any case; `_` counts as `-`."""

    def parse(text: str, _: TableOptions) -> str | None:
        return _word(text) if _word(text) in allowed else None

    return Kind(", ".join(f"`{each}`" for each in allowed), "one of " + ", ".join(allowed), parse)


def member(kind: type[E]) -> Kind[E]:
    """A member of an enum by its value, or by its name as in pypaimon; in any case, `_` counts as `-`.

    Java ignores case too (`OptionsUtils.convertToEnum`), so every value that Java accepts is accepted here.
    """

    def parse(text: str, _: TableOptions) -> E | None:
        return next((each for each in kind if _word(text) in (_word(str(each.value)), _word(each.name))), None)

    values = [str(each.value) for each in kind]
    return Kind(", ".join(f"`{each}`" for each in values), "one of " + ", ".join(values), parse)


def duration(least: int = 0) -> Kind[int]:
    """Durations such as `10 s`, `1 d` or `500 ms` (a bare number is milliseconds), in milliseconds, from `least`."""

    def parse(text: str, _: TableOptions) -> int | None:
        found = _scaled(text, _DURATION_MILLIS, "ms")
        return None if found is None or found < least else found

    bound = f" from {least} ms" if least else ""
    return Kind("duration", f"a duration{bound} such as '10 s' or '1 d'", parse)


def _scaled(text: str, units: Mapping[str, float], bare: str) -> int | None:
    match = re.fullmatch(r"(\d+)\s*([^\d\s]*)", text.strip().lower())
    if match is None or (match[2] or bare) not in units:
        return None
    return int(int(match[1]) * units[match[2] or bare])


def _number(text: str, _: TableOptions) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


def _local_millis(text: str, options: TableOptions) -> int | None:
    match = _TIMESTAMP.match(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6] or 0)
    try:
        moment = datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        return None
    return (zone_of(options).moment(moment) - _EPOCH) // timedelta(milliseconds=1)


def _word(text: str) -> str:
    return text.strip().lower().replace("_", "-")


TEXT: Kind[str] = Kind("text", "a text", lambda text, _: text)
BOOLEAN: Kind[bool] = Kind("boolean", "true or false", lambda text, _: _BOOLEANS_OF_PYPAIMON.get(text.strip().lower()))
"""`true` or `false` in any case, and pypaimon's `1`, `yes`, `on` and their opposites."""
STRICT_BOOLEAN: Kind[bool] = Kind("boolean", "true or false", lambda text, _: _BOOLEANS.get(text.strip().lower()))
NUMBER: Kind[float] = Kind("number", "a number", _number)
"""A number, with a fraction or without."""
DURATION = duration()
SIZE: Kind[int] = Kind("size", "a size such as '128 mb'", lambda text, _: _scaled(text, _SIZE_BYTES, "b"))
"""Sizes such as `128 mb` (a bare number is bytes), in bytes."""
LOCAL_TIME: Kind[int] = Kind("time", "a time such as '2026-11-21 05:21:11.768'", _local_millis)
"""Times such as `2026-11-21 05:21:11.768` or `2026-11-21` in the time zone of the table, in epoch milliseconds."""
