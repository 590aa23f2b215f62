"""`FencedSnapshotCommit`: publishes a snapshot only if no snapshot before it holds the same batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.internals import JSON, local_path
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.write_internals import RenamingSnapshotCommit, SnapshotCommit
from pypaimon.streaming.writing.commit.commit_ledger import BatchOrderError


@dataclass(frozen=True, slots=True)
class Claim:
    """Which commit it is.

    Attributes:
        user: Commit user.
        batch: Commit identifier.
        examined: Snapshots up to this one do not hold it; None: nobody else commits it, so that none need be looked at.
        ordered: Whether the user's batches are committed in order, so that none may follow a later one.
        schema_id: The table's latest schema, which the snapshot is to name as in Java; None: leave it as it is.
        properties: What the snapshot says beside.
        keep_empty: Whether a commit without files leaves a snapshot.
    """

    user: str
    batch: int
    examined: int | None
    ordered: bool
    schema_id: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    keep_empty: bool = False


class FencedSnapshotCommit(SnapshotCommit):
    """Closes the gap between looking whether a batch is there and publishing it.

    pypaimon publishes snapshot N after N - 1 only if there is no N yet. Here the snapshots that came since the ledger
    looked, up to N - 1, are looked at first; they cannot change any more. So if another driver of the same query has
    published the batch meanwhile, `found` is its snapshot, nothing is published, and pypaimon is told that the commit
    is there.

    An attempt whose answer was lost, or says that it failed, may have taken effect all the same. So the snapshot
    of that id is read: it is ours, or it tells that the attempt surely failed, or (if it is missing, or the store does
    not arbitrate between writers) nobody knows yet.

    Args:
        publisher: pypaimon's, of the table.
        directory: The table.
        claim: Which commit it is.

    Attributes:
        found: The snapshot that holds the batch and is not ours, or None.
        refused: Why it may not be published, or None.
        gone: A snapshot that had to be looked at first and has expired, so that nothing is published; or None.
        uncertain: Whether the snapshot may be there, or come to be there, although no attempt is known to have
            succeeded.
        published: Id of the snapshot that was published, or None.
    """

    def __init__(self, publisher: Any, directory: TableDirectory, claim: Claim) -> None:
        self._publisher = publisher
        self._directory = directory
        self._claim = claim
        self._examined = claim.examined
        self._attempts: dict[str, int] = {}
        self.found: Snapshot | None = None
        self.refused: BatchOrderError | None = None
        self.gone: int | None = None
        self.uncertain = False
        self.published: int | None = None

    def commit(self, base_snapshot_uuid: str | None, snapshot: Any, statistics: Sequence[Any]) -> bool:
        """Publish, unless the batch is there already.

        Returns:
            Whether that is settled; False if another commit took the place of this snapshot.
        """
        if self._is_settled(snapshot.id) or self._is_behind(snapshot.id):
            return True
        if self._claim.schema_id is not None:
            snapshot.schema_id = self._claim.schema_id
        before, self.uncertain = self.uncertain, True
        self._attempts[snapshot.delta_manifest_list] = snapshot.id
        try:
            answer = self._publish(base_snapshot_uuid, snapshot, statistics)
        except Exception:
            if not self._is_ours(self._at(snapshot.id)):
                raise
            answer = True
        if not answer:
            there = self._at(snapshot.id)
            answer = self._is_ours(there)
            if not answer and there is not None and self._arbitrates:
                self.uncertain = before
        if answer:
            self.published = snapshot.id
        return answer

    def settle(self) -> None:
        """Find out whose snapshot it was, where pypaimon itself found the batch before it tried once more."""
        number = min(self._attempts.values(), default=0)
        while number and self.published is None and self.found is None:
            there = self._at(number)
            if there is None:
                return
            self._settle_by(there)
            number += 1

    def close(self) -> None:
        """Close pypaimon's publisher."""
        self._publisher.close()

    def _is_settled(self, number: int) -> bool:
        """Whether the snapshots before this one tell that it must not be published."""
        if self._examined is None:
            return False
        for each in range(self._examined + 1, number):
            earlier = self._directory.snapshots.try_get(each)
            if earlier is None:
                self.gone = each
            if earlier is None or self._settle_by(earlier):
                return True
        self._examined = max(self._examined, number - 1)
        return False

    def _is_behind(self, number: int) -> bool:
        """Whether the snapshot before has expired: then this id was given already, and its file would be stale."""
        before = number - 1
        if not before or not isinstance(self._publisher, RenamingSnapshotCommit):
            return False
        # Not `_at`: that the store fails must not pass for an expiry.
        if self._directory.snapshots.refreshed(before) is None:
            self.gone = before
        return self.gone is not None

    def _settle_by(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot tells what becomes of the batch."""
        same_user, identifier = snapshot.commit_user == self._claim.user, snapshot.commit_identifier
        if self._is_ours(snapshot):
            self.published = snapshot.id
        elif same_user and identifier == self._claim.batch:
            self.found = snapshot
        elif same_user and self._claim.ordered and identifier > self._claim.batch:
            self.refused = BatchOrderError(self._claim.user, self._claim.batch, identifier)
        else:
            return False
        return True

    def _is_ours(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and snapshot.delta_manifest_list in self._attempts

    def _at(self, number: int) -> Snapshot | None:
        """The snapshot of an id as it is in the store now; None too if that cannot be found out."""
        try:
            return self._directory.snapshots.refreshed(number)
        except PaimonStreamError:
            return None

    @property
    def _arbitrates(self) -> bool:
        """Whether of two attempts for one id the later one fails for good: by a link, or by a catalog."""
        return _is_local(self._publisher) or not isinstance(self._publisher, RenamingSnapshotCommit)

    def _publish(self, base_snapshot_uuid: str | None, snapshot: Any, statistics: Sequence[Any]) -> bool:
        if _is_local(self._publisher):
            return _link(self._publisher, snapshot)
        return bool(self._publisher.commit(base_snapshot_uuid, snapshot, statistics))


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
