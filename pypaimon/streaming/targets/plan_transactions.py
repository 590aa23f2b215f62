"""`PlanTransactions`: applies the plans of a stream to a table, in transactions that save the position too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, Protocol

from pypaimon.streaming.errors import OtherColumnsError, PaimonStreamError, StreamConfigError, TargetError
from pypaimon.streaming.former_names import FormerNames
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_batch
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.targets.changes import AnyBatch, TargetKeys, refuse_hidden_kinds, refuse_reserved
from pypaimon.streaming.targets.target import is_to_apply
from pypaimon.streaming.targets.target_state import (
    Saved,
    SourceTable,
    is_another_source,
    is_made_for,
    refuse_others_rows,
)

Errors = tuple[type[Exception], ...]

_PASSING = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""
_PASSING_IN_MYSQL = (1020, 1205, 1213)
"""MySQL's ER_CHECKREAD, ER_LOCK_WAIT_TIMEOUT and ER_LOCK_DEADLOCK."""


@contextmanager
def translate_errors(where: str, errors: Errors, conflicts: Errors = ()) -> Iterator[None]:
    try:
        yield
    except PaimonStreamError:
        raise
    except conflicts as error:
        raise commit_conflict(where, error) from error
    except errors as error:
        refused = TargetError(
            f"{where}: {one_line(error)}. The plan is there as a whole, or not at all. Once the cause is gone, "
            "replicate(...) continues where the table stands, with a new target if a connection was lost. If others "
            "have changed the table, bring it back to what it was, or drop it: a stream that begins with the state "
            "fills it again."
        )
        refused.retriable = _may_pass(error)
        raise refused from error


def _may_pass(error: Exception) -> bool:
    is_conflict = type(error).__name__ == "TransactionException"  # of DuckDB, which has no error codes
    is_locked = re.search(r"database (table )?is locked", str(error)) is not None  # SQLite's SQLITE_BUSY and _LOCKED
    code = error.args[0] if type(error).__module__.startswith("pymysql") and error.args else None
    return is_conflict or is_locked or code in _PASSING_IN_MYSQL or getattr(error, "sqlstate", None) in _PASSING


def commit_conflict(where: str, error: Exception) -> StreamConfigError:
    return StreamConfigError(
        f"{where}: {one_line(error)}. Others have committed to it in the same moment, or the answer to a commit "
        "was lost. The plan is there as a whole, or not at all: replicate(...) continues where the table stands."
    )


def one_line(error: Exception) -> str:
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split()).removesuffix(".")


def is_same_place(there: Saved | None, before: Saved | None) -> bool:
    return (None if there is None else there.position) == (None if before is None else before.position)


class TransactionalTable(Protocol):
    """A table with transactions, and what a target saves next to it."""

    waits: bool = False
    """Whether a transaction stays open while no plan arrives: it holds no locks, and each commit costs files."""

    is_made: bool = True
    """Whether the first transaction makes the table. False: the caller did."""

    given_keys: TargetKeys
    where: str
    """What errors call it."""

    def saved(self) -> Saved | None:
        """What was saved; None if nothing was, or the table is gone and has to be filled again."""

    def holds_rows(self) -> bool:
        """Whether it holds any rows; asked if nothing was saved."""

    def refuse_source(self, source: ReadableTable) -> None:
        """Refuse a source of which it cannot be a copy."""
        return

    def check(self, batch: AnyBatch) -> None:
        """Refuse a plan that the table cannot take; called with its first batch, before a transaction begins."""
        refuse_reserved("column", batch.rows.schema.names)

    def can_join(self, batch: AnyBatch) -> bool:
        """Whether the plan that a batch begins may share the open transaction."""
        return True

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        """Begin a transaction."""

    def write(self, batch: AnyBatch) -> None: ...

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Save a position in the transaction, in place of `before`; None if another program has changed that."""

    def commit(self) -> None: ...

    def roll_back(self) -> None: ...


class PlanTransactions:
    """Applies the batches of a stream to a table. Calls block, one at a time.

    The rows of a plan and the position after it are saved in one transaction, which several plans may share. A plan
    that the table holds already is skipped.
    """

    def __init__(self, table: TransactionalTable, replace: bool = False) -> None:
        self._table = table
        self.may_replace = replace
        """Whether a state may replace rows that another stream, or another program, has written."""
        self._replaces = False
        self.begins_again = False
        """Whether the rows could not follow the columns of their table, so that the next state may replace them."""
        self._open = False
        self._skips = False
        self.shares_commits = False
        """Whether commits are left to `flush`, so that plans share them."""
        self.first: AnyBatch | None = None
        """The batch with which the open transaction began."""
        self._whole: Position | None = None
        """The position after the plans of the open transaction; None inside a plan, and without a transaction."""
        self._failed_before: Position | None = None
        self._saved: Saved | None = None
        """What this object has saved last, so that it need not ask; None: not known."""

    def load_position(self) -> Position | None:
        """Where to continue; None: the table holds nothing yet, or is gone."""
        saved = self._table.saved()
        # In a transaction, what was saved before it is what `flush` compares.
        if not self._open:
            self._saved = saved
        return _position(saved)

    def refuse_source(self, source: ReadableTable) -> None:
        """Refuse a source of which the table cannot be a copy."""
        self._table.refuse_source(source)

    def position_for(self, source: SourceTable) -> Position | None:
        """Where a stream continues; None: with the state of its table, because the target holds nothing of it."""
        position = self.load_position()
        return None if self._is_another(source) else position

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def is_whole(self) -> bool:
        """Whether there are uncommitted plans, all of them complete."""
        return self._whole is not None

    @property
    def waits(self) -> bool:
        return self._table.waits

    @contextmanager
    def sharing(self) -> Iterator[None]:
        self.shares_commits = True
        try:
            yield
        finally:
            self.shares_commits = False
            self.take_back()

    def take_back(self) -> None:
        if self._open:
            self._fail()

    def flush(self) -> None:
        """Commit the complete plans of the open transaction, if there are any."""
        if self._whole is not None:
            self._commit(self._whole.to_json())

    def make_table(self, state: Callable[[], AnyBatch]) -> None:
        """Make the table of a source that has no rows yet, so that it can be queried. No position is saved.

        Does nothing if the table holds a position, or rows of others.

        Args:
            state: Returns a state without rows. Called if the table holds neither.
        """
        saved = self._saved = self._table.saved()
        if not self._table.is_made or (saved is not None and saved.position) or self._table.holds_rows():
            return
        empty = state()
        if saved is not None and self._is_made_for(saved, empty):
            return
        self._table.check(empty)
        self._replaces = saved is not None
        try:
            self._write(empty)
            self._commit("")
        except BaseException as error:
            self._fail(error)
            raise

    def _is_made_for(self, saved: Saved, batch: AnyBatch) -> bool:
        return is_made_for(saved, batch, self._table.given_keys.of_batch(batch))

    def _commit(self, position: str) -> None:
        try:
            saved = self._table.save(position, self._saved)
            if saved is None:
                raise others_write()
            self._table.commit()
            self._open = self.begins_again = False
            self._failed_before = self._whole = self.first = None
            self._saved = saved
        except BaseException as error:
            self._fail(error)
            raise

    def leave(self) -> None:
        """Take back what is not committed. The next plan asks the table again where to continue."""
        self._saved = None
        self._take_back()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch. The last one of a plan commits it, unless plans share transactions.

        An error takes back what was applied since the last commit.

        Raises:
            TableChangedError: The Paimon table was rolled back since the position was saved.
        """
        if a_batch("apply: batch", batch).is_first:
            self._begin_plan(batch)
        elif not (self._open or self._skips):
            raise _gap()
        try:
            if not self._skips:
                self._write(batch)
            if batch.is_last and not self.shares_commits:
                self.flush()
        except BaseException as error:
            self._fail(error)
            raise

    def _begin_plan(self, batch: AnyBatch) -> None:
        if self.first is not None and not self._can_join(batch, self.first):
            self.flush()
        if self._whole is not None:
            self._skips = not self._continues(batch, self._whole)
            return
        # The stream of an unfinished plan has ended, so the plan is replayed as a whole.
        self._take_back()
        self._skips = False
        self._skips = not self._is_new(batch)

    def _can_join(self, batch: AnyBatch, first: AnyBatch) -> bool:
        is_same = not batch.begins_state and batch.schema.id == first.schema.id
        return is_same and self._table.can_join(batch)

    def _write(self, batch: AnyBatch) -> None:
        if not self._open:
            self._open, self.first = True, batch
            self._table.begin(self._saved, replaces=self._replaces)
        self._whole = None
        self._table.write(batch)
        self._whole = batch.plan_after if batch.is_last else None

    def _continues(self, batch: AnyBatch, whole: Position) -> bool:
        try:
            return is_to_apply(batch, whole)
        except PaimonStreamError as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException | None = None) -> None:
        self._saved = None
        if self.first is not None:
            self.begins_again = self.may_replace and isinstance(error, OtherColumnsError)
            self._failed_before = self.first.plan_after
        self._take_back()

    def _is_new(self, batch: AnyBatch) -> bool:
        try:
            self._saved = self._saved or self._table.saved()
            refuse_hidden_kinds(batch)
            self._table.check(batch)
            self._replaces = self._is_replaced_by(batch)
            position = None if self._replaces else _position(self._saved)
            if self._comes_after_a_failure(batch, position):
                raise _gap()
            return is_to_apply(batch, position)
        except BaseException:
            self._saved = None
            self._failed_before = batch.plan_after
            raise

    def _is_replaced_by(self, batch: AnyBatch) -> bool:
        saved = self._saved
        if saved is not None and saved.position:
            return self._is_another(SourceTable.of_batch(batch), begins_state=batch.begins_state)
        if not batch.begins_state:
            return False
        if not self._table.holds_rows():
            return saved is not None and not self._is_made_for(saved, batch)
        if not self.may_replace:
            raise refuse_others_rows(self._table.where)
        return True

    def _is_another(self, source: SourceTable, *, begins_state: bool = True) -> bool:
        may_replace = self.may_replace and begins_state
        keys = self._table.given_keys.of(source.schema, source.keyed)
        is_another = is_another_source(self._saved, source, keys, may_replace=may_replace)
        return is_another or (self.begins_again and begins_state)

    def _comes_after_a_failure(self, batch: AnyBatch, position: Position | None) -> bool:
        """Whether a plan before this one failed and was not replayed.

        One whose COMMIT was interrupted may have been saved nevertheless.
        """
        before, failed = batch.plan_before, self._failed_before
        if before is None or failed is None or batch.begins_state or before.table != failed.table:
            return False
        is_saved = position is not None and position.table == failed.table and position >= failed
        return before >= failed and not is_saved

    def _take_back(self) -> None:
        self._whole = self.first = None
        if self._open:
            self._open = False
            # If the database has ended the transaction by itself, its reason is the error to raise.
            with suppress(Exception):
                self._table.roll_back()


class TransactionTarget(FormerNames):
    """A target that applies plans in transactions."""

    _former_names: ClassVar = {"position": "load_position"}
    _plans: PlanTransactions

    def load_position(self) -> Position | None:
        """Where a stream continues, `with_start(position=...)`. None: the target holds nothing yet, or is gone.

        Raises:
            StreamConfigError: Others have rolled back what the target has saved.
            TargetError: The target cannot be read.
        """
        return self._plans.load_position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch. The last one of a plan commits it. A plan that the target holds already is skipped.

        An error takes back what was applied of the plan. Open a new stream at `load_position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the primary key, columns have changed in
                a way that the target cannot follow, a value does not fit, others have changed what the target has
                saved, or the batch does not continue where the target stands.
            UnsupportedTableError: A column has a type that the target cannot hold.
            TableChangedError: The table was rolled back, dropped or recreated since the position was saved.
            TargetError: The target refuses: it is locked, its disk is full, its connection is lost, or as the message
                says.
            PaimonStreamError: As the writer of a Paimon table says.
        """
        self._plans.apply(batch)


def _position(saved: Saved | None) -> Position | None:
    return None if saved is None or not saved.position else Position.from_json(saved.position)


def others_write() -> StreamConfigError:
    return StreamConfigError(
        "The position that is saved next to the table is not the one that this target has saved: others write to it.",
        advice="Give each stream a table of its own, or open a new stream with with_start(position=...) at the "
        "position of the target or writer.",
        option="with_start: position",
    )


def _gap() -> StreamConfigError:
    return StreamConfigError(
        "A batch before this one was not applied.",
        advice="Open a new stream with with_start(position=...) at the position of the target or writer.",
        option="with_start: position",
    )
