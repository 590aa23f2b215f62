"""`check_changes`: whether changes may follow a state. Pure: takes live files and index files, raises conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeAlias

from pypaimon.streaming.commit.changes import COMPACT, OVERWRITE, AvroRecord, Changes, FileChange, Identity
from pypaimon.streaming.errors import CommitConflictError, KeyIndexConflictError
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, HASH

KeyIndexes: TypeAlias = Mapping[bytes, frozenset[str]]
"""Names of the index files of keys (dynamic buckets), by serialised partition row."""


@dataclass(frozen=True, slots=True)
class ConflictRules:
    """Rules that depend on the kind of table."""

    # Maps a serialised key to its sort key; None for tables without a primary key
    key_order: Callable[[bytes], Any] | None = None
    # The table has no buckets (`bucket` = -1), so that each commit names the deletion vectors it replaces, one index
    # file at a time
    unaware_buckets: bool = False


def check_changes(
    kind: str, base: Sequence[FileChange], index: Sequence[AvroRecord], changes: Changes, rules: ConflictRules
) -> None:
    """Check changes against the live files of the partitions that they touch.

    The rules are those of Java's `ConflictDetection`. For deletion vectors they are stricter: a vector that another
    commit has written meanwhile is never replaced unread.

    Raises:
        CommitConflictError: The changes may not follow this state.
    """
    live = _merged(base, changes)
    if kind != OVERWRITE:
        check_bucket_counts(live.values())
    if rules.key_order is not None:
        _check_levels(live.values(), changes, rules.key_order)
    _check_index(kind, index, live.values(), changes, rules)


def check_key_indexes(index: Sequence[AvroRecord], expected: KeyIndexes) -> None:
    """Check that partitions still have the index files from which new rows got their buckets.

    Otherwise another writer has assigned buckets to keys, or has replaced rows, and one key could be in two buckets.

    Raises:
        KeyIndexConflictError: A partition has other index files now.
    """
    there: dict[bytes, set[str]] = {row: set() for row in expected}
    for each in index:
        if each["_INDEX_TYPE"] == HASH and each["_PARTITION"] in there:
            there[each["_PARTITION"]].add(each["_FILE_NAME"])
    if any(there[row] != names for row, names in expected.items()):
        raise KeyIndexConflictError(
            "Another writer has assigned buckets to keys of a partition, or replaced its rows, since this commit read "
            "the buckets of its keys. Nothing was committed."
        )


def _merged(base: Sequence[FileChange], changes: Changes) -> dict[Identity, FileChange]:
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
                "deleted its partition. Nothing was committed."
            )
    return live


def check_bucket_counts(live: Iterable[FileChange]) -> None:
    """Check that all files of a partition have the same number of buckets.

    Raises:
        CommitConflictError: A partition has files with different numbers.
    """
    counts: dict[bytes, int] = {}
    for each in live:
        if each.total_buckets > 0 and counts.setdefault(each.partition, each.total_buckets) != each.total_buckets:
            raise CommitConflictError(
                f"The files of a partition are divided into {counts[each.partition]} buckets, and {each.name} into "
                f"{each.total_buckets}: the partition was rescaled meanwhile. Nothing was committed."
            )


def _check_levels(live: Iterable[FileChange], changes: Changes, key_order: Callable[[bytes], Any]) -> None:
    """No two files of a level above 0 may hold the same key."""
    touched = {_level(each) for each in changes.added if each.file["_LEVEL"] >= 1}
    sorted_files = sorted((each for each in live if _level(each) in touched), key=_level)
    for _, files in groupby(sorted_files, key=_level):
        bounds = [(key_order(each.file["_MIN_KEY"]), key_order(each.file["_MAX_KEY"]), each.name) for each in files]
        bounds.sort(key=lambda bound: bound[0])
        for (_, greatest, name), (smallest, _, other) in pairwise(bounds):
            if greatest >= smallest:
                raise CommitConflictError(
                    f"Files {name} and {other} would be on one level with overlapping keys: another compaction has "
                    "written to it. Nothing was committed."
                )


def _level(each: FileChange) -> tuple[bytes, int, int]:
    return each.partition, each.bucket, each.file["_LEVEL"]


def _check_index(
    kind: str, index: Sequence[AvroRecord], live: Iterable[FileChange], changes: Changes, rules: ConflictRules
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
                    f"The deletion vectors of a bucket would be replaced, and its current ones, in "
                    f"{each['_FILE_NAME']}, were not read. Nothing was committed."
                )


def _check_vectors(
    kept: Sequence[AvroRecord], added: Sequence[AvroRecord], live: Iterable[FileChange], changes: Changes
) -> None:
    """Check that vectors and files match: no file is deleted while its vector stays, no vector comes without its file.

    A file that is moved to another level is not deleted.
    """
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


def _check_marked_once(kept: Sequence[AvroRecord], added: Sequence[AvroRecord]) -> None:
    marked = _marked(kept)
    for vectors in added:
        for found in _ranges(vectors):
            at = (*_bucket(vectors), found["f0"])
            if at in marked:
                raise CommitConflictError(
                    f"Rows of file {found['f0']} were deleted meanwhile ({marked[at]}). Nothing was committed."
                )


def _marked(kept: Sequence[AvroRecord]) -> dict[tuple[bytes, int, str], str]:
    return {(*_bucket(each), found["f0"]): each["_FILE_NAME"] for each in kept for found in _ranges(each)}


def _bucket(record: AvroRecord) -> tuple[bytes, int]:
    return record["_PARTITION"], record["_BUCKET"]


def _ranges(record: AvroRecord) -> Sequence[AvroRecord]:
    return [each for each in record.get("_DELETIONS_VECTORS_RANGES") or () if each is not None]
