"""`SplitFiles`: the files of a split with their deletion vectors; the order of splits; errors for missing files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import BranchFiles, SplitMode, StreamSplit
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import DataFileMeta, DeletionFile, PyarrowFieldParser, TableSchema


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """Files of one bucket."""

    files: Sequence[tuple[DataFileMeta, DeletionFile | None]]  # Each file with its deletion file, or None
    constants: Mapping[str, pa.Scalar]
    of_branch: BranchFiles | None = None  # The files that belong to another branch, or None

    @property
    def metas(self) -> list[DataFileMeta]:
        """The data files alone, whether or not they have a deletion file."""
        return [file for file, _ in self.files]

    def by_directory(self) -> list[list[DataFileMeta]]:
        """The files grouped by directory, in order."""
        directories = groupby(self.metas, lambda file: posixpath.dirname(str(file.file_path)))
        return [list(members) for _, members in directories]

    def branch(self, file: DataFileMeta) -> str | None:
        other = self.of_branch
        return other.branch if other is not None and file.file_name in other.names else None

    @staticmethod
    def of(split: StreamSplit, schema: TableSchema) -> SplitFiles:
        return _with_deletions(split.files, split.data_deletion_files, split, schema)

    @staticmethod
    def before(split: StreamSplit, schema: TableSchema) -> SplitFiles:
        """The files of a split whose rows are retracted."""
        return _with_deletions(split.before_files, split.before_deletion_files, split, schema)


def partition_values(split: StreamSplit, schema: TableSchema) -> dict[str, pa.Scalar]:
    """The values of partition columns, which are not read from files, as in Java.

    Timestamps finer than microseconds are left out, because pypaimon's rows do not hold them.
    """
    fields = {field.name: field for field in schema.fields}
    values = {}
    for name, value in zip(schema.partition_keys, split.partition.values, strict=False):
        kind = PyarrowFieldParser.from_paimon_type(fields[name].type)
        if not (pa.types.is_timestamp(kind) and kind.unit == "ns"):
            values[name] = pa.scalar(value, kind)
    return values


def deletion_files(splits: Iterable[StreamSplit]) -> Iterator[DeletionFile | None]:
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


def in_reading_order(splits: Sequence[StreamSplit]) -> Sequence[StreamSplit]:
    """The splits in the order to read them. An OVERWRITE that may move keys to other buckets is retracted first.

    Bucket by bucket, a key would be retracted from one bucket after it was inserted in another.
    """
    if not any(_retracts(split) for split in splits):
        return splits
    of_snapshots = (list(group) for _, group in groupby(splits, lambda split: (split.mode, split.snapshot_id)))
    return [split for group in of_snapshots for split in _retracted_first(group)]


def _retracts(split: StreamSplit) -> bool:
    return split.keys_move and split.retracts


def _retracted_first(splits: list[StreamSplit]) -> Iterator[StreamSplit]:
    retracting = [split for split in splits if _retracts(split)]
    yield from (split.without_files() for split in retracting)
    for split in splits:
        yield split.without_before_files() if _retracts(split) else split


def missing_file_error(
    directory: TableDirectory, schema: TableSchema, split: StreamSplit, error: FileNotFoundError
) -> PaimonStreamError:
    path = str(error.filename or "")
    other = split.of_branch
    if other is not None and posixpath.basename(path) in other.names:
        checks = SnapshotRangeValidator(directory.of_branch(other.branch), with_changelogs=False)
        return checks.missing_file(other.snapshot_id, error, other.fingerprint)
    checks = SnapshotRangeValidator(directory, TableTraits.of(schema).decoupled_changelog)
    needed_by = split.needed_by(path)
    fingerprint = split.fingerprint if needed_by == split.snapshot_id else None
    return checks.missing_file(needed_by, error, fingerprint, changelog=split.mode is SplitMode.CHANGELOG)
