"""`FileRows`: the rows of one data file that are not deleted, or nothing where a table may do without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.files.deletion_vectors import DeletionVector, PlanVectors
from pypaimon.streaming.internals import DataField, DataFileMeta, DeletionFile
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.reading.read_layout import Layout
from pypaimon.streaming.reading.snapshot_ordering import numbered_by_snapshot
from pypaimon.streaming.reading.split_files import SplitFiles

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_LOG = StreamLog(__name__)


class FileRows:
    """Reads data files of a table.

    Args:
        directory: The table.
        layout: The schema that is read, and the options of the table.
        batch_size: Rows per batch, at most.
        vectors: The deletion vectors of all files that are read.
    """

    def __init__(self, directory: TableDirectory, layout: Layout, batch_size: int, vectors: PlanVectors) -> None:
        self._directory = directory
        self._schema_id = layout.schema.id
        self._batch_size = batch_size
        self._vectors = vectors
        self._by_snapshot = layout.traits.primary_key and layout.traits.snapshot_ordering
        options = OptionValues(layout.schema.options)
        self._ignore_lost = options.boolean("scan.ignore-lost-files", False)
        self._ignore_corrupt = options.boolean("scan.ignore-corrupt-files", False)

    def of(
        self,
        file: DataFileMeta,
        deletions: DeletionFile | None,
        fields: Sequence[DataField],
        system_columns: Sequence[str],
        constants: Mapping[str, pa.Scalar],
        batch_size: int | None = None,
        directory: TableDirectory | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted; `directory` is that of its branch."""
        by_snapshot = self._by_snapshot and SEQUENCE_NUMBER in system_columns
        # A schema that is missing or damaged is no file that may be passed over.
        (directory or self._directory).schema(file.schema_id)
        try:
            vector = self.vector(deletions, file.row_count)
            position = 0
            for batch in read_file(
                directory or self._directory,
                file,
                fields,
                schema_id=self._schema_id,
                system_columns=system_columns,
                batch_size=batch_size or self._batch_size,
                constants=constants,
            ):
                kept = batch if vector is None else batch.filter(vector.keep_mask(position, batch.num_rows))
                yield numbered_by_snapshot(file, kept) if by_snapshot else kept
                position += batch.num_rows
        except FileNotFoundError as error:
            if not self._ignore_lost:
                raise
            _skipped("a data file", file, "scan.ignore-lost-files", error)
        except CorruptTableError as error:
            if not self._ignore_corrupt:
                raise
            _skipped("what is left of a data file", file, "scan.ignore-corrupt-files", error)

    def directory_of(self, files: SplitFiles, file: DataFileMeta) -> TableDirectory:
        """The directory of the branch that a file is of."""
        branch = files.branch(file)
        return self._directory if branch is None else self._directory.of_branch(branch)

    def vector(self, deletions: DeletionFile | None, row_count: int) -> DeletionVector | None:
        """The rows of a file that are deleted; None if none is."""
        return None if deletions is None else self._vectors.read(deletions, row_count)

    def load(self, files: SplitFiles) -> None:
        """Have the schemas and the deletion vectors of files at hand, before several threads ask for them."""
        for file in {(files.branch(file), file.schema_id): file for file in files.metas}.values():
            self.directory_of(files, file).schema(file.schema_id)
        self._vectors.load(deletions for _, deletions in files.files)


def _skipped(what: str, file: DataFileMeta, option: str, error: Exception) -> None:
    text = f"skipping {what}, as %(option)s asks: %(error)s"
    _LOG.warning("file_skipped", text, file=file.file_name, option=option, error=str(error))
