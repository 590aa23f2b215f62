"""`PaimonCopies`: finds, creates, alters, renames and drops the copies in a Paimon database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from pypaimon.streaming.commit.session import progress_of
from pypaimon.streaming.databases.tables_of_database import translating
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TargetError
from pypaimon.streaming.io.conditional_writes import is_local, is_renamed
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import TableNotExistException
from pypaimon.streaming.paimon.write_internals import FileSystemCatalog, Schema, SchemaChange
from pypaimon.streaming.targets.paimon_target import COPIED_FROM
from pypaimon.streaming.targets.target_state import SavedState
from pypaimon.streaming.writing.table_writer import SOURCE_POSITION

_AT_ONCE = 8
_DROPPED = ".copied-"
"""Prefix of the directory of a table that is being deleted; catalogs do not list it."""


@dataclass(frozen=True, slots=True)
class CopyNote:
    """The option `pypaimon.copied-from` of a copy.

    Attributes:
        database: The database of the source.
        table: The identity of the source; see `TablePosition.identity`.
        columns: The columns that were copied so far.
        is_dropped: Whether the source was dropped.
        location: The warehouse of the source, if recorded.
    """

    database: str
    table: str
    columns: SavedState
    is_dropped: bool = False
    location: str | None = None

    def to_json(self) -> str:
        """The text that `from_json` reads."""
        given = {"database": self.database, "table": self.table, "columns": json.loads(self.columns.to_json())}
        if self.location is not None:
            given["location"] = self.location
        return json.dumps({**given, "dropped": True} if self.is_dropped else given, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> CopyNote:
        """Read what `to_json` wrote."""
        value = json.loads(text)
        columns = SavedState.from_json(json.dumps(value["columns"]))
        return CopyNote(value["database"], value["table"], columns, value.get("dropped", False), value.get("location"))


@dataclass(frozen=True, slots=True)
class FoundCopy:
    """A table that is a copy.

    Attributes:
        table: pypaimon's table.
        note: Its recorded source.
    """

    table: WritableTable
    note: CopyNote


class PaimonCopies:
    """The copies in a database. Calls block, and are made one at a time.

    Args:
        catalog: pypaimon's catalog.
        database: Name of the database.
    """

    def __init__(self, catalog: Any, database: str) -> None:
        self._catalog = catalog
        self.database = database

    def make(self) -> None:
        """Create the database if needed, and finish interrupted deletions of tables."""
        with translating(self.database):
            self._catalog.create_database(self.database, True)
            if not self._moves_directories:
                return
            home, files = self._catalog.get_database_path(self.database), self._catalog.file_io
            for status in files.list_status(home):
                if status.base_name.startswith(_DROPPED):
                    files.delete(f"{home}/{status.base_name}", True)

    def positions(self, source: str, user: str) -> dict[str, tuple[CopyNote, Position | None]]:
        """The copies of the tables of a database, by name: their sources, and the positions up to which they hold them,
        None if unknown.
        """
        with translating(self.database):
            names = self._catalog.list_tables(self.database)
        pool = IOPool(_AT_ONCE, timeout=float("inf"), name="paimon-copied-tables")
        try:
            asked = {name: pool.submit(partial(self._position, name, source, user)) for name in names}
            found = {name: pool.result(future) for name, future in asked.items()}
        finally:
            pool.close()
        return {name: each for name, each in found.items() if each is not None}

    def _position(self, name: str, source: str, user: str) -> tuple[CopyNote, Position | None] | None:
        try:
            table, note = self._table(name)
        except TargetError:
            # Not known to be a copy; the error is raised when this name is written to.
            return None
        if table is None or note is None or note.is_dropped or note.database != source:
            return None
        try:
            last = progress_of(TableDirectory.of(table), user).last
        except PaimonStreamError as error:
            if error.retriable:
                raise
            # The error is raised when the copy is written to.
            last = None
        text = None if last is None else last.properties.get(SOURCE_POSITION)
        return note, None if text is None else Position.from_json(text)

    def find(self, name: str, source: str) -> FoundCopy | None:
        """The copy of this name, None if no table has this name.

        Raises:
            StreamConfigError: The table is not a copy, or is a copy of another database.
        """
        table, note = self._table(name)
        if table is None:
            return None
        if note is None:
            raise StreamConfigError(
                f"a table {self.database}.{name} already exists that was not copied here: rename or drop it, leave the "
                "table out with exclude, or copy into another database"
            )
        if note.database != source:
            raise StreamConfigError(
                f"{self.database}.{name} is a copy of a table of database '{note.database}': copy each database into a "
                "database of its own"
            )
        return FoundCopy(table, note)

    def find_own(self, name: str, source: str) -> FoundCopy | None:
        """The copy of this name if its source is in this database, otherwise None."""
        table, note = self._table(name)
        if table is None or note is None or note.database != source:
            return None
        return FoundCopy(table, note)

    def create(self, name: str, schema: Schema, note: CopyNote) -> FoundCopy:
        """Create a copy, which replaces the table of this name."""
        schema.options[COPIED_FROM] = note.to_json()
        self.drop(name)
        with self._translated(name):
            self._catalog.create_table(f"{self.database}.{name}", schema, False)
        return self._made(name)

    def alter(self, name: str, changes: Sequence[Any], note: CopyNote) -> FoundCopy:
        """Change the columns of a copy and its recorded source, in one step."""
        noted = SchemaChange.set_option(COPIED_FROM, note.to_json())
        with self._translated(name):
            self._catalog.alter_table(f"{self.database}.{name}", [*changes, noted], False)
        return self._made(name)

    def rename(self, name: str, new: str) -> None:
        """Rename a copy; no table must have the new name."""
        with self._translated(name):
            if not isinstance(self._catalog, FileSystemCatalog):
                self._catalog.rename_table(f"{self.database}.{name}", f"{self.database}.{new}")
            elif self._is_there(name):
                # A process that died may have left a directory without a table.
                self.drop(new)
                self._move(name, self._path(new))

    def drop(self, name: str) -> None:
        """Drop a table if it exists, in one step: its files are deleted after it is hidden."""
        with self._translated(name):
            if not isinstance(self._catalog, FileSystemCatalog):
                self._catalog.drop_table(f"{self.database}.{name}", True)
            elif self._is_there(name):
                hidden = f"{self._catalog.get_database_path(self.database)}/{_DROPPED}{uuid4().hex}"
                self._move(name, hidden)
                self._catalog.file_io.delete(hidden, True)

    def _table(self, name: str) -> tuple[WritableTable | None, CopyNote | None]:
        """The table of this name, and what it is a copy of; None if there is no table, or it is not a copy."""
        try:
            with translating(name):
                table = self._catalog.get_table(f"{self.database}.{name}")
        except TableNotExistException:
            return None, None
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TargetError(f"{self.database}.{name} cannot be opened: {error!r}") from error
        schema = getattr(table, "table_schema", None)
        text = None if schema is None else schema.options.get(COPIED_FROM)
        return table, None if text is None else CopyNote.from_json(text)

    def _made(self, name: str) -> FoundCopy:
        table, note = self._table(name)
        if table is None or note is None:
            raise TargetError(
                f"{self.database}.{name} was dropped or re-created by another program while it was copied to."
            )
        return FoundCopy(table, note)

    @property
    def _moves_directories(self) -> bool:
        if not isinstance(self._catalog, FileSystemCatalog):
            return False
        # These rename a directory in one step, so that no reader or crash sees half of a table.
        home = str(self._catalog.get_database_path(self.database))
        return is_local(home) or is_renamed(home)

    def _path(self, name: str) -> str:
        return f"{self._catalog.get_database_path(self.database)}/{name}"

    def _is_there(self, name: str) -> bool:
        return bool(self._catalog.file_io.exists(self._path(name)))

    def _move(self, name: str, to: str) -> None:
        if not self._moves_directories:
            raise TargetError(
                f"the source of {self.database}.{name} was renamed, dropped or re-created, which a copy follows only "
                "in a store that renames a table in one step: drop the copy while nobody writes to it, and the next "
                "run copies it again"
            )
        if not self._catalog.file_io.rename(self._path(name), to):
            raise TargetError(f"{self.database}.{name} could not be renamed in its store")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            with translating(name):
                yield
        except (RuntimeError, ValueError) as error:
            raise TargetError(f"the catalog refuses for {self.database}.{name}: {error}") from error
