"""`CompactingWriters`: finds out whether writers of a table compact it, too."""

from __future__ import annotations

import re

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.planning.follow_up import CommitKind

_COMPACTOR = re.compile(r"(.*_)?compaction-[0-9a-f-]{36}")
_EXAMINED = 10


class CompactingWriters:
    """Warns, once, of a writer that compacts the same table: a writer of Java fails if both take the same file.

    A table with `write-only` = `true` has no such writers.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._warned = False

    def look(self, table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> None:
        """Examine the last ten snapshots up to this one, except those that were examined before."""
        if self._warned or option_keys.WRITE_ONLY.of(table.options):
            return
        first = max(1, snapshot.id - _EXAMINED + 1, self._seen + 1)
        found = directory.snapshots.get_snapshots_batch(range(first, snapshot.id + 1))
        self._seen = snapshot.id
        for each in found.values():
            if each is None or each.commit_kind != CommitKind.COMPACT or _COMPACTOR.fullmatch(each.commit_user):
                continue
            self._warned = True
            StreamLog(__name__, table=table.name).warning(
                "compacting_writer",
                "another job compacts this table too (commit user %(user)s, snapshot %(snapshot)d). A writer of Java "
                "ends with an error when a compaction of another job has taken a file that it compacts: set "
                "'write-only' = 'true' on the table, and restart its writers",
                user=each.commit_user,
                snapshot=each.id,
            )
            return
