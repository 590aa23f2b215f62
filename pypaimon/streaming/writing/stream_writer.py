"""`StreamWriter` and `BlockingStreamWriter`: write rows to a table, in commits that are made exactly once.

The way of a row: `StreamWriter.write` calls `TableWriter.write`, which matches it with the table's columns
(`PendingRows.aligned`) and passes it on (`PendingRows.write`). The `RecordWriter` of the commit finds its partition and
bucket, and adds it to an `AppendBucket` or a `KeyedBucket`, which writes it to its `RollingFiles`, into the `NewFile`
that is open. `TableWriter.commit` finishes the files and makes them visible (`pypaimon.streaming.commit`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, TypeVar

from pypaimon.streaming.cdc.change_reader import ChangeFormatName, TimeUnit
from pypaimon.streaming.cdc.change_records import ChangeRecord
from pypaimon.streaming.cdc.new_columns import ChangeSettings, OnNewColumn
from pypaimon.streaming.commit.request import CommitReport
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.writing.pending_rows import WriterSettings
from pypaimon.streaming.writing.table_writer import TableWriter

T = TypeVar("T")


class _Writer:
    """Common part of both writers. Made by `StreamWriteBuilder`, opened by `async with` or `with`."""

    def __init__(self, table: PaimonTable, settings: WriterSettings) -> None:
        self._given = table
        self._settings = settings
        self._writer: TableWriter | None = None

    @property
    def commit_user(self) -> str:
        """The commit user. A program that is restarted chooses its name, so that its next writer continues under it."""
        return self._settings.user

    @property
    def last_committed(self) -> int | None:
        """Identifier of the newest commit of this commit user in the table; None: there is none. No IO."""
        last = self._opened.last
        return None if last is None else last.identifier

    @property
    def position(self) -> Position | None:
        """The position of the source that the newest commit recorded, as given to `commit`. No IO."""
        return self._opened.position

    @property
    def committed_properties(self) -> Mapping[str, str]:
        """Properties of the newest commit, such as offsets of its source; empty if there is no commit. No IO."""
        last = self._opened.last
        return {} if last is None else dict(last.properties)

    @property
    def maintenance(self) -> CommitMaintenance | None:
        """Its last report and error; None if commits are not followed by maintenance. No IO."""
        return self._opened.maintenance

    @property
    def _opened(self) -> TableWriter:
        if self._writer is None:
            raise StreamConfigError("the writer is not open: use it inside `with` or `async with`")
        return self._writer

    def _check_new(self) -> None:
        if self._writer is not None:
            raise StreamConfigError("a writer can be opened once: get another one from the builder")

    def __del__(self) -> None:
        writer: TableWriter | None = getattr(self, "_writer", None)
        if writer is not None and writer.is_open and writer.has_pending:
            # Its files are not deleted, because the garbage collector must not wait for a store.
            text = f"{self!r} was never closed: its rows are not committed, and their files are left behind"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "not open" if self._writer is None else "open" if self._writer.is_open else "ended"
        return f"{type(self).__name__}({self._given.name}, {self.commit_user!r}, {state})"


class BlockingStreamWriter(_Writer):
    """Writes a table, blocking; made by `StreamWriteBuilder.open_sync()`. As `StreamWriter`, without `await`.

    For one thread at a time.
    """

    def write(self, data: Any) -> None:
        """As `StreamWriter.write`; blocks."""
        self._opened.write(data)

    def write_changes(
        self,
        records: Iterable[ChangeRecord],
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
        """As `StreamWriter.aclose`; blocks."""
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
        """Never called, but `async with` requires it before it enters."""


class StreamWriter(_Writer):
    """Writes a table without blocking the event loop; made by `StreamWriteBuilder.open()`.

    Rows are written to files at once, and become visible all together by `commit`. Leaving the context without a commit
    deletes them. For one task at a time: a second call is refused while another one is running.

    A call that is cancelled continues on its thread, and the writer ends: every later call raises `WriterClosedError`,
    and leaving the context waits until the call has ended. A commit that was cancelled may have been made or not; the
    `last_committed` and `position` of the next writer of the same commit user show it.
    """

    def __init__(self, table: PaimonTable, settings: WriterSettings) -> None:
        super().__init__(table, settings)
        self._pool = IOPool(1, math.inf, "paimon-writer")
        self._running: Future[Any] | None = None
        self._is_closed = False

    async def write(self, data: Any) -> None:
        """Write rows. Returns when the rows in memory fit the writer's limit; the others are in files by then.

        Columns are matched by name. A column of the table that the rows lack becomes null, if it is nullable. Row kinds
        (`+I`, `-U`, `+U`, `-D`) come from the column that the builder or the table's `rowkind.field` names, otherwise
        from `_row_kind`, which streams of this library have. Without such a column every row is `+I`.

        Args:
            data: A pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a `Batch` of a stream: all its rows
                are checked before the first one is written. Or a RecordBatchReader, or anything with
                `__arrow_c_stream__`: its rows are checked as they are read.

        Raises:
            SchemaMismatchError: The columns do not fit. Nothing was written; the writer can be used on.
            BadRowError: A row does not fit: a null in a NOT NULL column, a value out of range, a row kind that the
                table does not accept. Nothing was written and the writer can be used on; if the row came from a reader,
                the writer ends.
            StreamConfigError: The data are not rows, or another call is running. Nothing was written; the writer can be
                used on.
            WriterClosedError: The writer has ended.
            PaimonStreamError, OSError: Files could not be written. The writer ends; rows that were not committed are
                not visible, and their files are deleted.
        """
        await self._call(self._opened.write, data)

    async def write_changes(
        self,
        records: Iterable[ChangeRecord],
        format: ChangeFormatName,
        *,
        on_new_column: OnNewColumn = "fail",
        time_unit: TimeUnit | None = None,
        time_zone: str | None = None,
        unavailable_value_placeholder: str | None = None,
    ) -> None:
        """Write the row changes in change records of a database, either all of them or none.

        An update becomes -U and +U, or only +U if the record lacks the old row. An update of the key becomes -D and +I.
        Tombstones, and statements that do not change rows, are skipped. Columns match by name as those of `write`.
        Values must fit the types of the table exactly. Numbers, decimals, times and booleans may be given as text;
        bytes are given as the format encodes them.

        Args:
            records: Messages as in a topic (bytes or str), or parsed (mappings); None for a tombstone.
            format: "debezium-json" (with or without Connect's schema), "canal-json" or "maxwell-json".
            on_new_column: What to do with a column that the table lacks. "fail": refuse the call. "ignore": leave it
                out. "add": have the catalog add it once a row has a value in it, with the type that the records
                declare, otherwise as BOOLEAN, BIGINT or STRING; types that a value does not fit are widened: integers
                up to BIGINT, decimals up to 38 digits, text and bytes to any length. Key columns do not change. Rows
                that were written before are committed together with those after the new column.
            time_unit: Unit of numbers in columns of TIMESTAMP and TIME, if the records do not declare it.
            time_zone: Time zone of local times, which is needed if the time has a zone and its column does not, or the
                other way round. All numbers that Debezium writes for timestamps are local times. A local time that
                occurs twice means the first one; one that is skipped counts on from before the change of the clock.
            unavailable_value_placeholder: The connector's `unavailable.value.placeholder`, if it is not Debezium's
                default. For "debezium-json".

        Raises:
            StreamConfigError: A setting is invalid, or another call is running. Nothing was written; the writer can be
                used on.
            BadChangeError: A record cannot be read, or does not fit; the message names the record and the column.
                Nothing was written; the writer can be used on.
            BadRowError: As `write`. Nothing was written; the writer can be used on.
            SchemaChangeRefusedError: The catalog refused to alter the table. Nothing was written; the writer can be
                used on.
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
        """Make everything that was written visible, in one snapshot.

        Without rows there is a snapshot only if a position, a watermark or properties are given.

        Args:
            point: An identifier that the caller counts, which must grow. One that the table has already is not
                committed again, and its files are deleted (`CommitReport.repeated`). Or the position of the source
                after these rows, which the snapshot records (see `position`). None: neither. Without an identifier the
                writer counts by itself.
            watermark: Event time up to which rows are complete, in epoch milliseconds.
            properties: Properties of the snapshot.

        Raises:
            StreamConfigError: An argument is invalid, or another call is running. The writer can be used on.
            TableChangedError: The table was dropped, recreated or rolled back. The writer ends; nothing was committed.
            WriterConflictError: Another writer of this commit user has committed meanwhile. The writer ends; nothing
                was committed.
            CommitFailedError: It was not committed, or the outcome is unknown. The writer ends; the next writer of the
                user knows. Not retriable if another program writes at the same time in a store that cannot arbitrate.
            CommitUnknownError: It is unknown whether this identifier was committed before, because the evidence is
                gone. The writer ends.
            WriterClosedError: The writer has ended.
        """
        return await self._call(lambda: self._opened.commit(point, watermark=watermark, properties=properties))

    async def abort(self) -> None:
        """Delete what was written since the last commit. The writer can be used on."""
        await self._call(self._opened.abort)

    async def aclose(self) -> None:
        """End the writer, after a call that is running, and delete what was not committed. Idempotent.

        Raises:
            TableChangedError: Another program has replaced the last commit, in a store that cannot arbitrate.
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
                # The outcome of the call is unknown, so the writer ends after it.
                self._writer.end_after_call("a call was cancelled")
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
        """Never called, but `with` requires it before it enters."""
