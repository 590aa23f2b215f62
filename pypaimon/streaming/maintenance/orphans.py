"""Orphan files: what failed writers left in the directories of a table, which no snapshot, tag or changelog names.

Only age distinguishes an orphan from a file whose commit is still to come, so young files stay. Java's rules, and how
its own cleaner has deleted live files: docs/java-semantics.md#maintenance.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from pyarrow.fs import FileType

from pypaimon.streaming.consumers.consumer_manager import last_write
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance.references import TableFile
from pypaimon.streaming.metadata.file_paths import FilePaths

_METADATA = ("manifest", "index", "statistics")
_SMALL = ("snapshot", "changelog", "tag", "consumer")
_MANAGED = ".managed.blob"
"""Files of blobs that rows refer to, which no manifest names. Java never deletes them either."""


class OldFiles:
    """The files of a table that were last written before a time, in the directories where writers leave orphans.

    Args:
        store: Lists the directories; an error of a listing is raised, so that nothing is deleted.
        paths: The paths of the table.
        before: The time.
    """

    def __init__(self, store: Store, paths: FilePaths, before: datetime) -> None:
        self._store = store
        self._paths = paths
        self._before = before
        self._root = paths.table_path.rstrip("/")

    def of_table(self, branches: list[str]) -> Iterator[TableFile]:
        """All of them.

        Args:
            branches: The directories of the branches.
        """
        for name in _METADATA:
            yield from self._files(f"{self._root}/{name}")
        if self._is_own(self._paths.data_root):
            yield from self._data_files(self._paths.data_root, len(self._paths.partition_fields))
        for home in branches:
            for name in _SMALL:
                yield from (each for each in self._files(f"{home}/{name}") if _is_temporary(each))

    def _is_own(self, directory: str) -> bool:
        """Whether a directory is the table's: one elsewhere (`data-file.path-directory`) may belong to others too."""
        below = f"{directory}/".removeprefix(f"{self._root}/")
        return below != f"{directory}/" and ".." not in unquote(below).split("/")

    def _data_files(self, directory: str, depth: int) -> Iterator[TableFile]:
        """The files of buckets exactly as deep as partitions are: a file elsewhere is not the table's."""
        for status in self._store.list_statuses(directory):
            name = _name(status)
            if status.type != FileType.Directory:
                continue
            if depth and "=" in name:
                yield from self._data_files(f"{directory}/{name}", depth - 1)
            elif not depth and name.startswith("bucket-"):
                yield from self._files(f"{directory}/{name}")

    def _files(self, directory: str) -> Iterator[TableFile]:
        for status in self._store.list_statuses(directory):
            written = last_write(status)
            if status.type == FileType.File and written is not None and written < self._before:
                name = _name(status)
                if not name.endswith(_MANAGED):
                    yield TableFile(f"{directory}/{name}", "orphan", status.size)


def _is_temporary(file: TableFile) -> bool:
    """Whether a writer that renames its file has died before that. A name in `.new` is a whole file, to be renamed."""
    name = file.path.rpartition("/")[2]
    return name.startswith(".") and not name.endswith(".new")


def _name(status: Any) -> str:
    return str(status.path.rstrip("/").rsplit("/", 1)[-1])
