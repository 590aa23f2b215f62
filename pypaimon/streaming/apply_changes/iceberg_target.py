"""`IcebergTarget`: a table of Iceberg that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.iceberg_table import IcebergRows
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_name, needed

if TYPE_CHECKING:
    import pyiceberg.catalog as iceberg
else:
    iceberg = LazyModule("pyiceberg.catalog")


class IcebergTarget:
    """A table of Iceberg that follows a stream exactly once: one commit of its catalog for each plan (extra `iceberg`).

    The rows of a plan and the position after it are one commit: a program that dies goes on at `position()` with
    nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there. The position is in the
    properties of the table, and of the snapshots of its plan, as `paimon.position`.

    With keys the files that hold a key of the plan are written anew, without keys rows are appended; a full state
    replaces all rows. Columns that are added, renamed or dropped in Paimon are so here; one of another type is where
    Iceberg promotes the type it had, and else refused. The rows of a plan are written at its end: up to 64 MB of them
    wait in memory, more in a temporary file. Others may compact the table, and expire its snapshots, between two
    commits.

    Args:
        catalog: Of pyiceberg.
        name: The table with its namespace, `sales.orders`; made by the first plan if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or somebody else, has written.

    Raises:
        StreamConfigError: The name has no namespace.
    """

    def __init__(
        self, catalog: iceberg.Catalog, name: str, keys: str | Sequence[str] | None = None, *, replace: bool = False
    ) -> None:
        needed("IcebergTarget: catalog", catalog, "a catalog of pyiceberg", "load_table", "create_table")
        a_name("IcebergTarget: name", name)
        self._plans = PlanTransactions(IcebergRows(catalog, name, keys), replace)

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: there is no table yet, or no plan in it.

        Raises:
            StreamConfigError: Others have rolled the table back.
            TargetError: The table cannot be read.
        """
        return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is committed.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the
                primary key, columns are others than before
                in a way that Iceberg cannot follow, others have saved a position, rolled the table back or committed
                in the same moment, or the batch does not go on where the table stands.
            UnsupportedTableError: A column has a type that Iceberg does not have.
            TableChangedError: The Paimon table was rolled back since the position was saved.
            TargetError: The catalog refuses, a file cannot be read or written, or whatever the message says.
        """
        self._plans.apply(batch)
