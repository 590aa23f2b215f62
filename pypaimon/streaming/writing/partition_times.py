"""`PartitionTimes`: whether the values of a partition are a time (`partition.timestamp-format.strict`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pypaimon.streaming.errors import BadRowError, UnsupportedTableError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys

_STRICT, _FORMATTER = option_keys.PARTITION_TIMESTAMP_FORMAT_STRICT, option_keys.PARTITION_TIMESTAMP_FORMATTER
_PATTERN = option_keys.PARTITION_TIMESTAMP_PATTERN

_RANGES = {"y": (1, 9999), "u": (0, 9999), "M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59), "s": (0, 59)}
# Java takes any month, day and time that this matches, because it resolves them leniently.
_DEFAULT = re.compile(
    r"-?\d{1,9}-(-?\d{1,2})-(-?\d{1,2})( -?\d{1,2}:-?\d{1,2}:-?\d{1,2}(\.\d{1,9})?)?", re.ASCII
)  # fmt: skip
_ELEMENT = re.compile(
    r"(?P<quote>'')|'(?P<text>(?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|(?P<other>.)", re.DOTALL
)  # fmt: skip


class PartitionTimes:
    """The rule of Java's `PartitionTimestampValidator` for new partitions.

    Args:
        paths: Paths of the table's partitions.
        pattern: `partition.timestamp-pattern`; None: the first partition column is the time.
        formatter: `partition.timestamp-formatter`; None: `2026-11-21`, with or without `08:30:00`.

    Raises:
        UnsupportedTableError: The formatter has a letter that is not supported here.
    """

    def __init__(self, paths: FilePaths, pattern: str | None, formatter: str | None) -> None:
        self._paths = paths
        self._pattern = pattern
        self._formatter = None if formatter is None else _Formatter(formatter)

    @staticmethod
    def of(table: PaimonTable) -> PartitionTimes | None:
        """The rule of a table; None: its partitions are not checked."""
        options = table.options
        pattern, formatter = _PATTERN.of(options), _FORMATTER.of(options)
        is_asked = _STRICT.of(options) and (pattern is not None or formatter is not None)
        if not is_asked or not table.partition_keys:
            return None
        # Java checks the `toString()` of the values, which is what legacy names are, even if the table has others.
        paths = FilePaths(str(table.path), tuple(table.partition_fields), legacy_names=True)
        return PartitionTimes(paths, pattern, formatter)

    def check(self, partition: Sequence[Any]) -> None:
        """Raise BadRowError if the values of a partition are not a time."""
        values = self._paths.values(encoded_row(partition, self._paths.partition_fields))
        text = next(iter(values.values())) if self._pattern is None else _filled(self._pattern, values)
        fits = _DEFAULT.fullmatch(text) is not None if self._formatter is None else self._formatter.fits(text)
        if not fits:
            raise BadRowError(
                f"Partition {values} has the time {text!r}, which does not match the table's options '{_FORMATTER}' or "
                f"'{_PATTERN}', and '{_STRICT}' is 'true'. Correct the rows or the options."
            )


class _Formatter:
    """A pattern of Java's `DateTimeFormatter` that consists of numbers only."""

    def __init__(self, pattern: str) -> None:
        self._fields: list[str] = []
        try:
            self._regex = re.compile(self._translated(pattern), re.ASCII)
        except re.error as error:
            raise _unknown(pattern, pattern) from error

    def fits(self, text: str) -> bool:
        found = self._regex.fullmatch(text)
        if found is None:
            return False
        values: dict[str, int] = {}
        for field, digits in zip(self._fields, found.groups(), strict=True):
            if digits is None:
                continue
            value = int(digits) + (2000 if field in "yu" and len(digits) == 2 else 0)
            low, high = _RANGES.get(field, (value, value))
            if not low <= value <= high or values.setdefault(field, value) != value:
                return False
        return ("y" in values or "u" in values) and "M" in values and "d" in values

    def _translated(self, pattern: str) -> str:
        parts, follows_open_number = [], False
        for element in _ELEMENT.finditer(pattern):
            letter = element["letter"]
            if letter is None:
                parts.append(_literal(element, pattern))
                follows_open_number = False
                continue
            count = len(element[0])
            known = count in (2, 4) if letter in "yu" else count <= 2 if letter in "MdHms" else letter == "S"
            if not known or follows_open_number:
                raise _unknown(pattern, element[0])
            follows_open_number = count == 1 and letter != "S"
            self._fields.append(letter)
            parts.append(r"(\d{1,19})" if follows_open_number else rf"(\d{{{count}}})")
        return "".join(parts)


def _literal(element: re.Match[str], pattern: str) -> str:
    other = element["other"]
    if other == "[":
        return "(?:"
    if other == "]":
        return ")?"
    if other is not None and other in "#{}'":
        raise _unknown(pattern, other)
    return re.escape("'" if element["quote"] else other or element["text"].replace("''", "'"))


def _unknown(pattern: str, part: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"The table's option '{_FORMATTER}' = '{pattern}' has {part!r}, which is not checked here, and '{_STRICT}' is "
        "'true'. Write with Java, or set the option to 'false'."
    )


def _filled(pattern: str, values: dict[str, str]) -> str:
    """The pattern with `$column` replaced. If several column names match, the longest one counts."""
    names = "|".join(re.escape(name) for name in sorted(values, key=len, reverse=True))
    return re.sub(rf"\$({names})", lambda found: values[found[1]], pattern)
