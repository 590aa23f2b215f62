"""Numbers that files get when they are committed, since they depend on the snapshot: sequence numbers and row ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.blob_files import BLOB_FILE
from pypaimon.streaming.files.row_id_groups import VECTOR_FILE
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.writing.commit.file_changes import Changes, FileChange

_APPENDED = 0
_ROW_ID = "_ROW_ID"


def with_snapshot_order(changes: Changes, snapshot_id: int) -> Changes:
    """The same with the snapshot as the sequence number of all rows that come (`sequence.snapshot-ordering`)."""
    numbers = {"_MIN_SEQUENCE_NUMBER": snapshot_id, "_MAX_SEQUENCE_NUMBER": snapshot_id}
    return replace(changes, files=tuple(_if_added(each, numbers) for each in changes.files))


def with_row_ids(changes: Changes, snapshot_id: int, next_row_id: int, *, grouped: bool) -> tuple[Changes, int]:
    """The same as a table with row tracking has it, and the first row id that is free then.

    A file whose sequence numbers are not set gets the snapshot's; rows that are new get the ids that follow.

    Args:
        changes: What is to be committed.
        snapshot_id: By this snapshot.
        next_row_id: The first row id that is free.
        grouped: Whether ids are given partition by partition.

    Raises:
        UnsupportedTableError: A file that holds columns apart from their rows does not follow the file of those.
    """
    deleted = [each for each in changes.files if each.kind == EntryKind.DELETE]
    added = changes.added
    if grouped:
        order: dict[bytes, int] = {}
        for each in added:
            order.setdefault(each.partition, len(order))
        added.sort(key=lambda each: order[each.partition])
    numbered, next_row_id = _with_row_ids([_numbered(each, snapshot_id) for each in added], next_row_id)
    return replace(changes, files=(*deleted, *numbered)), next_row_id


def _with_row_ids(added: Sequence[FileChange], first: int) -> tuple[list[FileChange], int]:
    found = []
    # Files of blobs and vectors follow the file of their rows, and have its ids: those of one column after the other.
    rows, apart = first, dict[str, int]()
    for each in added:
        file = each.file
        explicit = _ROW_ID in (file["_WRITE_COLS"] or ())
        if file["_FILE_SOURCE"] == _APPENDED and file["_FIRST_ROW_ID"] is None and not explicit:
            count = int(file["_ROW_COUNT"])
            column = _column_apart(each)
            start = first if column is None else apart.get(column, rows)
            each = each.with_values({"_FIRST_ROW_ID": start})
            if column is None:
                rows, apart, first = first, {}, first + count
            elif start + count > first:
                raise UnsupportedTableError(f"File {each.name} holds columns of rows that do not come with it")
            else:
                apart[column] = start + count
        found.append(each)
    return found, first


def _column_apart(each: FileChange) -> str | None:
    """What a file holds apart from its rows: one column of blobs, or all of vectors; None: it holds rows."""
    if each.name.endswith(BLOB_FILE):
        return str(each.file["_WRITE_COLS"][0])
    return VECTOR_FILE if VECTOR_FILE in each.name else None


def _numbered(each: FileChange, snapshot_id: int) -> FileChange:
    if each.file["_MIN_SEQUENCE_NUMBER"] == 0:
        return each.with_values({"_MIN_SEQUENCE_NUMBER": snapshot_id, "_MAX_SEQUENCE_NUMBER": snapshot_id})
    if each.file["_MAX_SEQUENCE_NUMBER"] == 0:
        return each.with_values({"_MAX_SEQUENCE_NUMBER": snapshot_id})
    return each


def _if_added(each: FileChange, values: dict[str, int]) -> FileChange:
    return each.with_values(values) if each.kind == EntryKind.ADD else each
