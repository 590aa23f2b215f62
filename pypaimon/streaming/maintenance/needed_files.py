"""`NeededFiles`: the files that a table needs, also while others change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pypaimon.streaming.maintenance.plan import MaintenancePlan
from pypaimon.streaming.maintenance.references import Candidates, References, TableFile, missing_file_error
from pypaimon.streaming.maintenance.roots import Picture, Roots, picture_of
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory


def kept_roots(picture: Picture, plan: MaintenancePlan) -> Roots:
    """The roots of the branch after the plan."""
    own = picture.own
    gone, old, late = set(plan.snapshot_ids), set(plan.changelog_ids), set(plan.kept_changelog_ids)
    # A snapshot that was restored from a tag does not name its changelog, which may be long-lived all the same.
    changelogs = {each.id: each for each in own.changelogs if each.id not in old}
    changelogs |= {each.id: each for each in own.snapshots if each.id in late}
    kept_tags = (each for each in picture.tags if each.name not in plan.tags)
    return replace(
        own,
        snapshots=tuple(each for each in own.snapshots if each.id not in gone),
        tagged=tuple(each.snapshot for each in (*kept_tags, *plan.created_tags)),
        changelogs=tuple(changelogs[number] for number in sorted(changelogs)),
    )


def candidates_of(
    table: PaimonTable, directory: TableDirectory, picture: Picture, plan: MaintenancePlan
) -> Iterator[TableFile]:
    """The files that what a plan deletes names, whether or not something else needs them."""
    candidates = Candidates(directory.manifests, table.paths)
    own = picture.own
    gone, old = set(plan.snapshot_ids), set(plan.changelog_ids)
    following = next((each for each in own.snapshots if each.id not in gone), None)
    if gone:
        yield from candidates.of_snapshots([each for each in own.snapshots if each.id in gone], following)
    if old:
        changelogs = (*own.lost_changelogs, *own.changelogs)
        yield from candidates.of_snapshots([each for each in changelogs if each.id in old], None)
    # The snapshot of a tag needs the same files, if it stays.
    kept = {each.fingerprint for each in own.snapshots if each.id not in gone}
    tags = [each for each in picture.tags if each.name in plan.tags and each.snapshot.fingerprint not in kept]
    yield from candidates.of_states([each.snapshot for each in tags])


class NeededFiles:
    """What the files of a table are needed for.

    Args:
        table: The table.
        directory: Its files.
        seen: The snapshots and tags that were read already.
    """

    def __init__(self, table: PaimonTable, directory: TableDirectory, seen: SeenFiles) -> None:
        self._table = table
        self._directory = directory
        self._seen = seen

    def of(self, roots: Iterable[Roots]) -> set[str]:
        """Names of the files that these roots need.

        Raises:
            CorruptTableError: A file that is needed to know that is damaged or missing.
            MaintenanceConflictError: What needs it has expired meanwhile.
        """
        references = References(self._directory.manifests)
        for each in roots:
            self._add(references, each)
        # What the entries of a large table have taken is not kept for the next ones.
        pa.default_memory_pool().release_unused()
        return references.names

    def _add(self, references: References, roots: Roots) -> None:
        try:
            references.add(roots)
        except FileNotFoundError as error:
            visible = roots.visible
            if len(visible.snapshots) < len(roots.snapshots):
                # Java's expiry begins at the hint, and deletes files that the snapshots below it name. No reader finds
                # those, so they need nothing that is gone. A run that was killed may have left them for long: if this
                # were a conflict, the next runs would meet it too.
                self._add(references, visible)
                return
            what = "a snapshot, tag or changelog that stays"
            raise missing_file_error(self._table.name, error, what, self._expired(roots)) from error

    def _expired(self, roots: Roots) -> Snapshot | None:
        """The first of these visible roots that has expired since they were read, or that readers no longer find."""
        now = picture_of(self._table.new_directory(), self._seen, with_consumers=False)
        there = {mark for found in (now.own, *now.others) for mark in found.visible.marks}
        # A plan's tags and changelogs are still to be written: their snapshots, which may be hidden, have the files.
        snapshots = {(each.branch, by.fingerprint) for each in (now.own, *now.others) for by in each.snapshots}
        for each, (kind, *place) in zip(roots.all, roots.marks, strict=True):
            if (kind, *place) not in there and (kind == "snapshot" or tuple(place) not in snapshots):
                return each
        return None

    def newly_needed(self, roots: Sequence[Roots]) -> tuple[set[str], Picture]:
        """What snapshots, tags, changelogs and branches need now that these roots do not hold.

        They have appeared meanwhile, or should have been deleted and are still there. What another branch holds of the
        same commit does not count: it may not have the changelog. The picture that is returned has no consumers.
        """
        now = picture_of(self._table.new_directory(), self._seen, with_consumers=False)
        known = {mark for each in roots for mark in each.marks}
        return self.of([each.without(known) for each in (now.own, *now.others)]), now
