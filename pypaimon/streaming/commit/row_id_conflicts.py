"""`check_row_ids`: whether a compaction of data evolution may follow a state, by the row ids of its files; `given_up`:
which ids it gives up; `FilesByRowId`: the files of a state that share row ids with others.

The rules are those of Java's `DataEvolutionConflictDetection`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

from pypaimon.streaming.commit.changes import Changes, FileChange
from pypaimon.streaming.errors import CommitConflictError
from pypaimon.streaming.files.row_id_groups import is_data_file_name
from pypaimon.streaming.metadata.entry_kind import EntryKind

Range = tuple[int, int]
"""The first row id, and the one after the last."""


def check_row_ids(base: Sequence[FileChange], after: Iterable[FileChange], changes: Changes) -> None:
    """Check that a compaction keeps the row ids of a state, and that files that others have added still fit.

    An update of columns that was committed meanwhile has files of the ranges that it found. They fit if these ranges
    are still there; they do not if the compaction has joined ranges.

    Args:
        base: The live files before the commit.
        after: The live files after it.

    Raises:
        CommitConflictError: They are not kept, or do not fit.
    """
    _check_deleted(base, changes)
    after = list(after)
    _check_given_up(after, given_up(changes))
    added = [each for each in changes.added if each.file["_FIRST_ROW_ID"] is not None]
    if not added:
        return
    partitions = {each.partition for each in added}
    ordered = sorted(
        (each for each in after if each.partition in partitions and each.file["_FIRST_ROW_ID"] is not None),
        key=lambda each: (each.partition, _range(each)),
    )
    before = [each for each in base if each.file["_FIRST_ROW_ID"] is not None and is_data_file_name(each.name)]
    for partition, members in groupby(ordered, key=lambda each: each.partition):
        new = [each for each in added if each.partition == partition]
        known = _joined(_range(each) for each in before if each.partition == partition)
        for each in new:
            if not _is_inside(_range(each), known):
                raise _conflict(each, "holds row ids that the table does not have any more")
        _check_fit(list(members), _joined(map(_range, new)))


def given_up(changes: Changes) -> dict[bytes, list[Range]]:
    """The row ids of data files that changes delete without files that keep them, by partition: rows get other ids,
    or are dropped.
    """
    kept: dict[bytes, list[Range]] = {}
    for each in changes.added:
        if each.file["_FIRST_ROW_ID"] is not None and is_data_file_name(each.name):
            kept.setdefault(each.partition, []).append(_range(each))
    joined = {partition: _joined(ranges) for partition, ranges in kept.items()}
    found: dict[bytes, list[Range]] = {}
    for each in changes.files:
        is_numbered = each.file["_FIRST_ROW_ID"] is not None and is_data_file_name(each.name)
        if each.kind != EntryKind.DELETE or not is_numbered:
            continue
        if not _is_inside(_range(each), joined.get(each.partition, ())):
            found.setdefault(each.partition, []).append(_range(each))
    return {partition: _joined(ranges) for partition, ranges in found.items()}


class FilesByRowId:
    """Live files, to be found by their row ids. Files without them are left out."""

    def __init__(self, files: Iterable[FileChange]) -> None:
        self._files: dict[bytes, list[FileChange]] = {}
        for each in files:
            if each.file["_FIRST_ROW_ID"] is not None:
                self._files.setdefault(each.partition, []).append(each)
        # The greatest end of a file and of all before it: only files before the first that is great enough have ended.
        self._ends: dict[bytes, list[int]] = {}
        for partition, found in self._files.items():
            found.sort(key=_range)
            self._ends[partition] = list(accumulate((_range(each)[1] for each in found), max))

    def near(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """The files of the same partitions that share row ids with `changes`, each once."""
        ranges: dict[bytes, list[Range]] = {}
        for each in changes:
            if each.file["_FIRST_ROW_ID"] is not None:
                ranges.setdefault(each.partition, []).append(_range(each))
        return [
            each
            for partition, wanted in ranges.items()
            for joined in _joined(wanted)
            for each in self._overlapping(partition, joined)
        ]

    def _overlapping(self, partition: bytes, one: Range) -> Iterable[FileChange]:
        files, ends = self._files.get(partition, []), self._ends.get(partition, [])
        first = bisect_right(ends, one[0])
        last = bisect_left(files, one[1], key=lambda each: _range(each)[0])
        return (each for each in files[first:last] if _overlap(_range(each), one))


def _check_deleted(base: Sequence[FileChange], changes: Changes) -> None:
    live = {each.identity: each for each in base}
    for each in changes.files:
        there = live.get(each.identity)
        # Other jobs may give the rows of a file other ids without rewriting it.
        if each.kind == EntryKind.DELETE and there is not None and _numbers(there) != _numbers(each):
            raise _conflict(each, "has other row ids by now")


def _check_given_up(after: Iterable[FileChange], gone: Mapping[bytes, Sequence[Range]]) -> None:
    """Check that no file stays that has columns of rows whose ids are given up: a deleted row would come back with it,
    or a new value would be lost.
    """
    for each in after:
        ranges = gone.get(each.partition, ())
        if ranges and each.file["_FIRST_ROW_ID"] is not None and _meets(_range(each), ranges):
            raise _conflict(each, "has columns of rows that are written again: they were updated meanwhile")


def _check_fit(files: Sequence[FileChange], new: Sequence[Range]) -> None:
    """Check files of a partition, in the order of their row ids, as far as they share row ids with `new`."""
    near = [each for each in files if _meets(_range(each), new)]
    data = [each for each in near if is_data_file_name(each.name)]
    # In this order a file overlaps another one with a different range only if it overlaps its neighbour.
    for one, other in pairwise(data):
        if _range(one) != _range(other) and _overlap(_range(one), _range(other)):
            raise _conflict(other, f"shares some row ids with {one.name}, and not all: columns were updated meanwhile")
    ranges = sorted({_range(each) for each in data})
    for each in near:
        if not is_data_file_name(each.name) and not _is_inside(_range(each), ranges):
            raise _conflict(each, "is not inside the row ids of one data file")


def _range(each: FileChange) -> Range:
    first = int(each.file["_FIRST_ROW_ID"])
    return first, first + int(each.file["_ROW_COUNT"])


def _numbers(each: FileChange) -> tuple[int | None, int]:
    return each.file["_FIRST_ROW_ID"], each.file["_ROW_COUNT"]


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _meets(one: Range, ranges: Sequence[Range]) -> bool:
    """Whether it overlaps one of disjoint ranges, which are in order."""
    at = bisect_left(ranges, one[1], key=lambda found: found[0])
    return at > 0 and ranges[at - 1][1] > one[0]


def _is_inside(one: Range, ranges: Sequence[Range]) -> bool:
    """Whether one of disjoint ranges, which are in order, has all of it."""
    at = bisect_right(ranges, one[0], key=lambda found: found[0])
    return at > 0 and ranges[at - 1][1] >= one[1]


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Disjoint ranges with the same row ids; adjacent ones are joined."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found


def _conflict(each: FileChange, why: str) -> CommitConflictError:
    return CommitConflictError(f"File {each.name} {why}. Nothing was committed.")
