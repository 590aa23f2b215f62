"""Blob files of data evolution: which of them become one file (`blob_runs`), and how (`BlobRewriter`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.files.blob_files import BlobColumn, References, row_range
from pypaimon.streaming.formats.blob_format import Numbers
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import BlobDescriptor, DataField, DataFileMeta, PaimonBlob
from pypaimon.streaming.paimon.write_internals import BlobData
from pypaimon.streaming.reading.blob import Blob, BlobFetcher
from pypaimon.streaming.writing.files.file_options import COMPACTED, BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import GivenFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

_LEAST_FILES = 2
_FETCHED_BYTES = 32 << 20
"""Blobs are fetched together up to this size. A larger one is copied piece by piece."""
_IN_AN_OLDER_FILE: PaimonBlob = PaimonBlob.PLACE_HOLDER  # type: ignore[attr-defined]
_PLACEHOLDER, _BYTES, _DESCRIPTOR = b"", b"b", b"d"


def blob_runs(files: Sequence[DataFileMeta], target_bytes: int) -> list[list[DataFileMeta]]:
    """Files of one column that become one file each, in the order of their row ids; by Java's rule.

    Files with the same row ids, of which the newer ones replace values of the older ones, stay together. A run has no
    gap, ends once it is as large as a file should be, and leaves out files that are as large already.
    """
    found: list[list[DataFileMeta]] = []
    run: list[DataFileMeta] = []

    def close() -> None:
        nonlocal run
        if len(run) >= _LEAST_FILES:
            found.append(run)
        run = []

    following = 0
    for versions, first, end in _versions(files):
        if run and first != following:
            close()
        following = end
        if len(versions) == 1 and versions[0].file_size >= target_bytes:
            close()
            continue
        run += versions
        if len(run) >= _LEAST_FILES and sum(int(file.file_size) for file in run) >= target_bytes:
            close()
    close()
    return found


def _versions(files: Sequence[DataFileMeta]) -> Iterator[tuple[list[DataFileMeta], int, int]]:
    """Files that share row ids, with the first row id and the one after the last."""
    members: list[DataFileMeta] = []
    first = end = 0
    for file in sorted(files, key=lambda file: (row_range(file)[0], file.max_sequence_number)):
        start, stop = row_range(file)
        if members and start >= end:
            yield members, first, end
            members = []
        if not members:
            first, end = start, stop
        members.append(file)
        end = max(end, stop)
    if members:
        yield members, first, end


class BlobRewriter:
    """Copies the newest value of each row. Collections of blobs are copied whole."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader

    def compact(self, bucket: LiveBucket, field: DataField, files: Sequence[LiveFile]) -> DataFileMeta:
        """Write a column of blobs of consecutive rows to one file. If it fails, that is deleted. Raises
        FileNotFoundError if a file is missing.
        """
        newest_first = sorted((file.read for file in files), key=lambda file: file.max_sequence_number, reverse=True)
        ranges = [row_range(file) for file in newest_first]
        first, end = min(start for start, _ in ranges), max(stop for _, stop in ranges)
        options = FileOptions.of_blobs(self._table)
        options = replace(options, data=replace(options.data, source=COMPACTED), target_bytes=1 << 62)
        facts = GivenFacts(newest_first)
        fetcher = BlobFetcher(self._reader.store, None)
        made = RollingFiles(
            BucketFiles(self._table, options, bucket.partition, bucket.bucket),
            options.data,
            lambda: facts,
            blob=lambda cell: blob_of(fetcher, cell),
        )
        try:
            column = self._reader.blobs(field, first, end - first, newest_first)
            for cells in _cells(column, fetcher):
                made.write(pa.table([pa.array(cells, pa.large_binary())], names=[field.name]))
            (new,) = made.take()
        except BaseException:
            made.abort()
            raise
        finally:
            fetcher.close()
        return replace(new, first_row_id=first)


def _cells(column: BlobColumn, fetcher: BlobFetcher) -> Iterator[list[bytes | None]]:
    """The values of all rows, as `marked` makes them; empty if no file has it."""
    found = column.references
    for start, stop in fetched_together(found.lengths):
        cells = marked(found.rows(start, stop - start), fetcher)
        missing = column.undecided[start:stop]
        yield [_PLACEHOLDER if gone else cell for cell, gone in zip(cells, missing, strict=True)]


def fetched_together(lengths: Numbers) -> Iterator[tuple[int, int]]:
    """The first and the last row of each piece of rows whose blobs, of these lengths, are fetched together."""
    start = 0
    lengths = np.maximum(lengths, 0)
    ends = np.cumsum(lengths)
    while start < len(ends):
        before = int(ends[start] - lengths[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + _FETCHED_BYTES, side="right")))
        yield start, stop
        start = stop


def marked(piece: References, fetcher: BlobFetcher) -> list[bytes | None]:
    """The blobs of a piece, for `blob_of`: each with a first byte that says whether the blob follows, or a descriptor,
    because it is large.
    """
    if len(piece.place) == 1 and piece.lengths[0] > _FETCHED_BYTES:
        return [_descriptor(piece)]
    return [None if value is None else _BYTES + value for value in fetcher.fetch(piece).to_pylist()]


def _descriptor(part: References) -> bytes:
    place = part.places[int(part.place[0])]
    cell: bytes = BlobDescriptor(place, int(part.offsets[0]), int(part.lengths[0])).serialize()
    return _DESCRIPTOR + cell


def blob_of(fetcher: BlobFetcher, cell: bytes) -> PaimonBlob:
    """What a cell of `marked` stands for."""
    if cell == _PLACEHOLDER:
        return _IN_AN_OLDER_FILE
    mark, value = cell[:1], cell[1:]
    return BlobData(value) if mark == _BYTES else Blob(fetcher, BlobDescriptor.deserialize(value))
