"""`DeltaRows`: a Delta table, to which plans are applied, a commit each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.fs import PyFileSystem

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.followed_columns import Columns, refuse_other_columns
from pypaimon.streaming.apply_changes.lake_types import fitted_to_delta, has_times_without_zone
from pypaimon.streaming.apply_changes.plan_transactions import Saved
from pypaimon.streaming.apply_changes.staged_rows import IS_GONE, StagedRows
from pypaimon.streaming.errors import StreamConfigError, TargetError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_APPLICATION = "pypaimon-streaming"
_FOLDER = "_paimon"


class DeltaRows:
    """A Delta table, and the files beside it that tell positions.

    A commit names a file by the version of an app transaction, which Delta keeps with the table. The file is there
    before the commit, so that the commit saves both, the rows and the position.

    Args:
        uri: Of the table.
        keys: Columns of the key; none: rows are appended.
        storage_options: As deltalake takes them.
    """

    def __init__(self, uri: str, keys: Sequence[str], storage_options: Mapping[str, str] | None) -> None:
        self._uri = uri.removeprefix("file://")
        self._keys = list(keys)
        self._options = None if storage_options is None else dict(storage_options)
        self._staged: StagedRows | None = None
        self._schema = pa.schema([])
        self._columns: Columns | None = None
        self._columns_before: Columns | None = None
        self._begins_state = False
        self._table: DeltaTable | None = None
        self._number_before: int | None = None
        self._position = ""

    def saved(self) -> Saved | None:
        """What the newest commit of a plan names."""
        with self._translated():
            return self._saved_in(self._load())

    def begin(self, saved: Saved | None) -> None:
        """Begin to take rows, which are written at the end of the plan."""
        self._columns_before = None if saved is None or saved.columns is None else Columns.from_json(saved.columns)
        self._columns = None
        self._begins_state = False

    def write(self, batch: AnyBatch) -> None:
        """Take the rows of a batch."""
        sets, gone = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        rows = fitted_to_delta(sets)
        if self._staged is None:
            self._columns = Columns.of(batch, [(field.name, str(field.type)) for field in rows.schema])
            self._begins_state = batch.begins_state
            if not batch.begins_state and self._columns_before is not None:
                refuse_other_columns(self._columns_before, self._columns, "the Delta table holds", "in another one")
            self._schema = rows.schema
            self._staged = StagedRows(rows.schema, self._keys)
        with self._translated():
            self._staged.add(rows, None if gone is None else fitted_to_delta(gone))

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Note a position; None: others have saved another one than was before."""
        assert self._columns is not None
        with self._translated():
            self._table = self._load()
            there = self._saved_in(self._table)
        if (None if there is None else there.position) != (None if before is None else before.position):
            return None
        self._number_before = None if self._table is None else self._table.transaction_version(_APPLICATION)
        self._position = position
        return Saved(position, self._columns.to_json())

    def commit(self) -> None:
        """Write rows and position in one commit of Delta."""
        from deltalake import CommitProperties, Transaction

        assert self._staged is not None and self._columns is not None
        number = randbits(63)
        properties = CommitProperties(
            custom_metadata={"paimon.position": self._position},
            # Whoever has committed since the position was read may have written the same rows.
            max_commit_retries=0,
            app_transactions=[Transaction(_APPLICATION, number)],
        )
        with self._translated():
            self._write_position(number)
            if self._table is not None and self._keys and not self._begins_state:
                self._merge(self._table, number, properties)
            else:
                self._add(self._table, properties)
            if self._number_before is not None:
                # It is of no use any more; if it stays that does no harm.
                with suppress(Exception):
                    self._files().delete_file(_path(self._number_before))
        self._end()

    def roll_back(self) -> None:
        """Let go of the rows. Files that were written are in no commit: Delta's VACUUM removes them."""
        self._end()

    def _end(self) -> None:
        staged, self._staged, self._table = self._staged, None, None
        if staged is not None:
            staged.close()

    def _add(self, table: DeltaTable | None, properties: CommitProperties) -> None:
        """Add rows, in the place of all others where a state begins."""
        from deltalake import write_deltalake

        assert self._staged is not None
        rows = self._staged.rows()
        if table is None:
            write_deltalake(self._uri, rows, mode="error", storage_options=self._options, commit_properties=properties)
        elif self._begins_state:
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)
        else:
            table = self._fit_for_new_columns(table)
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)

    def _merge(self, table: DeltaTable, number: int, properties: CommitProperties) -> None:
        """Set rows, and take rows away, by their keys."""
        from deltalake import write_deltalake

        assert self._staged is not None
        table = self._fit_for_new_columns(table)
        same = " AND ".join(
            f"(held.{each} = new.{each} OR (held.{each} IS NULL AND new.{each} IS NULL))"
            if self._staged.has_nulls(key)
            else f"held.{each} = new.{each}"
            for key in self._keys
            for each in [_quoted(key)]
        )
        is_gone, is_kept = f"new.{IS_GONE}", f"NOT new.{IS_GONE}"
        values = {_quoted(name): f"new.{_quoted(name)}" for name in self._schema.names}
        merger = table.merge(
            self._staged.changes(),
            same,
            source_alias="new",
            target_alias="held",
            merge_schema=self._columns != self._columns_before,
            commit_properties=properties,
        )
        merger.when_matched_delete(is_gone).when_matched_update(values, is_kept).when_not_matched_insert(
            values, is_kept
        ).execute()
        if table.transaction_version(_APPLICATION) != number:
            # What changes no row is no commit to Delta.
            write_deltalake(table, self._schema.empty_table(), mode="append", commit_properties=properties)

    def _fit_for_new_columns(self, table: DeltaTable) -> DeltaTable:
        """Deltalake adds a column of timestamps without time zone to a table whose protocol has none, unasked."""
        from deltalake import TableFeatures

        wants = any(has_times_without_zone(field.type) for field in self._schema)
        if wants and "timestampNtz" not in (table.protocol().writer_features or ()):
            table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        return table

    def _load(self) -> DeltaTable | None:
        """The table as it is now; None: there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            # Anew each time: to one that was loaded before, a table that was made anew looks as if it had not changed.
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _saved_in(self, table: DeltaTable | None) -> Saved | None:
        number = None if table is None else table.transaction_version(_APPLICATION)
        if number is None:
            return None
        try:
            with self._files().open_input_stream(_path(number)) as stream:
                return Saved(**json.loads(stream.read()))
        except (OSError, ValueError, TypeError) as error:
            if self._is_at_another(number):
                return self.saved()
            raise TargetError(
                f"Delta table {self._uri}: the position in {_path(number)} cannot be read: {_text(error)}. If the file "
                "is lost, delete the table: its position() is None then, and a stream from the state on fills it anew."
            ) from error

    def _is_at_another(self, number: int) -> bool:
        """Whether a commit has come meanwhile, which has removed the file of the one before it."""
        table = self._load()
        return table is None or table.transaction_version(_APPLICATION) != number

    def _write_position(self, number: int) -> None:
        assert self._columns is not None
        if "://" not in self._uri:
            Path(self._uri).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"position": self._position, "columns": self._columns.to_json()}).encode()
        # Deltalake's files take bytes only from a buffer that holds all of them.
        with self._files().open_output_stream(_path(number), buffer_size=len(text) + 1) as stream:
            stream.write(text)

    def _files(self) -> PyFileSystem:
        from deltalake.fs import DeltaStorageHandler

        return PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of deltalake and of files as one of ours."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise StreamConfigError(
                f"Delta table {self._uri}: {_text(error)}. Others have committed to it in the same moment. Nothing of "
                "the plan is saved; replicate(...) goes on where the table stands."
            ) from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TargetError(
                f"Delta table {self._uri}: {_text(error)}. Nothing of the plan is saved. If it passes, replicate(...) "
                "goes on where the table stands."
            ) from error


def _path(number: int) -> str:
    return f"{_FOLDER}/position-{number:016x}.json"


def _text(error: Exception) -> str:
    """What an error says, in one line; deltalake paints some of it."""
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split()).removesuffix(".")


def _quoted(name: str) -> Any:
    """A name as it stands in deltalake's expressions."""
    return "`" + name.replace("`", "``") + "`"
