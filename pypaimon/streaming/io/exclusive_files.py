"""`ExclusiveFiles`: of all processes that create a file of one name, exactly one succeeds."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pypaimon.streaming.errors import StoreError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed, make_home, written_to_temporary
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.io.request_errors import place_of, translated
from pypaimon.streaming.paimon.internals import local_path

_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV))
"""Errors of `link` on file systems without hard links: it is certain that no link was made."""
_PROBE = ".probe-"


class NotCreatedError(Exception):
    """It is certain that the file was not created. The cause says why."""


def link_new(path: str, data: bytes, *, makes_home: bool = True) -> os.stat_result | None:
    """Create a local file with all of its content, by a hard link, which fails if the name exists.

    Args:
        path: The file, as the operating system names it.
        data: The content.
        makes_home: Whether missing directories are created.

    Returns:
        The status of the file; None if the name exists. A network file system may also report that for the file of
        an earlier attempt of the same call.

    Raises:
        NotCreatedError: It is certain that the file was not created.
        OSError: The file may have been created.
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
            why = f"{home}: this file system has no hard links, which decide between several writers ({error})"
            raise NotCreatedError from StoreError(why)
        raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return made


class ExclusiveFiles:
    """Small files that are created once: local ones by a link, objects by `If-None-Match`, files on HDFS by a rename.

    A store that overwrites files in spite of the condition is refused: `ObjectReads` probes buckets, and this class
    creates a probe file twice before the first file in a local directory, or on an HDFS. Calls run on the caller's
    thread and are not retried. Thread-safe.

    Args:
        file_io: The table's FileIO.
        objects: Requests that may bypass the FileIO.
    """

    def __init__(self, file_io: Any, objects: ObjectReads) -> None:
        self._file_io = file_io
        self._objects = objects
        self._proven: set[str] = set()

    def create(self, path: str, data: bytes, directories: int = 3) -> bool:
        """Create a file. If the store reports that the name exists, the file is read to find out whose it is.

        Args:
            path: The file.
            data: The content, which no other process may write.
            directories: How many missing directories may be created; on HDFS all of them, or none.

        Returns:
            Whether the file has this content, also by an earlier attempt; False if it has another one, and nothing was
            written.

        Raises:
            StreamConfigError: The store cannot create files exclusively, or claims to and overwrites them.
            OSError: The request failed; the file may have been created.
        """
        if is_local(path):
            make_home(path, directories)
        elif is_renamed(path) and not directories and not self._file_io.exists(home := path.rsplit("/", 1)[0]):
            raise FileNotFoundError(home)
        if _place(path) is not None:
            self.check(path)
        return self._create(path, data)

    def check(self, path: str) -> None:
        """Refuse a store that cannot create files exclusively, or overwrites them. Its answer is remembered.

        Raises:
            StreamConfigError: As `create`.
            OSError: The request failed.
        """
        place = _place(path)
        if place is None:
            if self._objects.serves(path) and not self._objects.creates(path):
                # The client is trusted after it has agreed with the FileIO once.
                with suppress(FileNotFoundError):
                    self._read(path)
            if not self._objects.creates(path):
                raise _refused(path, self._objects.why_not_created(path))
        elif place not in self._proven:
            self._probe(path.rsplit("/", 1)[0])
            self._proven.add(place)

    def _probe(self, directory: str) -> None:
        probe = f"{directory}/{_PROBE}{uuid4().hex}"
        self._create(probe, b"first")
        try:
            overwrites = self._create(probe, b"second")
        finally:
            with suppress(OSError):
                self._file_io.delete(probe)
        if overwrites:
            raise _refused(directory, "it overwrites an existing file in spite of the condition not to")

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
                raise StoreError(f"{path}: the store reports that it exists, but cannot read it ({error})") from error
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
            self.check(path)
            made = self._objects.create(path, data)
        if made is None:
            raise _refused(path, self._objects.why_not_created(path))
        return made

    def _is_renamed_to(self, path: str, data: bytes) -> bool:
        with written_to_temporary(self._file_io, path, data) as temporary:
            # On HDFS a rename does not replace a file. A failed one returns False too, so the caller reads
            # the file.
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
    """The place that is probed once: a local directory, or an HDFS; None for buckets."""
    if is_local(path):
        return path.rsplit("/", 1)[0]
    return place_of(path) if is_renamed(path) else None


def _refused(path: str, why: str) -> StreamConfigError:
    return StreamConfigError(
        f"{path}: this store cannot create a file only if there is none ({why}).",
        advice="Use local files, HDFS, or an S3-like store that heeds If-None-Match and that pypaimon reaches by keys, "
        "with the extra 'fast' installed.",
    )


def _write(path: str, data: bytes) -> os.stat_result:
    try:
        with open(path, "xb") as file:
            file.write(data)
            return os.fstat(file.fileno())
    except OSError as error:
        raise NotCreatedError from translated(path, error)
