"""`StreamWriter` and `BlockingStreamWriter`: rows into a table, commit by commit, each of them once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, TypeVar

from pypaimon.streaming.cdc.change_reader import ChangeFormatName, TimeUnit
from pypaimon.streaming.cdc.new_columns import OnNewColumn
from pypaimon.streaming.cdc.records import Record
from pypaimon.streaming.cdc.table_changes import ChangeSettings
from pypaimon.streaming.commit.report import CommitReport
from pypaimon.streaming.concurrency.bridge import wait_for_future
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.writing.table_writer import TableWriter
from pypaimon.streaming.writing.writer_settings import WriterSettings

T = TypeVar("T")


class _Writer:
    """What both faces share. Made by `StreamWriteBuilder`, opened by `async with` or `with`."""

    def __init__(self, table: Any, settings: WriterSettings) -> None:
        self._given = table
        self._settings = settings
        self._writer: TableWriter | None = None

    @property
    def commit_user(self) -> str:
        """Under whom it commits. A program that is restarted names it, so that its next writer goes on."""
        return self._settings.user

    @property
    def last_committed(self) -> int | None:
        """Identifier of the newest commit of this commit user that the table holds; None: there is none. No IO."""
        last = self._opened.last
        return None if last is None else last.identifier

    @property
    def position(self) -> Position | None:
        """Where the source goes on, as the newest commit notes it: what was given to `commit`. No IO."""
        return self._opened.position

    @property
    def committed_properties(self) -> Mapping[str, str]:
        """What the newest commit notes beside, such as offsets of its source; empty if there is none. No IO."""
        last = self._opened.last
        return {} if last is None else dict(last.properties)

    @property
    def _opened(self) -> TableWriter:
        if self._writer is None:
            raise StreamConfigError("the writer is not open: use it as `with` or `async with` says")
        return self._writer

    def _check_new(self) -> None:
        if self._writer is not None:
            raise StreamConfigError("a writer is opened once: ask the builder for another one")

    def __del__(self) -> None:
        writer: TableWriter | None = getattr(self, "_writer", None)
        if writer is not None and writer.is_open and writer.has_pending:
            # Its files stay: the garbage collector must not wait for a store.
            text = f"{self!r} was never closed: its rows are not committed, and their files are left over"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "not open" if self._writer is None else "open" if self._writer.is_open else "ended"
        return f"{type(self).__name__}({self._given.identifier.get_full_name()}, {self.commit_user!r}, {state})"


class BlockingStreamWriter(_Writer):
    """Writes a table, blocking. See `StreamWriter`, whose calls it has without `await`. For one thread at a time."""

    def write(self, data: Any) -> None:
        """As `StreamWriter.write`; blocks."""
        self._opened.write(data)

    def write_changes(
        self,
        records: Iterable[Record],
        format: ChangeFormatName,
        *,
        on_new_column: OnNewColumn = "fail",
        time_unit: TimeUnit | None = None,
        time_zone: str | None = None,
        unavailable_value_placeholder: str | None = None,
    ) -> None:
        """As `StreamWriter.write_changes`; blocks."""
        settings = ChangeSettings(format, on_new_column, time_unit, time_zone, unavailable_value_placeholder)
        self._opened.write_changes(records, settings)

    def commit(
        self,
        point: int | Position | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """As `StreamWriter.commit`; blocks."""
        return self._opened.commit(point, watermark=watermark, properties=properties)

    def abort(self) -> None:
        """As `StreamWriter.abort`; blocks."""
        self._opened.abort()

    def close(self) -> None:
        """As `StreamWriter.close`; blocks."""
        if self._writer is not None:
            self._writer.close(is_done=True)

    def __enter__(self) -> BlockingStreamWriter:
        self._check_new()
        self._writer = TableWriter(self._given, self._settings)
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._writer is not None:
            self._writer.close(is_done=error is None)

    async def __aenter__(self) -> NoReturn:
        raise TypeError("open_sync() is for `with`; with asyncio it is `async with builder.open()`")

    async def __aexit__(self, *_: object) -> None:
        """Never reached; `async with` asks for it before it enters."""


class StreamWriter(_Writer):
    """Writes a table without holding up the event loop: what blocks runs on a thread.

    Rows go into files as they come, and become visible with `commit`, all at once. Leaving the context without it
    deletes them. For one task at a time; a second call while one is under way is refused.

    A call that is cancelled goes on behind, and the writer ends: every later call raises `WriterClosedError`, and
    leaving the context waits until the call has ended. A commit that was cancelled may have come about or not; the next
    writer of the same commit user knows, by `last_committed` and `position`.
    """

    def __init__(self, table: Any, settings: WriterSettings) -> None:
        super().__init__(table, settings)
        self._pool = IOPool(1, math.inf, "paimon-writer")
        self._running: Future[Any] | None = None
        self._is_closed = False

    async def write(self, data: Any) -> None:
        """Take rows. Returns when no more bytes wait in memory than the writer may hold; others are in files by then.

        Columns are matched by name. A column that the table has and the rows lack becomes null, if it may be. Row kinds
        (`+I`, `-U`, `+U`, `-D`) come from the column that the builder or the table's `rowkind.field` names, else from
        `_row_kind`, as streams of this library have it; without one every row is `+I`.

        Args:
            data: A pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a `Batch` of a stream: checked wholly
                before the first row is taken. Or a RecordBatchReader, or anything with `__arrow_c_stream__`: checked
                as it is read.

        Raises:
            SchemaMismatchError: The columns do not fit. Nothing was taken; the writer goes on.
            BadRowError: A row does not fit: null where none may be, a value out of range, a row kind that the table
                does not take. Nothing was taken and the writer goes on; in the midst of a reader the writer ends.
            StreamConfigError: It is no rows, or another call is under way. Nothing was taken; the writer goes on.
            WriterClosedError: The writer has ended.
            PaimonStreamError, OSError: Files could not be written. The writer ends; nothing is visible of what was not
                committed, and its files are deleted.
        """
        await self._call(self._opened.write, data)

    async def write_changes(
        self,
        records: Iterable[Record],
        format: ChangeFormatName,
        *,
        on_new_column: OnNewColumn = "fail",
        time_unit: TimeUnit | None = None,
        time_zone: str | None = None,
        unavailable_value_placeholder: str | None = None,
    ) -> None:
        """Take the rows that change records of a database tell of, as `write` takes rows, and all of them or none.

        An update becomes -U and +U, or +U alone where the record does not hold the old row; one that changes the key
        becomes -D and +I. Tombstones and statements that change no row are passed over. Values must fit the types of
        the table exactly; numbers, decimals, times and booleans may come as text, bytes come as the format has them.

        Args:
            records: Messages as a topic holds them (bytes or str), parsed ones (mappings), None for a tombstone.
            format: "debezium-json" (with or without Connect's schema), "canal-json" or "maxwell-json".
            on_new_column: What becomes of a column that the table lacks. "fail": the call is refused. "ignore": it is
                left out. "add": the catalog adds it, once a row has a value in it, with the type that the records
                declare, else as BOOLEAN, BIGINT or STRING; and types that a value does not fit are made wider: whole
                numbers up to BIGINT, decimals up to 38 digits, text and bytes to any length. Key columns stay. What
                was written before is committed together with what comes behind the new column.
            time_unit: Unit of numbers in columns of TIMESTAMP and TIME, where the records do not say it.
            time_zone: Zone of clocks on the wall, where the time has a zone and its column none, or the other way
                round. All numbers that Debezium writes for moments are such clocks. A clock in an hour that comes
                twice means the first one; one in an hour that is left out counts on from before the change.
            unavailable_value_placeholder: What the connector's `unavailable.value.placeholder` says, if that is not
                Debezium's default. For "debezium-json".

        Raises:
            StreamConfigError: A setting is none, or another call is under way. Nothing was taken; the writer goes on.
            BadChangeError: A record cannot be read, or does not fit; names the record and the column. Nothing was
                taken; the writer goes on.
            BadRowError: As `write`. Nothing was taken; the writer goes on.
            SchemaChangeRefusedError: The catalog does not alter the table. Nothing was taken; the writer goes on.
            PaimonStreamError, OSError: As `write`.
        """
        settings = ChangeSettings(format, on_new_column, time_unit, time_zone, unavailable_value_placeholder)
        await self._call(self._opened.write_changes, records, settings)

    async def commit(
        self,
        point: int | Position | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """Make all that was written visible, in one snapshot.

        Without rows there is a snapshot only where a position, a watermark or properties are to be noted.

        Args:
            point: An identifier of the caller's own counting, which must grow: one that the table holds already is not
                committed again, and what was written for it is deleted (`CommitReport.repeated`). Or the position of
                the source behind these rows, noted in the same snapshot (`position` tells it). None: neither. Without
                an identifier the writer counts by itself.
            watermark: Event time up to which rows are complete, epoch milliseconds.
            properties: What the snapshot notes beside.

        Raises:
            StreamConfigError: An argument is none, or another call is under way. The writer goes on.
            TableChangedError: The table was dropped, made anew or rolled back. The writer ends; nothing was committed.
            WriterConflictError: Another writer of this commit user committed meanwhile. Ends; nothing was committed.
            CommitFailedError: It was not committed, or that is not known. Ends; the next writer of the user knows. Not
                retriable where another program is at work in a store in which nobody arbitrates between the two.
            CommitUnknownError: What would tell whether this identifier was committed before has gone. Ends.
            WriterClosedError: The writer has ended.
        """
        return await self._call(lambda: self._opened.commit(point, watermark=watermark, properties=properties))

    async def abort(self) -> None:
        """Delete what was written since the last commit. The writer goes on."""
        await self._call(self._opened.abort)

    async def close(self) -> None:
        """End; what was not committed is deleted, after a call that is under way. Idempotent.

        Raises:
            TableChangedError: Another program has replaced the last commit, in a store where nobody arbitrates.
        """
        await self._close(is_done=True)

    async def _close(self, *, is_done: bool) -> None:
        if self._writer is None or self._is_closed:
            return
        self._is_closed = True
        closing = self._pool.submit(partial(self._writer.close, is_done=is_done))
        self._pool.close()
        await wait_for_future(closing)

    @property
    def _is_free(self) -> bool:
        """Whether a call would be taken."""
        return self._opened.is_open and (self._running is None or self._running.done())

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        self._opened.check_open()
        if self._running is not None and not self._running.done():
            raise StreamConfigError("this writer is in use by another call; open one writer per task")
        return await self._awaited(self._pool.submit(function, *arguments))

    async def _awaited(self, running: Future[T]) -> T:
        self._running = running
        try:
            return await wait_for_future(running)
        except BaseException as error:
            if not (running.done() and running.exception() is error) and self._writer is not None:
                # Nobody knows what became of the call: the writer ends behind it.
                self._writer.end_behind("a call was cancelled")
            raise

    async def __aenter__(self) -> StreamWriter:
        self._check_new()
        self._writer = await self._awaited(self._pool.submit(TableWriter, self._given, self._settings))
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        await self._close(is_done=error is None)

    def __enter__(self) -> NoReturn:
        raise TypeError("open() is for `async with`; without asyncio it is `with builder.open_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never reached; `with` asks for it before it enters."""
