"""`SlotRule`: how a table is divided into slots, a fixed number of parts that the members of a group share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import DataField, TableSchema

LEAST_SLOTS = 64
"""For tables whose number of buckets or partitions may grow."""


class DividedBy(Enum):
    """What decides to which slot a file belongs."""

    BUCKET = "bucket"
    """Its bucket alone."""
    PARTITION_AND_BUCKET = "partition and bucket"
    """Its partition and its bucket, so that new partitions have a slot too."""
    FILE = "file"
    """Its name, because buckets have no meaning and files are read in any order."""
    NOTHING = "nothing"
    """There is one slot."""


@dataclass(frozen=True, slots=True)
class SlotRule:
    """The slot of each file. It depends on the table alone, never on its content.

    All files of a bucket of a partition are in one slot if their order counts. The buckets of one partition are in
    consecutive slots.

    Attributes:
        count: How many slots there are.
        by: What decides the slot of a file.
        partition_fields: The partition columns.
    """

    count: int
    by: DividedBy
    partition_fields: tuple[DataField, ...] = ()

    @staticmethod
    def of(traits: TableTraits, schema: TableSchema) -> SlotRule:
        """The rule of a table."""
        named = {field.name: field for field in schema.fields}
        fields = tuple(named[name] for name in schema.partition_keys)
        if traits.data_evolution:
            return SlotRule(1, DividedBy.NOTHING)
        if traits.unaware_bucket:
            return SlotRule(LEAST_SLOTS, DividedBy.FILE)
        if traits.bucket > 0 and not fields:
            return SlotRule(traits.bucket, DividedBy.BUCKET)
        buckets = max(traits.bucket, 1)
        return SlotRule(-(-LEAST_SLOTS // buckets) * buckets, DividedBy.PARTITION_AND_BUCKET, fields)

    @property
    def follows_buckets(self) -> bool:
        """Whether rows move to other slots when they move to other buckets."""
        return self.by in (DividedBy.BUCKET, DividedBy.PARTITION_AND_BUCKET)

    @property
    def text(self) -> str:
        """The rule as text; equal for equal rules."""
        return f"{self.by.value} modulo {self.count}"

    def of_bucket(self, partition: tuple[str | None, ...], bucket: int) -> int | None:
        """The slot of a bucket of a partition; None if its files are in several slots.

        Args:
            partition: The values of the partition columns as text.
            bucket: Number of the bucket.
        """
        if self.by is DividedBy.FILE:
            return None
        return (bucket + self.offset(partition)) % self.count

    def offset(self, partition: tuple[str | None, ...]) -> int:
        """The number that is added to the buckets of a partition to get their slots."""
        if self.by is not DividedBy.PARTITION_AND_BUCKET:
            return 0
        return zlib.crc32(json.dumps(partition, ensure_ascii=False, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class SlotSet:
    """Some slots of a table.

    Attributes:
        rule: How the table is divided.
        numbers: Numbers of the slots.
        may_pass: Whether the reader may go past an overwrite, given the id of its snapshot. An overwrite may move rows
            to other slots, so the readers of all slots have to reach it first.
    """

    rule: SlotRule
    numbers: frozenset[int]
    may_pass: Callable[[int], bool] = lambda _: True
