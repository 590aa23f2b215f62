"""`DuckDBDatabase`: a schema of DuckDB whose tables follow those of a database, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from pypaimon.streaming.apply_changes.followed_columns import quoted
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.databases.duckdb_tables import CopiedTable, CopiedTables
from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed
from pypaimon.streaming.databases.position import DatabasePosition, TablePlace
from pypaimon.streaming.databases.stream import BlockingTableBatch
from pypaimon.streaming.databases.warehouses import noted_location
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.late_modules import LateModule
from pypaimon.streaming.options.arguments import a_name, needed

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LateModule("duckdb")


class DuckDBDatabase:
    """A schema of DuckDB whose tables follow those of a database of Paimon, each exactly once; for `copy_database`.

    The rows of a plan, the columns that they need and the position behind it are saved in one transaction. A table is
    made with its first plan, and rows of tables with a primary key are told by it. Columns that are added, renamed or
    widened are so here. A table that is dropped and made anew is replaced in the transaction of its first plan. A table
    or view of the schema that the copy has not made is never touched.

    Args:
        connection: The database; nobody else may use this connection meanwhile.
        schema: Its schema, made if it is not there; `database.schema` in another database than the current one.
        drop_columns: Drop columns that are dropped in the source. Else they stay, and are null.
        on_drop: What becomes of the copy of a table that is dropped: `"keep"` or `"drop"`.

    Raises:
        StreamConfigError: `on_drop` is neither.
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

    def begin(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where a copy of a database goes on. What is left of a plan that did not come to its end is taken back."""
        self.leave()
        self._source, self._tables.location = database, location
        positions = self._tables.positions(database)
        tables = {name: TablePlace(each.table, each) for name, each in positions.items()}
        return DatabasePosition(database, tables, noted_location(self._tables.locations(database), location))

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch; with the last one of a plan it is saved. An error takes back what was applied of the plan.

        Returns:
            Whether it was; False: what lies before is not there (by now), and the copy has to begin again.

        Raises:
            StreamConfigError: The schema has another table of that name, there are deletes in a table without a
                primary key, or the batch does not go on where the copy stands.
            TableChangedError: The table was rolled back since.
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
            if batch.is_first and not batch.begins_state and plans.position() is None:
                return False
            plans.apply(batch)
            return True

    def tell(self, event: DatabaseEvent) -> None:
        """Follow what happened to a table; the same event may come again.

        Raises:
            StreamConfigError: A table is renamed, and the schema has another one of that name.
            TargetError: DuckDB refuses.
        """
        with _translated():
            if isinstance(event, TableDropped):
                self._drop(event.table)
            elif isinstance(event, TableRenamed):
                self._rename(event.former, event.table)

    def leave(self) -> None:
        """Take back what was applied of a plan that is not at its end."""
        self._plans = {}
        # There is perhaps none.
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
                # What another table of this name has left.
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
    """Raise as our error what DuckDB refuses of one table; what concerns all of them stays as it is."""
    import duckdb

    try:
        yield
    except (duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError, duckdb.ProgrammingError) as error:
        raise TargetError(f"DuckDB refuses: {error}") from error
