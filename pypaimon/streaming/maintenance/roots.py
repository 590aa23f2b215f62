"""What a table holds that keeps files: the snapshots, tags and long-lived changelogs of its branches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo, consumers_of
from pypaimon.streaming.errors import CorruptTableError, MaintenanceConflictError
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.maintenance.tags import Tag, tags_of
from pypaimon.streaming.maintenance.truncation import check_listed
from pypaimon.streaming.metadata.snapshots import Snapshot, branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.paimon.internals import TableSchema

_LISTINGS = 10


@dataclass(frozen=True, slots=True)
class Roots:
    """What keeps files of one branch.

    Attributes:
        snapshots: The snapshots that have a file, ascending.
        tagged: The snapshots that tags hold.
        changelogs: The long-lived changelogs, ascending.
        lost_changelogs: Those that came back without their files: a run was killed just after it had kept what another
            run had expired meanwhile.
        visible_id: The earliest snapshot that readers find. A run that was killed may have left earlier ones; 0: none.
        schemas: The schemas of the branch by id.
        branch: Its name.
    """

    snapshots: tuple[Snapshot, ...] = ()
    tagged: tuple[Snapshot, ...] = ()
    changelogs: tuple[Snapshot, ...] = ()
    lost_changelogs: tuple[Snapshot, ...] = ()
    visible_id: int = 0
    schemas: Callable[[int], TableSchema] | None = field(default=None, repr=False)
    branch: str = "main"

    @property
    def all(self) -> tuple[Snapshot, ...]:
        """All that need files."""
        return (*self.snapshots, *self.tagged, *self.changelogs)

    @property
    def visible(self) -> Roots:
        """The roots without the snapshots that readers do not find, which another program may be expiring."""
        return replace(self, snapshots=tuple(each for each in self.snapshots if each.id >= self.visible_id))

    @property
    def marks(self) -> list[tuple[str, str, str]]:
        """What each of `all` is, and where, and its fingerprint.

        An expired snapshot may still be there as a changelog, or on a branch, which needs other files.
        """
        kinds = {"snapshot": self.snapshots, "tag": self.tagged, "changelog": self.changelogs}
        return [(kind, self.branch, each.fingerprint) for kind, found in kinds.items() for each in found]

    def without(self, marks: Collection[tuple[str, str, str]]) -> Roots:
        """The roots that have none of these marks."""
        kept = iter([mark not in marks for mark in self.marks])
        parts = (self.snapshots, self.tagged, self.changelogs)
        snapshots, tagged, changelogs = (tuple(each for each in part if next(kept)) for part in parts)
        return replace(self, snapshots=snapshots, tagged=tagged, changelogs=changelogs)

    def has_changelog(self, snapshot: Snapshot) -> bool:
        """Whether the changelog of a snapshot is long-lived already: of one that a tag or branch has restored."""
        return any(each.id == snapshot.id and each.is_same_commit(snapshot) for each in self.changelogs)

    def has_producer(self, changelog: Snapshot) -> bool:
        """Whether a changelog was produced when it was committed; the option of the table may have changed since."""
        if changelog.changelog_manifest_list is not None:
            return True
        options = {} if self.schemas is None else self.schemas(changelog.schema_id).options
        return option_keys.CHANGELOG_PRODUCER.of(options) is not ChangelogProducer.NONE


@dataclass(frozen=True, slots=True)
class Picture:
    """All of that, as it was read.

    Attributes:
        own: The roots of the branch that is maintained.
        others: Those of the other branches.
        tags: The tags of the branch.
        tag_names: Names of all tags, by branch.
        consumers: The consumer files of the branch.
        consumer_files: The names of these files, and of all others in their directory.
    """

    own: Roots
    others: tuple[Roots, ...]
    tags: tuple[Tag, ...]
    tag_names: dict[str, tuple[str, ...]]
    consumers: tuple[ConsumerInfo, ...] = ()
    consumer_files: frozenset[str] = frozenset()


def picture_of(directory: TableDirectory, seen: SeenFiles | None = None, *, with_consumers: bool = True) -> Picture:
    """Read everything that keeps files.

    Args:
        directory: The table, of which nothing has been read yet.
        seen: The snapshots and tags that earlier calls have read. They become those that this call has found.
        with_consumers: Whether consumers are read too.

    Raises:
        CorruptTableError: A part of it is damaged, or stays missing though it is listed.
        MaintenanceConflictError: The listing is older than the hint to the latest snapshot, or the branch is gone.
    """
    names = ("main", *directory.branch_names())
    if directory.branch not in names:
        raise MaintenanceConflictError(directory.table.table_path, f"branch {directory.branch!r} was deleted meanwhile")
    directories = {name: of_branch(directory, name) for name in names}
    seen = SeenFiles() if seen is None else seen
    tags = {name: tags_of(each, seen) for name, each in directories.items()}
    roots = {name: _roots(each, tags[name], seen) for name, each in directories.items()}
    seen.end_look()
    own = directory.branch
    others = tuple(found for name, found in roots.items() if name != own)
    tag_names = {name: tuple(each.name for each in found) for name, found in tags.items()}
    consumers, files = _consumers(directory) if with_consumers else ((), frozenset())
    return Picture(roots[own], others, tags[own], tag_names, consumers, files)


def _consumers(directory: TableDirectory) -> tuple[tuple[ConsumerInfo, ...], frozenset[str]]:
    """The consumers, and the names of all files in their directory: one listing, unless a consumer moves meanwhile."""
    manager = consumers_of(directory)
    listed = directory.store.list_written(manager.directory)
    found = tuple(manager.infos(listed=listed))
    if any(manager.path(each.name).rpartition("/")[2] not in listed for each in found):
        listed = directory.store.list_written(manager.directory)
    return found, frozenset(listed)


def is_held(directory: TableDirectory, snapshot: Snapshot) -> bool:
    """Whether a branch still has a snapshot that was read before, or a tag of it."""
    there = directory.snapshots.refreshed(snapshot.id)
    if there is not None and there.is_same_commit(snapshot):
        return True
    return any(each.snapshot.is_same_commit(snapshot) for each in tags_of(directory))


def of_branch(directory: TableDirectory, name: str) -> TableDirectory:
    """The directory of a branch, in the view that the other directory has of the table."""
    return directory if name == directory.branch else directory.of_branch(name)


def _roots(directory: TableDirectory, tags: Sequence[Tag], seen: SeenFiles) -> Roots:
    """Read the roots of a branch.

    Raises:
        CorruptTableError: One of them is damaged, or stays missing though it is listed.
    """
    manager = directory.snapshots
    hinted = manager.hinted_latest_id()
    snapshots = _all(manager.list_statuses, manager.get_snapshots_batch, "snapshot", directory, seen)
    changelogs = _all(manager.list_changelog_statuses, manager.get_changelogs_batch, "changelog", directory, seen)
    if not snapshots and hinted is not None:
        if manager.hinted_latest_id() is None:
            raise MaintenanceConflictError(
                directory.table.table_path, f"branch {directory.branch!r} was deleted meanwhile"
            )
        where = branch_directory(directory.table.table_path, directory.branch)
        raise CorruptTableError(f"{where}/snapshot", "holds no snapshot, but a hint to the latest")
    check_listed(directory, hinted, [each.id for each in snapshots])
    tagged = tuple(each.snapshot for each in tags)
    lost = _lost(directory, changelogs)
    return Roots(
        snapshots,
        tagged,
        tuple(each for each in changelogs if each not in lost),
        lost,
        _visible_id(directory, snapshots),
        directory.schema,
        directory.branch,
    )


def _lost(directory: TableDirectory, changelogs: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """The changelogs that have expired, as the hint to the earliest says, and are there again without their files.

    Without the hint a missing file is damage.
    """
    earliest = directory.snapshots.hinted_earliest_changelog_id() if changelogs else None
    old = [each for each in changelogs if earliest is not None and each.id < earliest]
    return tuple(each for each in old if not has_changelog_list(directory, each))


def has_changelog_list(directory: TableDirectory, changelog: Snapshot) -> bool:
    """Whether the manifest list of a changelog is there. That of a compaction may need none.

    One that was not produced is read from the data files of its commit.
    """
    name = changelog.changelog_manifest_list
    if name is None:
        if Roots(schemas=directory.schema).has_producer(changelog):
            return True
        name = changelog.delta_manifest_list
    try:
        directory.store.read(f"{directory.table.table_path}/manifest/{name}")
    except FileNotFoundError:
        return False
    return True


def _visible_id(directory: TableDirectory, snapshots: Sequence[Snapshot]) -> int:
    """The snapshot to which the hint leads, if readers believe it because the one before is gone; 0 if nothing does."""
    if all(each.id + 1 == after.id for each, after in pairwise(snapshots)):
        return 0
    hinted = directory.snapshots.hinted_earliest_id()
    ids = {each.id for each in snapshots}
    return hinted if hinted in ids and hinted - 1 not in ids else 0


def _all(
    listed: Callable[[], dict[int, Any]],
    fetched: Callable[[Iterable[int]], dict[int, Snapshot | None]],
    what: str,
    directory: TableDirectory,
    seen: SeenFiles,
) -> tuple[Snapshot, ...]:
    """All snapshots of a listing; listed again if one is missing, because another program may expire it meanwhile."""
    missing: list[int] = []
    for _ in range(_LISTINGS):
        statuses = listed()
        known = {number: snapshot for number, each in statuses.items() if (snapshot := seen.unchanged(each))}
        found = known | fetched([number for number in statuses if number not in known])
        missing = [number for number, snapshot in found.items() if snapshot is None]
        if not missing:
            snapshots = {number: snapshot for number in statuses if (snapshot := found[number]) is not None}
            seen.add(statuses, snapshots)
            return tuple(snapshots.values())
    path = f"{directory.table.table_path}: {what} {missing[0]}"
    raise CorruptTableError(path, "is listed, but cannot be found")
