"""`DuckDBDatabase`: copies the tables of a database to a schema of DuckDB, each row exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from pypaimon.streaming.databases.duckdb_tables import CopiedTable, CopiedTables
from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed
from pypaimon.streaming.databases.position import DatabasePosition, TablePosition
from pypaimon.streaming.databases.stream import BlockingTableBatch
from pypaimon.streaming.databases.warehouses import noted_location
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.options.arguments import a_name, needed
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.plan_transactions import PlanTransactions

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LazyModule("duckdb")


class DuckDBDatabase:
    """Copies the tables of a Paimon database to a schema of DuckDB, each row exactly once; for `copy_database`.

    One transaction saves the rows of a plan, the columns that they need and the position after the plan. A table is
    created with its first plan. Rows of tables with a primary key are identified by it. Columns are added, renamed and
    widened as in the source. The copy of a table that is dropped and re-created is replaced in the transaction of its
    first plan. A table or view of the schema that is not a copy is never touched.

    Args:
        connection: The connection, which nobody else may use at the same time.
        schema: Name of the schema, created if needed; `database.schema` in another database than the current one.
        drop_columns: Whether to drop columns that are dropped in the source. Otherwise they stay, as null.
        on_drop: What happens to the copy of a table that is dropped: `"keep"` or `"drop"`.

    Raises:
        StreamConfigError: Invalid `on_drop`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: str = "main",
        *,
        drop_columns: bool = False,
        on_drop: Literal["keep", "drop"] = "keep",
    ) -> None:
        if on_drop not in ("keep", "drop"):
            raise StreamConfigError(f"on_drop: expected 'keep' or 'drop', got {on_drop!r}")
        needed("DuckDBDatabase: connection", connection, "a connection of duckdb", "execute", "register", "unregister")
        a_name("DuckDBDatabase: schema", schema)
        self._connection = connection
        self._tables = CopiedTables(connection, schema)
        self._drop_columns = drop_columns
        self._drops = on_drop == "drop"
        self._source = ""
        self._plans: dict[str, tuple[str, PlanTransactions]] = {}

    def load_position(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where the copy of a database continues. Rolls back what was applied of an unfinished plan."""
        self.roll_back()
        self._source, self._tables.location = database, location
        positions = self._tables.positions(database)
        tables = {name: TablePosition(each.table, each) for name, each in positions.items()}
        return DatabasePosition(database, tables, noted_location(self._tables.locations(database), location))

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch. The last batch of a plan saves the plan; an error rolls back what was applied of the plan.

        Returns:
            Whether the batch was applied. False: the target does not hold the rows before it, so the copy must restart.

        Raises:
            StreamConfigError: The schema has a table of that name that is not a copy, a table without a primary key has
                deletes, or the batch does not continue at the position of the copy.
            TableChangedError: The source was rolled back in the meantime.
            TargetError: DuckDB refuses the rows or a change of columns.
        """
        identity = batch.plan_after.table
        known = self._plans.get(batch.table)
        if known is None or known[0] != identity:
            table = CopiedTable(self._tables, self._source, batch.table, identity, drop_columns=self._drop_columns)
            known = identity, PlanTransactions(table)
            self._plans[batch.table] = known
        plans = known[1]
        with _translated():
            if batch.is_first and not batch.begins_state and plans.load_position() is None:
                return False
            plans.apply(batch)
            return True

    def apply_event(self, event: DatabaseEvent) -> None:
        """Apply an event of a table. The same event may come again.

        Raises:
            StreamConfigError: A table was renamed, and the schema has a table of the new name that is not a copy.
            TargetError: DuckDB refuses the change.
        """
        with _translated():
            if isinstance(event, TableDropped):
                self._drop(event.table)
            elif isinstance(event, TableRenamed):
                self._rename(event.former, event.table)

    def roll_back(self) -> None:
        """Roll back what was applied of an unfinished plan."""
        self._plans = {}
        # Fails if no transaction is open.
        with suppress(Exception):
            self._connection.execute("ROLLBACK")

    def _drop(self, name: str) -> None:
        row = self._tables.row(name)
        if row is None or row[0] != self._source:
            return
        self._plans.pop(name, None)
        rows = self._tables.rows
        with self._transaction():
            if self._drops:
                self._connection.execute(f"DROP TABLE IF EXISTS {self._tables.place(name)}")
                self._connection.execute(f"DELETE FROM {rows} WHERE name = ?", [name])
            else:
                self._connection.execute(f"UPDATE {rows} SET is_dropped = true WHERE name = ?", [name])

    def _rename(self, former: str, name: str) -> None:
        row = self._tables.row(former)
        if row is None or row[0] != self._source or row[2] or not self._tables.is_there(former):
            return
        is_same = former.lower() == name.lower()
        if not is_same:
            self._tables.refuse_another(name, self._source)
        for each in (former, name):
            self._plans.pop(each, None)
        rows, between = self._tables.rows, f"_paimon_{former}"
        with self._transaction():
            if not is_same:
                # The copy of an earlier table of this name.
                self._connection.execute(f"DROP TABLE IF EXISTS {self._tables.place(name)}")
                self._connection.execute(f"DELETE FROM {rows} WHERE name = ?", [name])
            for old, new in ((former, between), (between, name)) if is_same else ((former, name),):
                self._connection.execute(f"ALTER TABLE {self._tables.place(old)} RENAME TO {quoted(new)}")
            self._connection.execute(f"UPDATE {rows} SET name = ? WHERE name = ?", [name, former])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(Exception):
                self._connection.execute("ROLLBACK")
            raise


@contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of DuckDB that concern one table; others, such as a lost connection, are raised as they are."""
    import duckdb

    try:
        yield
    except (duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError, duckdb.ProgrammingError) as error:
        raise TargetError(f"DuckDB refuses: {error}") from error
