"""Whether a compaction of data evolution may follow a state: by the row ids of its files, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from pypaimon.streaming.commit.changes import Changes, FileChange
from pypaimon.streaming.commit.row_id_conflicts import check_row_ids
from pypaimon.streaming.errors import CommitConflictError
from pypaimon.streaming.metadata.entry_kind import EntryKind


def file(name: str, first: int | None, rows: int, *, partition: bytes = b"p", added: bool = True) -> FileChange:
    kind = EntryKind.ADD if added else EntryKind.DELETE
    stored: dict[str, Any] = {
        "_FILE_NAME": name, "_FIRST_ROW_ID": first, "_ROW_COUNT": rows, "_LEVEL": 0, "_EXTRA_FILES": [],
        "_EMBEDDED_FILE_INDEX": None, "_EXTERNAL_PATH": None,
    }  # fmt: skip
    return FileChange(kind, partition, 0, -1, stored)


def check(base: list[FileChange], *changes: FileChange) -> None:
    live = {each.identity: each for each in base}
    for each in changes:
        if each.kind == EntryKind.ADD:
            live[each.identity] = each
        else:
            del live[each.identity]
    check_row_ids(base, live.values(), Changes.of(changes))


A, B = file("a.parquet", 0, 10), file("b.parquet", 10, 10)
JOINED = file("new.parquet", 0, 20)
REPLACED = [A.deleted(), B.deleted()]
UPDATE = file("update.parquet", 0, 10)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        ([A, B], [*REPLACED, JOINED]),
        # A newer file of the same range is read in place of the columns of the new file.
        ([A, UPDATE], [A.deleted(), file("new.parquet", 0, 10)]),
        ([A, B, file("x.blob", 3, 17)], [*REPLACED, JOINED]),
        ([A, B, file("x.vector.parquet", 0, 10)], [*REPLACED, JOINED]),
        # What does not fit elsewhere was there before.
        ([A, B, file("c.parquet", 30, 5), file("d.parquet", 32, 5)], [*REPLACED, JOINED]),
        ([A, B, file("c.parquet", 5, 1, partition=b"q")], [*REPLACED, JOINED]),
        # Files whose rows are given ids of their own.
        ([A], [A.deleted(), file("new.parquet", None, 10)]),
        ([A, file("x.blob", 0, 5), file("y.blob", 5, 5)],
         [file("x.blob", 0, 5).deleted(), file("y.blob", 5, 5).deleted(), file("z.blob", 0, 10)]),
    ],
)  # fmt: skip
def test_these_fit(base: list[FileChange], changes: list[FileChange]) -> None:
    check(base, *changes)


@pytest.mark.parametrize(
    ("base", "changes", "why"),
    [
        ([A, B, UPDATE], [*REPLACED, JOINED], "update.parquet"),
        ([A, B, file("update.parquet", 10, 10)], [*REPLACED, JOINED], "update.parquet"),
        # The rows have other ids by now.
        ([file("a.parquet", 50, 10), B], [*REPLACED, JOINED], "a.parquet has other row ids"),
        ([file("a.parquet", 0, 9), B], [*REPLACED, JOINED], "a.parquet has other row ids"),
        ([B], [file("new.parquet", 0, 20)], "new.parquet"),
        ([file("a.parquet", 0, 20, partition=b"q"), B], [B.deleted(), file("new.parquet", 0, 20)], "new.parquet"),
        ([A, B, file("x.blob", 5, 16)], [*REPLACED, JOINED], "x.blob"),
        # The blob file would span two data files.
        ([A, B, file("x.blob", 0, 10), file("y.blob", 10, 10)],
         [file("x.blob", 0, 10).deleted(), file("y.blob", 10, 10).deleted(), file("z.blob", 0, 20)], "z.blob"),
    ],
)  # fmt: skip
def test_these_conflict(base: list[FileChange], changes: list[FileChange], why: str) -> None:
    with pytest.raises(CommitConflictError, match=why):
        check(base, *changes)
