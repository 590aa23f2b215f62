"""The files of a branch: snapshots, tags, changelogs, schemas, consumers. All branches share the data files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pyarrow.fs import FileType

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.metadata.snapshots import Snapshot, branch_directory, inside
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_name
from pypaimon.streaming.options.option_key import TableOptions

MAIN = "main"
UNFINISHED = "consumer/unfinished"
"""A file of a branch that is being created, or that is the copy of another one."""
_SCHEMA = "schema-"
_USES = (
    option_keys.SCAN_FALLBACK_BRANCH,
    option_keys.SCAN_PRIMARY_BRANCH,
    option_keys.SCAN_FALLBACK_SNAPSHOT_BRANCH,
    option_keys.SCAN_FALLBACK_DELTA_BRANCH,
)
_ORDER = ("snapshot", "tag", "changelog", "consumer", "service", "schema")
"""In which order the directories of a branch are deleted; reversed, in which they are copied.

A branch is found by its files, so what is left after a crash has schemas.
"""


def branch_home(directory: TableDirectory, name: str) -> str:
    """The directory of a branch."""
    return branch_directory(directory.table.table_path, name)


def new_branch_name(what: str, name: str) -> str:
    """Check the name of a branch that does not exist yet.

    Raises:
        StreamConfigError: Java would refuse it, or it is not the name of one directory.
    """
    a_name(what, name)
    if not name.strip():
        raise StreamConfigError(f"{what}: the name of a branch cannot be blank.")
    if name == MAIN or name.isdecimal():
        raise StreamConfigError(f"{what}: {name!r} is reserved. Choose a name that is not 'main' and not a number.")
    if "/" in name or "\\" in name:
        raise StreamConfigError(f"{what}: {name!r} contains a separator of paths. Choose another name.")
    return inside("branch", name)


def existing_branch(what: str, directory: TableDirectory, name: str) -> str:
    """Check that a branch exists.

    Raises:
        StreamConfigError: It does not, or it is main.
    """
    a_name(what, name)
    names = directory.branch_names()
    if name not in names:
        raise StreamConfigError(f"{what}: there is no branch {name!r}. Branches: {', '.join(names) or 'none'}.")
    return name


def is_being_created(directory: TableDirectory, name: str) -> bool:
    """Whether a branch is being created, or was left by a process that died meanwhile."""
    return directory.store.read_many([f"{branch_home(directory, name)}/{UNFINISHED}"]) != [None]


def needs_nothing(branch: TableDirectory) -> bool:
    """Whether a branch has no snapshot, changelog or tag. A run may leave its plan in a branch that was deleted."""
    snapshots = branch.snapshots
    return not (snapshots.list_ids() or snapshots.list_changelog_ids() or branch.tag_names())


def check_unused(what: str, directory: TableDirectory, options: TableOptions, name: str) -> None:
    """Check that a branch may disappear.

    Raises:
        StreamConfigError: An option of the table names it, or it is the branch of the handle.
    """
    for key in _USES:
        if key.of(options) == name:
            raise StreamConfigError(f"{what}: option {key.name!r} names branch {name!r}. Change the option first.")
    if directory.branch == name:
        raise StreamConfigError(f"{what}: the table was loaded on branch {name!r}. Load it on another branch.")


def schema_files(directory: TableDirectory) -> dict[int, bytes]:
    """The files of all schemas of a branch, by id, ascending."""
    home = f"{branch_home(directory, directory.branch)}/schema"
    names = (name.removeprefix(_SCHEMA) for name in directory.store.list_names(home) if name.startswith(_SCHEMA))
    ids = sorted(int(each) for each in names if each.isdecimal())
    found = directory.store.read_many([f"{home}/{_SCHEMA}{each}" for each in ids])
    return {number: data for number, data in zip(ids, found, strict=True) if data is not None}


def is_same_schema(first: bytes, second: bytes) -> bool:
    """Whether the files of two schemas say the same."""
    return first == second or bool(json.loads(first) == json.loads(second))


def known_snapshots(snapshots: Iterable[Snapshot], tags: Iterable[Tag]) -> list[Snapshot]:
    """The snapshots that a branch has, or had and tags keep."""
    return [*snapshots, *(tag.snapshot for tag in tags)]


def last_common(ours: Iterable[Snapshot], theirs: Iterable[Snapshot]) -> int | None:
    """The id of the last snapshot that is among both; None: there is none."""
    by_id: dict[int, list[Snapshot]] = {}
    for each in theirs:
        by_id.setdefault(each.id, []).append(each)
    common = (each.id for each in ours if any(map(each.is_same_commit, by_id.get(each.id, ()))))
    return max(common, default=None)


def schema_path(directory: TableDirectory, number: int) -> str:
    """The path of a schema of the directory's branch."""
    return f"{branch_home(directory, directory.branch)}/schema/{_SCHEMA}{number}"


def files_of_branch(store: Store, home: str) -> list[str]:
    """Paths of all files of a branch relative to its directory, in the order in which they are deleted.

    The newest snapshot goes first, so that what is left of the branch after a crash is an earlier state of it.
    """
    return sorted(_files(store, home, ""), key=_place)


def _files(store: Store, home: str, below: str) -> Iterator[str]:
    for status in store.list_statuses(f"{home}/{below}".rstrip("/")):
        name = below + str(status.path).rstrip("/").rpartition("/")[2]
        if status.type == FileType.Directory:
            yield from _files(store, home, f"{name}/")
        else:
            yield name


def _place(path: str) -> tuple[int, int, str]:
    kind, _, name = path.partition("/")
    number = name.rpartition("-")[2]
    return (
        _ORDER.index(kind) if kind in _ORDER else 0,
        -int(number) if number.isdecimal() and kind != "tag" else -(2**63),
        path,
    )
