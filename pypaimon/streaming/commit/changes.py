"""`FileChange` and `Changes`: what one snapshot adds and deletes, as records of manifests, before anything is written.

Records are those of Avro: names and nesting are Java's, and rows of keys and statistics stay serialised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS
from pypaimon.streaming.metadata.manifest_tables import entry_records
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import BinaryRow, DataFileMeta, GenericRowSerializer
from pypaimon.streaming.paimon.write_internals import CommitMessage, IndexManifestEntry

APPEND, COMPACT, OVERWRITE = "APPEND", "COMPACT", "OVERWRITE"

_VIDEO = ".video"

AvroRecord: TypeAlias = Mapping[str, Any]
Identity: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a commit adds or deletes: an entry of a manifest."""

    kind: EntryKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: AvroRecord

    @property
    def name(self) -> str:
        return str(self.file["_FILE_NAME"])

    @property
    def identity(self) -> Identity:
        """What distinguishes files in Java: a file that is moved to another level becomes another one."""
        file = self.file
        extra, embedded = file["_EXTRA_FILES"], file["_EMBEDDED_FILE_INDEX"]
        place = self.partition, self.bucket, file["_LEVEL"]
        return (*place, file["_FILE_NAME"], "/".join(extra or ()), embedded, file["_EXTERNAL_PATH"])

    @property
    def rows(self) -> int:
        """Rows that the change adds to the table's files; negative if it deletes the file."""
        return int(self.file["_ROW_COUNT"]) * (1 if self.kind == EntryKind.ADD else -1)

    def deleted(self) -> FileChange:
        return FileChange(EntryKind.DELETE, self.partition, self.bucket, self.total_buckets, self.file)

    def with_values(self, values: AvroRecord) -> FileChange:
        return FileChange(self.kind, self.partition, self.bucket, self.total_buckets, {**self.file, **values})

    def record(self) -> dict[str, Any]:
        return {
            "_VERSION": 2,
            "_KIND": int(self.kind),
            "_PARTITION": self.partition,
            "_BUCKET": self.bucket,
            "_TOTAL_BUCKETS": self.total_buckets,
            "_FILE": self.file,
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes."""

    # Data files, deletions first. Expiry replays the changes of a snapshot in order, and would delete a file that is
    # moved to another level (deleted there, added here) if its addition came first.
    files: tuple[FileChange, ...] = ()
    changelog: tuple[FileChange, ...] = ()
    index_added: tuple[AvroRecord, ...] = ()
    index_deleted: tuple[AvroRecord, ...] = ()

    @staticmethod
    def of(
        files: Iterable[FileChange],
        changelog: Iterable[FileChange] = (),
        index_added: Iterable[AvroRecord] = (),
        index_deleted: Iterable[AvroRecord] = (),
    ) -> Changes:
        ordered = sorted(files, key=lambda each: each.kind != EntryKind.DELETE)
        return Changes(tuple(ordered), tuple(changelog), tuple(index_added), tuple(index_deleted))

    @property
    def empty(self) -> bool:
        # Changelog alone counts too: rows of a batch may cancel out in the data files, never in the changelog
        # of `input`.
        return not (self.files or self.changelog or self.index_added or self.index_deleted)

    @property
    def added(self) -> list[FileChange]:
        return [each for each in self.files if each.kind == EntryKind.ADD]

    @property
    def deletes(self) -> bool:
        """Whether existing rows are removed, by deleting files or by deletion vectors."""
        # Java's `shouldBeOverwriteCommit`: such a commit is an OVERWRITE, which streams pass over unless they
        # ask for it.
        vectors = any(each["_INDEX_TYPE"] == DELETION_VECTORS for each in (*self.index_added, *self.index_deleted))
        return vectors or any(each.kind == EntryKind.DELETE for each in self.files)

    @property
    def partitions(self) -> set[bytes]:
        index = (each["_PARTITION"] for each in (*self.index_added, *self.index_deleted))
        return {*(each.partition for each in (*self.files, *self.changelog)), *index}

    @property
    def places(self) -> set[tuple[bytes, int]]:
        """The partitions, as serialised rows, with the buckets."""
        index = (*self.index_added, *self.index_deleted)
        files = ((each.partition, each.bucket) for each in (*self.files, *self.changelog))
        return {*files, *((each["_PARTITION"], each["_BUCKET"]) for each in index)}

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def marked_files(vectors: Iterable[AvroRecord]) -> dict[tuple[bytes, int, str], str]:
    """The data files of which deletion vectors mark rows, by partition, bucket and name, with the index files."""
    return {
        (each["_PARTITION"], each["_BUCKET"], found["f0"]): each["_FILE_NAME"]
        for each in vectors
        for found in each.get("_DELETIONS_VECTORS_RANGES") or ()
        if found is not None
    }


def changes_of(entries: pa.Table) -> list[FileChange]:
    """Manifest entries (rows of `ENTRY_SCHEMA`) as changes, in their order."""
    return [_change(each) for each in entry_records(entries)]


def _change(record: dict[str, Any]) -> FileChange:
    place = record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"]
    return FileChange(EntryKind(record["_KIND"]), *place, record["_FILE"])


def data_changes(table: PaimonTable, messages: Sequence[CommitMessage]) -> Changes:
    """The data increments of pypaimon's commit messages: what writers have made of rows. Raises UnsupportedTableError
    if a message updates columns of existing rows (data evolution), or a file holds frames of a video.
    """
    videos = [file.file_name for each in messages for file in each.new_files if file.file_name.endswith(_VIDEO)]
    if videos:
        raise UnsupportedTableError(f"File {videos[0]} holds frames of a video, which are not committed here.")
    if any(message.check_from_snapshot is not None for message in messages):
        raise UnsupportedTableError(
            "Updates of columns of existing rows (data evolution) are committed by pypaimon: "
            "table.new_batch_write_builder().new_commit()."
        )
    return _changes(
        table, messages, ("deleted_files", "new_files", "changelog_files", "index_adds", "index_deletes"),
    )  # fmt: skip


def compact_changes(table: PaimonTable, messages: Sequence[CommitMessage]) -> Changes:
    """The compact increments of pypaimon's commit messages: what compaction has made of files."""
    return _changes(
        table, messages,
        ("compact_before", "compact_after", "compact_changelog_files", "compact_index_adds", "compact_index_deletes"),
    )  # fmt: skip


def _changes(table: PaimonTable, messages: Sequence[CommitMessage], names: tuple[str, str, str, str, str]) -> Changes:
    before, after, changelog, index_added, index_deleted = names
    fields = table.partition_fields

    def files(name: str, kind: EntryKind) -> list[FileChange]:
        found: list[FileChange] = []
        for message in messages:
            partition = encoded_row(message.partition, fields)
            total = table.total_buckets if message.total_buckets is None else message.total_buckets
            place = partition, message.bucket, total
            found += [FileChange(kind, *place, _file_record(file)) for file in getattr(message, name)]
        return found

    def index(name: str, kind: EntryKind) -> list[AvroRecord]:
        return [_index_record(entry, kind) for message in messages for entry in getattr(message, name)]

    return Changes.of(
        files(before, EntryKind.DELETE) + files(after, EntryKind.ADD),
        files(changelog, EntryKind.ADD),
        index(index_added, EntryKind.ADD),
        index(index_deleted, EntryKind.DELETE),
    )


def _file_record(file: DataFileMeta) -> dict[str, Any]:
    return {
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_MIN_KEY": _row_bytes(file.min_key),
        "_MAX_KEY": _row_bytes(file.max_key),
        "_KEY_STATS": _stats_record(file.key_stats),
        "_VALUE_STATS": _stats_record(file.value_stats),
        "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
        "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
        "_SCHEMA_ID": file.schema_id,
        "_LEVEL": file.level,
        "_EXTRA_FILES": list(file.extra_files or ()),
        "_CREATION_TIME": None if file.creation_time is None else file.creation_time.get_millisecond(),
        "_DELETE_ROW_COUNT": file.delete_row_count,
        "_EMBEDDED_FILE_INDEX": file.embedded_index,
        "_FILE_SOURCE": file.file_source,
        "_VALUE_STATS_COLS": file.value_stats_cols,
        "_EXTERNAL_PATH": file.external_path,
        "_FIRST_ROW_ID": file.first_row_id,
        "_WRITE_COLS": file.write_cols,
        "_WRITE_COLS_SEQUENCES": file.write_cols_sequences,
    }


def _row_bytes(row: Any) -> bytes:
    return bytes(row.data) if isinstance(row, BinaryRow) else encoded_row(row.values, row.fields)


def _stats_record(stats: Any) -> dict[str, Any]:
    return {
        "_MIN_VALUES": GenericRowSerializer.to_bytes(stats.min_values),
        "_MAX_VALUES": GenericRowSerializer.to_bytes(stats.max_values),
        "_NULL_COUNTS": stats.null_counts,
    }


def _index_record(entry: IndexManifestEntry, kind: EntryKind) -> AvroRecord:
    file = entry.index_file
    if file.global_index_meta is not None:
        raise UnsupportedTableError(f"The index {file.index_type!r} spans the table, and is committed by pypaimon.")
    ranges = [
        {"f0": each.data_file_name, "f1": each.offset, "f2": each.length, "_CARDINALITY": each.cardinality}
        for each in (file.dv_ranges or {}).values()
    ]
    return {
        "_VERSION": 1,
        "_KIND": int(kind),
        "_PARTITION": _row_bytes(entry.partition),
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None if file.dv_ranges is None else ranges,
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": None,
    }
