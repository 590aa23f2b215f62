"""Branches: created of the schemas or of a tag, renamed, deleted. Java's rules: docs/java-semantics.md#maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.errors import CorruptTableError, MaintenanceConflictError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.branch_files import (
    MAIN,
    UNFINISHED,
    branch_home,
    check_unused,
    existing_branch,
    files_of_branch,
    is_being_created,
    new_branch_name,
    schema_files,
)
from pypaimon.streaming.maintenance.completeness import check_complete
from pypaimon.streaming.maintenance.plan import LEFTOVER_PREFIX, plan_text
from pypaimon.streaming.maintenance.references import Candidates, References, TableFile, unreferenced
from pypaimon.streaming.maintenance.retention_pin import pinned
from pypaimon.streaming.maintenance.rollback_target import restored_text
from pypaimon.streaming.maintenance.roots import of_branch, picture_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_name, a_table
from pypaimon.streaming.paimon.handles import WritableTable

_LISTINGS = 10
_LOG = StreamLog(__name__)


def create_branch(table: WritableTable, name: str, *, tag: str | None = None, ignore_if_exists: bool = False) -> None:
    """Create a branch of the branch that the table was loaded on. Blocks.

    A process that dies leaves a part of the branch; the same call finishes it.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        name: Its name: not blank, not `main`, not a number.
        tag: The branch begins with the snapshot of this tag; None: it is empty, and has the schemas.
        ignore_if_exists: Do nothing if there is such a branch.

    Raises:
        StreamConfigError: The name cannot be used, the branch exists, or there is no such tag.
        CorruptTableError: A file that the tag needs is missing.
        MaintenanceConflictError: Maintenance is running, or the tag was deleted meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("create_branch: table", table))
    directory = given.new_directory()
    new_branch_name("create_branch: name", name)
    if tag is not None and directory.tag(a_name("create_branch: tag", tag)) is None:
        names = ", ".join(directory.tag_names()) or "none"
        raise StreamConfigError(f"create_branch: there is no tag {tag!r}. Tags: {names}.")
    if given.is_managed_by_catalog:
        if not (ignore_if_exists and name in directory.branch_names()):
            _managed(given, directory, lambda manager: manager.create_branch(name, tag, ignore_if_exists))
        return
    if tag is None:
        files, last = _schemas(directory), None
        _create(directory, name, files, last, ignore_if_exists)
    else:
        _create_of_tag(given, directory, name, tag, ignore_if_exists)


def delete_branch(table: WritableTable, name: str) -> int:
    """Delete a branch. Blocks.

    Its snapshots, tags, changelogs, schemas and consumers are deleted, the newest snapshot first; a process that dies
    leaves an earlier state of the branch, and the same call finishes it. The data files that only the branch needs are
    recorded in `consumer/`: the next `maintain` of main finds out again which of them nothing needs, and deletes those.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, on another branch.
        name: The branch.

    Returns:
        How many files are left for `maintain`; 0 also if the branch is damaged, so that they are left as orphans.

    Raises:
        StreamConfigError: There is no such branch, or an option of the table names it.
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("delete_branch: table", table))
    directory = given.new_directory()
    existing_branch("delete_branch", directory, name)
    check_unused("delete_branch", directory, given.options, name)
    if given.is_managed_by_catalog:
        _managed(given, directory, lambda manager: manager.drop_branch(name))
        return 0
    files = _own_files(given, of_branch(directory, name))
    path = f"{consumers_of(of_branch(directory, MAIN)).directory}/{LEFTOVER_PREFIX}{uuid4()}"
    if files:
        directory.store.write_atomic(path, plan_text(files, given.path))
    _delete_all(directory, name)
    if files:
        # A run that has seen the branch meanwhile has found its files needed, and has deleted the record.
        directory.store.write_atomic(path, plan_text(files, given.path))
    text = "%(table)s: branch %(branch)s was deleted; %(files)d files are left for maintain"
    _LOG.info("branch_deleted", text, table=given.name, branch=name, files=len(files))
    return len(files)


def rename_branch(table: WritableTable, name: str, new_name: str) -> None:
    """Rename a branch. Blocks. In an object store its files are copied, so nobody should write into it meanwhile.

    A process that dies while it copies leaves both; the same call finishes it.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, on another branch.
        name: The branch.
        new_name: Its new name; see `create_branch`.

    Raises:
        StreamConfigError: There is no such branch, an option of the table names it, or there is one of the new name.
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("rename_branch: table", table))
    directory = given.new_directory()
    existing_branch("rename_branch", directory, name)
    check_unused("rename_branch", directory, given.options, name)
    new_branch_name("rename_branch: new_name", new_name)
    if given.is_managed_by_catalog:
        _managed(given, directory, lambda manager: manager.rename_branch(name, new_name))
        return
    home, new_home, store = branch_home(directory, name), branch_home(directory, new_name), directory.store
    if not (is_local(home) or is_renamed(home)):
        _copy_all(directory, name, new_name)
        _delete_all(directory, name)
        store.delete(f"{new_home}/{UNFINISHED}")
        return
    if new_name in directory.branch_names():
        raise _exists("rename_branch", new_name)
    if store.call("write", home, lambda path: given.file_io.rename(path, new_home)) is False:
        raise CorruptTableError(home, f"could not be renamed to {new_home}")


# ---- Creation


def _create_of_tag(table: PaimonTable, directory: TableDirectory, name: str, tag: str, ignore: bool) -> None:
    store = directory.store
    (data,) = store.read_many([directory.tag_path(tag)])
    if data is None:
        raise MaintenanceConflictError(table.name, f"tag {tag!r} was deleted meanwhile")
    tagged = Snapshot.from_json(data)
    with pinned(directory, tagged.id, f"branch-{name}"):
        there = directory.snapshots.refreshed(tagged.id)
        if there is not None and there.is_same_commit(tagged):
            text = store.read(directory.snapshots.get_snapshot_path(tagged.id))
        else:
            text = restored_text(table, directory, data)
        # The tag first: it keeps the files of the branch until the snapshot does.
        files = {f"tag/tag-{tag}": data, **_schemas(directory, tagged.schema_id)}
        _create(directory, name, files, (f"snapshot/snapshot-{tagged.id}", text), ignore)
        if directory.tag(tag) is None:
            # Another program has deleted it. It may not have seen the branch, and may have deleted its files.
            try:
                check_complete(table, directory, Snapshot.from_json(text))
            except (CorruptTableError, MaintenanceConflictError):
                _delete_all(directory, name)
                raise MaintenanceConflictError(table.name, f"tag {tag!r} was deleted meanwhile") from None


def _schemas(directory: TableDirectory, last: int | None = None) -> dict[str, bytes]:
    found = schema_files(directory)
    if not found:
        raise CorruptTableError(f"{branch_home(directory, directory.branch)}/schema", "holds no schema")
    return {f"schema/schema-{number}": data for number, data in found.items() if last is None or number <= last}


def _create(
    directory: TableDirectory, name: str, files: Mapping[str, bytes], last: tuple[str, bytes] | None, ignore: bool
) -> None:
    """Write the files of a branch in their order, the snapshot last."""
    if name in directory.branch_names() and not _is_unfinished(directory, name):
        if ignore:
            return
        raise _exists("create_branch", name)
    written = [*files.items(), *(() if last is None else (last,))]
    _check_own(directory, name, {UNFINISHED, *(path for path, _ in written)})
    _write_all(directory, name, written)
    directory.store.delete(f"{branch_home(directory, name)}/{UNFINISHED}")


def _check_own(directory: TableDirectory, name: str, paths: set[str]) -> None:
    """Check that an unfinished branch has no file but these: with others it would be a mixture of two histories."""
    found = files_of_branch(directory.store, branch_home(directory, name))
    # A process that dies also leaves temporary files.
    others = [each for each in found if each not in paths and not each.rpartition("/")[2].startswith(".")]
    if others:
        raise StreamConfigError(
            f"create_branch: another call has left an unfinished branch {name!r}, which holds {others[0]}.",
            advice="Delete that branch first.",
        )


def _is_unfinished(directory: TableDirectory, name: str) -> bool:
    """Whether a branch was left by a process that died while it created the branch, or deleted it."""
    return is_being_created(directory, name) or not files_of_branch(directory.store, branch_home(directory, name))


def _write_all(directory: TableDirectory, name: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files of a branch, and first the mark that it is unfinished."""
    home = branch_home(directory, name)
    for path, data in ((UNFINISHED, b""), *files):
        directory.store.write_atomic(f"{home}/{path}", data)


def _exists(what: str, name: str) -> StreamConfigError:
    return StreamConfigError(f"{what}: branch {name!r} exists already. Choose another name, or delete it first.")


# ---- Deletion and copying


def _own_files(table: PaimonTable, branch: TableDirectory) -> tuple[TableFile, ...]:
    """The files that only a branch needs; none if that cannot be found out."""
    with suppress(CorruptTableError, FileNotFoundError):
        picture = picture_of(branch)
        references = References(branch.manifests)
        for each in picture.others:
            references.add(each)
        candidates, own = Candidates(branch.manifests, table.paths), picture.own
        named = [*candidates.of_states(own.all), *candidates.of_snapshots((*own.snapshots, *own.changelogs), None)]
        return unreferenced(named, references.names)
    return ()


def _delete_all(directory: TableDirectory, name: str) -> None:
    store, home = directory.store, branch_home(directory, name)
    for _ in range(_LISTINGS):
        # What a writer commits meanwhile would be a branch without schemas.
        files = files_of_branch(store, home)
        for each in files:
            store.delete(f"{home}/{each}")
        if not files:
            break
    with suppress(FileNotFoundError):
        store.call("delete", home, lambda path: store.file_io.delete(path, True))


def _copy_all(directory: TableDirectory, name: str, new_name: str) -> None:
    """Copy the files of a branch, snapshots last. A copy that another process has begun is continued."""
    store, home = directory.store, branch_home(directory, name)
    if new_name in directory.branch_names() and not _is_unfinished(directory, new_name):
        raise _exists("rename_branch", new_name)
    _write_all(
        directory, new_name, ((each, store.read(f"{home}/{each}")) for each in reversed(files_of_branch(store, home)))
    )


# ---- Catalogs that manage branches


def _managed(table: PaimonTable, directory: TableDirectory, request: Callable[[Any], None]) -> None:
    """Have the catalog change its branches."""
    manager = table.handle.branch_manager()

    def call(_: str) -> None:
        try:
            request(manager)
        except ValueError as error:
            raise StreamConfigError(str(error)) from error

    directory.store.call("catalog", table.path, call)
