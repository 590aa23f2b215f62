"""`DuckDBTarget`: a table of DuckDB that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.duckdb_columns import Columns, follow_columns, quoted
from pypaimon.streaming.apply_changes.saved_position import is_to_apply
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError
from pypaimon.streaming.late_modules import LateModule
from pypaimon.streaming.model.position import Position

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LateModule("duckdb")

_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"


class DuckDBTarget:
    """A table of DuckDB that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: a program that dies goes on at
    `position()` with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there.

    A stream that begins elsewhere does no harm: plans that the table holds already are passed over. A full state
    replaces all rows of the table. Columns that are added, renamed, widened or dropped in Paimon
    (`with_on_schema_change("follow")`, or a new stream) are so here.

    Args:
        connection: The database; nobody else may use this connection meanwhile.
        name: The table; made by the first batch if it is not there.
        keys: Columns of the key; none: rows are appended, and deletes are refused.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, keys: Sequence[str] = ()) -> None:
        self._connection = connection
        self._name = name
        self._table = ".".join(map(quoted, name.split(".")))
        self._keys = list(keys)
        self._open = False
        self._passes_over = False
        self._columns: Columns | None = None
        self._failed_before: Position | None = None
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (name VARCHAR, position VARCHAR)")
        connection.execute(f"ALTER TABLE {_POSITIONS} ADD COLUMN IF NOT EXISTS columns VARCHAR")

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: the table holds nothing yet, or is gone."""
        saved = self._saved()
        return None if saved is None else Position.from_json(saved[0])

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, there are deletes but no keys, other columns are read than
                before, or the batch does not go on where the table stands: it is of another table, or what came before
                it is missing.
            TableChangedError: The Paimon table was rolled back since the position was saved.
        """
        if not self._takes(batch):
            return
        try:
            if not self._open:
                self._begin()
            self._write(batch)
            if batch.is_last:
                self._save(batch.plan_after)
                self._connection.execute("COMMIT")
                self._open = False
                self._failed_before = None
        except BaseException:
            self._failed_before = batch.plan_after
            self._take_back()
            raise
        finally:
            # Whatever goes wrong with it must not hide the error that came before.
            with suppress(Exception):
                for view in (_ROWS, _GONE):
                    self._connection.unregister(view)

    def _begin(self) -> None:
        saved = self._saved()
        self._columns = None if saved is None or saved[1] is None else Columns.from_json(saved[1])
        self._open = True
        self._connection.execute("BEGIN")

    def _takes(self, batch: AnyBatch) -> bool:
        """Whether to apply a batch."""
        if batch.is_first:
            # A plan that was left before its end, for its stream was, comes again as a whole, or never.
            self._take_back()
            self._passes_over = False
            saved = self.position()
            if self._lies_beyond_a_failure(batch, saved):
                raise self._gap()
            try:
                self._passes_over = not is_to_apply(batch, saved)
            except PaimonStreamError:
                self._failed_before = batch.plan_after
                raise
        elif not (self._open or self._passes_over):
            raise self._gap()
        return not self._passes_over

    def _lies_beyond_a_failure(self, batch: AnyBatch, saved: Position | None) -> bool:
        """Whether a plan before this one failed, and did not come again.

        One whose COMMIT was interrupted may have been saved nevertheless.
        """
        before, failed = batch.plan_before, self._failed_before
        if before is None or failed is None or batch.begins_state or before.table != failed.table:
            return False
        is_saved = saved is not None and saved.table == failed.table and saved >= failed
        return before >= failed and not is_saved

    @staticmethod
    def _gap() -> StreamConfigError:
        return StreamConfigError(
            "A batch before this one was not applied, for there was an error. "
            "Open a new stream with with_start(position=target.position())."
        )

    def _take_back(self) -> None:
        if self._open:
            self._open = False
            # Where DuckDB has ended the transaction by itself, the error that made it do so is the one to see.
            with suppress(Exception):
                self._connection.execute("ROLLBACK")

    def _write(self, batch: AnyBatch) -> None:
        sets, removals = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        rows = self._registered(_ROWS, sets)
        self._columns = follow_columns(self._connection, self._table, rows, batch, self._columns)
        if batch.begins_state:
            self._connection.execute(f"DELETE FROM {self._table}")
        elif removals is not None:
            gone = self._registered(_GONE, pa.concat_tables([each.select(self._keys) for each in (sets, removals)]))
            same = " AND ".join(
                f"{self._table}.{quoted(key)} IS NOT DISTINCT FROM gone.{quoted(key)}" for key in self._keys
            )
            self._connection.execute(f"DELETE FROM {self._table} USING {gone} AS gone WHERE {same}")
        self._connection.execute(f"INSERT INTO {self._table} BY NAME SELECT * FROM {rows}")

    def _registered(self, view: str, rows: pa.Table) -> str:
        self._connection.register(view, rows)
        return view

    def _save(self, position: Position) -> None:
        columns = None if self._columns is None else self._columns.to_json()
        self._connection.execute(f"DELETE FROM {_POSITIONS} WHERE name = ?", [self._name])
        self._connection.execute(
            f"INSERT INTO {_POSITIONS} (name, position, columns) VALUES (?, ?, ?)",
            [self._name, position.to_json(), columns],
        )

    def _saved(self) -> tuple[str, str | None] | None:
        """Position and columns; None where the table is gone, which then has to be filled from the start."""
        query = f"SELECT position, columns FROM {_POSITIONS} WHERE name = ?"
        found = self._connection.execute(query, [self._name]).fetchone()
        return None if found is None or not self._exists() else (found[0], found[1])

    def _exists(self) -> bool:
        import duckdb

        try:
            self._connection.execute(f"SELECT 1 FROM {self._table} LIMIT 0")
        except duckdb.CatalogException:
            return False
        return True
