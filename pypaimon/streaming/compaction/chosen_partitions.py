"""`ChosenPartitions`: which partitions are compacted, by values of their columns, by a condition, by age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import inf
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket, local_millis
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.filtering.filters import mask
from pypaimon.streaming.internals import AtomicType, PyarrowFieldParser
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.time_zone import TimeZone, zone_of_table


class ChosenPartitions:
    """What `compact` takes of a table.

    Args:
        table: pypaimon's table.
        partition: Values by partition column, or texts of them; None: any.
        where: A condition on partition columns, in the words of `with_filter`; None: none.
        idle_seconds: Only partitions none of whose files is younger; None: any.

    Raises:
        StreamConfigError: `partition` or `where` names no partition column, a value is none of it, or the time is none.
    """

    def __init__(
        self,
        table: Any,
        partition: Mapping[str, Any] | None = None,
        where: str | None = None,
        idle_seconds: float | None = None,
    ) -> None:
        fields = table.partition_keys_fields
        self._zone = zone_of_table(table)
        self._equal = _values({field.name: field for field in fields}, partition or {}, self._zone)
        self._schema = PyarrowFieldParser.from_paimon_schema(fields)
        self._where = None
        if where is not None:
            if not fields:
                raise StreamConfigError(f"where {where!r}: the table has no partitions, leave it out.")
            self._where = parse_filter(where, fields)
        if idle_seconds is not None and not 0 <= idle_seconds < inf:
            raise StreamConfigError(f"idle_seconds: expected seconds, got {idle_seconds!r}.")
        self._idle_millis = None if idle_seconds is None else 1000 * idle_seconds

    @property
    def by_time(self) -> bool:
        """Whether what is chosen changes without a commit."""
        return self._idle_millis is not None

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether a partition is chosen by its values, by column."""
        if any(values[name] != value for name, value in self._equal.items()):
            return False
        if self._where is None:
            return True
        return bool(mask(self._where, pa.RecordBatch.from_pylist([dict(values)], schema=self._schema))[0].as_py())

    def idle(self, buckets: Iterable[LiveBucket]) -> Iterator[LiveBucket]:
        """Those of partitions that are idle.

        Args:
            buckets: Those of a partition one after the other, and all of them.
        """
        if self._idle_millis is None:
            yield from buckets
            return
        newest = local_millis(self._zone.now()) - self._idle_millis
        for _, members in groupby(buckets, key=lambda bucket: bucket.row):
            partition = list(members)
            if max(file.made_millis for bucket in partition for file in bucket.files) <= newest:
                yield from partition


def _values(fields: Mapping[str, Any], given: Mapping[str, Any], zone: TimeZone) -> dict[str, Any]:
    unknown = sorted(set(given) - set(fields))
    if unknown:
        among = f"one of {', '.join(fields)}" if fields else "none, for the table has no partitions"
        raise StreamConfigError(f"Partition column: expected {among}, got {', '.join(map(repr, unknown))}.")
    return {name: _value(fields[name], value, zone) for name, value in given.items()}


def _value(field: Any, given: Any, zone: TimeZone) -> Any:
    if not isinstance(given, str):
        if given is not None and not _is_of(arrow_type(field.type), given):
            raise StreamConfigError(
                f"Partition column '{field.name}' ({field.type}): expected a value of it, got {given!r}."
            )
        return given
    try:
        return cast(AtomicType("STRING"), field.type, True, zone)(pa.array([given]))[0].as_py()
    except CastError as error:
        raise StreamConfigError(f"Partition column '{field.name}' ({field.type}): {error}.") from error


def _is_of(kind: pa.DataType, given: Any) -> bool:
    try:
        return bool(pa.array([given], kind)[0].as_py() == given)
    except (TypeError, ValueError, OverflowError):
        return False
