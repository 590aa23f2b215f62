"""`TableWriter`: rows into files and files into commits, one after the other; what both faces of a writer share."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TableChangedError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.write_internals import BucketMode
from pypaimon.streaming.writing.arrow_input import arrow_input, plain, plain_schema
from pypaimon.streaming.writing.changes.new_columns import altered
from pypaimon.streaming.writing.changes.records import Record
from pypaimon.streaming.writing.changes.table_changes import ChangeSettings, table_changes
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.exactly_once import commit_once
from pypaimon.streaming.writing.commit.last_commit import LastCommit, Standing, standing
from pypaimon.streaming.writing.commit.reports import Assumption, CommitReport, Written
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.row_layout import RowLayout, row_layout
from pypaimon.streaming.writing.schema_pin import SchemaPin
from pypaimon.streaming.writing.writable_tables import check_writable, kind_rules
from pypaimon.streaming.writing.write_state import WriteState, write_state

SOURCE_POSITION = "pypaimon.source-position"
"""Property of a snapshot: where the source of its rows goes on, as `Position.to_json` writes it."""

_WHOLE_TABLE = {"dynamic-partition-overwrite": "false"}


class WriterClosedError(PaimonStreamError):
    """The writer has ended: it was closed, an error or a cancellation came in the midst of what it did, or it was made
    in a process from which this one was forked. Open a new one under the same commit user: its `last_committed` tells
    what the table holds."""


class WriterConflictError(PaimonStreamError):
    """Another writer of the same commit user committed meanwhile; this commit is not visible, and the writer ended."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a writer was told.

    Attributes:
        user: Commit user.
        kind_column: Column of row kinds; None: `_row_kind`, where the table has no column of that name.
        overwrite: Whether each commit replaces what is there.
        memory_limit: Bytes of rows that may wait in memory; None: the table's `write-buffer-size`.
    """

    user: str
    kind_column: str | None = None
    overwrite: bool = False
    memory_limit: int | None = None


@dataclass(slots=True)
class _Pending:
    """What was written and not committed: files that are finished, and rows on their way into files."""

    messages: list[Any]
    records: RecordWriter | None = None


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
        check_writable(table, self.name, settings.overwrite)
        self._table = table
        self._directory = TableDirectory.of(table)
        self._kind_column = _kind_column(table, settings.kind_column)
        self._overwrite = settings.overwrite
        self._replaces = False
        self._limit = _memory_limit(table) if settings.memory_limit is None else settings.memory_limit
        self._pin = SchemaPin.of(table)
        self._standing: Standing = standing(self._directory, self.user)
        self._known_layout: tuple[pa.Schema, pa.Schema, RowLayout] | None = None
        self._pending = _Pending([])
        self._state: WriteState | None = None
        self._base = 0
        self._why_ended: str | None = None
        self._ends_behind: str | None = None
        self._origin = Origin()
        self._lock = threading.Lock()

    @property
    def table(self) -> Any:
        """pypaimon's table, with the schema that is written."""
        return self._table

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self._why_ended is None and self._ends_behind is None and self._origin.is_here

    @property
    def last(self) -> LastCommit | None:
        """The newest commit of the commit user that the table is known to hold."""
        return self._standing.last

    @property
    def position(self) -> Position | None:
        """Where the source goes on, as the newest commit notes it; None if it notes none."""
        text = None if self.last is None else self.last.properties.get(SOURCE_POSITION)
        return None if text is None else Position.from_json(text)

    def replace_table(self) -> None:
        """The next commit replaces all that the table holds; to be called before its first row."""
        with self._turn():
            if self._pending.messages or self._pending.records:
                raise StreamConfigError("rows were written already: commit() or abort() before the table is replaced")
            self._replaces = True

    def write(self, data: Any) -> None:
        """Take rows; see `StreamWriter.write`."""
        with self._turn():
            self._write(data)

    def write_changes(self, records: Iterable[Record], settings: ChangeSettings) -> None:
        """Take rows out of change records; see `StreamWriter.write_changes`."""
        with self._turn():
            found = table_changes(self._table, records, settings, self._kind_column or ROW_KIND)
            if found.alterations:
                table = altered(self._table, found.alterations)
                with self._ends_on_error("an error while the table was altered"):
                    self._go_on_with(table)
            if found.rows.num_rows:
                self._write(found.rows)

    def _write(self, data: Any) -> None:
        given = arrow_input(data)
        schema, layout = self._layout(given.schema)
        aligned = (layout.align(plain(batch, schema)) for batch in given.batches)
        # Of what is in memory every row is checked before the first one is taken.
        rows = list(aligned) if given.in_memory else aligned
        with self._ends_on_error("an error while rows were written"):
            for batch in rows:
                self._take(batch)

    def _go_on_with(self, table: Any) -> None:
        """Write under another schema of the table; what was written is committed with what comes, each in its own."""
        self._finish_files()
        self._table = table
        self._directory = TableDirectory.of(table)
        self._pin = SchemaPin.of(table)
        self._known_layout = None

    def commit(
        self,
        point: int | Position | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """Commit what was written; see `StreamWriter.commit`."""
        with self._turn():
            identifier = self._identifier(point)
            notes = self._notes(point, properties)
            keep_empty = bool(properties) or watermark is not None or isinstance(point, Position)
            with self._ends_on_error("an error while rows were committed"):
                return self._commit(identifier, notes, watermark, isinstance(point, int), keep_empty)

    def abort(self) -> None:
        """Delete what was written since the last commit; the writer goes on."""
        with self._turn(), self._ends_on_error("an error while files were deleted"):
            self._discard()

    def close(self, why: str = "it was closed") -> None:
        """Delete what was not committed, and end, behind a call that is under way. Idempotent."""
        with self._lock:
            if self._why_ended is None and self._origin.is_here:
                self._end(self._ends_behind or why)

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
        except BaseException:
            self._end(why)
            raise

    def _end(self, why: str) -> None:
        self._why_ended = why
        # What ended it is the error to see.
        with suppress(Exception):
            self._discard()

    def _discard(self) -> None:
        """Delete the files that no commit was tried with."""
        pending, self._pending = self._pending, _Pending([])
        self._replaces = False
        if pending.records is not None:
            pending.records.abort()
        if pending.messages:
            discard(self._table, pending.messages)

    # Rows

    def _layout(self, given: pa.Schema) -> tuple[pa.Schema, RowLayout]:
        known = self._known_layout
        if known is None or not known[0].equals(given):
            schema = plain_schema(given, self._table.fields)
            layout = row_layout(
                schema, self._table.fields, kind_rules(self._table), table=self.name, kind_column=self._kind_column
            )
            known = self._known_layout = given, schema, layout
        return known[1:]

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._pending.records is None:
            self._pending.records = RecordWriter(
                self._table_to_write(), self.user, self._overwrites, self._state_to_write()
            )
        self._pending.records.write(batch)
        if self._pending.records.buffered_bytes > self._limit:
            self._finish_files()

    def _finish_files(self) -> None:
        """What waits in memory becomes files."""
        records, self._pending.records = self._pending.records, None
        if records is None:
            return
        try:
            messages = records.prepare(self._standing.next)
        except BaseException:
            records.abort()
            raise
        records.close()
        self._pending.messages += messages
        if self._state is not None:
            self._state = _advanced(self._state, messages)

    @property
    def _overwrites(self) -> bool:
        return self._overwrite or self._replaces

    def _table_to_write(self) -> Any:
        return self._table.copy_without_time_travel(_WHOLE_TABLE) if self._replaces else self._table

    def _state_to_write(self) -> WriteState:
        """What decides the numbers of new files, read again where others have committed since."""
        if self._table.bucket_mode() != BucketMode.HASH_FIXED:
            return WriteState()
        if self._state is None or self._latest_id() != self._base:
            self._base = self._latest_id()
            self._state = _advanced(write_state(self._table), self._pending.messages)
        return self._state

    def _latest_id(self) -> int:
        self._directory.snapshots.forget()
        latest = self._directory.snapshots.get_latest_snapshot()
        return 0 if latest is None else latest.id

    # Commits

    def _identifier(self, point: int | Position | None) -> int:
        if isinstance(point, bool) or not isinstance(point, int | Position | None):
            raise StreamConfigError(f"commit: expected an identifier (int), a Position or None, got {point!r}.")
        if not isinstance(point, int):
            return self._standing.next
        if not 0 <= point < 2**63 - 1:
            raise StreamConfigError(f"commit: an identifier is between 0 and 2**63 - 2, got {point}.")
        return point

    def _notes(self, point: int | Position | None, properties: Mapping[str, str] | None) -> dict[str, str]:
        given = dict(properties or {})
        for key, value in given.items():
            if not isinstance(key, str) or not isinstance(value, str) or key == SOURCE_POSITION:
                raise StreamConfigError(
                    f"commit: properties are texts by names, other than '{SOURCE_POSITION}', got {key!r}: {value!r}."
                )
        if isinstance(point, Position):
            given[SOURCE_POSITION] = point.to_json()
        elif self.last is not None and SOURCE_POSITION in self.last.properties:
            # The newest commit tells where the source stands, also if only others were asked for.
            given[SOURCE_POSITION] = self.last.properties[SOURCE_POSITION]
        return given

    def _commit(
        self, identifier: int, notes: dict[str, str], watermark: int | None, named: bool, keep_empty: bool
    ) -> CommitReport:
        self._finish_files()
        self._pin.check(self._table)
        self._check_history()
        pending, self._pending = self._pending, _Pending([])
        overwrite, table = self._overwrites, self._table_to_write()
        self._replaces = False
        if not (pending.messages or overwrite or keep_empty or named):
            return CommitReport(None, Written.of([]))
        report = commit_once(
            table,
            self.user,
            identifier,
            pending.messages,
            overwrite=overwrite,
            assumption=Assumption(),
            schema_id=self._directory.latest_schema().id,
            properties=notes,
            keep_empty=keep_empty,
            watermark=watermark,
        )
        if report.repeated and report.snapshot is None:
            # It was found among older commits, before these files were ever named.
            discard(table, pending.messages)
        self._note(report, identifier, notes, named, overwrite)
        return report

    def _note(self, report: CommitReport, identifier: int, notes: dict[str, str], named: bool, overwrite: bool) -> None:
        if report.repeated and (not named or identifier >= self._standing.next):
            raise WriterConflictError(
                f"Commit {identifier} of '{self.user}' came into {self.name} from another writer, and this one's rows "
                "were dropped. A commit user has one writer at a time: end the other one, or give each its own user."
            )
        if overwrite:
            self._state = None
        if report.snapshot is not None and not report.repeated:
            self._state = self._state if report.snapshot == self._base + 1 else None
            self._base = report.snapshot
            self._standing = Standing(LastCommit(identifier, report.snapshot, notes), identifier + 1)

    def _check_history(self) -> None:
        """Whether the table still holds what this writer has committed."""
        if self.last is not None and not self.last.is_in(self._directory, self.user):
            raise TableChangedError(
                f"{self.name} was rolled back behind snapshot {self.last.snapshot}, which holds commit "
                f"{self.last.identifier} of '{self.user}', while it was written. Nothing was committed.",
                "Open a new writer: its last_committed and position tell what the table holds now.",
            )


def _kind_column(table: Any, given: str | None) -> str | None:
    of_table: str | None = table.options.options.to_map().get("rowkind.field")
    if of_table is not None and given not in (None, of_table):
        raise StreamConfigError(
            f"with_row_kind_column({given!r}): the table's option 'rowkind.field' names '{of_table}'; leave it out."
        )
    return of_table or given


def _memory_limit(table: Any) -> int:
    return OptionValues(table.options.options.to_map()).size_bytes("write-buffer-size", 256 << 20)


def _advanced(state: WriteState, messages: Sequence[Any]) -> WriteState:
    """The state behind files of our own."""
    numbers = [file.max_sequence_number for message in messages for file in message.new_files]
    return WriteState(max([state.sequence, *numbers]), state.rescaled)
