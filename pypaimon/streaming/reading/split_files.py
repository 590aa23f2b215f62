"""The files of a split, each with its deletion vector, and the values of their partition."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from pypaimon.streaming.internals import DataFileMeta, DeletionFile, PyarrowFieldParser, TableSchema
from pypaimon.streaming.model.plan import BranchFiles, StreamSplit


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """Files of one bucket.

    Attributes:
        files: Each with what says which of its rows are deleted.
        constants: The values of the partition columns.
        of_branch: Those that are of another branch; None: none is.
    """

    files: Sequence[tuple[DataFileMeta, DeletionFile | None]]
    constants: Mapping[str, pa.Scalar]
    of_branch: BranchFiles | None = None

    @property
    def metas(self) -> list[DataFileMeta]:
        """The files alone."""
        return [file for file, _ in self.files]

    def by_directory(self) -> list[list[DataFileMeta]]:
        """The files alone, those of one directory after those of the one before."""
        directories = groupby(self.metas, lambda file: posixpath.dirname(str(file.file_path)))
        return [list(members) for _, members in directories]

    def branch(self, file: DataFileMeta) -> str | None:
        """The name of the branch that a file is of, if that is another one."""
        other = self.of_branch
        return other.branch if other is not None and file.file_name in other.names else None

    @staticmethod
    def of(split: StreamSplit, schema: TableSchema) -> SplitFiles:
        """The files of a split."""
        return _with_deletions(split.files, split.data_deletion_files, split, schema)

    @staticmethod
    def before(split: StreamSplit, schema: TableSchema) -> SplitFiles:
        """Those whose rows are retracted."""
        return _with_deletions(split.before_files, split.before_deletion_files, split, schema)


def partition_values(split: StreamSplit, schema: TableSchema) -> dict[str, pa.Scalar]:
    """The partition columns that need not be read, as in Java; those finer than what pypaimon's rows hold are."""
    fields = {field.name: field for field in schema.fields}
    values = {}
    for name, value in zip(schema.partition_keys, split.partition.values, strict=False):
        kind = PyarrowFieldParser.from_paimon_type(fields[name].type)
        if not (pa.types.is_timestamp(kind) and kind.unit == "ns"):
            values[name] = pa.scalar(value, kind)
    return values


def deletion_files(splits: Iterable[StreamSplit]) -> Iterator[DeletionFile | None]:
    """Where all deletion vectors of some splits are."""
    for split in splits:
        yield from split.data_deletion_files or ()
        yield from split.before_deletion_files or ()


def _with_deletions(
    files: Sequence[DataFileMeta],
    deletions: Sequence[DeletionFile | None] | None,
    split: StreamSplit,
    schema: TableSchema,
) -> SplitFiles:
    both = zip(files, deletions or [None] * len(files), strict=True)
    return SplitFiles(list(both), partition_values(split, schema), split.of_branch)
