"""Which files of an append table become one: a function of the files and the options.

As Java's `AppendCompactCoordinator` (tables without buckets, whose files have no order) and
`BucketedAppendCompactManager` (fixed buckets, where only neighbours may become one). Java's rules:
docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile

_FULL_FILES = 3
"""A full compaction of a bucket is not worth while for fewer files."""

Pack = list[LiveFile]


def packs(files: Sequence[LiveFile], options: CompactionOptions, *, full: bool) -> list[Pack]:
    """Small files of a partition without buckets, put together up to about twice the size of a file.

    Files with deletion vectors are put together by themselves: a small one is always due, and a large one with too many
    deleted rows.

    Args:
        files: The files of the partition.
        options: The table's.
        full: Whether two small files are enough for a pack; otherwise `min_files` are, or enough bytes.
    """
    due = [file for file in files if file.size < options.small_bytes or file.deleted_ratio > options.delete_ratio]
    with_vectors = [file for file in due if file.deletions is not None]
    others = [file for file in due if file.deletions is None]
    return _bins(with_vectors, options, 1) + _bins(others, options, _worth(options, full))


def _bins(files: Sequence[LiveFile], options: CompactionOptions, worth: int) -> list[Pack]:
    """Files put together, the smallest ones first; `worth`: how many are enough for the last pack."""
    found: list[Pack] = []
    pack: Pack = []
    size = 0
    for file in sorted(files, key=lambda file: file.size):
        pack.append(file)
        size += file.size + options.open_bytes
        if len(pack) > 1 and size >= 2 * options.target_bytes:
            found.append(pack)
            pack, size = [], 0
    if len(pack) >= worth:
        found.append(pack)
    return found


def neighbours(files: Sequence[LiveFile], options: CompactionOptions, *, full: bool) -> list[Pack]:
    """Files of a bucket that follow each other, so that its rows stay in their order.

    Args:
        files: The files of the bucket.
        options: The table's.
        full: Whether all from the first file on that is small, or has deleted rows, become one pack, if small ones are
            most of them or rows were deleted; otherwise packs of `min_files` that are not too large together.
    """
    ordered = sorted(files, key=lambda file: file.read.min_sequence_number)
    return _all_from_the_first_due(ordered, options) if full else _windows(ordered, options)


def _all_from_the_first_due(ordered: Sequence[LiveFile], options: CompactionOptions) -> list[Pack]:
    """Java writes those of a table with deletion vectors anew each time; here they are once no row is deleted."""
    due = (file.size < options.small_bytes or file.deletions is not None for file in ordered)
    first = 0 if options.force_rewrite else next((place for place, each in enumerate(due) if each), len(ordered))
    pack = list(ordered[first:])
    small = sum(file.size < options.small_bytes for file in pack)
    worth = len(pack) >= _FULL_FILES and small > len(pack) - small
    deleted = any(file.deletions is not None for file in pack)
    return [pack] if pack and (worth or deleted or options.force_rewrite) else []


def _windows(ordered: Sequence[LiveFile], options: CompactionOptions) -> list[Pack]:
    found: list[Pack] = []
    window: Pack = []
    for file in ordered:
        window.append(file)
        size = sum(each.size for each in window)
        if len(window) >= _worth(options, False) and size // max(1, options.target_bytes) + 1 < len(window):
            found.append(window)
            window = []
        elif size >= 2 * options.target_bytes:
            window = window[1:]
    return found


def _worth(options: CompactionOptions, full: bool) -> int:
    """How many files are worth a pack: never one alone, which would be written anew with each look."""
    return 2 if full else max(2, options.min_files)
