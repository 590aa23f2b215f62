"""An object store in memory, whose every request goes through one function that may delay, lose or refuse it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from zlib import crc32

from pyarrow.fs import FileType
from pypaimon.filesystem.local_file_io import LocalFileIO

Handler = Callable[[str, str, Callable[[], Any], Callable[[], bool]], Any]
"""Gets the kind of a request (`read`, `list`, `write`, `delete`), its path, what makes it, and on what condition."""


def always() -> bool:
    """The condition of most requests."""
    return True


@dataclass(frozen=True, slots=True)
class Status:
    """An entry of a directory."""

    path: str
    type: FileType
    size: int
    mtime: datetime | None


class MemoryObjects:
    """Objects by path, with the time of their last write.

    Attributes:
        now: Seconds, which the world moves.
    """

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self._directories: dict[str, dict[str, tuple[bytes, float] | None]] = {}

    def __contains__(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return name in self._directories.get(directory, ())

    def get(self, path: str) -> bytes | None:
        """The bytes of an object; None without one."""
        directory, _, name = path.rpartition("/")
        found = self._directories.get(directory, {}).get(name)
        return None if found is None else found[0]

    def put(self, path: str, data: bytes) -> None:
        """Write an object."""
        directory, _, name = path.rpartition("/")
        self._directories.setdefault(directory, {})[name] = data, self.now
        while directory.count("/") > 2:
            directory, _, name = directory.rpartition("/")
            self._directories.setdefault(directory, {}).setdefault(name, None)

    def remove(self, path: str) -> bool:
        """Delete an object, with directories that become empty; return whether it was there."""
        directory, _, name = path.rpartition("/")
        if self._directories.get(directory, {}).get(name) is None:
            return False
        del self._directories[directory][name]
        while not self._directories[directory] and directory.count("/") > 2:
            del self._directories[directory]
            directory, _, name = directory.rpartition("/")
            del self._directories[directory][name]
        return True

    def names(self, directory: str) -> list[str]:
        """The entries of a directory."""
        return list(self._directories.get(directory, ()))

    def statuses(self, directory: str) -> list[Status]:
        """The entries of a directory, with their sizes and times."""
        found = self._directories.get(directory)
        if found is None:
            raise FileNotFoundError(directory)
        return [
            Status(f"{directory}/{name}", FileType.Directory, 0, None)
            if entry is None
            else Status(
                f"{directory}/{name}", FileType.File, len(entry[0]), datetime.fromtimestamp(entry[1], timezone.utc)
            )
            for name, entry in found.items()
        ]

    def paths(self) -> Iterator[str]:
        """All objects."""
        for directory, found in self._directories.items():
            yield from (f"{directory}/{name}" for name, entry in found.items() if entry is not None)


class MemoryFileIO(LocalFileIO):  # type: ignore[misc]
    """Those objects as one process reaches them.

    Args:
        objects: The objects.
        handle: Makes the requests.
        compares: Whether the store makes writes on a condition.
    """

    def __init__(self, objects: MemoryObjects, handle: Handler, compares: bool = False) -> None:
        super().__init__()
        self.compares = compares
        self._objects = objects
        self._handle = handle

    def new_input_stream(self, path: str) -> Any:
        return io.BytesIO(self._handle("read", path, lambda: self._read(path), always))

    def new_output_stream(self, path: str) -> Any:
        return _Put(lambda data: self._handle("write", path, lambda: self._objects.put(path, data), always))

    def list_status(self, path: str) -> Any:
        return self._handle("list", path, lambda: self._objects.statuses(path), always)

    def delete(self, path: str, recursive: bool = False) -> Any:
        return self._handle("delete", path, lambda: self._objects.remove(path), always)

    def exists(self, path: str) -> Any:
        return self._handle("read", path, lambda: path in self._objects, always)

    def try_to_write_atomic(self, path: str, content: str) -> Any:
        """Write an object, unless there is one already."""
        return self.put_if(path, content.encode(), None)

    def put_if(self, path: str, data: bytes, tag: str | None) -> bool:
        """Write an object if it has this tag; None: if there is none. Return whether it was written."""

        def is_met() -> bool:
            there = self._objects.get(path)
            return (None if there is None else tag_of(there)) == tag

        return self._handle("write", path, lambda: self._objects.put(path, data), is_met) is not False

    def _to_file(self, path: str) -> Any:
        raise AssertionError(f"{path} is not local")

    def _read(self, path: str) -> bytes:
        found = self._objects.get(path)
        if found is None:
            raise FileNotFoundError(2, "No such object", path)
        return found


class _Put(io.BytesIO):
    def __init__(self, put: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._put = put

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._put(data)


def tag_of(data: bytes) -> str:
    """The entity tag of an object."""
    return f"{crc32(data):08x}"
