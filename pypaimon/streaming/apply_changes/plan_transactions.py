"""`PlanTransactions`: the plans of a stream in a table of a database, applied in transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from pypaimon.streaming.apply_changes.changes import refuse_reserved
from pypaimon.streaming.apply_changes.keys import AnyBatch, TargetKeys, refuse_hidden_kinds
from pypaimon.streaming.apply_changes.saved_position import is_to_apply
from pypaimon.streaming.apply_changes.saved_state import Saved, Source, is_another_source, refuse_others_rows
from pypaimon.streaming.errors import OtherColumnsError, PaimonStreamError, StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_batch


def is_same_place(there: Saved | None, before: Saved | None) -> bool:
    """Whether both are at one position."""
    return (None if there is None else there.position) == (None if before is None else before.position)


class TransactionalTable(Protocol):
    """A table of a database with transactions, and what is saved next to it."""

    @property
    def given_keys(self) -> TargetKeys:
        """Its keys."""

    @property
    def where(self) -> str:
        """What it is called, as an error says it."""

    def saved(self) -> Saved | None:
        """What was saved; None where nothing was, or the table is gone, which then has to be filled from the start."""

    def holds_rows(self) -> bool:
        """Whether it holds any rows; asked where nothing was saved."""

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        """Begin a transaction.

        Args:
            saved: What is known to be saved.
            replaces: Whatever is there goes, with its columns.

        Raises:
            StreamConfigError: Another program has saved a position since; one that is about to is waited for.
        """

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

    The rows of a plan and the position after it are saved in one transaction, which several plans may share. Plans that
    the table holds are passed over.

    Args:
        table: The table; nobody else uses its connection.
        replace: A full state may replace rows that another stream, or somebody else, has written.
    """

    def __init__(self, table: TransactionalTable, replace: bool = False) -> None:
        self._table = table
        self._may_replace = replace
        self._replaces = False
        self.begins_again = False
        """Whether the rows could not follow the columns of their table, so that the next state may replace them."""
        self._open = False
        self._passes_over = False
        self._holds: Callable[[], bool] = _never
        self._first: AnyBatch | None = None
        """The batch with which the open transaction began."""
        self._whole: Position | None = None
        """The position after the plans of the open transaction, where the last of them is whole; else None."""
        self._failed_before: Position | None = None
        self._saved: Saved | None = None
        """What this object has saved last, which saves asking for it; None: not known."""

    def position(self) -> Position | None:
        """Where to go on; None: the table holds nothing yet, or is gone."""
        saved = self._table.saved()
        if not self._open:
            self._saved = saved
        return _position(saved)

    def position_for(self, source: Source) -> Position | None:
        """Where a stream continues; None: with the state of its table, as the target holds nothing of it.

        Raises:
            StreamConfigError: The target holds something else, and may not replace it.
        """
        position = self.position()
        return None if self._is_another(source) else position

    @property
    def is_open(self) -> bool:
        """Whether rows were applied that are not committed."""
        return self._open

    @contextmanager
    def sharing(self, holds: Callable[[], bool]) -> Iterator[None]:
        """Let plans share transactions. What is not committed when this is left is taken back.

        Args:
            holds: Asked at the end of each plan: whether its transaction stays open for the next plan.
        """
        self._holds = holds
        try:
            yield
        finally:
            self._holds = _never
            if self._open:
                self._fail()

    def flush(self) -> None:
        """Commit the plans that share the open transaction; nothing if there is none.

        Raises:
            StreamConfigError: Another program has saved a position since.
            TargetError: The database refuses.
        """
        if self._whole is None:
            return
        try:
            saved = self._table.save(self._whole.to_json(), self._saved)
            if saved is None:
                raise others_write()
            self._table.commit()
            self._open = self.begins_again = False
            self._failed_before = self._whole = self._first = None
            self._saved = saved
        except BaseException as error:
            self._fail(error)
            raise

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved, unless the next plan shares its transaction.

        An error takes back what was applied since the last commit.

        Raises:
            StreamConfigError: The batch does not go on where the table stands, or the table cannot hold it.
            TableChangedError: The Paimon table was rolled back since the position was saved.
        """
        if a_batch("apply: batch", batch).is_first:
            self._begin_plan(batch)
        elif not (self._open or self._passes_over):
            raise _gap()
        try:
            if not self._passes_over:
                self._write(batch)
            if batch.is_last and not self._holds():
                self.flush()
        except BaseException as error:
            self._fail(error)
            raise

    def _begin_plan(self, batch: AnyBatch) -> None:
        """Find out whether a plan is new. One that begins a state, or has other columns, shares no transaction."""
        if self._first is not None and (batch.begins_state or batch.schema.id != self._first.schema.id):
            self.flush()
        if self._whole is not None:
            self._passes_over = not self._follows(batch, self._whole)
            return
        # A plan that was left before its end, for its stream was, comes again as a whole, or never.
        self._take_back()
        self._passes_over = False
        self._passes_over = not self._takes(batch)

    def _write(self, batch: AnyBatch) -> None:
        if not self._open:
            self._open, self._first = True, batch
            self._table.begin(self._saved, replaces=self._replaces)
        self._whole = None
        self._table.write(batch)
        self._whole = batch.plan_after if batch.is_last else None

    def _follows(self, batch: AnyBatch, whole: Position) -> bool:
        """Whether a plan is to be applied after those of the open transaction."""
        try:
            return is_to_apply(batch, whole)
        except PaimonStreamError as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException | None = None) -> None:
        """Take back the open transaction, whose plans have to come again."""
        self._saved = None
        if self._first is not None:
            self.begins_again = self._may_replace and isinstance(error, OtherColumnsError)
            self._failed_before = self._first.plan_after
        self._take_back()

    def _takes(self, batch: AnyBatch) -> bool:
        try:
            self._saved = self._saved or self._table.saved()
            refuse_reserved("column", batch.rows.schema.names)
            refuse_hidden_kinds(batch)
            self._replaces = self._is_replaced_by(batch)
            position = None if self._replaces else _position(self._saved)
            if self._lies_beyond_a_failure(batch, position):
                raise _gap()
            is_new = is_to_apply(batch, position)
        except BaseException:
            self._saved = None
            self._failed_before = batch.plan_after
            raise
        return is_new

    def _is_replaced_by(self, batch: AnyBatch) -> bool:
        """Whether a plan takes the place of what others have written."""
        if self._saved is not None:
            return self._is_another(Source.of_batch(batch), begins_state=batch.begins_state)
        if not batch.begins_state or not self._table.holds_rows():
            return False
        if not self._may_replace:
            raise refuse_others_rows(self._table.where)
        return True

    def _is_another(self, source: Source, *, begins_state: bool = True) -> bool:
        """Whether the table holds something else than what a stream reads, and may be replaced by its state."""
        may_replace = self._may_replace and begins_state
        keys = self._table.given_keys.of(source.schema, source.keyed)
        is_another = is_another_source(self._saved, source, keys, may_replace=may_replace)
        return is_another or (self.begins_again and begins_state)

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
        self._whole = self._first = None
        if self._open:
            self._open = False
            # Where the database has ended the transaction by itself, the error that made it do so is the one to see.
            with suppress(Exception):
                self._table.roll_back()


def _never() -> bool:
    return False


def _position(saved: Saved | None) -> Position | None:
    return None if saved is None else Position.from_json(saved.position)


def others_write() -> StreamConfigError:
    """The error for a position that another program has saved."""
    return StreamConfigError(
        "The position that is saved next to the table is not the one that this target has saved: others write to it.",
        advice="Give each stream a table of its own, or open a new stream with with_start(position=target.position()).",
        option="with_start: position",
    )


def _gap() -> StreamConfigError:
    return StreamConfigError(
        "A batch before this one was not applied, because there was an error.",
        advice="Open a new stream with with_start(position=target.position()).",
        option="with_start: position",
    )
