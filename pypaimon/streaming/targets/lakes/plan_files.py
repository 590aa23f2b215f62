"""The files of a `ParquetTarget`, by the numbers of their plans: on a local disk or in a store."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.paimon.internals import local_path, new_file_io
from pypaimon.streaming.redaction import without_secrets

_PREFIX, _SUFFIX = "plan-", ".parquet"
_LARGEST, _SECONDS = 5 << 30, 600.0
"""Bytes that S3 takes in one request, and how long one may take. No other request creates an object exclusively."""


class PlanFiles(Protocol):
    """Files of which each appears whole, under a name that was free."""

    where: str
    """What errors call them."""

    def name(self, number: int) -> str: ...

    def numbers(self) -> list[int]: ...

    def metadata(self, number: int) -> Mapping[bytes, bytes]:
        """The metadata in the footer of a file.

        Raises:
            FileNotFoundError: There is no such file.
        """

    def begin(self) -> Any:
        """Begin a file that is not seen yet: a path or an open file for a `ParquetWriter`."""

    def complete(self) -> None:
        """Bring the content of the begun file to disk."""

    def publish(self, number: int) -> None:
        """Give the begun file its name.

        Raises:
            FileExistsError: Another program has taken the name.
        """

    def discard(self) -> None:
        """Delete the begun file, if there is one."""

    def remove(self, numbers: Sequence[int]) -> None: ...


def plan_files(directory: str, options: Mapping[str, str]) -> PlanFiles:
    """The files in a directory, which is made if it does not exist.

    Args:
        directory: A path, or the URI of a directory in a store.
        options: Those of a catalog on the store.

    Raises:
        StreamConfigError: The store is not known, or cannot create files exclusively.
        OSError: The directory cannot be made.
        StoreError: The store failed (retriable).
    """
    if is_local(directory):
        return _LocalFiles(Path(local_path(directory)))
    return _StoredFiles(directory.rstrip("/"), options)


class _LocalFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begun: Path | None = None
        self.where = f"Parquet files in {directory}"
        directory.mkdir(parents=True, exist_ok=True)

    def name(self, number: int) -> str:
        return str(self._path(number))

    def numbers(self) -> list[int]:
        return _numbers([path.name for path in self._directory.glob(f"{_PREFIX}*{_SUFFIX}")])

    def metadata(self, number: int) -> Mapping[bytes, bytes]:
        return pq.read_metadata(self._path(number)).metadata or {}

    def begin(self) -> Path:
        for left in self._directory.glob(f".{_PREFIX}*"):
            # A crashed program has left it.
            left.unlink()
        self._begun = self._directory / f".{_PREFIX}{uuid4()}"
        return self._begun

    def complete(self) -> None:
        assert self._begun is not None
        # Before its name appears: a name without its content would count as a plan after a power failure.
        _to_disk(self._begun)

    def publish(self, number: int) -> None:
        assert self._begun is not None
        # A link fails if the name is taken, where a rename would replace the file of another program.
        os.link(self._begun, self._path(number))
        self.discard()
        # The new name is on disk before the earlier files go: a crash of the machine must not lose both.
        _to_disk(self._directory)

    def discard(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.unlink(missing_ok=True)

    def remove(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._directory / _name(number)


class _StoredFiles:
    """Objects, or files on HDFS. A file is kept in memory until one conditional write publishes it."""

    def __init__(self, directory: str, options: Mapping[str, str]) -> None:
        self._directory = directory
        self.where = f"Parquet files in {without_secrets(directory)}"
        self._begun: pa.BufferOutputStream | None = None
        self._data = b""
        try:
            self._store = Store(new_file_io(directory, options, of_catalog=False), _SECONDS)
        except (ValueError, ImportError, RuntimeError) as error:
            raise StreamConfigError(f"{self.where}: {error}") from error
        weakref.finalize(self, self._store.close)
        self._store.check_exclusive(f"{directory}/{_name(1)}")

    def name(self, number: int) -> str:
        return f"{self._directory}/{_name(number)}"

    def numbers(self) -> list[int]:
        return _numbers(self._store.list_names(self._directory))

    def metadata(self, number: int) -> Mapping[bytes, bytes]:
        with closing(RemoteFile(self._store, self.name(number))) as file:
            return pq.read_metadata(file).metadata or {}

    def begin(self) -> pa.BufferOutputStream:
        self._begun = pa.BufferOutputStream()
        return self._begun

    def complete(self) -> None:
        assert self._begun is not None
        self._data = self._begun.getvalue().to_pybytes()
        self._begun = None
        if len(self._data) > _LARGEST:
            raise StreamConfigError(
                f"{self.where}: a plan of {len(self._data)} bytes is more than a store writes in one request.",
                advice="Have the stream cut its plans with with_limits(max_bytes=...).",
            )

    def publish(self, number: int) -> None:
        if not self._store.create_exclusive(self.name(number), self._data):
            raise FileExistsError(self.name(number))
        self.discard()

    def discard(self) -> None:
        self._begun, self._data = None, b""

    def remove(self, numbers: Sequence[int]) -> None:
        self._store.delete_all([self.name(number) for number in numbers])


def _name(number: int) -> str:
    return f"{_PREFIX}{number:012}{_SUFFIX}"


def _numbers(names: Sequence[str]) -> list[int]:
    plans = [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    return [int(digits) for name in plans if (digits := name[len(_PREFIX) : -len(_SUFFIX)]).isdigit()]


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
