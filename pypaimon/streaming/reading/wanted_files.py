"""Which files of a split are read: not those whose indexes rule out every row."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.reading.read_layout import Layout

if TYPE_CHECKING:
    from pypaimon.streaming.files.index_files import FileIndexes
    from pypaimon.streaming.files.row_id_groups import RowIdGroup
    from pypaimon.streaming.filter_internals import Predicate
    from pypaimon.streaming.metadata.table_directory import TableDirectory


class WantedFiles:
    """Asks the indexes of files that are read one by one, record by record.

    Where versions of a key are merged a file may hold the newest one, which hides another: those are not asked about.

    Args:
        directory: The table.
        layout: What is read.
        unmatched: What becomes of records of an upsert stream that do not match.
    """

    def __init__(self, directory: TableDirectory, layout: Layout, unmatched: Unmatched) -> None:
        self._directory = directory
        self._layout = layout
        self._drops = unmatched is Unmatched.DROP
        self._enabled = OptionValues(layout.schema.options).boolean("file-index.read.enabled", True)

    def wants(self, file: DataFileMeta, *, upserts: bool) -> bool:
        """Whether a file can hold a record that comes out.

        Args:
            file: The file.
            upserts: Whether its records replace what was there, so that one that does not match comes out as a delete.
        """
        if not self._enabled or (file.embedded_index is None and not file.extra_files):
            return True
        indexes = self._on_keys if upserts and not self._drops else self._on_all
        return indexes is None or indexes.may_match(file)

    def wants_group(self, group: RowIdGroup) -> bool:
        """Whether rows of files that are joined can come out."""
        if len(group.files) == 1:
            return self.wants(group.files[0], upserts=False)
        indexed = any(file.embedded_index is not None or file.extra_files for file in group.files)
        return not (self._enabled and indexed) or self._on_all is None or self._on_all.group_may_match(group)

    @cached_property
    def _on_keys(self) -> FileIndexes | None:
        return self._indexes(self._layout.on_keys)

    @cached_property
    def _on_all(self) -> FileIndexes | None:
        return self._indexes(self._layout.predicate)

    def _indexes(self, predicate: Predicate | None) -> FileIndexes | None:
        if predicate is None:
            return None
        # Late: pyroaring takes a while, and few tables have indexes.
        from pypaimon.streaming.files.index_files import FileIndexes

        return FileIndexes(self._directory, self._layout.schema, predicate)
