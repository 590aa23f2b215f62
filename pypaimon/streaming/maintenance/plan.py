"""`MaintenancePlan`: what a maintenance run deletes, and why the rest stays; as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.maintenance.expiry import Protection
from pypaimon.streaming.maintenance.references import TableFile


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """What one run deletes.

    Attributes:
        table: Name of the table.
        snapshot_ids: Ids of the snapshots that expire, ascending.
        changelog_ids: Ids of the long-lived changelogs that expire, ascending.
        kept_changelog_ids: Ids of expired snapshots whose changelog is kept as a long-lived one.
        tags: Names of the tags that expire.
        consumers: Consumer files that expire, by their names.
        files: The files that nothing needs any more.
        protections: The consumers and positions that keep snapshots.
        earliest_id: Id of the earliest snapshot that stays; None if there is none.
        latest_id: Id of the latest one.
    """

    table: str
    snapshot_ids: tuple[int, ...] = ()
    changelog_ids: tuple[int, ...] = ()
    kept_changelog_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    files: tuple[TableFile, ...] = ()
    protections: tuple[Protection, ...] = ()
    earliest_id: int | None = None
    latest_id: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.snapshot_ids or self.changelog_ids or self.tags or self.consumers or self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the files, as far as manifests say them: all but manifest lists and small extra files."""
        return sum(each.bytes or 0 for each in self.files)

    @property
    def held_back(self) -> tuple[Protection, ...]:
        """The protections that the earliest snapshot that stays needs: they keep snapshots from expiring."""
        earliest = self.earliest_id
        return tuple(each for each in self.protections if earliest is not None and each.first_kept <= earliest)

    def to_value(self) -> dict[str, Any]:
        """The plan for JSON."""
        return {
            "table": self.table,
            "snapshots": list(self.snapshot_ids),
            "changelogs": list(self.changelog_ids),
            "kept_changelogs": list(self.kept_changelog_ids),
            "tags": list(self.tags),
            "consumers": list(self.consumers),
            "files": [{"path": each.path, "kind": each.kind, "size": each.bytes} for each in self.files],
            "bytes": self.bytes,
            "earliest": self.earliest_id,
            "latest": self.latest_id,
            "protected_by": [
                {"kind": each.kind, "name": each.name, "next_snapshot": each.next_snapshot} for each in self.protections
            ],
        }

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps(self.to_value(), indent=2)

    @property
    def file_counts(self) -> dict[str, int]:
        """How many files of each kind are deleted."""
        return dict(sorted(Counter(each.kind for each in self.files).items()))


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a run did.

    Attributes:
        plan: What was to be deleted; it has been, unless this was a dry run.
        dry_run: Whether nothing was deleted.
        resumed: Files of an earlier run that did not end, which were deleted too.
    """

    plan: MaintenancePlan
    dry_run: bool = False
    resumed: int = 0
