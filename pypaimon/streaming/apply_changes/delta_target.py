"""`DeltaTarget`: a Delta table that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.delta_table import DeltaRows
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_path


class DeltaTarget:
    """A Delta table that follows a stream exactly once: one commit of Delta for each plan (extra `delta`).

    The rows of a plan and the position after it are one commit: a program that dies goes on at `position()` with
    nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there. The position is in a
    file of the folder `_paimon` of the table, which the commit names by the version of its app transaction
    `pypaimon-streaming`.

    With keys a plan is merged, without them its rows are appended; a full state replaces all rows. Columns that are
    added in Paimon are so here; one that was renamed, dropped or given another type is refused, until a full state
    brings the table's columns anew. The rows of a plan are written at its end: up to 64 MB of them wait in memory,
    more in a temporary file. Others may compact or vacuum the table between two commits.

    Args:
        table: Path or URI of the table; made by the first plan if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        storage_options: As deltalake takes them, such as `AWS_REGION`.
        replace: The state of the table may replace rows that another stream, or somebody else, has written.

    Raises:
        ModuleNotFoundError: deltalake is not installed.
    """

    def __init__(
        self,
        table: str | Path,
        keys: str | Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        path = a_path("DeltaTarget: table", table)
        import deltalake  # noqa: F401 (better now than after the first read)

        self._plans = PlanTransactions(DeltaRows(path, keys, storage_options), replace)

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: there is no table yet, or no plan in it.

        Raises:
            StreamConfigError: Others have restored a version before the position.
            TargetError: The table, or the file of its position, cannot be read.
        """
        return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is committed.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the
                primary key, columns are others than before,
                others have saved a position, dropped columns, restored a version or committed in the same moment, or
                the batch does not go on where the table stands.
            UnsupportedTableError: A column has a type that Delta does not have, or names differ only in case.
            TableChangedError: The Paimon table was rolled back since the position was saved.
            TargetError: Delta refuses: a file cannot be read or written, or whatever the message says.
        """
        self._plans.apply(batch)
