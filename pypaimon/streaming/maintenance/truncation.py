"""Deletes what a branch holds after one of its snapshots, so that it is the latest one.

The newest goes first: a process that dies leaves a shorter history, and the next call continues. Data files stay: the
snapshots of other branches may need them, so maintenance finds those that nothing needs.

If the snapshot was restored, there may be a gap after it. Until the later ones are gone, no reader must take it for the
latest one (`forget_latest`), or begin at it (`hide_gap`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.maintenance.tags import success_path, tags_of
from pypaimon.streaming.metadata.snapshots import Snapshot, branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory

_LISTINGS = 10


@dataclass(frozen=True, slots=True)
class LaterFiles:
    """What a branch holds after a snapshot.

    Attributes:
        snapshots: Ids of snapshots, ascending.
        changelogs: Ids of long-lived changelogs, ascending.
        tags: Names of tags.
    """

    snapshots: tuple[int, ...] = ()
    changelogs: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()


def later_files(directory: TableDirectory, last: int, others_after: int | None = None) -> LaterFiles:
    """What a branch holds after a snapshot.

    Args:
        directory: The branch.
        last: The snapshot.
        others_after: The same for changelogs and tags; None: `last`.

    Raises:
        MaintenanceConflictError: The store gave an old listing, or the table was rolled back meanwhile.
    """
    after = last if others_after is None else others_after
    hinted = directory.snapshots.hinted_latest_id()
    ids = directory.snapshots.list_ids()
    check_listed(directory, hinted, ids)
    tags = sorted((each for each in tags_of(directory) if each.snapshot.id > after), key=lambda each: each.snapshot.id)
    return LaterFiles(
        tuple(each for each in ids if each > last),
        tuple(each for each in directory.snapshots.list_changelog_ids() if each > after),
        tuple(each.name for each in tags),
    )


def forget_latest(directory: TableDirectory) -> None:
    """Delete the hint to the latest snapshot, so that readers and writers list.

    They believe the hint if the next snapshot is missing. A hint to the last snapshot before a gap would cut off those
    after it, and the next commit would follow that snapshot.
    """
    directory.store.delete(_hint(directory, "LATEST"))


def hide_gap(directory: TableDirectory) -> None:
    """Let the hint lead to the earliest snapshot that readers find, before an earlier one is restored.

    They then do not find the restored snapshot at a gap until the later ones are gone, also if that is never finished.
    The hint may be missing, or lead to a snapshot that has expired.
    """
    earliest = directory.snapshots.earliest_id()
    if earliest is not None and directory.snapshots.hinted_earliest_id() != earliest:
        directory.store.write_atomic(_hint(directory, "EARLIEST"), str(earliest).encode())


def check_listed(directory: TableDirectory, hinted: int | None, ids: Sequence[int]) -> None:
    """Check that a listing has the snapshot that the hint named before.

    Raises:
        MaintenanceConflictError: The store gave an old listing, or the table was rolled back meanwhile.
    """
    newest = max(ids, default=0)
    if hinted is not None and hinted > newest and directory.snapshots.refreshed(hinted) is not None:
        raise MaintenanceConflictError(directory.table.table_path, f"snapshot {hinted} was not listed, but is there")


def listed_snapshots(directory: TableDirectory) -> list[Snapshot]:
    """All snapshots of a branch, ascending. Raises as `check_listed`."""
    hinted = directory.snapshots.hinted_latest_id()
    found = directory.snapshots.list_snapshots()
    check_listed(directory, hinted, [each.id for each in found])
    return found


def truncate(directory: TableDirectory, last: int, others_after: int | None = None) -> LaterFiles:
    """Delete what a branch holds after a snapshot, which must exist. The arguments are those of `later_files`.

    Returns:
        What was deleted. Commits that came meanwhile are among it, because the snapshot that they follow is gone.

    Raises:
        MaintenanceConflictError: The store gave an old listing; nothing was deleted.
    """
    store = directory.store
    found = later_files(directory, last, others_after)
    forget_latest(directory)
    # Changelogs first: with its snapshot gone, a reader would take the changelog of a later one for the next changes.
    _delete_changelogs(directory, found.changelogs)
    deleted = list(found.snapshots)
    for number in reversed(found.snapshots):
        store.delete(directory.snapshots.get_snapshot_path(number))
    for _ in range(_LISTINGS):
        stale = _stale(directory, last, deleted)
        for number in reversed(stale):
            store.delete(directory.snapshots.get_snapshot_path(number))
        deleted += stale
        if not stale:
            break
    hint = directory.snapshots.hinted_earliest_id()
    if hint is not None and hint > last and (ids := directory.snapshots.list_ids()):
        store.write_atomic(_hint(directory, "EARLIEST"), str(ids[0]).encode())
    # If another program has committed meanwhile, the next snapshot is there, and readers do not believe this.
    store.write_atomic(_hint(directory, "LATEST"), str(last).encode())
    tags = [*found.tags]
    _delete_tags(directory, reversed(tags))
    for _ in range(_LISTINGS):
        late = _tags_of_lost_snapshots(directory, last if others_after is None else others_after)
        if not late:
            break
        _delete_tags(directory, late)
        tags += late
    directory.forget()
    return LaterFiles(tuple(sorted({*deleted})), found.changelogs, tuple(dict.fromkeys(tags)))


def _hint(directory: TableDirectory, name: str) -> str:
    return f"{branch_directory(directory.table.table_path, directory.branch)}/snapshot/{name}"


def _stale(directory: TableDirectory, last: int, deleted: Sequence[int]) -> list[int]:
    """Later snapshots that follow one that is gone, ascending. One that follows the last snapshot is a new commit.

    Those that were deleted, and the one after them, are asked for if they are not listed, because a commit may have
    taken the id of one, and the listing may be old.
    """
    listed = {each for each in directory.snapshots.list_ids() if each > last}
    asked = {*deleted, max(deleted, default=last) + 1} - listed
    answers = {each: directory.snapshots.begin_refresh(each) for each in asked}
    later = listed | {each for each, answer in answers.items() if answer() is not None}
    following = last + 1
    while following in later:
        following += 1
    return sorted(each for each in later if each > following)


def _tags_of_lost_snapshots(directory: TableDirectory, after: int) -> list[str]:
    """Tags of later snapshots that are gone, which were created meanwhile. Other tags are of new commits."""
    later = (each for each in tags_of(directory) if each.snapshot.id > after)
    there = ((each, directory.snapshots.refreshed(each.snapshot.id)) for each in later)
    return [each.name for each, snapshot in there if snapshot is None or not snapshot.is_same_commit(each.snapshot)]


def _delete_tags(directory: TableDirectory, names: Iterable[str]) -> None:
    for name in names:
        directory.store.delete(directory.tag_path(name))
        directory.store.delete(success_path(directory, name))


def _delete_changelogs(directory: TableDirectory, numbers: tuple[int, ...]) -> None:
    if not numbers:
        return
    store = directory.store
    home = f"{branch_directory(directory.table.table_path, directory.branch)}/changelog"
    left = [each for each in directory.snapshots.list_changelog_ids() if each not in numbers]
    if left:
        store.write_atomic(f"{home}/LATEST", str(left[-1]).encode())
    else:
        for name in ("LATEST", "EARLIEST"):
            store.delete(f"{home}/{name}")
    for number in reversed(numbers):
        store.delete(f"{home}/changelog-{number}")
