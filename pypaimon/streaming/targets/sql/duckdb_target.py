"""`DuckDBTarget`: a table of DuckDB that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pypaimon.streaming.late_modules import LateModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_name, needed
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.targets.plan_transactions import PlanTransactions
from pypaimon.streaming.targets.sql.duckdb_table import DuckDBTable
from pypaimon.streaming.targets.target_errors import translate_errors
from pypaimon.streaming.targets.target_state import Saved

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LateModule("duckdb")


class DuckDBTarget:
    """A table of DuckDB that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: after a crash the program continues at
    `position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there.

    A stream that begins earlier does no harm: plans that the table holds already are skipped. A full state replaces all
    rows of the table. Columns are added, renamed, widened and dropped as in Paimon
    (`with_on_schema_change("follow")`, or a new stream).

    Args:
        connection: The database; nothing else may use this connection meanwhile.
        name: The table; made by the first batch if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or another program, has written.

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
        """Where a stream continues, `with_start(position=...)`. None: the table holds nothing yet, or is gone.

        Raises:
            TargetError: The database cannot be read.
        """
        with self._translated():
            return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan. Open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the primary key, other columns are read
                than before, or the batch does not continue where the table stands: it is of another table, or what came
                before it is missing.
            TableChangedError: The Paimon table was rolled back since the position was saved.
            TargetError: DuckDB refuses: a constraint, a disk that is full, or as the message says.
        """
        with self._translated():
            self._plans.apply(batch)

    def _translated(self) -> AbstractContextManager[None]:
        return translate_errors(f"DuckDB, table {self._name}", (duckdb.Error,))


class _TargetTable(DuckDBTable):
    """The table. Plans that share a transaction are committed outside of `DuckDBTarget.apply`."""

    def save(self, position: str, before: Saved | None) -> Saved | None:
        with translate_errors(self.where, (duckdb.Error,)):
            return super().save(position, before)

    def commit(self) -> None:
        with translate_errors(self.where, (duckdb.Error,)):
            super().commit()
