"""`MaintenancePlan`: what a maintenance run creates and deletes, and why the rest stays; as text and as JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pypaimon.streaming.io.store import Store
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.expiry import Protection
from pypaimon.streaming.maintenance.partition_files import PartitionValues
from pypaimon.streaming.maintenance.references import TableFile
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.model.json_fields import parse_fields
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import local_path

_LOG = StreamLog(__name__)

PLAN_PREFIX = "maintenance-"
"""Files of this prefix in the directory of the consumers hold plans until all of their files are deleted."""
LEFTOVER_PREFIX = f"{PLAN_PREFIX}branch-"
"""Prefix of the files that record what a deleted branch left for the next run. No run is under way for them."""
_PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class CompactedFiles:
    """What the compaction of a run replaces.

    Attributes:
        files: Number of data files that are compacted.
        bytes: Their bytes.
        snapshot_ids: Ids of the snapshots that the compaction made; none for a dry run.
    """

    files: int
    bytes: int
    snapshot_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """What one run deletes.

    Attributes:
        table: Name of the table.
        snapshot_ids: Ids of the snapshots that expire, ascending.
        changelog_ids: Ids of the long-lived changelogs that expire, ascending.
        kept_changelog_ids: Ids of expired snapshots whose changelog is kept as a long-lived one.
        tags: Names of the tags that expire, are too many, or are replaced.
        created_tags: The automatic tags that are created, before anything is deleted.
        consumers: Consumer files that expire, by their names.
        files: The files that nothing needs any more.
        protections: The consumers and positions that keep snapshots.
        held_ids: Ids of the snapshots that would expire without them, ascending.
        earliest_id: Id of the earliest snapshot that stays; None if there is none.
        latest_id: Id of the latest one.
        partitions: The partitions that expire, as texts of their values by column; None for null.
        done_partitions: Those that are marked as done.
        rewritten_manifests: How many manifests are merged into others.
        null_text: What a null among the values of partitions is in texts (`partition.default-name`).
        compaction: What is compacted before; None if the policy does not ask for that.
    """

    table: str
    snapshot_ids: tuple[int, ...] = ()
    changelog_ids: tuple[int, ...] = ()
    kept_changelog_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    files: tuple[TableFile, ...] = ()
    protections: tuple[Protection, ...] = ()
    held_ids: tuple[int, ...] = ()
    earliest_id: int | None = None
    latest_id: int | None = None
    created_tags: tuple[Tag, ...] = ()
    partitions: tuple[PartitionValues, ...] = ()
    done_partitions: tuple[PartitionValues, ...] = ()
    rewritten_manifests: int = 0
    compaction: CompactedFiles | None = None
    null_text: str = option_keys.PARTITION_DEFAULT_NAME.default

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        going = self.snapshot_ids or self.changelog_ids or self.tags or self.consumers or self.files
        due = self.created_tags or self.partitions or self.done_partitions or self.rewritten_manifests
        due = due or (self.compaction is not None and self.compaction.files)
        return not (going or due)

    @property
    def deleted_tags(self) -> tuple[str, ...]:
        """Names of the tags that are not there any more afterwards."""
        created = {each.name for each in self.created_tags}
        return tuple(name for name in self.tags if name not in created)

    @property
    def bytes(self) -> int:
        """Bytes of the files, as far as manifests say them: all but manifest lists and small extra files."""
        return sum(each.bytes or 0 for each in self.files)

    @property
    def held_back(self) -> tuple[Protection, ...]:
        """The protections that the earliest snapshot that stays needs: they keep snapshots from expiring."""
        earliest, holding = self.earliest_id, (each for each in self.protections if not each.changelog_only)
        return tuple(each for each in holding if earliest is not None and each.first_kept <= earliest)

    def to_value(self) -> dict[str, Any]:
        """The plan for JSON."""
        return {
            "table": self.table,
            "snapshots": list(self.snapshot_ids),
            "changelogs": list(self.changelog_ids),
            "kept_changelogs": list(self.kept_changelog_ids),
            "tags": list(self.deleted_tags),
            "created_tags": [{"name": each.name, "snapshot": each.snapshot.id} for each in self.created_tags],
            "consumers": list(self.consumers),
            "files": [{"path": each.path, "kind": each.kind, "size": each.bytes} for each in self.files],
            "bytes": self.bytes,
            "earliest": self.earliest_id,
            "latest": self.latest_id,
            "partitions": [dict(each) for each in self.partitions],
            "done_partitions": [dict(each) for each in self.done_partitions],
            "rewritten_manifests": self.rewritten_manifests,
            "compaction": None if self.compaction is None else _compaction_value(self.compaction),
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
        dropped_partitions: The expired partitions that were dropped: all that were planned but those that another
            program has dropped, or written to, meanwhile.
    """

    plan: MaintenancePlan
    dry_run: bool = False
    resumed: int = 0
    dropped_partitions: tuple[PartitionValues, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done, or would be."""
        return self.plan.is_empty and not self.resumed

    def log(self) -> None:
        """Log what was done, if anything was."""
        if self.dry_run or self.is_empty:
            return
        plan = self.plan
        _LOG.info(
            "maintained",
            "%(table)s: compacted %(compacted)d files, expired %(snapshots)d snapshots, created %(created_tags)d tags "
            "and deleted %(tags)d, dropped %(partitions)d partitions, and deleted %(files)d files",
            table=plan.table,
            compacted=0 if plan.compaction is None else plan.compaction.files,
            snapshots=len(plan.snapshot_ids),
            created_tags=len(plan.created_tags),
            tags=len(plan.deleted_tags),
            partitions=len(self.dropped_partitions),
            files=len(plan.files) + self.resumed,
        )


def _compaction_value(compaction: CompactedFiles) -> dict[str, Any]:
    return {"files": compaction.files, "bytes": compaction.bytes, "snapshots": list(compaction.snapshot_ids)}


def plan_text(files: Sequence[TableFile], root: str) -> bytes:
    """A plan for another run, which may reach the table by another scheme: paths in the table are relative to it.

    So a copy of the table deletes no file of this one, either.
    """
    roots = {f"{each.rstrip('/')}/" for each in (root, _plain(root))}
    # A plan of a million files is not made of a million texts.
    text = io.BytesIO()
    text.write(f'{{"version": {_PLAN_VERSION}, "files": ['.encode())
    for number, file in enumerate(files):
        path = next((file.path.removeprefix(each) for each in roots if file.path.startswith(each)), file.path)
        text.write(f"{', ' if number else ''}{json.dumps(path)}".encode())
    text.write(b"]}")
    return text.getvalue()


def _plain(root: str) -> str:
    """The root without a scheme if it is local: a FileIO decodes `file:` URIs, but not the names of partitions."""
    return local_path(root) if root.startswith("file:") else root


def plan_files(root: str, data: bytes) -> list[TableFile]:
    fields = parse_fields(data, "plan of maintenance")
    if fields.get("version", int) != _PLAN_VERSION:
        raise ValueError("it was written by a later version of this library")
    return [
        TableFile(path if "://" in path or path.startswith("/") else f"{_plain(root).rstrip('/')}/{path}", "unfinished")
        for path in fields.get("files", list)
    ]


def plans_of_runs(names: Iterable[str]) -> list[str]:
    """The names of the plans among files of consumers whose runs are under way, or were killed."""
    return [each for each in names if each.startswith(PLAN_PREFIX) and not each.startswith(LEFTOVER_PREFIX)]


def unfinished_plans(store: Store, directory: str, names: Iterable[str], root: str) -> dict[str, list[TableFile]]:
    """The files of plans that are being carried out, or whose run has died, by the path of the plan.

    Args:
        store: Reads the plans.
        directory: The directory of the consumers.
        names: The names of the files in that directory.
        root: The path of the table.
    """
    paths = [f"{directory}/{name}" for name in sorted(names) if name.startswith(PLAN_PREFIX)]
    found = zip(paths, store.read_many(paths), strict=True)
    parse = partial(plan_files, root)
    return {path: store.parse_data(path, data, parse) for path, data in found if data is not None}
