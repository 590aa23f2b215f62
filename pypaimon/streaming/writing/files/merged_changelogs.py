"""`merged_changelogs`: merges small changelog files of several buckets into one (`precommit-compact`).

As Flink's `ChangelogCompactCoordinateOperator` and `ChangelogCompactTask`; the layout: docs/java-semantics.md#files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import uuid4

from pypaimon.streaming.errors import PaimonStreamError, StoreError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.io.new_object import NewObject
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.file_paths import merged_changelog_name
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.files.file_options import small_file_bytes, target_file_bytes

_FIELDS = ("changelog_files", "compact_changelog_files")
_READ_BYTES = 32 << 20
"""Bytes of files in memory at the same time, unless a single file is larger."""


@dataclass(frozen=True, slots=True)
class _Part:
    partition: bytes
    bucket: int
    file: DataFileMeta

    @property
    def path(self) -> str:
        return str(self.file.file_path)

    @property
    def size(self) -> int:
        return int(self.file.file_size)

    @property
    def format(self) -> str:
        return str(self.file.file_name).rpartition(".")[2]


def merged_changelogs(table: PaimonTable, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Merge small changelog files of a commit, if the table sets `precommit-compact`.

    Files of a partition and format become one file, up to the target size of tables without a primary key. Only files
    that compaction of such tables counts as small, and that fit into the buffer of the option, are merged. Each part
    stays a complete file of its format: only name and path in its metadata change. Changelogs of rows and of
    compactions are not mixed. Returns the messages to commit instead. Raises StoreError if a file cannot be read or
    written. The files of `messages` are unchanged.
    """
    options = table.options
    if not option_keys.PRECOMMIT_COMPACT.of(options):
        return list(messages)
    merging = _Merging(table.new_directory().store)
    try:
        for field in _FIELDS:
            for parts in _groups(table, messages, field):
                merging.merge(parts)
    except BaseException:
        merging.undo()
        raise
    # Nothing but these messages knows the parts. From here on only the merged names are valid.
    merging.delete_parts()
    files: list[dict[str, Any]] = [
        {field: merging.renamed(getattr(each, field)) for field in _FIELDS} for each in messages
    ]
    return [replace(each, **renamed) for each, renamed in zip(messages, files, strict=True)]


def _groups(table: PaimonTable, messages: Sequence[CommitMessage], field: str) -> Iterator[list[_Part]]:
    options, target = table.options, target_file_bytes(table.options, keyed=False)
    buffer = option_keys.CHANGELOG_PRECOMMIT_COMPACT_BUFFER_SIZE.of(options)
    small = min(small_file_bytes(options, target), buffer)
    parts = [
        _Part(encoded_row(message.partition, table.partition_fields), message.bucket, file)
        for message in messages
        for file in getattr(message, field)
        if file.file_size < small
    ]
    parts.sort(key=lambda part: (part.partition, part.format, part.bucket))
    for _, alike in groupby(parts, key=lambda part: (part.partition, part.format)):
        group: list[_Part] = []
        for part in alike:
            group.append(part)
            if sum(each.size for each in group) >= target:
                yield group
                group = []
        yield group


def _read_at_once(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    read: list[_Part] = []
    size = 0
    for part in parts:
        if read and size + part.size > _READ_BYTES:
            yield read
            read, size = [], 0
        read.append(part)
        size += part.size
    yield read


class _Merging:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: list[str] = []
        self._parts: list[_Part] = []
        self._renamed: dict[str, DataFileMeta] = {}

    def merge(self, parts: Sequence[_Part]) -> None:
        if len(parts) < 2:
            return
        first, unique, offset = parts[0], uuid4(), 0
        for part in parts:
            # The first part bears the name of the real file, the others name their range of it.
            within = (offset, part.size) if offset else None
            name = merged_changelog_name(unique, first.bucket, first.size, first.format, within)
            outside = first.file.external_path is not None
            path = f"{(first if outside else part).path.rpartition('/')[0]}/{name}"
            self._renamed[part.file.file_name] = replace(
                part.file, file_name=name, external_path=path if outside else None, file_path=path
            )
            offset += part.size
        self._write(str(self._renamed[first.file.file_name].file_path), parts)
        self._parts += parts

    def renamed(self, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        return [self._renamed.get(file.file_name, file) for file in files]

    def undo(self) -> None:
        self._delete(self._made)

    def delete_parts(self) -> None:
        self._delete([part.path for part in self._parts])

    def _write(self, path: str, parts: Sequence[_Part]) -> None:
        self._made.append(path)
        try:
            stream = self._store.open_new(path)
            try:
                for data in self._contents(parts):
                    stream.write(data)
            except BaseException:
                # Closing an object would publish what has been written so far.
                end = stream.abandon if isinstance(stream, NewObject) else stream.close
                end()
                raise
            stream.close()
        except OSError as error:
            raise translated(path, error) from error

    def _contents(self, parts: Sequence[_Part]) -> Iterator[bytes]:
        for read in _read_at_once(parts):
            for part, data in zip(read, self._store.read_many([part.path for part in read]), strict=True):
                if data is None or len(data) != part.size:
                    raise StoreError(f"{part.path} is missing or was changed since it was written.")
                yield data

    def _delete(self, paths: Sequence[str]) -> None:
        begun = [self._store.begin_delete(path) for path in paths]
        for each in begun:
            # No snapshot names them, so that what is left is an orphan at worst.
            with suppress(PaimonStreamError, OSError):
                each()
