"""`PaimonRows`: the rows of a Paimon table, committed with the position of their source in the same snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts
from pypaimon.streaming.apply_changes.copied_schema import refuse_merging
from pypaimon.streaming.apply_changes.exact_casts import is_wider
from pypaimon.streaming.apply_changes.followed_columns import refuse_other_columns
from pypaimon.streaming.apply_changes.keys import TargetKeys
from pypaimon.streaming.apply_changes.plan_transactions import TransactionalTable
from pypaimon.streaming.apply_changes.saved_state import Saved, SavedState
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.writing.record_writer import orders_by_snapshot
from pypaimon.streaming.writing.table_writer import TableWriter

Fit = Callable[[pa.Table, TableSchema], pa.Table]


class PaimonRows(TransactionalTable):
    """Rows of a Paimon table. Calls block, one at a time.

    Plans may share a commit, with two exceptions, because of what Paimon does with a snapshot:

    - An overwrite has no changelog (Java's `FileStoreCommitImpl.overwritePartition` drops it), so later changes would
      be lost to readers of the copy. Only further parts of the state that replaces the table join it.
    - With `sequence.snapshot-ordering` the rows of one commit have to fit into memory.

    Args:
        table: pypaimon's table.
        open_writer: Returns an open writer of the table; called again after an error has ended the last one.
        fit: Converts rows, read with a schema of the source, to the columns of the table.
        shared: Others write to the table too: a full state is added to what is there.
        follows_columns: The caller alters the columns of the table when those of the source change.

    Attributes:
        given_keys: The primary key of the table.
        where: Its name.
    """

    waits = True

    def __init__(
        self,
        table: Any,
        open_writer: Callable[[], TableWriter],
        fit: Fit = lambda rows, _: rows,
        *,
        shared: bool = False,
        follows_columns: bool = False,
    ) -> None:
        self.given_keys = TargetKeys(table.primary_keys)
        self.where = table.identifier.get_full_name()
        self._open_writer = open_writer
        self._fit = fit
        self._shared = shared
        self._follows_columns = follows_columns
        self._orders_by_snapshot = orders_by_snapshot(table)
        self._writer: TableWriter | None = None
        self._overwrites = False
        self._state: str | None = None
        self._point: Position | None = None

    def saved(self) -> Saved | None:
        writer = self._opened()
        position = writer.position
        return None if position is None else Saved(position.to_json(), writer.source_state)

    def holds_rows(self) -> bool:
        return not self._shared and self._opened().holds_rows()

    def check(self, batch: AnyBatch) -> None:
        if not self._shared:
            refuse_merging(self._opened().table.table_schema, batch.schema, self.where)

    def can_join(self, batch: AnyBatch) -> bool:
        if self._orders_by_snapshot:
            return False
        return batch.kind is PlanKind.FULL or not self._overwrites

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        self._opened()
        self._overwrites = False
        self._state = None if saved is None else saved.columns

    def write(self, batch: AnyBatch) -> None:
        self.given_keys.of_batch(batch)
        self._check_columns(batch)
        if batch.begins_state:
            self._begin_state(batch)
        if batch.num_rows:
            self._current.write(self._fit(self._rows(batch), batch.schema))

    def save(self, position: str, before: Saved | None) -> Saved | None:
        held = self._current.position
        if (None if held is None else held.to_json()) != (None if before is None else before.position):
            return None
        self._point = Position.from_json(position)
        return Saved(position, self._state)

    def commit(self) -> None:
        self._current.commit(self._point, source_state=self._state)

    def roll_back(self) -> None:
        # A writer that an error has ended has deleted its files.
        if self._current.has_pending:
            self._current.abort()

    def close(self) -> None:
        """End the writer. Idempotent."""
        if self._writer is not None:
            self._writer.close(is_done=True)

    def _opened(self) -> TableWriter:
        if self._writer is None or not self._writer.is_open:
            self._writer = self._open_writer()
        return self._writer

    @property
    def _current(self) -> TableWriter:
        """The writer of the open transaction. One that has ended is not replaced here: rows of the plan are lost."""
        assert self._writer is not None
        return self._writer

    def _check_columns(self, batch: AnyBatch) -> None:
        """Columns are matched by name, so a new column must not continue a dropped one of the same name."""
        wanted = SavedState.of(batch, [(name, "") for name in batch.rows.schema.names], None)
        if self._state is not None and not (batch.begins_state or self._follows_columns):
            known = SavedState.from_json(self._state)
            refuse_other_columns(known, wanted, f"{self.where} holds", "in another table", is_wider)
        self._state = wanted.to_json()

    def _begin_state(self, batch: AnyBatch) -> None:
        if not self._shared:
            self._overwrites = self._current.replace_table()
        elif batch.plan_before is not None:
            raise StreamConfigError(
                "The stream starts again with a full state, which cannot replace its part of a shared table. Empty "
                "the table and start all of its streams again."
            )

    def _rows(self, batch: AnyBatch) -> pa.Table:
        """The rows, with their kinds where the writer looks for them."""
        if not self._current.is_keyed:
            return inserts(batch)
        rows, name = batch.rows, self._current.kind_column or ROW_KIND
        kinds = batch.kinds.cast(pa.string())
        if name in rows.schema.names:
            return rows.set_column(rows.schema.get_field_index(name), name, kinds)
        return rows.append_column(name, kinds)
