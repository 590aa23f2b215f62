"""`PlanTransactions`: the plans of a stream in a table of a database, each of them one transaction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.saved_position import is_to_apply
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError
from pypaimon.streaming.model.position import Position


@dataclass(frozen=True, slots=True)
class Saved:
    """What was saved with the rows.

    Attributes:
        position: The table holds what lies before.
        columns: The columns that were written to, as JSON, or None.
    """

    position: str
    columns: str | None


def is_same_place(there: Saved | None, before: Saved | None) -> bool:
    """Whether both are at one position."""
    return (None if there is None else there.position) == (None if before is None else before.position)


class TransactionalTable(Protocol):
    """A table of a database with transactions, and what is saved beside it."""

    def saved(self) -> Saved | None:
        """What was saved; None where nothing was, or the table is gone, which then has to be filled from the start."""

    def begin(self, saved: Saved | None) -> None:
        """Begin a transaction."""

    def write(self, batch: AnyBatch) -> None:
        """Write the rows of a batch."""

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Save a position in the transaction, in the place of what was saved before; None: others have changed that."""

    def commit(self) -> None:
        """End the transaction."""

    def roll_back(self) -> None:
        """Take back the transaction."""


class PlanTransactions:
    """Applies the batches of a stream to a table. Calls block, one at a time.

    The rows of a plan and the position after it are saved in one transaction. Plans that the table holds are passed
    over.

    Args:
        table: The table; nobody else uses its connection.
    """

    def __init__(self, table: TransactionalTable) -> None:
        self._table = table
        self._open = False
        self._passes_over = False
        self._failed_before: Position | None = None
        self._saved: Saved | None = None
        """What this object has saved last, which saves asking for it; None: not known."""

    def position(self) -> Position | None:
        """Where to go on; None: the table holds nothing yet, or is gone."""
        saved = self._table.saved()
        if not self._open:
            self._saved = saved
        return _position(saved)

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved. An error takes back what was applied of the plan.

        Raises:
            StreamConfigError: The batch does not go on where the table stands, or the table cannot hold it.
            TableChangedError: The Paimon table was rolled back since the position was saved.
        """
        if batch.is_first:
            # A plan that was left before its end, for its stream was, comes again as a whole, or never.
            self._take_back()
            self._passes_over = False
            self._saved = self._saved or self._table.saved()
            self._passes_over = not self._takes(batch, _position(self._saved))
        elif not (self._open or self._passes_over):
            raise _gap()
        if self._passes_over:
            return
        try:
            if not self._open:
                self._open = True
                self._table.begin(self._saved)
            self._table.write(batch)
            if batch.is_last:
                self._end(batch.plan_after)
        except BaseException:
            self._saved = None
            self._failed_before = batch.plan_after
            self._take_back()
            raise

    def _end(self, position: Position) -> None:
        saved = self._table.save(position.to_json(), self._saved)
        if saved is None:
            raise StreamConfigError(
                "The position that was saved beside the table is another one than this target has saved: others write "
                "to it. Give each stream a table of its own, or open a new stream with "
                "with_start(position=target.position())."
            )
        self._table.commit()
        self._open = False
        self._failed_before = None
        self._saved = saved

    def _takes(self, batch: AnyBatch, position: Position | None) -> bool:
        try:
            if self._lies_beyond_a_failure(batch, position):
                raise _gap()
            is_new = is_to_apply(batch, position)
        except PaimonStreamError:
            self._saved = None
            self._failed_before = batch.plan_after
            raise
        return is_new

    def _lies_beyond_a_failure(self, batch: AnyBatch, position: Position | None) -> bool:
        """Whether a plan before this one failed, and did not come again.

        One whose COMMIT was interrupted may have been saved nevertheless.
        """
        before, failed = batch.plan_before, self._failed_before
        if before is None or failed is None or batch.begins_state or before.table != failed.table:
            return False
        is_saved = position is not None and position.table == failed.table and position >= failed
        return before >= failed and not is_saved

    def _take_back(self) -> None:
        if self._open:
            self._open = False
            # Where the database has ended the transaction by itself, the error that made it do so is the one to see.
            with suppress(Exception):
                self._table.roll_back()


def _position(saved: Saved | None) -> Position | None:
    return None if saved is None else Position.from_json(saved.position)


def _gap() -> StreamConfigError:
    return StreamConfigError(
        "A batch before this one was not applied, for there was an error. "
        "Open a new stream with with_start(position=target.position())."
    )
