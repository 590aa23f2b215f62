"""`FilesAhead`: the data files of splits, and of the plans behind them, on their way before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.files.index_blocks import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.formats.file_source import SCHEMALESS_SOURCES, SOURCES
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Lane, Piece
from pypaimon.streaming.io.remote_files import begin_fetch, is_read_whole
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.model.plan import SplitMode, StreamSplit, last_split, plans_behind
from pypaimon.streaming.reading.split_files import deletion_files

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory


class FilesAhead:
    """Tells the store of a reader which small data files it will read, in their order.

    Only files that are surely read whole are fetched: none that an index may rule out, and of rows that are joined by
    their ids only those that are not joined. Where the table lies on a local disk nothing is.

    Args:
        directory: The table.
        index_blocks: Index files of deletion vectors, which are fetched too.
        filtered: Whether rows are filtered, so that an index may rule out files.
    """

    def __init__(self, directory: TableDirectory, index_blocks: IndexBlocks, *, filtered: bool) -> None:
        self._store = directory.store
        self._begin = partial(begin_fetch, directory.store)
        self._index_blocks = index_blocks
        self._filtered = filtered
        self._is_local = is_local(str(directory.table.table_path))
        self._lock = ForkSafeLock()
        # Lanes of plans that were not read yet, with their splits, and plans that were begun, each by its last split.
        self._behind: dict[StreamSplit, tuple[Lane, int]] = {}
        self._begun: WeakSet[StreamSplit] = WeakSet()
        # That of a plan whose last split was begun alone, for the splits that are read after it.
        self._others: Lane | None = None
        self._rank = 0

    @contextmanager
    def reading(self, splits: Sequence[StreamSplit]) -> Iterator[None]:
        """Within, these splits are read, one after the other; what of their files was not read is let go behind.

        If the last one ends its plan, files of the plans behind it that are made by then follow.
        """
        if self._is_local or not splits:
            yield
            return
        lane = self._begin_reading(splits)
        try:
            yield
        finally:
            lane.close()
            with self._lock.held:
                if self._others is not None and self._others.is_done():
                    self._leave_others()

    def close(self) -> None:
        """Let go of everything that is on its way; may be used again."""
        with self._lock.held:
            self._behind.clear()
            self._others = None
            self._store.ahead.close()

    def _begin_reading(self, splits: Sequence[StreamSplit]) -> Lane:
        last = splits[-1]
        with self._lock.held:
            self._begun.add(last)
            expected, count = self._behind.pop(last, (None, 0))
            is_whole = expected is None or len(splits) >= count
            lane = expected if expected is not None and is_whole else self._store.ahead.lane(self._begin, 0)
            lane.rank = 0
            lane.expect(self._pieces(splits))
            plans = {last_split(plan): plan for plan in plans_behind(last)}
            # Who reads a plan in pieces knows what is behind it with the last of them; until then all stays as it is.
            if plans or expected:
                self._leave_others()
                for gone in self._behind.keys() - plans.keys():
                    self._behind.pop(gone)[0].close()
            if not is_whole:
                self._others = expected
            for end, plan in plans.items():
                if end is not None and end not in self._behind and end not in self._begun:
                    self._rank += 1
                    self._behind[end] = self._store.ahead.lane(self._begin, self._rank), len(plan.splits())
                    self._behind[end][0].expect(self._pieces(plan.splits()))
        return lane

    def _leave_others(self) -> None:
        if self._others is not None:
            self._others.close()
            self._others = None

    def _pieces(self, splits: Sequence[StreamSplit]) -> Iterator[Piece]:
        vectors = PlanVectors(self._index_blocks, deletion_files(splits))
        for split in splits:
            yield from vectors.missing(deletion_files([split]))
            for file in _files(split):
                path = str(file.file_path)
                if self._is_fetched(file, path):
                    yield Piece(path, None, file.file_size)

    def _is_fetched(self, file: DataFileMeta, path: str) -> bool:
        may_be_left_out = self._filtered and (file.embedded_index is not None or bool(file.extra_files))
        known = path.rpartition(".")[2].lower() in _FORMATS
        plain = known and not (is_local(path) or isinstance(file.file_path, SpelledPath))
        return plain and not may_be_left_out and is_read_whole(file.file_size)


_FORMATS = frozenset([*SOURCES, *SCHEMALESS_SOURCES])
"""Of data files that lie in files of their own: merged changelogs, blobs and vectors are read in parts."""


def _files(split: StreamSplit) -> Iterator[DataFileMeta]:
    """The files of a split that are read whole, in the order in which they are, roughly."""
    if split.mode is SplitMode.EVOLUTION:
        for group in row_id_groups(split.files):
            if len(group.files) == 1 and not group.blob_files:
                yield group.files[0]
        return
    yield from split.before_files
    yield from split.files
