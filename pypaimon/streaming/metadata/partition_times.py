"""`PartitionTimes`: the time at which a partition begins, as its values say it.

`partition.timestamp-pattern` says which values make the text of the time, and `partition.timestamp-formatter` how that
is parsed. Java's rules: docs/java-semantics.md#maintenance.
"""

from __future__ import annotations

import re

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.time_patterns import TimePattern
from pypaimon.streaming.options import option_keys

_FORMATTER, _PATTERN = option_keys.PARTITION_TIMESTAMP_FORMATTER, option_keys.PARTITION_TIMESTAMP_PATTERN


class PartitionTimes:
    """The times of the partitions of one table.

    Raises:
        UnsupportedTableError: A part of the formatter is not supported.
    """

    def __init__(self, table: PaimonTable) -> None:
        self._pattern = _PATTERN.of(table.options)
        formatter = _FORMATTER.of(table.options)
        try:
            self._format = TimePattern(formatter)
        except ValueError as error:
            raise UnsupportedTableError(
                f"{table.name}: option '{_FORMATTER}' = '{formatter}': {error}.",
                advice="Change the option, or leave this to Java.",
            ) from error
        # Java takes the `toString()` of the values, which is what legacy names are, even if the table has others.
        self._paths = FilePaths(table.path, tuple(table.partition_fields), legacy_names=True)

    def values(self, row: bytes) -> dict[str, str]:
        """The texts of a partition's values; the row is a serialised one."""
        return self._paths.values(row)

    def text(self, row: bytes) -> str:
        """The text of a partition's time."""
        values = self.values(row)
        return next(iter(values.values())) if self._pattern is None else _filled(self._pattern, values)

    def nanos(self, row: bytes) -> int | None:
        """When a partition begins, in nanoseconds since 1970 on the local clock; None: its values do not say it."""
        values = decode(row, self._paths.partition_fields)
        if None in (values[:1] if self._pattern is None else values):
            return None
        return self._format.nanos(self.text(row))

    def exact_nanos(self, row: bytes) -> int | None:
        """As `nanos`; None too if the formatter writes the time as another text."""
        return self._format.exact_nanos(self.text(row))

    def is_time(self, row: bytes) -> bool:
        """Whether the text of a partition's time can be parsed, with the name of null for null, as writers check it."""
        return self._format.nanos(self.text(row)) is not None


def _filled(pattern: str, values: dict[str, str]) -> str:
    """The pattern with `$column` replaced. If several column names match, the longest one counts."""
    names = "|".join(re.escape(name) for name in sorted(values, key=len, reverse=True))
    return re.sub(rf"\$({names})", lambda found: values[found[1]], pattern)
