"""`Assignment`: what of a table a member of a group reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Assignment:
    """What of a table a member of a group reads, until the next one.

    Attributes:
        number: Of the group's state that says so; it grows.
        slots: The slots that it has, ascending.
        of: How many slots the table is divided into.
        members: How many members the group has.
        token: The number of the state that gave it the last of its slots. Of two members that ever had one slot the
            later one has the greater number for it: a target that keeps it can refuse what a former owner writes late.
    """

    number: int
    slots: tuple[int, ...]
    of: int
    members: int
    token: int
    _slot_of: Callable[[tuple[str | None, ...], int], int | None] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(number={self.number}, slots={len(self.slots)} of {self.of}, "
            f"members={self.members}, token={self.token})"
        )

    def covers(self, partition: tuple[str | None, ...], bucket: int) -> bool:
        """Whether it reads a bucket of a partition.

        Of a table whose files are divided by their names a member reads some of each bucket: then it is whether it has
        any slot.

        Args:
            partition: The values of the partition columns as text, None for null; empty without partitions.
            bucket: Number of the bucket.
        """
        slot = self._slot_of(partition, bucket)
        return bool(self.slots) if slot is None else slot in self.slots
