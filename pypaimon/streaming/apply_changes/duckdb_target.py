"""`DuckDBTarget`: a table of DuckDB that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.duckdb_table import DuckDBTable
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.apply_changes.refusals import translated
from pypaimon.streaming.apply_changes.saved_state import Saved
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_name, needed

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LazyModule("duckdb")


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
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or somebody else, has written.

    Raises:
        TargetError: The database refuses.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        keys: str | Sequence[str] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        needed("DuckDBTarget: connection", connection, "a connection of duckdb", "execute", "register", "unregister")
        self._name = a_name("DuckDBTarget: name", name)
        with self._translated():
            self._plans = PlanTransactions(_TargetTable(connection, name, keys), replace)

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: the table holds nothing yet, or is gone.

        Raises:
            TargetError: The database cannot be read.
        """
        with self._translated():
            return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the
                primary key, other columns are read than
                before, or the batch does not go on where the table stands: it is of another table, or what came before
                it is missing.
            TableChangedError: The Paimon table was rolled back since the position was saved.
            TargetError: DuckDB refuses: a constraint, a disk that is full, or whatever the message says.
        """
        with self._translated():
            self._plans.apply(batch)

    def _translated(self) -> AbstractContextManager[None]:
        return translated(f"DuckDB, table {self._name}", (duckdb.Error,))


class _TargetTable(DuckDBTable):
    """Its table, of which plans that share a transaction are committed without `apply`."""

    def save(self, position: str, before: Saved | None) -> Saved | None:
        with translated(self.where, (duckdb.Error,)):
            return super().save(position, before)

    def commit(self) -> None:
        with translated(self.where, (duckdb.Error,)):
            super().commit()
