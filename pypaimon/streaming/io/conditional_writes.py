"""`ConditionalWrites`: a file is created if there is none, or replaced if it is unchanged."""

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
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.paimon.internals import local_path, object_stream

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no fcntl)
    fcntl = None  # type: ignore[assignment]

_RENAMED_SCHEMES = ("hdfs://", "viewfs://")
_COMPLETE = ".new"


class ChangedFileError(Exception):
    """The file has changed since it was read; nothing was written."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was read.

    Attributes:
        data: The bytes of the file.
        tag: The store's entity tag of these bytes; None if it is not known.
    """

    data: bytes
    tag: str | None = None


class ConditionalWrites:
    """Small files that several processes write: each write names the content that it replaces.

    - Local files are compared and renamed under a lock on their directory, which ends with the process.
    - Objects that the client of the extra `fast` serves: `If-Match` and `If-None-Match`.
    - Files on HDFS and viewfs are compared, written under a temporary name and renamed. A rename does not replace a
      file there, so the old file is deleted first. If the process dies in between, `look` and `recover` find the new
      content under the temporary name.
    - Other stores do not compare. A new file is read back, since another process may have written it at the same time.

    Calls run on the caller's thread and are not retried.

    Args:
        file_io: The table's FileIO.
        objects: Requests that may bypass the FileIO.
    """

    def __init__(self, file_io: Any, objects: ObjectReads) -> None:
        self._file_io = file_io
        self._objects = objects

    def look(self, path: str) -> Seen:
        """Read a file that is to be replaced later. One request.

        Raises:
            FileNotFoundError: The file does not exist.
            OSError: The request failed.
        """
        try:
            data, tag = self._objects.tagged(path, lambda: (self._read(path), None))
        except FileNotFoundError:
            if not is_renamed(path) or not self._file_io.rename(_complete_name(path), path):
                raise
            return Seen(self._read(path))
        return Seen(data, tag)

    def replace(self, path: str, data: bytes, seen: Seen | None) -> None:
        """Write a file, if it is unchanged since it was read. If it has the new content already, that is fine.

        Args:
            path: The file.
            data: The new content.
            seen: The content to be replaced; None if there must be no file.

        Raises:
            ChangedFileError: The file was changed, deleted or created; nothing was written.
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
        """Write a file under another name and rename it, since HDFS shows a file while it is being written.

        A file with the suffix `.new` is complete: after a crash it may replace the file that was deleted.
        """
        complete = _complete_name(path)
        with written_to_temporary(self._file_io, path, data) as temporary:
            for source, target in ((temporary, complete), (complete, path)):
                self._file_io.delete(target)
                # A concurrent `look` or `recover` has renamed it already.
                if not self._file_io.rename(source, target) and (target == complete or self._read(path) != data):
                    raise StoreError(f"{target}: {source} could not be renamed to it")

    def recover(self, path: str) -> None:
        """Finish the rename of a file whose writer died. If the writer is alive, it has renamed the file itself."""
        self._file_io.rename(_complete_name(path), path)

    def delete(self, path: str) -> None:
        """Delete a file, and one that was not renamed to it.

        Raises:
            FileNotFoundError: The file does not exist.
            OSError: The request failed.
        """
        if is_renamed(path):
            self._file_io.delete(_complete_name(path))
        self._file_io.delete(path)

    def write_local(self, path: str, data: bytes, given_up: Callable[[], bool]) -> None:
        """Write a local file so that a crash leaves the old or the new one.

        Args:
            path: The file.
            data: The new content.
            given_up: Returns whether the write was given up.
        """
        with written_to_temporary(self._file_io, path, data) as temporary:
            if given_up():
                raise IOTimeoutError("the write was given up; a later one must not be undone by it")
            os.replace(local_path(temporary), local_path(path))

    def _replace_local(self, path: str, data: bytes, seen: Seen | None) -> None:
        make_home(path, 1)
        with written_to_temporary(self._file_io, path, data) as temporary, _locked(path.rsplit("/", 1)[0]):
            try:
                now = Path(local_path(path)).read_bytes()
            except FileNotFoundError:
                now = None
            _compare(path, now, data, seen)
            os.replace(local_path(temporary), local_path(path))

    def _replace_object(self, path: str, data: bytes, seen: Seen | None) -> None:
        tag = None if seen is None else seen.tag
        # Ceph's gateway (16.2) answers with quoted tags, but matches only bare ones. Others may refuse a tag once.
        forms = (tag,) if tag is None else (tag, tag.strip('"'), tag)
        if not any(self._is_put(path, data, form, seen) for form in forms):
            self._write(path, data)

    def _is_put(self, path: str, data: bytes, tag: str | None, seen: Seen | None) -> bool:
        """Whether the object was written; False if the store refused the tag although the object is unchanged."""
        otherwise = partial(self._write_and_read_back if seen is None else self._write, path, data)
        try:
            self._objects.put(path, data, tag, seen is None, otherwise)
        except (FileExistsError, FileNotFoundError) as error:
            now = self._now(path)
            # An earlier attempt whose answer was lost may have written it.
            is_written = now is not None and now.data == data
            if now is None and seen is None:
                # S3 answers 409 if two programs create an object at the same time and neither has succeeded.
                raise StoreError(f"{path}: it could not be created, although it does not exist") from error
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
        write_stream(self._file_io, path, data)


@contextmanager
def written_to_temporary(file_io: Any, path: str, data: bytes) -> Iterator[str]:
    """A temporary file next to a path, to be renamed to it; an error deletes it."""
    directory, name = path.rsplit("/", 1)
    temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        write_stream(file_io, temporary, data)
        yield temporary
    except BaseException:
        # The cause of the failed write matters more than a failed cleanup.
        with suppress(OSError):
            file_io.delete(temporary)
        raise


def is_local(path: str) -> bool:
    """Whether a path is in a file system of this machine."""
    return "://" not in path or path.lower().startswith("file:")


def is_renamed(path: str) -> bool:
    """Whether a path is on HDFS, which shows a file while it is being written, so that files must be renamed."""
    return path.lower().startswith(_RENAMED_SCHEMES)


def make_home(path: str, most: int) -> None:
    """Create the directory of a local file, but not for a table that was dropped.

    A catalog lists every directory of a database as a table, so a new directory would bring the table back.

    Args:
        path: The file.
        most: How many directories may be missing; their parent is the table's.

    Raises:
        FileNotFoundError: The directory is missing, and `most` is 0.
        TableChangedError: The table was dropped or renamed.
        OSError: A directory cannot be created.
    """
    home = Path(local_path(path)).parent
    if not most:
        home.stat()
        return
    try:
        for directory in [home, *home.parents][most - 1 :: -1]:
            directory.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        text = f"The table was dropped or renamed: {error.filename} cannot be made, as its parent directory is gone."
        raise TableChangedError(text, advice="Load the table again, by its name.") from error


def not_renamed(directory: str, names: Collection[str]) -> list[str]:
    """Paths of files that are missing in a directory because their writers died before the rename."""
    if not is_renamed(directory):
        return []
    complete = [name for name in names if name.startswith(".") and name.endswith(_COMPLETE)]
    return [f"{directory}/{final}" for name in complete if (final := name[1 : -len(_COMPLETE)]) not in names]


def write_stream(file_io: Any, path: str, data: bytes) -> None:
    """Write a file by the table's FileIO."""
    with object_stream(file_io, path) or file_io.new_output_stream(path) as stream, one_request():
        stream.write(data)


def _compare(path: str, now: bytes | None, data: bytes, seen: Seen | None) -> None:
    if now != (None if seen is None else seen.data) and now != data:
        raise ChangedFileError(path)


def _complete_name(path: str) -> str:
    directory, name = path.rsplit("/", 1)
    return f"{directory}/.{name}{_COMPLETE}"


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold a lock on a directory against other processes of this machine. The end of the process releases it."""
    if fcntl is None:  # pragma: no cover (Windows)
        yield
        return
    handle = os.open(local_path(directory), os.O_RDONLY)
    try:
        # Without locks in the file system, the comparison still protects in most cases.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
