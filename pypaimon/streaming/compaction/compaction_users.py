"""Commit users of compactions, and the warning that a writer compacts too."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.planning.follow_up import CommitKind

_COMPACTOR = re.compile(r"(.*_)?compaction-[0-9a-f-]{36}")
_LOOKED_AT = 10


def new_compaction_user(options: OptionValues) -> str:
    """A commit user that no other compaction has, behind the table's `commit.user-prefix`."""
    prefix = options.text("commit.user-prefix")
    return f"{prefix + '_' if prefix else ''}compaction-{uuid4()}"


class CompactingWriters:
    """Warns, once, of a writer that compacts the same table: Java's ends with an error where both take one file.

    A table with `write-only` = `true` has none.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._told = False

    def look(self, table: Any, directory: TableDirectory, snapshot: Snapshot) -> None:
        """Look at the last ten snapshots up to this one, as far as they were not looked at before.

        Raises:
            CorruptTableError: A snapshot is damaged.
            StoreError: The store failed.
        """
        if self._told or OptionValues(table.options.options.to_map()).boolean("write-only", False):
            return
        first = max(1, snapshot.id - _LOOKED_AT + 1, self._seen + 1)
        found = directory.snapshots.get_snapshots_batch(range(first, snapshot.id + 1))
        self._seen = snapshot.id
        for each in found.values():
            if each is None or each.commit_kind != CommitKind.COMPACT or _COMPACTOR.fullmatch(each.commit_user):
                continue
            self._told = True
            StreamLog.of(__name__, table).warning(
                "compacting_writer",
                "another job compacts this table too (commit user %(user)s, snapshot %(snapshot)d). A writer of Java "
                "ends with an error when a compaction of another job has taken a file that it compacts: set "
                "'write-only' = 'true' on the table, and restart its writers",
                user=each.commit_user,
                snapshot=each.id,
            )
            return
