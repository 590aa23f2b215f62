"""`ReadPieces`: the pieces of files that a read of splits will surely take, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.files.blob_files import index_pieces
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import RowIdGroup, row_id_groups
from pypaimon.streaming.formats.registry import FORMATS
from pypaimon.streaming.internals import DataFileMeta, TableSchema
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.io.remote_files import WHOLE_BYTES, is_read_whole
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.metadata.file_paths import ByteRange, SpelledPath, merged_changelog_range
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.reading.joined_rows import blob_fields, files_joined
from pypaimon.streaming.reading.read_layout import Layout
from pypaimon.streaming.reading.split_files import deletion_files

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory


class ReadPieces:
    """Tells pieces of a table's files, without a request.

    Of files that are surely read: none that an index may rule out, and of rows that are joined by their ids only those
    that hold a column of theirs. Large files are asked for by who reads them.

    Args:
        directory: The table.
        index_blocks: Index files of deletion vectors.
        layouts: What is read of each schema that is known, by `schema_key`.
        schema: The schema of splits that have none of their own.
        filtered: Whether rows are filtered, so that an index may rule out files.
    """

    def __init__(
        self,
        directory: TableDirectory,
        index_blocks: IndexBlocks,
        layouts: Mapping[tuple[int, int], Layout],
        schema: TableSchema,
        *,
        filtered: bool,
    ) -> None:
        self._directory = directory
        self._index_blocks = index_blocks
        self._layouts = layouts
        self._schema = schema
        self._filtered = filtered

    def know_schemas(self, splits: Sequence[StreamSplit]) -> None:
        """Have schemas at hand by which joined files tell what they hold; what is wrong is told when they are read."""
        ids = {file.schema_id for split in splits if split.mode is SplitMode.EVOLUTION for file in split.files}
        with suppress(PaimonStreamError, OSError), asked_ahead():
            for schema_id in ids:
                self._directory.schema(schema_id)

    def of(self, splits: Sequence[StreamSplit]) -> Iterator[Piece]:
        """The pieces of some splits, which are read one after the other."""
        vectors = PlanVectors(self._index_blocks, deletion_files(splits))
        merged = _merged_changelogs(splits)
        for split in splits:
            yield from vectors.missing(deletion_files([split]))
            if split.mode is SplitMode.EVOLUTION:
                yield from self._joined(split)
                continue
            for file in (*split.before_files, *split.files):
                piece = merged.get(str(file.file_path))
                if piece is not None:
                    yield piece
                elif self._is_fetched(file):
                    yield _whole(file)

    def _joined(self, split: StreamSplit) -> Iterator[Piece]:
        schema = split.schema or self._schema
        layout = self._layouts.get(schema_key(schema))
        for group in row_id_groups(split.files):
            if self._filtered and any(map(_is_indexed, group.files)):
                continue
            if layout is None:
                yield from (_whole(file) for file in group.files if len(group.files) == 1 and self._is_fetched(file))
                continue
            # Without a schema nobody knows yet which of the files are read.
            with suppress(LookupError):
                yield from self._of_group(group, layout)

    def _of_group(self, group: RowIdGroup, layout: Layout) -> Iterator[Piece]:
        for file in files_joined(group, layout, self._directory.known_schema):
            if self._is_fetched(file):
                yield _whole(file)
        for field in blob_fields(layout):
            for piece in index_pieces(
                field, group.first_row_id, group.row_count, group.blob_files, self._directory.known_schema
            ):
                if not is_local(piece.path):
                    yield piece

    def _is_fetched(self, file: DataFileMeta) -> bool:
        path = str(file.file_path)
        known = path.rpartition(".")[2].lower() in FORMATS
        plain = known and not (is_local(path) or isinstance(file.file_path, SpelledPath))
        return plain and not (self._filtered and _is_indexed(file)) and is_read_whole(file.file_size)


def schema_key(schema: TableSchema) -> tuple[int, int]:
    """Tells schemas apart, also those that got the same id before and after a rollback."""
    return schema.id, schema.time_millis


def _whole(file: DataFileMeta) -> Piece:
    return Piece(str(file.file_path), None, file.file_size)


def _is_indexed(file: DataFileMeta) -> bool:
    return file.embedded_index is not None or bool(file.extra_files)


def _merged_changelogs(splits: Sequence[StreamSplit]) -> dict[str, Piece]:
    """Small parts of merged changelog files, by their paths; those that lie side by side come by one request."""
    parts: dict[str, ByteRange] = {}
    for split in splits:
        if split.mode is SplitMode.CHANGELOG:
            for path in (str(file.file_path) for file in split.files):
                part = merged_changelog_range(path)
                if part is not None and is_read_whole(part.length) and not is_local(part.path):
                    parts[path] = part
    found: dict[str, Piece] = {}
    ordered = sorted(parts.items(), key=lambda each: (each[1].path, each[1].offset))
    for _, of_file in groupby(ordered, key=lambda each: each[1].path):
        for group in _side_by_side(list(of_file)):
            first, last = group[0][1], group[-1][1]
            whole = Piece(first.path, first.offset, last.offset + last.length - first.offset)
            within = whole if len(group) > 1 else None
            found |= {path: Piece(part.path, part.offset, part.length, within) for path, part in group}
    return found


def _side_by_side(ordered: Sequence[tuple[str, ByteRange]]) -> Iterator[list[tuple[str, ByteRange]]]:
    """Parts of one file that follow each other, no more than one request brings."""
    group: list[tuple[str, ByteRange]] = []
    for path, part in ordered:
        if group:
            first, last = group[0][1], group[-1][1]
            if part.offset != last.offset + last.length or part.offset + part.length - first.offset > WHOLE_BYTES:
                yield group
                group = []
        group.append((path, part))
    if group:
        yield group
