"""`FilePrefetcher`: fetches the data files of splits, and of the plans after them, before they are read.

`ReadPieces` says what is fetched, `FilePrefetcher` when. Both must agree with the reader (`split_reader`, `file_rows`):
what is fetched and not read is wasted, what is read and not fetched is one more round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING
from weakref import WeakSet

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.files.blob_files import index_pieces
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import RowIdGroup, row_id_groups
from pypaimon.streaming.formats.registry import FORMATS
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Lane, Piece
from pypaimon.streaming.io.remote_files import WHOLE_BYTES, is_read_whole
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.io.shared_fetches import SharedFetches
from pypaimon.streaming.metadata.file_paths import ByteRange, SpelledPath, merged_changelog_range
from pypaimon.streaming.model.plan import SplitMode, StreamSplit, last_split, next_plans
from pypaimon.streaming.paimon.internals import DataFileMeta, TableSchema
from pypaimon.streaming.reading.file_rows import blob_fields, files_joined
from pypaimon.streaming.reading.read_layout import ReadLayout, schema_key
from pypaimon.streaming.reading.split_files import deletion_files

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory


@dataclass(frozen=True, slots=True)
class ReadPieces:
    """Lists the pieces of a table's files that a read will surely take, in its order. Sends no requests.

    It leaves out files that an index may rule out, files that hold no column of rows that are joined by their ids, and
    large files, which their reader requests.
    """

    directory: TableDirectory
    index_blocks: IndexBlocks
    layouts: Mapping[tuple[int, int], ReadLayout]
    schema: TableSchema
    filtered: bool

    def know_schemas(self, splits: Sequence[StreamSplit]) -> None:
        """Load the schemas of files that are joined by row id. Errors are raised when the files are read."""
        ids = {file.schema_id for split in splits if split.mode is SplitMode.EVOLUTION for file in split.files}
        with suppress(PaimonStreamError, OSError), asked_ahead():
            for schema_id in ids:
                self.directory.schema(schema_id)

    def of(self, splits: Sequence[StreamSplit]) -> Iterator[Piece]:
        vectors = PlanVectors(self.index_blocks, deletion_files(splits))
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
        schema = split.schema or self.schema
        layout = self.layouts.get(schema_key(schema))
        for group in row_id_groups(split.files):
            if self.filtered and any(map(_is_indexed, group.files)):
                continue
            if layout is None:
                yield from (_whole(file) for file in group.files if len(group.files) == 1 and self._is_fetched(file))
                continue
            # Without its schema it is unknown whether a file is read.
            with suppress(LookupError):
                yield from self._of_group(group, layout)

    def _of_group(self, group: RowIdGroup, layout: ReadLayout) -> Iterator[Piece]:
        for file in files_joined(group, layout, self.directory.known_schema):
            if self._is_fetched(file):
                yield _whole(file)
        for field in blob_fields(layout):
            for piece in index_pieces(
                field, group.first_row_id, group.row_count, group.blob_files, self.directory.known_schema
            ):
                if not is_local(piece.path):
                    yield piece

    def _is_fetched(self, file: DataFileMeta) -> bool:
        path = str(file.file_path)
        known = path.rpartition(".")[2].lower() in FORMATS
        plain = known and not (is_local(path) or isinstance(file.file_path, SpelledPath))
        return plain and not (self.filtered and _is_indexed(file)) and is_read_whole(file.file_size)


def _whole(file: DataFileMeta) -> Piece:
    return Piece(str(file.file_path), None, file.file_size)


def _is_indexed(file: DataFileMeta) -> bool:
    return file.embedded_index is not None or bool(file.extra_files)


def _merged_changelogs(splits: Sequence[StreamSplit]) -> dict[str, Piece]:
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


_MOST_PLANS = 64
"""Plans after the one that is read whose files are prefetched. There is no room for more."""


class FilePrefetcher:
    """Has the store of a reader fetch the pieces of files that it will read, in their order.

    Prefetches nothing from a local disk.
    """

    def __init__(self, directory: TableDirectory, pieces: ReadPieces) -> None:
        self._store = directory.store
        self._begin = SharedFetches(directory.store).begin
        self._pieces = pieces
        self._is_local = is_local(str(directory.table.table_path))
        self._lock = ForkSafeLock()
        # By the last split of a plan: the lane and the number of splits of plans not read yet, and the plans begun.
        self._following: dict[StreamSplit, tuple[Lane, int]] = {}
        self._begun: WeakSet[StreamSplit] = WeakSet()
        # The lane of a plan whose last split was read alone, for its splits that are read after that.
        self._others: Lane | None = None
        self._rank = 0

    @contextmanager
    def reading(self, splits: Sequence[StreamSplit]) -> Iterator[None]:
        """A context in which these splits are read, one after the other. At its end the unread bytes are dropped.

        If the last split ends its plan, the files of the plans made after it follow.
        """
        if self._is_local or not splits:
            yield
            return
        self._pieces.know_schemas(splits)
        lane = self._begin_reading(splits)
        try:
            yield
        finally:
            lane.close()
            with self._lock.held:
                if self._others is not None and self._others.is_done():
                    self._leave_others()

    def close(self) -> None:
        """Drop everything that is being fetched. The object may be used again."""
        with self._lock.held:
            self._following.clear()
            self._others = None
            self._store.ahead.close()

    def _begin_reading(self, splits: Sequence[StreamSplit]) -> Lane:
        last = splits[-1]
        with self._lock.held:
            self._begun.add(last)
            expected, count = self._following.pop(last, (None, 0))
            is_whole = expected is None or len(splits) >= count
            lane = expected if expected is not None and is_whole else self._store.ahead.lane(self._begin, 0)
            lane.rank = 0
            lane.expect(self._pieces.of(splits))
            plans = {last_split(plan): plan for plan in islice(next_plans(last), _MOST_PLANS)}
            # A caller that reads a plan in pieces reaches the next plans with the last piece. Until then keep all.
            if plans or expected:
                self._leave_others()
                for stale in self._following.keys() - plans.keys():
                    self._following.pop(stale)[0].close()
            if not is_whole:
                self._others = expected
            for end, plan in plans.items():
                if end is not None and end not in self._following and end not in self._begun:
                    self._rank += 1
                    self._following[end] = self._store.ahead.lane(self._begin, self._rank), len(plan.splits())
                    self._following[end][0].expect(self._pieces.of(plan.splits()))
        return lane

    def _leave_others(self) -> None:
        if self._others is not None:
            self._others.close()
            self._others = None
