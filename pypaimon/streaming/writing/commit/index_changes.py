"""`combined_index`: the index files of a snapshot, which are listed whole in each of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, HASH
from pypaimon.streaming.writing.commit.file_changes import Changes, Record


def combined_index(index: Sequence[Record], changes: Changes, *, unaware_buckets: bool) -> list[Record]:
    """The index files after changes.

    Indexes of keys (HASH), and deletion vectors of tables with buckets, are one file per bucket: what comes replaces
    what is there, named or not. Other index files go where they are named.

    Args:
        index: What is there.
        changes: What comes and goes.
        unaware_buckets: Whether buckets carry no meaning.
    """
    deleted = {each["_FILE_NAME"] for each in changes.index_deleted}
    of_buckets = (HASH,) if unaware_buckets else (HASH, DELETION_VECTORS)
    replaced = {_place(each) for each in changes.index_added if each["_INDEX_TYPE"] in of_buckets}
    kept = [each for each in index if each["_FILE_NAME"] not in deleted and _place(each) not in replaced]
    return [*kept, *changes.index_added]


def _place(record: Record) -> tuple[bytes, int, str]:
    return record["_PARTITION"], record["_BUCKET"], record["_INDEX_TYPE"]
