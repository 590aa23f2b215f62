"""`TableWriter`: the blocking writer below both faces: it writes rows to files, and commits them, again and again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pypaimon.streaming.cdc.change_records import ChangeRecord
from pypaimon.streaming.cdc.new_columns import ChangeSettings, altered, table_changes
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.ledger import CommitLedger
from pypaimon.streaming.commit.request import CommitReport, CommitRequest, Written
from pypaimon.streaming.commit.session import CommitProgress, CommitSession, LastCommit, progress_of
from pypaimon.streaming.commit.snapshot_commit import RolledBackError
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import (
    OR_REPLACED,
    BatchOrderError,
    CommitFailedError,
    KeyIndexConflictError,
    PaimonStreamError,
    StreamConfigError,
    TableChangedError,
    WriterClosedError,
    WriterConflictError,
)
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance, maintenance_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.writing.pending_rows import PendingRows, WriterSettings, check_watermark
from pypaimon.streaming.writing.pinned_schema import PinnedSchema
from pypaimon.streaming.writing.writable_tables import check_writable, warn_about_gaps

_LOG = StreamLog(__name__)

SOURCE_POSITION = "pypaimon.source-position"
"""Property of a snapshot: the position of the source after its rows, as `Position.to_json` writes it."""
SOURCE_STATE = "pypaimon.source-state"
"""Property of a snapshot: which part of its source the rows are from. It comes with the position."""
_OF_SOURCE = (SOURCE_POSITION, SOURCE_STATE)


class TableWriter:
    """Writes and commits. Calls block. One call at a time, from any thread. Raises TableChangedError if it is unknown
    how far the commit user has got.
    """

    def __init__(self, table: PaimonTable, settings: WriterSettings) -> None:
        self.name = table.name
        self.user = settings.user
        check_writable(table, settings.overwrite is not False)
        warn_about_gaps(table, maintains=settings.maintains)
        self.maintenance: CommitMaintenance | None = maintenance_of(table) if settings.maintains else None
        self._pending = PendingRows(table, settings)
        self._directory = table.new_directory()
        self._is_named = settings.is_named
        self._schema = PinnedSchema.of(table)
        self._progress: CommitProgress = progress_of(self._directory, self.user)
        self._session = CommitSession(new_since=self._progress.new_since)
        self._why_ended: str | None = None
        self._ends_after_call: str | None = None
        self._origin = Origin()
        self._lock = threading.Lock()

    @property
    def table(self) -> PaimonTable:
        return self._pending.table

    @property
    def is_open(self) -> bool:
        return self._why_ended is None and self._ends_after_call is None and self._origin.is_here

    @property
    def is_keyed(self) -> bool:
        return self.table.is_primary_key_table

    @property
    def kind_column(self) -> str | None:
        """Column of given rows that holds row kinds; None: `_row_kind`, if the table lacks a column of that name."""
        return self._pending.kind_column

    @property
    def has_pending(self) -> bool:
        return self._pending.has_pending

    @property
    def last(self) -> LastCommit | None:
        """The newest commit of the commit user, as far as this writer knows."""
        return self._progress.last

    @property
    def position(self) -> Position | None:
        """The position of the source that the newest commit recorded; None if it did not."""
        text = None if self.last is None else self.last.properties.get(SOURCE_POSITION)
        return None if text is None else Position.from_json(text)

    @property
    def source_state(self) -> str | None:
        """The part of its source that the newest commit recorded; None if it did not."""
        return None if self.last is None else self.last.properties.get(SOURCE_STATE)

    def holds_rows(self) -> bool:
        """Whether the table holds records. One request."""
        latest = self._directory.snapshots.get_latest_snapshot()
        return latest is not None and latest.total_record_count != 0

    def replace_table(self) -> bool:
        """Have the next commit replace all rows of the table. Call it before its first row. Returns whether the commit
        is an overwrite: a table without rows gets an ordinary commit.
        """
        with self._turn():
            if self._pending.has_rows:
                raise StreamConfigError("rows were written already: commit() or abort() before the table is replaced")
            return self._pending.replace_table()

    def write(self, data: Any, *, keeps_nulls: bool = False) -> None:
        """Write rows; see `StreamWriter.write`. With `keeps_nulls` no null becomes the default value of its column."""
        with self._turn():
            self._write(data, keeps_nulls=keeps_nulls)

    def write_changes(self, records: Iterable[ChangeRecord], settings: ChangeSettings) -> None:
        with self._turn():
            found = table_changes(self.table, records, settings, self.kind_column or ROW_KIND)
            if found.alterations:
                # The columns first, because the rows are aligned to them.
                table = altered(self.table, found.alterations)
                with self._ends_on_error("an error while the table was altered"):
                    self._change_table(table)
            if found.rows.num_rows:
                self._write(found.rows)

    def _write(self, data: Any, *, keeps_nulls: bool = False) -> None:
        rows = self._pending.aligned(data, keeps_nulls=keeps_nulls)
        with self._ends_on_error("an error while rows were written"):
            for batch in rows:
                self._pending.write(batch, self.last)

    def _change_table(self, table: PaimonTable) -> None:
        self._pending.change_table(table)
        self._directory = table.new_directory()
        self._schema = PinnedSchema.of(table)

    def commit(
        self,
        point: int | Position | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
        source_state: str | None = None,
    ) -> CommitReport:
        """Commit what was written; see `StreamWriter.commit`. `source_state` says which part of its source the rows are
        from. It is only given with a position.
        """
        with self._turn():
            identifier, named = self._identifier(point), isinstance(point, int)
            recorded = self._properties(point, properties, source_state)
            check_watermark(watermark)
            keep_empty = bool(properties) or isinstance(point, Position) or watermark is not None
            with self._ends_on_error("an error while rows were committed"):
                return self._commit(identifier, recorded, watermark, named=named, keep_empty=keep_empty)

    def abort(self) -> None:
        """Delete what was written since the last commit. The writer can be used on."""
        with self._turn(), self._ends_on_error("an error while files were deleted"):
            self._pending.discard()

    def close(self, *, is_done: bool) -> None:
        """End the writer, after a call and maintenance that are running, and delete what was not committed. Idempotent.
        Raises TableChangedError if in a store that cannot arbitrate, another program has replaced the last commit.

        If the caller `is_done`, nobody will continue under a generated commit user, and its ledger is deleted.
        """
        with self._lock:
            if self._why_ended is None and self._origin.is_here:
                is_done = is_done and self._ends_after_call is None
                if is_done and self._pending.has_rows:
                    text = "rows of '%(user)s' are deleted: call commit(), or abort(), before the writer is closed"
                    _LOG.warning("rows_uncommitted", text, table=self.name, user=self.user)
                self._end(self._ends_after_call or "it was closed")
                if is_done and not self._session.conditional:
                    self._check_history()
                if is_done and not self._is_named and self.last is not None:
                    self._forget()
        if self.maintenance is not None and self._origin.is_here:
            self.maintenance.close(finish=is_done)

    def _forget(self) -> None:
        try:
            # The ledger keeps snapshots from expiring. A failure does not affect what was committed.
            CommitLedger(self._directory, self.user).forget()
        except PaimonStreamError as error:
            text = "consumer %(user)s of %(table)s could not be deleted, and keeps snapshots: %(error)s"
            _LOG.warning("commit_user_kept", text, user=self.user, table=self.name, error=str(error))

    def end_after_call(self, why: str) -> None:
        """Refuse further calls. The caller must call `close`, which waits for the running call. Does not block."""
        self._ends_after_call = why

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
        if not self._origin.is_here:
            raise WriterClosedError("This writer belongs to the process from which this one was forked; open one here.")
        why = self._why_ended or self._ends_after_call
        if why is not None:
            raise WriterClosedError(
                f"The writer of {self.name} has ended: {why}. Rows that were not committed are not visible. Open a "
                f"new one under the commit user '{self.user}'; its last_committed says what the table holds."
            )

    @contextmanager
    def _ends_on_error(self, why: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._end(why)
            if isinstance(error, FileNotFoundError):
                # If the table was dropped, that error says more than a missing file.
                self._schema.check(self.table)
            raise

    def _end(self, why: str) -> None:
        self._why_ended = why
        # The caller must see the error that ended the writer, not one of the cleanup.
        with suppress(Exception):
            self._pending.discard()

    # Commits

    def _identifier(self, point: int | Position | None) -> int:
        if isinstance(point, bool) or not isinstance(point, int | Position | None):
            raise StreamConfigError(f"commit: expected an identifier (int), a Position or None, got {point!r}.")
        if not isinstance(point, int):
            return self._progress.next
        if not 0 <= point < 2**63 - 1:
            raise StreamConfigError(f"commit: an identifier is between 0 and 2**63 - 2, got {point}.")
        return point

    def _properties(
        self, point: int | Position | None, properties: Mapping[str, str] | None, source_state: str | None
    ) -> dict[str, str]:
        given = dict(properties or {})
        for key, value in given.items():
            if not isinstance(key, str) or not isinstance(value, str) or key in _OF_SOURCE:
                raise StreamConfigError(
                    f"commit: properties must map texts to texts, and not {' or '.join(map(repr, _OF_SOURCE))}, got "
                    f"{key!r}: {value!r}."
                )
        if isinstance(point, Position):
            given[SOURCE_POSITION] = point.to_json()
            if source_state is not None:
                given[SOURCE_STATE] = source_state
        elif self.last is not None:
            # The newest commit must say how far the source was read, even if the caller only gives other properties.
            given.update((key, self.last.properties[key]) for key in _OF_SOURCE if key in self.last.properties)
        return given

    def _commit(
        self, identifier: int, properties: Mapping[str, str], watermark: int | None, *, named: bool, keep_empty: bool
    ) -> CommitReport:
        messages = self._pending.messages()
        # As in Java a snapshot names the latest schema, whichever its files were written with.
        schema_id = self._directory.latest_schema().id
        overwrite, table = self._pending.overwrite, self._pending.table_to_write
        key_indexes, buckets_of = self._pending.key_indexes, self._pending.buckets_of
        # From here on the commit owns the files: after an unknown outcome the writer must not delete them.
        self._pending.taken()
        if not (messages or overwrite is not False or keep_empty or named):
            self._check_table()
            return CommitReport(None, Written.of([]))
        try:
            request = CommitRequest(
                table,
                self.user,
                identifier,
                messages,
                overwrite=overwrite,
                keep_empty=keep_empty,
                schema_id=schema_id,
                watermark=watermark,
                properties=properties,
                key_indexes=key_indexes,
                buckets_of=buckets_of,
                check_table=self._check_table,
                is_first_attempt=True,
            )
            report = commit_once(request, self._session)
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
        if report.repeated and report.snapshot_id is None:
            # It was found among older commits, so no snapshot can name these files.
            discard(table, messages)
        if report.repeated and (not named or identifier >= self._progress.next):
            raise self._conflict(f"commit {identifier} is in the table, from another writer")
        self._note(report, identifier, properties, overwrite is not False)
        return report

    def _note(self, report: CommitReport, identifier: int, properties: Mapping[str, str], replaced: bool) -> None:
        if report.repeated:
            self._pending.note_left_out()
        if report.snapshot_id is None or report.repeated:
            return
        self._pending.note_committed(report.snapshot_id, replaced=replaced)
        self._progress = CommitProgress(LastCommit(identifier, report.snapshot_id, properties), identifier + 1)
        if self.maintenance is not None:
            self.maintenance.after_commit(report.snapshot_id, self._session.first_kept)

    def _conflict(self, what: str) -> WriterConflictError:
        return WriterConflictError(
            f"{self.name}: {what}, so this one of '{self.user}' was left out. A commit user has one writer at a time, "
            "whose identifiers grow: end the other one, or give each a user of its own."
        )

    def _check_table(self) -> None:
        self._schema.check(self.table)
        self._check_history()

    def _check_history(self) -> None:
        if self.last is not None and not self.last.is_in(self._directory, self.user):
            raise TableChangedError(
                f"{self.name} was rolled back to before snapshot {self.last.snapshot}, which held commit "
                f"{self.last.identifier} of '{self.user}', while it was written. {OR_REPLACED} Nothing was committed "
                "since.",
                advice="Open a new writer: its last_committed and position say what the table holds now.",
            )
