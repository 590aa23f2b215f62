"""`ExclusiveFiles`: files that come into being where none of the name is; of all who try, one makes it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pypaimon.streaming.errors import StoreError, StreamConfigError
from pypaimon.streaming.internals import local_path
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed, make_home, written_beside
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.io.request_errors import place_of, translated

_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV))
"""What `link` says where a file system has no hard links, so that surely none was made."""
_PROBE = ".probe-"


class NotCreatedError(Exception):
    """A file was surely not made: it could not even be written. Its cause says why."""


def link_new(path: str, data: bytes, *, makes_home: bool = True) -> os.stat_result | None:
    """Make a local file whole, by a link, which fails if the name exists, whoever made it.

    Args:
        path: Of the file, as the operating system has it.
        data: Its content.
        makes_home: Its directory is made, with those above it.

    Returns:
        The status of the file; None: there is one of the name, which a network file system also says of the one that
        an earlier try made.

    Raises:
        NotCreatedError: It surely was not made.
        OSError: Nobody knows.
    """
    home, name = os.path.split(path)
    if makes_home:
        os.makedirs(home, exist_ok=True)
    temporary = f"{home}/.{name}.{uuid4()}.tmp"
    try:
        made = _write(temporary, data)
        os.link(temporary, path)
    except FileExistsError:
        return None
    except OSError as error:
        if error.errno in _NO_LINKS:
            why = f"{home}: this file system makes no hard links, by which one of several writers is told ({error})"
            raise NotCreatedError from StoreError(why)
        raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return made


class ExclusiveFiles:
    """Small files whose names are made once: local ones by a link, objects by `If-None-Match`, on HDFS by a rename.

    A store that overwrites where it was told not to is refused: `ObjectReads` probes buckets, and here a probe is made
    twice before the first file in a local directory, or in an HDFS. Calls run where the caller is, and are not repeated
    here. Thread-safe.

    Args:
        file_io: The table's FileIO.
        objects: Requests that may go past it.
    """

    def __init__(self, file_io: Any, objects: ObjectReads) -> None:
        self._file_io = file_io
        self._objects = objects
        self._proven: set[str] = set()

    def create(self, path: str, data: bytes, directories: int = 3) -> bool:
        """Make a file. What the store says of a name that exists is not believed: the file is read.

        Args:
            path: Of the file.
            data: Its content, which nobody else writes.
            directories: How many directories may be made for it; on HDFS all, or none.

        Returns:
            Whether it has this content now, also by an earlier try; False: another one, and nothing was written.

        Raises:
            StreamConfigError: The store cannot promise that one makes it, or does not keep the promise.
            OSError: The request failed; the file may have been made.
        """
        if is_local(path):
            make_home(path, directories)
        elif is_renamed(path) and not directories and not self._file_io.exists(home := path.rsplit("/", 1)[0]):
            raise FileNotFoundError(home)
        place = _place(path)
        if place is not None and place not in self._proven:
            self._probe(path.rsplit("/", 1)[0])
            self._proven.add(place)
        return self._create(path, data)

    def _probe(self, directory: str) -> None:
        probe = f"{directory}/{_PROBE}{uuid4().hex}"
        self._create(probe, b"first")
        try:
            overwrites = self._create(probe, b"second")
        finally:
            with suppress(OSError):
                self._file_io.delete(probe)
        if overwrites:
            raise _refused(directory, "it overwrites a file that it was told to create only where there is none")

    def _create(self, path: str, data: bytes) -> bool:
        try:
            if self._is_made(path, data):
                return True
            said: OSError | None = None
        except OSError as error:
            said = error
        try:
            return self._read(path) == data
        except OSError as error:
            if said is None or isinstance(said, FileNotFoundError):
                raise StoreError(f"{path}: the store says that it exists, and does not give it ({error})") from error
            raise said from None

    def _is_made(self, path: str, data: bytes) -> bool:
        if is_local(path):
            try:
                with one_request():
                    return link_new(local_path(path), data, makes_home=False) is not None
            except NotCreatedError as error:
                raise error.__cause__ or error from None
        if is_renamed(path):
            return self._is_renamed_to(path, data)
        made = self._objects.create(path, data)
        if made is None:
            # The client is trusted once it has found what the FileIO does.
            with suppress(FileNotFoundError):
                self._read(path)
            made = self._objects.create(path, data)
        if made is None:
            raise _refused(path, self._objects.why_not_created(path))
        return made

    def _is_renamed_to(self, path: str, data: bytes) -> bool:
        """A rename replaces nothing there. That it did not is also said of one that failed: what is there is read."""
        with written_beside(self._file_io, path, data) as temporary:
            is_made = bool(self._file_io.rename(temporary, path))
        if not is_made:
            with suppress(OSError):
                self._file_io.delete(temporary)
        return is_made

    def _read(self, path: str) -> bytes:
        if is_local(path):
            return Path(local_path(path)).read_bytes()
        return self._objects.read(path, lambda: self._read_stream(path))

    def _read_stream(self, path: str) -> bytes:
        with self._file_io.new_input_stream(path) as stream:
            data: bytes = stream.read()
        return data


def _place(path: str) -> str | None:
    """What is probed once here: a local directory, or an HDFS; None for buckets."""
    if is_local(path):
        return path.rsplit("/", 1)[0]
    return place_of(path) if is_renamed(path) else None


def _refused(path: str, why: str) -> StreamConfigError:
    return StreamConfigError(
        f"{path}: this store is not known to create a file only where there is none ({why}). Local files are, HDFS, "
        "and S3-like stores that heed If-None-Match and that pypaimon reaches by keys, with the extra 'fast' installed."
    )


def _write(path: str, data: bytes) -> os.stat_result:
    try:
        with open(path, "xb") as file:
            file.write(data)
            return os.fstat(file.fileno())
    except OSError as error:
        raise NotCreatedError from translated(path, error)
