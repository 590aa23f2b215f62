"""`StagedPlan`: a plan until its end, for tables that take it as one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.saved_state import Saved, SavedState
from pypaimon.streaming.apply_changes.staged_rows import StagedRows


class StagedPlan:
    """The rows of a plan, and the columns that they need. Calls block, one at a time.

    Args:
        first: Its first batch.
        saved: What was saved before it.
        keys: Columns of the key; none: rows are appended.
        fitted: Rows as the table can hold them.

    Attributes:
        first: As given.
        schema: Of the rows.
        columns: The columns that they need.
        columns_before: The columns that were written to before; None: none was.
        rows: The rows of the batches that were added.
    """

    def __init__(
        self, first: AnyBatch, saved: Saved | None, keys: Sequence[str], fitted: Callable[[pa.Table], pa.Table]
    ) -> None:
        self.first = first
        self._keys = keys
        self._fitted = fitted
        self.schema = fitted(first.rows.slice(0, 0)).schema
        self.columns = SavedState.of(first, [(field.name, str(field.type)) for field in self.schema], keys)
        self.columns_before = None if saved is None or saved.columns is None else SavedState.from_json(saved.columns)
        self.rows = StagedRows(self.schema, keys)

    def add(self, batch: AnyBatch) -> None:
        """Add the rows of a batch; the first one too."""
        sets, gone = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        self.rows.add(self._fitted(sets), None if gone is None else self._fitted(gone))

    def saved(self, position: str) -> Saved:
        """What is saved with it."""
        return Saved(position, self.columns.to_json())

    def close(self) -> None:
        """Let go of the rows. Idempotent."""
        self.rows.close()
