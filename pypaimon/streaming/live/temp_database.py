"""`TempDatabase`: a temporary DuckDB database for the rows of a live table that do not fit into memory."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.options.arguments import a_path, at_least

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_LEAST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """How much memory rows may take, and where larger tables are stored.

    Attributes:
        max_bytes: Bytes of memory for rows and their index.
        directory: Parent of the temporary database; None: the system's directory for temporary files.
    """

    max_bytes: int
    directory: Path | None = None


def memory_bound(max_bytes: int, directory: str | PathLike[str] | None) -> MemoryBound:
    """Check the arguments of `open_live`.

    Raises:
        StreamConfigError: The bytes are invalid, or the directory does not exist.
    """
    limit = at_least(0, "open_live: memory_limit_bytes", max_bytes)
    if directory is None:
        return MemoryBound(limit)
    place = Path(a_path("open_live: directory", directory))
    if not place.is_dir():
        raise StreamConfigError(f"open_live: directory={str(directory)!r} is not a directory")
    return MemoryBound(limit, place)


class TempDatabase:
    """A database in a directory of its own. Both are removed with the last reference to this object.

    Args:
        bound: Where the directory is made, and how much memory DuckDB may take (at least 64 MB).

    Attributes:
        database: A connection, from which cursors are made.

    Raises:
        StreamConfigError: DuckDB is not installed.
        TargetError: The database cannot be made.
    """

    def __init__(self, bound: MemoryBound) -> None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and its rows would go to DuckDB, which "
                "is not installed: pip install 'pypaimon-streaming[duckdb]', or give open_live a greater "
                "memory_limit_bytes"
            ) from error
        try:
            directory = Path(tempfile.mkdtemp(prefix="paimon-live-", dir=bound.directory))
        except OSError as error:
            raise TargetError(f"cannot make a directory for the rows of a live table: {error}") from error
        memory, spilled = f"{max(bound.max_bytes, _LEAST_BYTES)}B", str(directory / "spilled")
        try:
            with translate_errors():
                self.database = duckdb.connect(
                    str(directory / "rows.duckdb"), config={"memory_limit": memory, "temp_directory": spilled}
                )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        weakref.finalize(self, _let_go, self.database, directory, Origin())

    def keep_for(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Keep the database as long as a cursor of it exists."""
        weakref.finalize(cursor, _ended_with, self)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of DuckDB as `TargetError`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise TargetError(f"DuckDB, which holds the rows of a live table: {error}") from error


def _ended_with(place: TempDatabase) -> None:
    """Holds a reference until it is called."""


def _let_go(database: duckdb.DuckDBPyConnection, directory: Path, origin: Origin) -> None:
    if not origin.is_here:
        # Closing the database in a forked process would wait for threads that exist only in the parent.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))
    elif on_event_loop():
        spawn_detached(partial(_remove, database, directory))
    else:
        _remove(database, directory)


def _remove(database: duckdb.DuckDBPyConnection, directory: Path) -> None:
    try:
        database.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
