"""Writes that compare first: a file is created, or replaced only while it is still the one that was seen."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pypaimon.streaming.errors import IOTimeoutError, StoreError, TableChangedError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_reads import ObjectReads

try:
    import fcntl
except ImportError:  # pragma: no cover (there is none on Windows)
    fcntl = None  # type: ignore[assignment]

_RENAMED_SCHEMES = ("hdfs://", "viewfs://")
_BESIDE = ".new"


class ChangedFileError(Exception):
    """The file is another one than was seen; nothing was written."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was read.

    Attributes:
        data: Its bytes.
        tag: The store's entity tag of them; None where none is known.
    """

    data: bytes
    tag: str | None = None


class ConditionalWrites:
    """Small files that several processes write: each write names the content that it replaces.

    - Local files: compared and renamed under a lock on their directory, which ends with the process.
    - Objects that the client of the extra `fast` serves: `If-Match` and `If-None-Match`.
    - HDFS and viewfs: compared, written beside, renamed. A rename replaces nothing there, so that the old file goes
      first; a process that dies in between leaves the new content beside, where `look` and `recover` find it.
    - Other stores do not compare: a new file is read back, since another one may have come at the same time.

    Calls run where the caller is, and are not repeated here.

    Args:
        file_io: The table's FileIO.
        objects: Requests that may go past it.
    """

    def __init__(self, file_io: Any, objects: ObjectReads) -> None:
        self._file_io = file_io
        self._objects = objects

    def look(self, path: str) -> Seen:
        """A file, to be replaced later. One request.

        Raises:
            FileNotFoundError: There is none.
            OSError: The request failed.
        """
        try:
            data, tag = self._objects.tagged(path, lambda: (self._read(path), None))
        except FileNotFoundError:
            if not is_renamed(path) or not self._file_io.rename(_beside(path), path):
                raise
            return Seen(self._read(path))
        return Seen(data, tag)

    def replace(self, path: str, data: bytes, seen: Seen | None) -> None:
        """Write a file, if it still is what was seen. To have written it already is no error.

        Args:
            path: Of the file.
            data: Its new content.
            seen: What it replaces; None: there must be no such file.

        Raises:
            ChangedFileError: It is another one, or gone, or there is one; nothing was written.
            OSError: The request failed.
        """
        if is_local(path):
            self._replace_local(path, data, seen)
        elif is_renamed(path):
            now = self._now(path)
            _compare(path, None if now is None else now.data, data, seen)
            self.write_renamed(path, data)
        else:
            self._replace_object(path, data, seen)

    def write_renamed(self, path: str, data: bytes) -> None:
        """Write a file beside and rename it, where a write is seen while it is under way.

        What bears the name beside is complete: after a crash it may take the place of a file that is gone.
        """
        beside = _beside(path)
        with written_beside(self._file_io, path, data) as temporary:
            for source, target in ((temporary, beside), (beside, path)):
                self._file_io.delete(target)
                # Who looked in between has renamed it already.
                if not self._file_io.rename(source, target) and (target == beside or self._read(path) != data):
                    raise StoreError(f"{target}: {source} could not be renamed to it")

    def recover(self, path: str) -> None:
        """Give a file its name that was left beside it; its writer may be alive, and has done so by now."""
        self._file_io.rename(_beside(path), path)

    def delete(self, path: str) -> None:
        """Delete a file, and what may lie beside it.

        Raises:
            FileNotFoundError: There is none.
            OSError: The request failed.
        """
        if is_renamed(path):
            self._file_io.delete(_beside(path))
        self._file_io.delete(path)

    def write_local(self, path: str, data: bytes, given_up: Callable[[], bool]) -> None:
        """Write a local file so that a crash leaves the old or the new one.

        Args:
            path: Of the file.
            data: Its new content.
            given_up: Whether nobody waits for this write any more.
        """
        with written_beside(self._file_io, path, data) as temporary:
            if given_up():
                raise IOTimeoutError("the write was given up; a later one must not be undone by it")
            os.replace(local_path(temporary), local_path(path))

    def _replace_local(self, path: str, data: bytes, seen: Seen | None) -> None:
        make_home(path, 1)
        with written_beside(self._file_io, path, data) as temporary, _locked(path.rsplit("/", 1)[0]):
            try:
                now = Path(local_path(path)).read_bytes()
            except FileNotFoundError:
                now = None
            _compare(path, now, data, seen)
            os.replace(local_path(temporary), local_path(path))

    def _replace_object(self, path: str, data: bytes, seen: Seen | None) -> None:
        tag = None if seen is None else seen.tag
        # Ceph's gateway (16.2) answers with quoted tags, and matches bare ones only. Other stores may deny one once.
        forms = (tag,) if tag is None else (tag, tag.strip('"'), tag)
        if not any(self._is_put(path, data, form, seen) for form in forms):
            self._write(path, data)

    def _is_put(self, path: str, data: bytes, tag: str | None, seen: Seen | None) -> bool:
        """Whether the object was written. False: the store refused the tag, although the object is unchanged."""
        otherwise = partial(self._write_and_read_back if seen is None else self._write, path, data)
        try:
            self._objects.put(path, data, tag, seen is None, otherwise)
        except (FileExistsError, FileNotFoundError) as error:
            now = self._now(path)
            # An earlier try whose answer was lost may have written it.
            is_written = now is not None and now.data == data
            if not is_written and (now is None or now != seen):
                raise ChangedFileError(path) from error
            return is_written
        return True

    def _write_and_read_back(self, path: str, data: bytes) -> None:
        self._write(path, data)
        if self._read(path) != data:
            raise FileExistsError(path)

    def _now(self, path: str) -> Seen | None:
        try:
            return self.look(path)
        except FileNotFoundError:
            return None

    def _read(self, path: str) -> bytes:
        with self._file_io.new_input_stream(path) as stream, one_request():
            data: bytes = stream.read()
        return data

    def _write(self, path: str, data: bytes) -> None:
        _write(self._file_io, path, data)


@contextmanager
def written_beside(file_io: Any, path: str, data: bytes) -> Iterator[str]:
    """A temporary file beside a path, to be renamed to it; an error deletes it."""
    directory, name = path.rsplit("/", 1)
    temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        _write(file_io, temporary, data)
        yield temporary
    except BaseException:
        # What made the write fail is what counts, not that nothing can be tidied up either.
        with suppress(OSError):
            file_io.delete(temporary)
        raise


def is_local(path: str) -> bool:
    """Whether a path lies in a file system of this machine."""
    return "://" not in path or path.lower().startswith("file:")


def is_renamed(path: str) -> bool:
    """Whether a path lies in a distributed file system, where a write is seen while it is under way."""
    return path.lower().startswith(_RENAMED_SCHEMES)


def make_home(path: str, most: int) -> None:
    """Make the directory of a local file, if it is missing, but never for a table that is gone.

    A catalog lists every directory of a database as a table.

    Args:
        path: Of the file.
        most: How many directories may be missing; the one above them is the table's.

    Raises:
        FileNotFoundError: It is missing, and none may be.
        TableChangedError: The table was dropped, or has another name.
        OSError: They cannot be made.
    """
    home = Path(local_path(path)).parent
    if not most:
        home.stat()
        return
    try:
        for directory in [home, *home.parents][most - 1 :: -1]:
            directory.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        text = f"The table was dropped or renamed: {error.filename} cannot be made, as the directory above it is gone."
        raise TableChangedError(text, advice="Load the table again, by its name.") from error


def left_beside(directory: str, names: Collection[str]) -> list[str]:
    """Paths of files that a listing of a directory lacks, for who wrote them died before they were renamed."""
    if not is_renamed(directory):
        return []
    beside = [name for name in names if name.startswith(".") and name.endswith(_BESIDE)]
    return [f"{directory}/{whole}" for name in beside if (whole := name[1 : -len(_BESIDE)]) not in names]


def _write(file_io: Any, path: str, data: bytes) -> None:
    with file_io.new_output_stream(path) as stream, one_request():
        stream.write(data)


def _compare(path: str, now: bytes | None, data: bytes, seen: Seen | None) -> None:
    if now != (None if seen is None else seen.data) and now != data:
        raise ChangedFileError(path)


def _beside(path: str) -> str:
    directory, name = path.rsplit("/", 1)
    return f"{directory}/.{name}{_BESIDE}"


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold the lock on a directory, among all processes of this machine. It ends with the process at the latest."""
    if fcntl is None:  # pragma: no cover (Windows)
        yield
        return
    handle = os.open(local_path(directory), os.O_RDONLY)
    try:
        # A file system without locks still has the comparison.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
