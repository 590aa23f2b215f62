"""File indexes, embedded or in files of their own (`.index`), of data files that are about to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import CorruptTableError, StoreError
from pypaimon.streaming.files.data_files import located
from pypaimon.streaming.files.row_id_groups import RowIdGroup, owners
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.filtering.index_filter import IndexFilter, embedded_may_match, warn_of_unused
from pypaimon.streaming.indexes.container import INDEX_FILE, IndexPart, head_length, index_parts
from pypaimon.streaming.indexes.file_index import indexed_columns
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.paimon.internals import DataFileMeta, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.paimon.filter_internals import Predicate

_FIRST_BYTES = 1 << 20
"""Bytes of an index file to read first; most files are not larger."""

_MOST_BYTES = 16 << 20
"""Largest index of one column, or head, that is read: beyond it the data file costs less."""


class FileIndexes:
    """Which data files can hold a row that matches a filter, by their indexes.

    A file whose index is missing, damaged or of another version is kept, with a warning. An index file is read only if
    it has a column of the filter by the table's options, and only as far as needed.

    Args:
        predicate: The filter; names are those of `read`.
    """

    def __init__(self, directory: TableDirectory, read: TableSchema, predicate: Predicate) -> None:
        self._directory = directory
        self._read = read
        self._predicate = predicate
        self._known: dict[tuple[int, frozenset[str] | None], tuple[IndexFilter, bool]] = {}

    def group_may_match(self, group: RowIdGroup) -> bool:
        """Whether rows whose columns are in several files can match: every file must have a matching row.

        For each file only the columns that are read from it count: newer files have replaced the others.
        """
        looked_at = columns_of(self._predicate)
        fields = [field for field in self._read.fields if field.name in looked_at]
        return all(
            self.may_match(file, frozenset(field.name for field in owned))
            for file, owned in owners(group, fields, self._directory.schema)
        )

    def may_match(self, file: DataFileMeta, only: frozenset[str] | None = None) -> bool:
        """Whether a file can hold a matching row. Needs a request if it has an index file for a column of the filter.
        `only`: the columns that are read from the file; None: all.
        """
        names = [name for name in file.extra_files or () if name.endswith(INDEX_FILE)]
        if file.embedded_index is None and not names:
            return True
        found, in_files = self._filter(file.schema_id, only)
        if file.embedded_index is not None:
            return not found.columns or embedded_may_match(found, file.embedded_index, file.file_name, file.row_count)
        if not in_files:
            return True
        try:
            return self._by_index_file(found, file, names)
        except (FileNotFoundError, CorruptTableError, StoreError, ValueError) as error:
            warn_of_unused(file.file_name, error)
            return True

    def _filter(self, schema_id: int, only: frozenset[str] | None) -> tuple[IndexFilter, bool]:
        """The filter for files of a schema, and whether index files may have columns of it."""
        known = self._known.get((schema_id, only))
        if known is None:
            written = self._read if schema_id == self._read.id else self._directory.schema(schema_id)
            found = IndexFilter(self._predicate, written, self._read, only)
            known = self._known[schema_id, only] = found, not found.columns.isdisjoint(_indexed(written, self._read))
        return known

    def _by_index_file(self, found: IndexFilter, file: DataFileMeta, names: list[str]) -> bool:
        if len(names) > 1 or "/" in names[0]:
            raise ValueError(f"its index files are {', '.join(names)}; only one, next to the data file, is supported")
        path = f"{located(self._directory, file.file_path).rpartition('/')[0]}/{names[0]}"
        with closing(RemoteFile(self._directory.store, path)) as remote:

            def content(start: int, length: int) -> bytes:
                remote.seek(start)
                data = bytes(remote.read(length))
                if len(data) != length:
                    raise ValueError(f"it ends before byte {start + length}")
                return data

            begin = bytes(remote.read(_FIRST_BYTES))
            length = head_length(begin)
            if length > _MOST_BYTES:
                raise ValueError(f"its head has {length} bytes")
            head = begin if length <= len(begin) else content(0, length)
            return found.may_match(index_parts(head), _within(begin, content), file.row_count)


def _within(begin: bytes, content: Callable[[int, int], bytes]) -> Callable[[IndexPart], bytes | None]:
    """Returns indexes from the first bytes of a file, or from the rest of it; None for those that are too large."""

    def part_of(part: IndexPart) -> bytes | None:
        end = part.start + part.length
        if part.start < 0:
            raise ValueError(f"an index cannot begin at byte {part.start}")
        if end <= len(begin):
            return begin[part.start : end]
        return None if part.length > _MOST_BYTES else content(part.start, part.length)

    return part_of


def _indexed(written: TableSchema, read: TableSchema) -> Iterator[str]:
    yield from (each.column for each in indexed_columns(written.options))
    stored = {field.id: field.name for field in written.fields}
    ids = {field.name: field.id for field in read.fields}
    # An index may have been made later, by newer options.
    for name in (each.column for each in indexed_columns(read.options)):
        if name in ids and ids[name] in stored:
            yield stored[ids[name]]
