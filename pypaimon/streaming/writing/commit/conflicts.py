"""`check_changes`: may these changes follow this state? Pure: live files and index files in, or a conflict out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeAlias

from pypaimon.streaming.errors import CommitConflictError, KeyIndexConflictError
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, HASH
from pypaimon.streaming.writing.commit.file_changes import (
    COMPACT,
    OVERWRITE,
    Changes,
    FileChange,
    Identity,
    Record,
)

KeyIndexes: TypeAlias = Mapping[bytes, frozenset[str]]
"""Names of the index files of keys (dynamic buckets), by serialised partition row."""


@dataclass(frozen=True, slots=True)
class ConflictRules:
    """What a table's kind demands.

    Attributes:
        key_order: Gives a serialised key what it sorts by, in a table with a primary key; None for other tables.
        unaware_buckets: Buckets carry no meaning: deletion vectors are named by each commit, one file at a time.
    """

    key_order: Callable[[bytes], Any] | None = None
    unaware_buckets: bool = False


def check_changes(
    kind: str, base: Sequence[FileChange], index: Sequence[Record], changes: Changes, rules: ConflictRules
) -> None:
    """Check changes against the live files of the partitions that they touch.

    The rules are those of Java's `ConflictDetection`, and for deletion vectors stricter: a vector that another commit
    wrote meanwhile is never replaced unseen.

    Args:
        kind: Kind of the snapshot: COMPACT or OVERWRITE, or APPEND where it is to be checked too.
        base: Live files of those partitions.
        index: All index files.
        changes: What is to be committed.
        rules: Of the table.

    Raises:
        CommitConflictError: They may not follow.
    """
    live = _merged(base, changes)
    if kind != OVERWRITE:
        check_bucket_counts(live.values())
    if rules.key_order is not None:
        _check_levels(live.values(), changes, rules.key_order)
    _check_index(kind, index, live.values(), changes, rules)


def check_key_indexes(index: Sequence[Record], expected: KeyIndexes) -> None:
    """Check that partitions have the index files that the buckets of new rows were read from.

    Otherwise another writer has given keys their buckets, or has replaced rows: one key could lie in two buckets.

    Args:
        index: All index files.
        expected: Those that were read, of the partitions that rows are written of.

    Raises:
        KeyIndexConflictError: A partition has other ones.
    """
    there: dict[bytes, set[str]] = {row: set() for row in expected}
    for each in index:
        if each["_INDEX_TYPE"] == HASH and each["_PARTITION"] in there:
            there[each["_PARTITION"]].add(each["_FILE_NAME"])
    if any(there[row] != names for row, names in expected.items()):
        raise KeyIndexConflictError(
            "Another writer has given keys of a partition their buckets, or replaced its rows, since those of this "
            "commit were read. Nothing was committed."
        )


def _merged(base: Sequence[FileChange], changes: Changes) -> dict[Identity, FileChange]:
    """The files that are live afterwards."""
    seen: set[Identity] = set()
    live = {each.identity: each for each in base}
    for each in changes.files:
        identity = each.identity
        if identity in seen:
            raise CommitConflictError(f"The commit names file {each.name} twice. Nothing was committed.")
        seen.add(identity)
        if each.kind == EntryKind.ADD:
            if identity in live:
                raise CommitConflictError(f"File {each.name} is in the table already. Nothing was committed.")
            live[identity] = each
        elif live.pop(identity, None) is None:
            raise CommitConflictError(
                f"File {each.name} is to be deleted and is not in the table any more: another job has rewritten it, or "
                "deleted it with its partition. Nothing was committed."
            )
    return live


def check_bucket_counts(live: Iterable[FileChange]) -> None:
    """Check that the files of each partition are divided into one number of buckets.

    Raises:
        CommitConflictError: They are not.
    """
    counts: dict[bytes, int] = {}
    for each in live:
        if each.total_buckets > 0 and counts.setdefault(each.partition, each.total_buckets) != each.total_buckets:
            raise CommitConflictError(
                f"The files of a partition are divided into {counts[each.partition]} buckets, and {each.name} into "
                f"{each.total_buckets}: the partition was rescaled meanwhile. Nothing was committed."
            )


def _check_levels(live: Iterable[FileChange], changes: Changes, key_order: Callable[[bytes], Any]) -> None:
    """Of a level above 0 no two files may hold the same key."""
    touched = {_level(each) for each in changes.added if each.file["_LEVEL"] >= 1}
    sorted_files = sorted((each for each in live if _level(each) in touched), key=_level)
    for _, files in groupby(sorted_files, key=_level):
        bounds = [(key_order(each.file["_MIN_KEY"]), key_order(each.file["_MAX_KEY"]), each.name) for each in files]
        bounds.sort(key=lambda bound: bound[0])
        for (_, greatest, name), (smallest, _, other) in pairwise(bounds):
            if greatest >= smallest:
                raise CommitConflictError(
                    f"Files {name} and {other} would lie on one level with keys that overlap: another compaction has "
                    "written to it. Nothing was committed."
                )


def _level(each: FileChange) -> tuple[bytes, int, int]:
    return each.partition, each.bucket, each.file["_LEVEL"]


def _check_index(
    kind: str, index: Sequence[Record], live: Iterable[FileChange], changes: Changes, rules: ConflictRules
) -> None:
    there = {each["_FILE_NAME"]: each for each in index}
    for each in changes.index_deleted:
        if each["_FILE_NAME"] not in there:
            raise CommitConflictError(
                f"Index file {each['_FILE_NAME']} is to be replaced and is not in the table any more: another job has "
                "changed the deletion vectors. Nothing was committed."
            )
    replaced = {each["_FILE_NAME"] for each in changes.index_deleted}
    kept = [each for each in index if each["_INDEX_TYPE"] == DELETION_VECTORS and each["_FILE_NAME"] not in replaced]
    added = [each for each in changes.index_added if each["_INDEX_TYPE"] == DELETION_VECTORS]
    if rules.unaware_buckets:
        _check_vectors(kept, added, live, changes)
        _check_marked_once(kept, added)
    elif kind == COMPACT:
        _check_vectors(kept, added, live, changes)
        places = {_bucket(each) for each in added}
        for each in kept:
            if _bucket(each) in places:
                raise CommitConflictError(
                    f"The deletion vectors of a bucket would be replaced, and {each['_FILE_NAME']}, which holds those "
                    "of now, was not read before. Nothing was committed."
                )


def _check_vectors(
    kept: Sequence[Record], added: Sequence[Record], live: Iterable[FileChange], changes: Changes
) -> None:
    """No file goes whose vector stays (one that is moved to another level does not go), and none comes of no file."""
    marked = _marked(kept)
    names = {(each.partition, each.bucket, each.name) for each in live}
    for each in changes.files:
        at = each.partition, each.bucket, each.name
        if each.kind == EntryKind.DELETE and at in marked and at not in names:
            raise CommitConflictError(
                f"File {each.name} was rewritten without the deletion vector in {marked[at]}: rows of it were deleted "
                "meanwhile. Nothing was committed."
            )
    for vectors in added:
        for found in _ranges(vectors):
            if (*_bucket(vectors), found["f0"]) not in names:
                raise CommitConflictError(
                    f"Rows of file {found['f0']} are to be deleted, and it is not in the table any more. Nothing was "
                    "committed."
                )


def _check_marked_once(kept: Sequence[Record], added: Sequence[Record]) -> None:
    marked = _marked(kept)
    for vectors in added:
        for found in _ranges(vectors):
            at = (*_bucket(vectors), found["f0"])
            if at in marked:
                raise CommitConflictError(
                    f"Rows of file {found['f0']} were deleted meanwhile ({marked[at]}). Nothing was committed."
                )


def _marked(kept: Sequence[Record]) -> dict[tuple[bytes, int, str], str]:
    """Which index file holds the vector of a data file."""
    return {(*_bucket(each), found["f0"]): each["_FILE_NAME"] for each in kept for found in _ranges(each)}


def _bucket(record: Record) -> tuple[bytes, int]:
    return record["_PARTITION"], record["_BUCKET"]


def _ranges(record: Record) -> Sequence[Record]:
    return [each for each in record.get("_DELETIONS_VECTORS_RANGES") or () if each is not None]
