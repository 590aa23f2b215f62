"""The changelogs of snapshots that expire, which are kept as long-lived ones."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.maintenance.roots import has_changelog_list
from pypaimon.streaming.metadata.snapshots import Snapshot, branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory


def keep_changelogs(directory: TableDirectory, ids: Sequence[int]) -> None:
    """Write the changelogs of snapshots that are about to expire.

    Another run may expire such a snapshot at the same time, and later its changelog with its files. If the snapshot is
    still there after its changelog was written, every run that deletes it finds the changelog afterwards. Otherwise the
    changelog is deleted again if its files have gone.

    Args:
        directory: The branch.
        ids: The snapshots.
    """
    store, home = directory.store, branch_directory(directory.table.table_path, directory.branch)
    snapshots, changelogs = ([f"{home}/{what}/{what}-{each}" for each in ids] for what in ("snapshot", "changelog"))
    # A snapshot that is missing has been expired by another run, which has written its changelog.
    expiring = zip(changelogs, store.read_many(snapshots), strict=True)
    found = {path: data for path, data in expiring if data is not None}
    for path, content in found.items():
        store.write_atomic(path, content)
    for path, data in zip(changelogs, store.read_many(snapshots), strict=True):
        if data is None and path in found and not has_changelog_list(directory, Snapshot.from_json(found[path])):
            store.delete(path)
