"""Which files of an append table become one (a function of the files and the options), and how they are rewritten.

As Java's `AppendCompactCoordinator` (tables without buckets, whose files have no order) and
`BucketedAppendCompactManager` (fixed buckets, where only neighbours may become one). Java's rules:
docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.compaction.new_files import CompactedFiles, CompactionResult
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.files.file_options import FileOptions
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter

_FULL_FILES = 3
"""A full compaction of a bucket needs at least this many files."""

Pack = list[LiveFile]


def packs(files: Sequence[LiveFile], options: CompactionOptions, *, full: bool) -> list[Pack]:
    """Packs of small files of a partition without buckets, each up to about twice the target size.

    Files with deletion vectors are packed separately. They are due if they are small, or have too many deleted rows.

    Args:
        full: Whether two small files are enough for a pack. Otherwise it needs `min_files`, or enough bytes.
    """
    due = [file for file in files if file.size < options.small_bytes or file.deleted_ratio > options.delete_ratio]
    with_vectors = [file for file in due if file.deletions is not None]
    others = [file for file in due if file.deletions is None]
    return _bins(with_vectors, options, 1) + _bins(others, options, _worth(options, full))


def _bins(files: Sequence[LiveFile], options: CompactionOptions, worth: int) -> list[Pack]:
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
    """Packs of consecutive files of a bucket, so that its rows stay in their order.

    Args:
        full: Whether all files, from the first one that is small or has deleted rows on, become one pack, if most of
            them are small or rows were deleted. Otherwise packs consist of `min_files` that are not too large together.
    """
    ordered = sorted(files, key=lambda file: file.read.min_sequence_number)
    return _all_from_the_first_due(ordered, options) if full else _windows(ordered, options)


def _all_from_the_first_due(ordered: Sequence[LiveFile], options: CompactionOptions) -> list[Pack]:
    """Java rewrites a bucket with deletion vectors each time. Here it is left alone if no row is deleted."""
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
    """Least number of files of a pack. Never one, which would be rewritten by every run."""
    return 2 if full else max(2, options.min_files)


class AppendRewriter:
    """Rewrites packs of one table."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader

    def compact(self, bucket: LiveBucket, files: Sequence[LiveFile]) -> CompactionResult:
        """Write the rows of files, in their order. Sequence numbers start with the first one of the first file.

        If it fails, the new files are deleted.

        Raises:
            FileNotFoundError: A file is missing.
        """
        counter = Counter(files[0].read.min_sequence_number)
        options = FileOptions.of_compacted(self._table, 0)
        new = CompactedFiles(self._table, options, options.data, bucket, partial(AppendedFacts, counter))
        try:
            reader = self._reader.expecting(files)
            for file in files:
                for batch in reader.rows(file):
                    new.write(pa.Table.from_batches([batch]))
            return CompactionResult(list(files), new.take())
        except BaseException:
            new.abort()
            raise
