"""`FencedSnapshotCommit`: publishes a snapshot only if no snapshot before it holds the same batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pypaimon.spark.internals import JSON, RenamingSnapshotCommit, SnapshotCommit
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory


class FencedSnapshotCommit(SnapshotCommit):
    """Closes the gap between looking whether a batch is there and publishing it.

    pypaimon publishes snapshot N after N - 1 only if there is no N yet. Here the snapshots that came since the ledger
    looked, up to N - 1, are looked at first; they cannot change any more. So if another driver of the same query has
    published the batch meanwhile, `found` is its snapshot, nothing is published, and pypaimon is told that the commit
    is there.

    Args:
        publisher: pypaimon's, of the table.
        directory: The table.
        user: Commit user of the query.
        batch: Batch that is committed.
        examined: Snapshots up to this one do not hold it.

    Attributes:
        found: The snapshot that holds the batch and is not ours, or None.
        uncertain: Whether the snapshot may be there although no attempt to publish it succeeded.
        published: Id of the snapshot that was published last, or None.
    """

    def __init__(self, publisher: Any, directory: TableDirectory, user: str, batch: int, examined: int) -> None:
        self._publisher = publisher
        self._directory = directory
        self._user = user
        self._batch = batch
        self._examined = examined
        self.found: Snapshot | None = None
        self.uncertain = False
        self.published: int | None = None

    def commit(self, base_snapshot_uuid: str | None, snapshot: Any, statistics: Sequence[Any]) -> bool:
        """Publish, unless the batch is there already.

        Returns:
            Whether the batch is in the table; False if another commit took the place of this snapshot.
        """
        for each in range(self._examined + 1, snapshot.id):
            earlier = self._directory.snapshots.get(each)
            if earlier.commit_user == self._user and earlier.commit_identifier >= self._batch:
                self.found = earlier
                return True
        self._examined = max(self._examined, snapshot.id - 1)
        before, self.uncertain = self.uncertain, True
        if _is_local(self._publisher):
            success = _link(self._publisher, snapshot)
        else:
            success = bool(self._publisher.commit(base_snapshot_uuid, snapshot, statistics))
        if success:
            self.published = snapshot.id
        else:
            self.uncertain = before
        return success

    def close(self) -> None:
        """Close pypaimon's publisher."""
        self._publisher.close()


def _is_local(publisher: Any) -> bool:
    if not isinstance(publisher, RenamingSnapshotCommit):
        return False
    path = publisher.snapshot_manager.get_snapshot_path(1)
    return "://" not in path or path.lower().startswith("file:")


def _link(publisher: RenamingSnapshotCommit, snapshot: Any) -> bool:
    """Publish on a local disk, where pypaimon's rename keeps only the threads of one process apart.

    A link fails if its name exists, whoever made it.
    """
    target = local_path(publisher.snapshot_manager.get_snapshot_path(snapshot.id))
    directory, name = os.path.split(target)
    os.makedirs(directory, exist_ok=True)
    temporary = f"{directory}/.{name}.{uuid4().hex}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(JSON.to_json(snapshot, indent=2))
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    publisher._commit_latest_hint(snapshot.id)
    return True
