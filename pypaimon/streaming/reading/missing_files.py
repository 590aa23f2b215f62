"""Why a file of a split is missing."""

from __future__ import annotations

import posixpath

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.options.table_traits import TableTraits


def missing_file_error(
    directory: TableDirectory, schema: TableSchema, split: StreamSplit, error: FileNotFoundError
) -> PaimonStreamError:
    """The error that says why a file of a split is missing.

    Args:
        directory: The table.
        schema: That of the split.
        split: What was read.
        error: Names the file.
    """
    path = str(error.filename or "")
    other = split.of_branch
    if other is not None and posixpath.basename(path) in other.names:
        checks = RangeCheck(directory.of_branch(other.branch), with_changelogs=False)
        return checks.missing_file(other.snapshot_id, error, other.fingerprint)
    checks = RangeCheck(directory, TableTraits.of(schema).decoupled_changelog)
    needed_by = split.needed_by(path)
    fingerprint = split.fingerprint if needed_by == split.snapshot_id else None
    return checks.missing_file(needed_by, error, fingerprint, changelog=split.mode is SplitMode.CHANGELOG)
