"""`StrictMode`: refuses commits to partitions that others rewrote (`commit.strict-mode.last-safe-snapshot`)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.changes import APPEND, COMPACT, OVERWRITE, Changes
from pypaimon.streaming.commit.table_state import TableState
from pypaimon.streaming.errors import StrictModeError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options import option_keys


class StrictMode:
    """The rule of Java's `StrictModeChecker` for the commits of one writer.

    It refuses commits to partitions that a COMPACT or OVERWRITE snapshot of another user has changed since the last
    safe snapshot, and OVERWRITEs of partitions to which another user has appended in real buckets. Snapshots that were
    examined, and those of the writer itself, are safe from then on. Not for several threads.

    Args:
        last_safe: Id of the last safe snapshot; if negative, the first commit is not checked.
        data_evolution: Whether compactions may change only deletion vectors, without changing rows.
    """

    def __init__(self, last_safe: int, *, data_evolution: bool) -> None:
        self._last_safe = last_safe
        self._data_evolution = data_evolution

    @staticmethod
    def of(table: PaimonTable) -> StrictMode | None:
        """The strict mode of a table; None: it is off.

        Raises:
            StreamConfigError: The option is not a number.
        """
        last_safe = option_keys.COMMIT_STRICT_MODE_LAST_SAFE_SNAPSHOT.of(table.options)
        if last_safe is None:
            return None
        return StrictMode(last_safe, data_evolution=table.traits.data_evolution)

    def check(self, state: TableState, kind: str, changes: Changes, user: str) -> None:
        """Check that changes may follow a state. Reads each snapshot since the last safe one.

        Args:
            kind: Kind of the new snapshot.
            user: Commit user of the new snapshot.

        Raises:
            StrictModeError: A snapshot of another user forbids the commit, or one that must be examined has expired.
        """
        latest = 0 if state.snapshot is None else state.snapshot.id
        if self._last_safe >= 0:
            rows = pa.array(sorted(changes.partitions), pa.binary())
            for number in range(self._last_safe + 1, latest + 1):
                self._check_one(state, number, kind, rows, user)
        self._last_safe = latest if self._last_safe < 0 else max(self._last_safe, latest)

    def note_committed(self, snapshot: int) -> None:
        """The writer has committed this snapshot, so it and all before it are safe."""
        self._last_safe = snapshot

    def _check_one(self, state: TableState, number: int, kind: str, rows: pa.Array, user: str) -> None:
        found = state.directory.snapshots.try_get(number)
        if found is None:
            raise StrictModeError(number, "has expired, and must be examined")
        if found.commit_user == user or not len(rows):
            return
        if found.commit_kind in (COMPACT, OVERWRITE):
            changed = _has_files(state, found, rows, real_buckets=False)
            if not changed and (found.commit_kind == OVERWRITE or not self._data_evolution):
                changed = _has_index_files(state, found, rows)
        else:
            appended = found.commit_kind == APPEND and kind == OVERWRITE
            changed = appended and _has_files(state, found, rows, real_buckets=True)
        if changed:
            what = f"({found.commit_kind} by '{found.commit_user}') changes the same partition"
            raise StrictModeError(number, what)


def _has_files(state: TableState, snapshot: Snapshot, rows: pa.Array, *, real_buckets: bool) -> bool:
    manifests = state.directory.manifests
    entries = manifests.entries(manifests.manifest_list(snapshot.delta_manifest_list))
    inside = pc.is_in(entries["partition"], value_set=rows)
    if real_buckets:
        inside = pc.and_(inside, pc.greater_equal(entries["bucket"], 0))
    return bool(pc.any(inside).as_py())


def _has_index_files(state: TableState, snapshot: Snapshot, rows: pa.Array) -> bool:
    """Whether a snapshot has index files in partitions, unless its index manifest is that of the snapshot before."""
    if snapshot.index_manifest is None:
        return False
    before = state.directory.snapshots.try_get(snapshot.id - 1) if snapshot.id > 1 else None
    if before is not None and before.index_manifest == snapshot.index_manifest:
        return False
    partitions = set(rows.to_pylist())
    return any(each["_PARTITION"] in partitions for each in TableState(state.directory, snapshot).index)
