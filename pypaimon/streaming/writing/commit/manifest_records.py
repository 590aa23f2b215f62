"""Entries of manifests as changes of a commit: what was read in columns, to be written again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifest_tables import entry_records
from pypaimon.streaming.writing.commit.file_changes import FileChange


def changes_of(entries: pa.Table) -> list[FileChange]:
    """Entries as changes, in their order.

    Args:
        entries: Rows of `ENTRY_SCHEMA`.
    """
    return [_change(each) for each in entry_records(entries)]


def _change(record: dict[str, Any]) -> FileChange:
    place = record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"]
    return FileChange(EntryKind(record["_KIND"]), *place, record["_FILE"])
