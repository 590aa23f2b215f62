"""`Position`: the progress of a stream as a value that outlives processes, settings and versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import total_ordering
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.html_tables import html_dataclass
from pypaimon.streaming.model.json_fields import JsonFields, canonical_json, fields_of, parse_fields

FORMAT_VERSION = 2
"""The newest version. A position is written in the oldest version that can hold it: 1, or 2 with a `base`."""
POSTPONE_BUCKET = -2
UNKNOWN_TABLE = ""


class Phase(str, Enum):
    """The part of a stream that a position is in."""

    FULL = "full"
    """Inside the first full plan, of exactly `Position.snapshot`."""
    FOLLOW = "follow"
    """In the changes after it."""
    RANGE = "range"
    """Inside a range that is one plan: after snapshot `Position.since`, up to and with `Position.snapshot`."""


def bucket_order(bucket: int) -> tuple[bool, int]:
    """Sort key of buckets in canonical order: ascending, the postpone bucket -2 last."""
    return bucket == POSTPONE_BUCKET, bucket


@total_ordering
@dataclass(frozen=True, slots=True)
class ReadUnit:
    """The smallest piece of a snapshot that a plan hands out: a file, or a whole bucket if its files are merged.

    Attributes:
        partition: Values of the partition columns as text, None for null; empty for a table without partitions.
        bucket: Bucket number.
        file_name: Name of the (last) data file.
        index: Place of that file among the files of its bucket in canonical order, before any pruning.
    """

    partition: tuple[str | None, ...]
    bucket: int
    file_name: str
    index: int

    def order(self) -> tuple[Any, ...]:
        """Sort key in canonical order."""
        return partition_order(self.partition), bucket_order(self.bucket), self.index

    def __lt__(self, other: ReadUnit) -> bool:
        return self.order() < other.order()


def partition_order(partition: tuple[str | None, ...]) -> tuple[tuple[bool, str], ...]:
    """Sort key of partitions in canonical order: by the text of their values, null first."""
    return tuple((value is not None, value or "") for value in partition)


@dataclass(frozen=True, slots=True)
class ChainBase:
    """What the first plan of a chain table reads in addition to the delta branch.

    Attributes:
        snapshot: Id of a snapshot of the snapshot branch; 0: that branch was empty.
        fingerprint: Its fingerprint, or None.
        merged: Whether the partitions of a chain are merged into the last one (`chain-table.streaming.merge-snapshot`).
    """

    snapshot: int
    fingerprint: str | None = None
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The next snapshot to read and, inside a snapshot that a limit cut, the last unit handed out.

    Positions are ordered by progress. Positions of different tables cannot be compared.

    Attributes:
        table: Identity of the table: the catalog's uuid, else the creation time of schema 0. `UNKNOWN_TABLE` (empty)
            if a snapshot id was restored before the scan knew its table; it then fits any table.
        snapshot: Id of the next snapshot to read; of the one being read while `unit` is set or the phase is full; of
            the last one of the range in the phase range.
        fingerprint: Fingerprint of the snapshot before (inside a snapshot: of that one), which another snapshot with
            the same id does not have: its uuid, else commit user, identifier and time. None if it is not known.
        phase: Part of the stream.
        unit: Last unit handed out of `snapshot`, or None.
        since: In the phase range the snapshot after which the range begins, else None.
        base: In the first plan of a chain table what that plan reads of the snapshot branch, else None. `snapshot` is
            then one of the delta branch (0: that branch was empty).
    """

    table: str
    snapshot: int
    fingerprint: str | None = None
    phase: Phase = Phase.FOLLOW
    unit: ReadUnit | None = None
    since: int | None = None
    base: ChainBase | None = None

    @property
    def is_inside(self) -> bool:
        """Whether it is inside of `snapshot`, not before it."""
        return self.phase is not Phase.FOLLOW or self.unit is not None

    @property
    def last_read(self) -> int:
        """Id of the last snapshot that was read, perhaps in part, which `fingerprint` is of; 0 before the first."""
        return self.snapshot if self.is_inside else self.snapshot - 1

    def _repr_html_(self) -> str:
        return html_dataclass("Position", self, whole=False)

    def order(self) -> tuple[Any, ...]:
        """Sort key: by snapshot, a plan of a state or range in progress after its beginning, then by unit."""
        unit = () if self.unit is None else self.unit.order()
        return self.snapshot, self.phase is not Phase.FOLLOW, self.unit is not None, unit

    # Not derived from equality: a position with and one without a fingerprint may mark the same progress.

    def __lt__(self, other: Position) -> bool:
        return self.order() < self._order_of(other)

    def __le__(self, other: Position) -> bool:
        return self.order() <= self._order_of(other)

    def __gt__(self, other: Position) -> bool:
        return self.order() > self._order_of(other)

    def __ge__(self, other: Position) -> bool:
        return self.order() >= self._order_of(other)

    def _order_of(self, other: Position) -> tuple[Any, ...]:
        if self.table != other.table:
            raise ValueError("positions of different tables cannot be compared")
        return other.order()

    def to_json(self) -> str:
        """Canonical JSON: equal positions are equal strings."""
        return canonical_json(position_to_value(self))

    @staticmethod
    def from_json(text: str) -> Position:
        """The position that `to_json` wrote.

        Raises:
            StreamConfigError: The text is not a position, or has a newer format version.
        """
        return _read(text, parse_fields)


def position_to_value(position: Position) -> dict[str, Any]:
    """A position as a value that can be part of JSON: what `Position.to_json` writes, before it is text."""
    version = 1 if position.base is None else FORMAT_VERSION
    value: dict[str, Any] = {"version": version, "table": position.table, "snapshot": position.snapshot}
    if position.fingerprint is not None:
        value["fingerprint"] = position.fingerprint
    value["phase"] = position.phase.value
    if position.since is not None:
        value["since"] = position.since
    if position.base is not None:
        value["base"] = {"snapshot": position.base.snapshot, "merged": position.base.merged}
        if position.base.fingerprint is not None:
            value["base"]["fingerprint"] = position.base.fingerprint
    if position.unit is not None:
        value["unit"] = {
            "partition": list(position.unit.partition),
            "bucket": position.unit.bucket,
            "file": position.unit.file_name,
            "index": position.unit.index,
        }
    return value


def position_from_value(value: object) -> Position:
    """Read what `position_to_value` made; errors as `Position.from_json`."""
    return _read(value, fields_of)


def _read(source: Any, read: Callable[[Any, str], JsonFields]) -> Position:
    try:
        fields = read(source, "position")
        fields.check_version(FORMAT_VERSION)
        unit, base = fields.optional("unit", dict), fields.optional("base", dict)
        return Position(
            table=fields.get("table", str),
            snapshot=fields.get("snapshot", int),
            fingerprint=fields.optional("fingerprint", str),
            phase=Phase(fields.get("phase", str)),
            since=fields.optional("since", int),
            unit=None if unit is None else _unit(fields.object("unit")),
            base=None if base is None else _base(fields.object("base")),
        )
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, StreamConfigError):
            raise
        raise StreamConfigError(f"not a position: {source!r}. Give what Position.to_json() wrote.") from error


def _unit(fields: JsonFields) -> ReadUnit:
    partition = fields.get("partition", list)
    if not all(part is None or isinstance(part, str) for part in partition):
        raise ValueError(f"partition: expected text and null, got {partition!r}")
    return ReadUnit(tuple(partition), fields.get("bucket", int), fields.get("file", str), fields.get("index", int))


def _base(fields: JsonFields) -> ChainBase:
    return ChainBase(fields.get("snapshot", int), fields.optional("fingerprint", str), fields.get("merged", bool))


def of_table(position: Position, identity: str) -> Position:
    """The position with this table, if it does not know its own."""
    return replace(position, table=identity) if position.table == UNKNOWN_TABLE else position
