"""`SlotRule`: how a table is divided into slots, a fixed number of parts that the members of a group share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pypaimon.streaming.internals import DataField, TableSchema
from pypaimon.streaming.options.table_traits import TableTraits

LEAST_SLOTS = 64
"""Of tables of which nobody knows how many places they will have."""


class DividedBy(Enum):
    """What decides to which slot a file belongs."""

    BUCKET = "bucket"
    """Its bucket alone."""
    PARTITION_AND_BUCKET = "partition and bucket"
    """Its partition and its bucket, so that those that come later have a slot too."""
    FILE = "file"
    """Its name: buckets say nothing, and files are read in any order."""
    NOTHING = "nothing"
    """There is one slot."""


@dataclass(frozen=True, slots=True)
class SlotRule:
    """To which slot a file belongs. It depends on the table alone, never on what is in it.

    All files of a bucket of a partition are in one slot where their order counts. The buckets of one partition are in
    slots that follow each other.

    Attributes:
        count: How many slots there are.
        by: What decides.
        partition_fields: The partition columns.
    """

    count: int
    by: DividedBy
    partition_fields: tuple[DataField, ...] = ()

    @staticmethod
    def of(traits: TableTraits, schema: TableSchema) -> SlotRule:
        """The rule of a table.

        Args:
            traits: Its traits.
            schema: Its schema.
        """
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
        """Whether rows that are divided into other buckets come to other slots."""
        return self.by in (DividedBy.BUCKET, DividedBy.PARTITION_AND_BUCKET)

    @property
    def text(self) -> str:
        """It in words; equal for equal rules."""
        return f"{self.by.value} modulo {self.count}"

    def of_bucket(self, partition: tuple[str | None, ...], bucket: int) -> int | None:
        """The slot of a bucket of a partition; None where its files are in several.

        Args:
            partition: The values of the partition columns as text.
            bucket: Its number.
        """
        if self.by is DividedBy.FILE:
            return None
        return (bucket + self.offset(partition)) % self.count

    def offset(self, partition: tuple[str | None, ...]) -> int:
        """How far the slots of a partition's buckets are from those buckets."""
        if self.by is not DividedBy.PARTITION_AND_BUCKET:
            return 0
        return zlib.crc32(json.dumps(partition, ensure_ascii=False, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class SlotSet:
    """Some slots of a table.

    Attributes:
        rule: How it is divided.
        numbers: Which.
        may_pass: Whether an overwrite, by the id of its snapshot, may be gone past: it may divide the rows anew, so
            that all who read other slots have to stand before it first.
    """

    rule: SlotRule
    numbers: frozenset[int]
    may_pass: Callable[[int], bool] = lambda _: True
