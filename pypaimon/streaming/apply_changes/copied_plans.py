"""`CopiedPlans`: the plans of a stream into a Paimon table, a commit each, which notes where the stream goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts
from pypaimon.streaming.apply_changes.copied_schema import refuse_merging
from pypaimon.streaming.apply_changes.exact_casts import is_wider
from pypaimon.streaming.apply_changes.followed_columns import refuse_other_columns
from pypaimon.streaming.apply_changes.keys import TargetKeys, refuse_hidden_kinds
from pypaimon.streaming.apply_changes.saved_position import is_to_apply
from pypaimon.streaming.apply_changes.saved_state import (
    Saved,
    SavedState,
    Source,
    is_another_source,
    refuse_others_rows,
)
from pypaimon.streaming.errors import OtherColumnsError, PaimonStreamError, StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.arguments import a_batch
from pypaimon.streaming.writing.table_writer import TableWriter

_GAP = "a batch before this one was not copied, for there was an error: open a new stream where the target stands"


class CopiedPlans:
    """Copies the batches of a stream. Calls block, one at a time.

    A plan is committed with its last batch; one that the table holds already is passed over. A full state takes the
    place of the rows that are there, in the commit of its first plan.

    Args:
        writer: Of the table; nothing is to wait in it.
        fitted: Makes of rows of a schema what the writer takes.
        shared: Others write to the table too: a full state is added to what is there.
        before: What copied the stream until its writer ended, or None.
        replace: A full state may replace rows that another stream, or somebody else, has written.
        follows_columns: The columns of the table are altered as those of the source are.

    Raises:
        StreamConfigError: Rows wait in the writer.
    """

    def __init__(
        self,
        writer: TableWriter,
        fitted: Callable[[pa.Table, TableSchema], pa.Table] = lambda rows, _: rows,
        shared: bool = False,
        before: CopiedPlans | None = None,
        *,
        replace: bool = False,
        follows_columns: bool = False,
    ) -> None:
        if writer.has_pending:
            raise StreamConfigError("rows wait in the writer: commit() or abort() before a stream is copied by it")
        self._writer = writer
        self._fitted = fitted
        self._shared = shared
        self._may_replace = replace
        self._follows_columns = follows_columns
        self._state = ""
        self.begins_again: bool = False if before is None else before.begins_again
        """Whether the rows could not follow the columns of their source, so that the next state may replace them."""
        self._keys = TargetKeys(writer.table.primary_keys)
        self._is_open = False
        self._passes_over = False
        self._failed_before: Position | None = None if before is None else before._failed_before

    @property
    def is_open(self) -> bool:
        """Whether its writer goes on."""
        return self._writer.is_open

    @property
    def position(self) -> Position | None:
        """Where the stream goes on, as the table notes it."""
        return self._writer.position

    def position_for(self, source: Source) -> Position | None:
        """Where a stream continues; None: with the state of its table, as this one holds nothing of it.

        Raises:
            StreamConfigError: The table holds something else, and may not be emptied.
        """
        return None if self._is_another(source) else self.position

    def apply(self, batch: AnyBatch) -> None:
        """Write a batch, and commit if it is the last one of its plan. An error takes back what was written of it.

        Raises:
            StreamConfigError: The table lacks what the batch needs, or the batch does not go on where the table stands.
            TableChangedError: The source was rolled back since the position was noted.
            PaimonStreamError: As the writer says.
        """
        a_batch("apply: batch", batch)
        try:
            if not self._takes(batch):
                return
            self._keys.of_batch(batch)
            self._check_columns(batch)
            if batch.begins_state:
                self._begin_state(batch)
            if batch.num_rows:
                self._writer.write(self._fitted(self._rows(batch), batch.schema))
            if batch.is_last:
                self._is_open = False
                self._writer.commit(batch.plan_after, source_state=self._state)
                self._failed_before = None
                self.begins_again = False
        except BaseException as error:
            self.begins_again = self._may_replace and isinstance(error, OtherColumnsError)
            self._failed_before = batch.plan_after
            self.leave()
            raise

    def leave(self) -> None:
        """Take back what was written of a plan that is not at its end."""
        self._is_open = False
        # A writer that has ended has nothing that waits, and why it ended is the error to see.
        with suppress(PaimonStreamError):
            if self._writer.has_pending:
                self._writer.abort()

    def close(self) -> None:
        """End the writer. Idempotent."""
        self.leave()
        self._writer.close(is_done=True)

    def _takes(self, batch: AnyBatch) -> bool:
        if batch.is_first:
            # A plan that was left before its end comes again as a whole, or never.
            self.leave()
            refuse_hidden_kinds(batch)
            if not self._shared:
                refuse_merging(self._writer.table.table_schema, batch.schema, self._writer.name)
            position = None if self._is_replaced_by(batch) else self._writer.position
            if self._lies_beyond_a_failure(batch, position):
                raise StreamConfigError(_GAP)
            self._passes_over = not is_to_apply(batch, position)
            self._is_open = not self._passes_over
        elif not (self._is_open or self._passes_over):
            raise StreamConfigError(_GAP)
        return not self._passes_over

    def _is_replaced_by(self, batch: AnyBatch) -> bool:
        """Whether a plan takes the place of what others have written."""
        if self._writer.position is not None:
            return self._is_another(Source.of_batch(batch), begins_state=batch.begins_state)
        if self._may_replace or self._shared or not (batch.begins_state and self._writer.holds_rows()):
            return False
        raise refuse_others_rows(self._writer.name)

    def _is_another(self, source: Source, *, begins_state: bool = True) -> bool:
        """Whether the table holds something else than what a stream reads, and may be replaced by its state."""
        position = self._writer.position
        saved = None if position is None else Saved(position.to_json(), self._writer.source_state)
        is_another = is_another_source(saved, source, None, may_replace=self._may_replace and begins_state)
        return is_another or (self.begins_again and begins_state)

    def _check_columns(self, batch: AnyBatch) -> None:
        """Columns are found by name, so a new column of an old name would continue the old one."""
        described = [(name, "") for name in batch.rows.schema.names]
        wanted, before = SavedState.of(batch, described, None), self._writer.source_state
        if before is not None and not (batch.begins_state or self._follows_columns):
            known, held = SavedState.from_json(before), f"{self._writer.name} holds"
            refuse_other_columns(known, wanted, held, "in another table", is_wider)
        self._state = wanted.to_json()

    def _lies_beyond_a_failure(self, batch: AnyBatch, position: Position | None) -> bool:
        before, failed = batch.plan_before, self._failed_before
        if before is None or failed is None or batch.begins_state or before.table != failed.table:
            return False
        is_held = position is not None and position.table == failed.table and position >= failed
        return before >= failed and not is_held

    def _begin_state(self, batch: AnyBatch) -> None:
        if not self._shared:
            self._writer.replace_table()
        elif batch.plan_before is not None:
            raise StreamConfigError(
                "a full state in the midst of a stream cannot replace its part of a table that is shared: empty "
                "the target and begin all its streams anew"
            )

    def _rows(self, batch: AnyBatch) -> pa.Table:
        """The rows, with their kinds where the writer looks for them."""
        if not self._writer.is_keyed:
            return inserts(batch)
        rows, name = batch.rows, self._writer.kind_column or ROW_KIND
        kinds = batch.kinds.cast(pa.string())
        if name in rows.schema.names:
            return rows.set_column(rows.schema.get_field_index(name), name, kinds)
        return rows.append_column(name, kinds)
