"""`rewrite_manifests`: merge all manifests of a table that are small or hold deletes, as Java's `compact_manifest`."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_maintenance
from pypaimon.streaming.commit.manifests import ManifestOptions, full_merge
from pypaimon.streaming.commit.request import ManifestRewrite
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_AT_ONCE = {
    str(option_keys.MANIFEST_MERGE_MIN_COUNT): "1",
    str(option_keys.MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE): "1 b",
}
"""With these options each commit merges all that can be merged."""


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """What `rewrite_manifests` did.

    Attributes:
        snapshot_id: The snapshot with the new manifests; None if there was nothing to merge, or for a dry run.
        merged: Number of manifests that were small or held deletes, and that new ones replace.
    """

    snapshot_id: int | None
    merged: int


def rewrite_manifests(table: WritableTable, *, dry_run: bool = False) -> ManifestReport:
    """Merge the manifests of a table that are small or hold deletes. Blocks.

    The new snapshot holds the same files; it keeps schema, index files, statistics, watermark and properties of the
    one before it, and streams pass over it. If there is nothing to merge, there is no snapshot.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        dry_run: Write nothing.

    Raises:
        UnsupportedTableError: Its manifests are in a format that is not written here.
        CorruptTableError: A manifest is damaged or missing.
        CommitFailedError: The commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    return rewritten(PaimonTable(a_table("rewrite_manifests: table", table)), dry_run=dry_run)


def rewritten(table: PaimonTable, *, dry_run: bool) -> ManifestReport:
    """As `rewrite_manifests`."""
    merged = due_manifests(table)
    if dry_run or not merged:
        return ManifestReport(None, merged)
    report = commit_maintenance(table.copy(_AT_ONCE), ManifestRewrite(), f"Rewriting the manifests of {table.name}")
    return ManifestReport(report.snapshot_id, 0 if report.snapshot_id is None else merged)


def due_manifests(table: PaimonTable) -> int:
    """How many manifests of the latest snapshot a rewrite would replace, as their list says it."""
    options = ManifestOptions.of(table.copy(_AT_ONCE))
    directory = table.new_directory()
    manifests = TableState(directory, directory.snapshots.get_latest_snapshot()).manifests
    merged = full_merge(manifests, options) or set()
    is_alone = len(merged) == 1 and not any(
        each["_NUM_DELETED_FILES"] for each in manifests if each["_FILE_NAME"] in merged
    )
    return 0 if is_alone else len(merged)
