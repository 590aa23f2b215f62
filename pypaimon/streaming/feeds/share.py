"""`Share`: the part of a table that one of several workers reads, told by the table alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model.plan import Plan, SplitMode, StreamSplit
from pypaimon.streaming.options.slot_rule import DividedBy, SlotRule, SlotSet
from pypaimon.streaming.options.table_traits import TableTraits


@dataclass(frozen=True, slots=True)
class Share:
    """One of several parts of a table, which are disjoint and together complete.

    The files of a table without buckets are dealt out plan by plan, each to the share with the fewest rows of that plan
    so far. Those of other tables go by their partition and bucket, so that all changes of a key are in one share.

    Attributes:
        index: Which one, from 0.
        count: How many there are.
    """

    index: int = 0
    count: int = 1

    def slots(self, traits: TableTraits, schema: TableSchema) -> SlotSet | None:
        """The partitions and buckets of this share; None: plans are dealt out."""
        if traits.unaware_bucket or self.count == 1:
            return None
        named = {field.name: field for field in schema.fields}
        fields = tuple(named[name] for name in schema.partition_keys)
        by = DividedBy.PARTITION_AND_BUCKET if fields else DividedBy.BUCKET
        return SlotSet(SlotRule(self.count, by, fields), frozenset({self.index}))

    def dealt(self, plan: Plan) -> list[StreamSplit]:
        """What this share is dealt of the plan of a snapshot of a table without buckets."""
        if self.count == 1:
            return plan.splits()
        units = [unit for split in plan.splits() for unit in _units(split)]
        owners = self._owners(plan.snapshot_id, [unit.rows for unit in units])
        mine: dict[int, tuple[StreamSplit, list[int]]] = {}
        for unit, owner in zip(units, owners, strict=True):
            if owner == self.index:
                mine.setdefault(id(unit.split), (unit.split, []))[1].extend(unit.files)
        return [_part(split, files) for split, files in mine.values()]

    def _owners(self, snapshot_id: int, rows: Sequence[int]) -> Iterator[int]:
        """The share of each unit; of those with as few rows, the first one from one on that the snapshot tells."""
        first = zlib.crc32(str(snapshot_id).encode())
        loads = [(0, turn, (first + turn) % self.count) for turn in range(self.count)]
        heapify(loads)
        for more in rows:
            load, turn, owner = loads[0]
            yield owner
            heapreplace(loads, (load + more, turn, owner))


def independent_parts(splits: Iterable[StreamSplit], traits: TableTraits) -> list[list[StreamSplit]]:
    """Splits that may be read by different tasks, whose files no order joins.

    Args:
        splits: Of any number of plans, in order.
        traits: The table: of one with buckets, what is of a bucket of a partition stays together.
    """
    if traits.unaware_bucket:
        return [[_part(unit.split, unit.files)] for split in splits for unit in _units(split)]
    parts: dict[tuple[object, ...], list[StreamSplit]] = {}
    for split in splits:
        place = (split.bucket, *(None if value is None else str(value) for value in split.partition.values))
        parts.setdefault(place, []).append(split)
    return list(parts.values())


@dataclass(frozen=True, slots=True)
class _Unit:
    """Files of a split that must be read together: by their place in it."""

    split: StreamSplit
    files: tuple[int, ...]
    rows: int


def _units(split: StreamSplit) -> Iterator[_Unit]:
    """The units of a split, in an order that the table tells."""
    if split.mode is SplitMode.ROWS:
        for index, file in enumerate(split.files):
            yield _Unit(split, (index,), file.row_count)
    elif split.mode is SplitMode.EVOLUTION and all(file.first_row_id is not None for file in split.files):
        yield from _row_id_ranges(split)
    else:
        yield _Unit(split, tuple(range(len(split.files))), split.row_count)


def _row_id_ranges(split: StreamSplit) -> Iterator[_Unit]:
    """Files that hold columns of the same rows, of blobs of more of them too."""
    files, members = split.files, list[int]()
    start = end = -1
    for index in sorted(range(len(files)), key=lambda index: files[index].first_row_id):
        file = files[index]
        if members and file.first_row_id >= end:
            yield _Unit(split, tuple(sorted(members)), end - start)
            members = []
        if not members:
            start = file.first_row_id
        members.append(index)
        end = max(end, file.first_row_id + file.row_count)
    if members:
        yield _Unit(split, tuple(sorted(members)), end - start)


def _part(split: StreamSplit, files: Sequence[int]) -> StreamSplit:
    return split if len(files) == len(split.files) else split.of_files(files)
