"""`LocalZones`: the zone in whose local time an ORC file holds TIMESTAMP WITH LOCAL TIME ZONE.

Java stores the time that such a value has in UTC as if it were local time of its JVM, unless the table sets
`orc.timestamp-ltz.legacy.type` = `false`. The file names the zone only if it has a TIMESTAMP without zone. But
manifests have the true bounds of columns, and the file has the stored ones: the difference is the offset of the zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.model.data_types import is_local_timestamp
from pypaimon.streaming.model.time_zone import TimeZone, are_alike, time_zone, zone_by_clocks
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.handles import dynamic_options
from pypaimon.streaming.paimon.internals import DataFileMeta

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

# Releases of the tz database differ in offsets of the past, so times before 1971 are not used.
_FIRST_PROOF = 31_536_000


class LocalZones:
    """The `LocalZone` of one file."""

    def __init__(self, directory: TableDirectory, file: DataFileMeta, path: str) -> None:
        self._directory = directory
        self._file = file
        self._path = path
        self._known: dict[str | None, TimeZone | None] = {}

    def __call__(
        self, stated: str | None, bounds: Mapping[str, tuple[int, int]], columns: Sequence[str]
    ) -> TimeZone | None:
        """See `LocalZone`. Raises StreamConfigError if the zone cannot be found, and that of the table does not fit the
        file.
        """
        if stated not in self._known:
            self._known[stated] = self._found(stated, bounds, columns)
        return self._known[stated]

    def _found(
        self, stated: str | None, bounds: Mapping[str, tuple[int, int]], columns: Sequence[str]
    ) -> TimeZone | None:
        proofs, of_table, utc = self._proofs(bounds), self._directory.zone, time_zone("UTC")
        named = []
        if not is_legacy({**self._options(), **dynamic_options(self._directory.table)}):
            named.append(utc)
        elif stated is not None:
            named.append(time_zone(stated))
        if of_table.name is not None:
            named.append(of_table)
        for zone in [*named, of_table] if not proofs else named:
            if zone.shows(proofs):
                return zone
        # No zone is named: guess the zone of the process, or UTC, the zone of most JVMs.
        guessed = [zone for zone in (of_table, utc) if zone.shows(proofs)]
        stored = [millis // 1000 for each in bounds.values() for millis in each]
        if guessed and are_alike(guessed, min(stored), max(stored)):
            return guessed[0]
        found = None if guessed else zone_by_clocks(frozenset(proofs), min(stored), max(stored))
        if found is not None:
            return found
        ahead = ", ".join(f"{(clock - moment) / 3600:+g}" for moment, clock in sorted(proofs))
        raise StreamConfigError(
            f"Column '{columns[0]}' of {self._path} holds local times of another time zone, hours ahead of UTC: "
            f"{ahead}. The file does not name the zone, and these hours fit several. Name the zone of the JVM that "
            "wrote the file: with_time_zone(...), or the table option 'time-zone'."
        )

    def _options(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self._directory.schema(self._file.schema_id).options
        return options

    def _proofs(self, bounds: Mapping[str, tuple[int, int]]) -> set[tuple[int, int]]:
        """Pairs of a stored moment and the true time, in seconds since 1970."""
        names = self._file.value_stats_cols if self._file.value_stats_cols is not None else self._file.write_cols
        fields = {field.name: field for field in self._directory.schema(self._file.schema_id).fields}
        names = list(fields) if names is None else names
        rows = (self._file.value_stats.min_values, self._file.value_stats.max_values)
        found = set()
        for name, stored in bounds.items():
            field = fields.get(name)
            if field is not None and name in names and is_local_timestamp(field.type):
                for row, millis in zip(rows, stored, strict=True):
                    true = _seconds(row, names.index(name), len(names), field.type)
                    if true is not None and millis >= 1000 * _FIRST_PROOF:
                        found.add((millis // 1000, true))
        return found


def is_legacy(options: Mapping[str, Any]) -> bool:
    """Whether Java's ORC files of a table with these options depend on the time zone of the writer."""
    return option_keys.ORC_TIMESTAMP_LTZ_LEGACY_TYPE.of(options)


def _seconds(row: Any, slot: int, arity: int, kind: Any) -> int | None:
    """A timestamp of a row of statistics, in seconds since 1970; None if it is not known."""
    data = getattr(row, "data", None)
    if data is None or row.arity != arity:
        return None
    try:
        value = decode_column(pa.array([data], pa.binary()), slot, kind)
    except OverflowError:
        return None
    if not value.is_valid()[0].as_py():
        return None
    per_second = 10**9 if value.type.unit == "ns" else 10**6
    return int(value.cast(pa.int64())[0].as_py()) // per_second
