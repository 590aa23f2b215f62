"""`TableWriter`: rows into files and files into commits, one after the other; what both faces of a writer share."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import OR_REPLACED, PaimonStreamError, StreamConfigError, TableChangedError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.writing.changes.new_columns import altered
from pypaimon.streaming.writing.changes.records import Record
from pypaimon.streaming.writing.changes.table_changes import ChangeSettings, table_changes
from pypaimon.streaming.writing.commit.commit_ledger import BatchOrderError, CommitLedger
from pypaimon.streaming.writing.commit.commit_session import CommitSession
from pypaimon.streaming.writing.commit.conflicts import KeyIndexConflictError
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.exactly_once import commit_once
from pypaimon.streaming.writing.commit.last_commit import LastCommit, Standing, standing
from pypaimon.streaming.writing.commit.reports import Assumption, CommitFailedError, CommitReport, Written
from pypaimon.streaming.writing.commit.snapshot_commit import RolledBackError
from pypaimon.streaming.writing.files.local_timestamps import tell_of_time_zone
from pypaimon.streaming.writing.indexes.index_options import tell_of_unwritten
from pypaimon.streaming.writing.pending_rows import PendingRows
from pypaimon.streaming.writing.schema_pin import SchemaPin
from pypaimon.streaming.writing.upkeep import tell_of_upkeep
from pypaimon.streaming.writing.writable_tables import check_writable
from pypaimon.streaming.writing.writer_settings import (
    WriterClosedError,
    WriterConflictError,
    WriterSettings,
    check_watermark,
)

_LOG = StreamLog(__name__)

SOURCE_POSITION = "pypaimon.source-position"
"""Property of a snapshot: where the source of its rows goes on, as `Position.to_json` writes it."""
SOURCE_STATE = "pypaimon.source-state"
"""Property of a snapshot: what of its source the rows are; it comes with the position."""
_OF_SOURCE = (SOURCE_POSITION, SOURCE_STATE)


@dataclass(frozen=True, slots=True)
class _Commit:
    """What is to be committed.

    Attributes:
        identifier: Under which identifier.
        named: Whether the caller named it.
        notes: What its snapshot notes beside.
        watermark: Event time up to which rows are complete, or None.
        says: Whether there is something to be noted, also without rows.
    """

    identifier: int
    named: bool
    notes: Mapping[str, str]
    watermark: int | None
    says: bool


class TableWriter:
    """Writes and commits. Every call blocks; one at a time, from any thread.

    Args:
        table: pypaimon's table.
        settings: What the writer was told.

    Raises:
        UnsupportedTableError: The table cannot be written exactly.
        StreamConfigError: A setting does not fit it.
        TableChangedError: It cannot be known where the commit user stands.
        StoreError: The store failed.
    """

    def __init__(self, table: Any, settings: WriterSettings) -> None:
        self.name: str = table.identifier.get_full_name()
        self.user = settings.user
        check_writable(table, self.name, settings.overwrite is not False)
        tell_of_unwritten(table, self.name)
        tell_of_upkeep(table, self.name)
        tell_of_time_zone(table, self.name)
        self._pending = PendingRows(table, settings)
        self._directory = TableDirectory.of(table)
        self._is_named = settings.is_named
        self._pin = SchemaPin.of(table)
        self._session = CommitSession()
        self._standing: Standing = standing(self._directory, self.user)
        self._why_ended: str | None = None
        self._ends_behind: str | None = None
        self._origin = Origin()
        self._lock = threading.Lock()

    @property
    def table(self) -> Any:
        """pypaimon's table, with the schema that is written."""
        return self._pending.table

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self._why_ended is None and self._ends_behind is None and self._origin.is_here

    @property
    def is_keyed(self) -> bool:
        """Whether the table has a primary key, so that rows have kinds."""
        return bool(self.table.is_primary_key_table)

    @property
    def kind_column(self) -> str | None:
        """Column of what is written that holds row kinds; None: `_row_kind`, where the table has no such column."""
        return self._pending.kind_column

    @property
    def has_pending(self) -> bool:
        """Whether something was written and not committed."""
        return self._pending.any

    @property
    def last(self) -> LastCommit | None:
        """The newest commit of the commit user that the table is known to hold."""
        return self._standing.last

    @property
    def position(self) -> Position | None:
        """Where the source goes on, as the newest commit notes it; None if it notes none."""
        text = None if self.last is None else self.last.properties.get(SOURCE_POSITION)
        return None if text is None else Position.from_json(text)

    @property
    def source_state(self) -> str | None:
        """What of its source the rows are, as the newest commit notes it; None if it notes nothing."""
        return None if self.last is None else self.last.properties.get(SOURCE_STATE)

    def holds_rows(self) -> bool:
        """Whether the table holds records. One request."""
        latest = self._directory.snapshots.get_latest_snapshot()
        return latest is not None and latest.total_record_count != 0

    def replace_table(self) -> bool:
        """The next commit replaces all that the table holds; to be called before its first row.

        Returns:
            Whether it is an overwrite: a table without rows takes an ordinary commit.
        """
        with self._turn():
            if self._pending.has_rows:
                raise StreamConfigError("rows were written already: commit() or abort() before the table is replaced")
            return self._pending.replace_table()

    def write(self, data: Any) -> None:
        """Take rows; see `StreamWriter.write`."""
        with self._turn():
            self._write(data)

    def write_changes(self, records: Iterable[Record], settings: ChangeSettings) -> None:
        """Take rows out of change records; see `StreamWriter.write_changes`."""
        with self._turn():
            found = table_changes(self.table, records, settings, self.kind_column or ROW_KIND)
            if found.alterations:
                table = altered(self.table, found.alterations)
                with self._ends_on_error("an error while the table was altered"):
                    self._go_on_with(table)
            if found.rows.num_rows:
                self._write(found.rows)

    def _write(self, data: Any) -> None:
        rows = self._pending.aligned(data)
        with self._ends_on_error("an error while rows were written"):
            for batch in rows:
                self._pending.take(batch, self.last)

    def _go_on_with(self, table: Any) -> None:
        """Write under another schema of the table."""
        self._pending.go_on_with(table)
        self._directory = TableDirectory.of(table)
        self._pin = SchemaPin.of(table)

    def commit(
        self,
        point: int | Position | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
        source_state: str | None = None,
    ) -> CommitReport:
        """Commit what was written; see `StreamWriter.commit`.

        Args:
            point: See there.
            watermark: See there.
            properties: See there.
            source_state: What of its source the rows are, with a position.
        """
        with self._turn():
            identifier, named = self._identifier(point), isinstance(point, int)
            notes = self._notes(point, properties, source_state)
            check_watermark(watermark)
            says = bool(properties) or isinstance(point, Position) or watermark is not None
            with self._ends_on_error("an error while rows were committed"):
                return self._commit(_Commit(identifier, named, notes, watermark, says))

    def abort(self) -> None:
        """Delete what was written since the last commit; the writer goes on."""
        with self._turn(), self._ends_on_error("an error while files were deleted"):
            self._pending.discard()

    def close(self, *, is_done: bool) -> None:
        """Delete what was not committed, and end, behind a call that is under way. Idempotent.

        Args:
            is_done: Nobody will ask what was committed. Under a user that nobody chose nothing is kept then.

        Raises:
            TableChangedError: In a store where nobody arbitrates, another program has replaced the last commit.
        """
        with self._lock:
            if self._why_ended is None and self._origin.is_here:
                is_done = is_done and self._ends_behind is None
                if is_done and self._pending.has_rows:
                    text = "rows of '%(user)s' are deleted: call commit(), or abort(), before the writer is closed"
                    _LOG.warning("rows_uncommitted", text, table=self.name, user=self.user)
                self._end(self._ends_behind or "it was closed")
                if is_done and not self._session.arbitrates:
                    self._check_history()
                if is_done and not self._is_named and self.last is not None:
                    self._forget()

    def _forget(self) -> None:
        """Let go what keeps snapshots from expiring; a failure changes nothing of what was committed."""
        try:
            CommitLedger(self._directory, self.user).forget()
        except PaimonStreamError as error:
            text = "consumer %(user)s of %(table)s could not be deleted, and keeps snapshots: %(error)s"
            _LOG.warning("commit_user_kept", text, user=self.user, table=self.name, error=str(error))

    def end_behind(self, why: str) -> None:
        """Take no more calls; `close` is to follow behind the one that is under way. Does not block."""
        self._ends_behind = why

    # Turns

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise StreamConfigError("this writer is in use by another call; open one writer per task")
        try:
            self.check_open()
            yield
        finally:
            self._lock.release()

    def check_open(self) -> None:
        """Check that it goes on.

        Raises:
            WriterClosedError: It has ended.
        """
        if not self._origin.is_here:
            raise WriterClosedError("This writer belongs to the process that this one was forked from; open one here.")
        why = self._why_ended or self._ends_behind
        if why is not None:
            raise WriterClosedError(
                f"The writer of {self.name} has ended: {why}. What was not committed is not visible. Open a "
                f"new one under the commit user '{self.user}'; its last_committed tells what the table holds."
            )

    @contextmanager
    def _ends_on_error(self, why: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._end(why)
            if isinstance(error, FileNotFoundError):
                # Where the table was dropped, that is what went wrong.
                self._pin.check(self.table)
            raise

    def _end(self, why: str) -> None:
        self._why_ended = why
        # What ended it is the error to see.
        with suppress(Exception):
            self._pending.discard()

    # Commits

    def _identifier(self, point: int | Position | None) -> int:
        if isinstance(point, bool) or not isinstance(point, int | Position | None):
            raise StreamConfigError(f"commit: expected an identifier (int), a Position or None, got {point!r}.")
        if not isinstance(point, int):
            return self._standing.next
        if not 0 <= point < 2**63 - 1:
            raise StreamConfigError(f"commit: an identifier is between 0 and 2**63 - 2, got {point}.")
        return point

    def _notes(
        self, point: int | Position | None, properties: Mapping[str, str] | None, source_state: str | None
    ) -> dict[str, str]:
        given = dict(properties or {})
        for key, value in given.items():
            if not isinstance(key, str) or not isinstance(value, str) or key in _OF_SOURCE:
                raise StreamConfigError(
                    f"commit: properties are texts by names, other than {' and '.join(map(repr, _OF_SOURCE))}, got "
                    f"{key!r}: {value!r}."
                )
        if isinstance(point, Position):
            given[SOURCE_POSITION] = point.to_json()
            if source_state is not None:
                given[SOURCE_STATE] = source_state
        elif self.last is not None:
            # The newest commit tells where the source stands, also if only others were asked for.
            given.update((key, self.last.properties[key]) for key in _OF_SOURCE if key in self.last.properties)
        return given

    def _commit(self, commit: _Commit) -> CommitReport:
        messages = self._pending.messages()
        schema_id = self._directory.latest_schema().id
        overwrite, table = self._pending.overwrites, self._pending.table_to_write
        key_indexes, buckets_of = self._pending.key_indexes, self._pending.buckets_of
        self._pending.taken()
        if not (messages or overwrite is not False or commit.says or commit.named):
            self._check_table()
            return CommitReport(None, Written.of([]))
        try:
            report = commit_once(
                table,
                self.user,
                commit.identifier,
                messages,
                overwrite=overwrite,
                assumption=Assumption(),
                schema_id=schema_id,
                properties=commit.notes,
                keep_empty=commit.says,
                watermark=commit.watermark,
                session=self._session,
                fresh=True,
                key_indexes=key_indexes,
                buckets_of=buckets_of,
                check=self._check_table,
            )
        except CommitFailedError as error:
            if isinstance(error.__cause__, RolledBackError):
                self._check_table()
            raise
        except KeyIndexConflictError as error:
            raise WriterConflictError(
                f"{self.name} has dynamic buckets: {error} Such a table has one writer at a time. Open a new one, "
                "which knows the buckets of all keys, and write the rows again."
            ) from error
        except BatchOrderError as error:
            raise self._conflict(f"commit {error.later}, which is later, is in the table") from error
        if report.repeated and report.snapshot is None:
            # It was found among older commits, before these files were ever named.
            discard(table, messages)
        if report.repeated and (not commit.named or commit.identifier >= self._standing.next):
            raise self._conflict(f"commit {commit.identifier} is in the table, from another writer")
        self._note(report, commit, overwrite is not False)
        return report

    def _note(self, report: CommitReport, commit: _Commit, replaced: bool) -> None:
        if report.repeated:
            self._pending.note_left_out()
        if report.snapshot is None or report.repeated:
            return
        self._pending.note_committed(report.snapshot, replaced=replaced)
        self._standing = Standing(LastCommit(commit.identifier, report.snapshot, commit.notes), commit.identifier + 1)

    def _conflict(self, what: str) -> WriterConflictError:
        return WriterConflictError(
            f"{self.name}: {what}, so that this one of '{self.user}' was left out. A commit user has one writer at a "
            "time, whose identifiers grow: end the other one, or give each a user of its own."
        )

    def _check_table(self) -> None:
        """Whether it is the table still, with all that this writer has committed."""
        self._pin.check(self.table)
        self._check_history()

    def _check_history(self) -> None:
        """Whether the table still holds what this writer has committed."""
        if self.last is not None and not self.last.is_in(self._directory, self.user):
            raise TableChangedError(
                f"{self.name} was rolled back behind snapshot {self.last.snapshot}, which held commit "
                f"{self.last.identifier} of '{self.user}', while it was written. {OR_REPLACED} Nothing was committed "
                "since.",
                "Open a new writer: its last_committed and position tell what the table holds now.",
            )
