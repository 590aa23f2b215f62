"""Index manifests: the index files of a snapshot, and the places of the deletion vectors of its data files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.formats import record_files
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths, check_file_name
from pypaimon.streaming.paimon.internals import DeletionFile

DELETION_VECTORS = "DELETION_VECTORS"
HASH = "HASH"
"""Index of the keys of a bucket, in tables with dynamic buckets."""
_MOST_BYTES, _MOST_PER_BYTE = 1 << 20, 64
"""Bound of the decompressed records. Each entry and range names another file, so half the size is the best case."""


@dataclass(frozen=True, slots=True)
class DeletionRange:
    """Where the deletion vector of one data file is inside an index file."""

    data_file: str
    offset: int
    length: int  # Length in bytes, of magic number and bitmap
    cardinality: int | None  # Number of deleted rows; None if the release did not record it


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index file of a snapshot."""

    partition: bytes
    bucket: int
    index_type: str  # `DELETION_VECTORS`, `HASH`, or the name of a global index
    file_name: str
    file_size: int
    row_count: int
    ranges: tuple[DeletionRange, ...]
    external_path: str | None  # Full path if the file is not in the table's index directory, else None


def index_records(data: bytes) -> list[dict[str, Any]]:
    """The records of an index manifest with all stored fields. Raises what `parse_index_manifest` raises."""
    parsed = record_files.parse(data)
    if record_files.size(parsed) > _MOST_BYTES + _MOST_PER_BYTE * len(data):
        raise ValueError(f"the index manifest of {len(data)} bytes holds {record_files.size(parsed)} decompressed")
    return record_files.to_records(parsed)


def parse_index_manifest(data: bytes) -> tuple[IndexEntry, ...]:
    """Decode an index manifest of any release, in its order, without deleted files. Raises ValueError if the file
    cannot be decoded, or decompresses to more than distinct names allow.
    """
    records = index_records(data)
    try:
        deleted = {record["_FILE_NAME"] for record in records if record["_KIND"] == EntryKind.DELETE}
        return tuple(_entry(record) for record in records if record["_FILE_NAME"] not in deleted)
    except KeyError as error:
        raise ValueError(f"the index manifest holds no {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a value in the index manifest has another type than it must have: {error}") from error


def deletion_files(entries: Iterable[IndexEntry], paths: FilePaths) -> dict[tuple[bytes, int, str], DeletionFile]:
    """The deletion vectors by serialised partition, bucket and name of the data file."""
    vectors = [entry for entry in entries if entry.index_type == DELETION_VECTORS]
    partitions = list({entry.partition for entry in vectors})
    homes = dict(zip(partitions, paths.partitions(pa.array(partitions, pa.binary())), strict=True))
    return {
        (entry.partition, entry.bucket, found.data_file): DeletionFile(
            paths.index_file(homes[entry.partition], entry.bucket, entry.file_name, entry.external_path),
            found.offset,
            found.length,
            found.cardinality,
        )
        for entry in vectors
        for found in entry.ranges
    }


def _entry(record: dict[str, Any]) -> IndexEntry:
    check_file_name(record["_FILE_NAME"])
    ranges = tuple(
        DeletionRange(found["f0"], found["f1"], found["f2"], found.get("_CARDINALITY"))
        for found in record.get("_DELETIONS_VECTORS_RANGES") or ()
        if found is not None
    )
    return IndexEntry(
        partition=record["_PARTITION"],
        bucket=record["_BUCKET"],
        index_type=record["_INDEX_TYPE"],
        file_name=record["_FILE_NAME"],
        file_size=record["_FILE_SIZE"],
        row_count=record["_ROW_COUNT"],
        ranges=ranges,
        external_path=record.get("_EXTERNAL_PATH"),
    )
