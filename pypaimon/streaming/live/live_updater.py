"""`LiveTableUpdater`: keeps the rows of a live table equal to the table, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta, timezone
from types import TracebackType

import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk, ChunkReader
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.clock import Sleeper
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import (
    EndOfScan,
    PaimonStreamError,
    PositionBeyondLatestError,
    PositionExpiredError,
    SchemaChangedError,
    StreamConfigError,
    TableChangedError,
    TargetError,
    UnsupportedTableError,
    what_fails,
)
from pypaimon.streaming.live.row_store import HeldColumns, RowStore, TableVersion
from pypaimon.streaming.live.saved_rows import SavedRows, SavedState
from pypaimon.streaming.live.subscriptions import ChangeQueue, KeyWatch
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES
from pypaimon.streaming.options.table_traits import moved_by
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.scan import StreamScan
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.resolve import ResolvedStream

_LOG = StreamLog(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_GONE = (PositionExpiredError, PositionBeyondLatestError, TableChangedError, SchemaChangedError)
"""Saved rows are of no use then, while the table itself can be read."""


class LiveTableUpdater:
    """Reads a stream and applies its plans. Thread-safe.

    After an error reads raise it: a retriable error until the stream continues, any other one for ever.

    Args:
        new_rows: Makes an empty store with some columns.
        saved: Where the rows are saved, and with which the next start continues; None: nowhere.
    """

    def __init__(
        self,
        stream: ResolvedStream,
        new_rows: Callable[[HeldColumns], RowStore],
        saved: SavedRows | None = None,
    ) -> None:
        self._stream = stream
        self._new_rows = new_rows
        self._lock = threading.Lock()
        self._origin = Origin()
        self._sleeper = Sleeper(stream.clock)
        self._saved = saved
        # What readers see: `_store`, but for saved rows that have not caught up yet.
        self._rows: RowStore | None = None
        self._store: RowStore | None = None
        self._is_behind = False
        self._position: Position | None = None
        self._checked_millis: int | None = None
        self._watch = KeyWatch()
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._is_final = False
        self._closed = False
        self._waiting: list[tuple[int | None, Future[None]]] = []
        self._stop: Callable[[], None] | None = None
        self._next: RowStore | None = None

    def begin(self) -> Future[None]:
        """Start the thread. The future is done with the first state, or an error."""
        BackgroundThread(self._run, "paimon-live", self.close).start()
        return self.reached(None)

    def rows(self) -> RowStore:
        """The current rows."""
        self._refuse_elsewhere()
        # In this order: closing sets the error before it drops the rows.
        rows, error = self._rows, self._error
        if error is not None:
            raise self._raised(error)
        assert rows is not None
        return rows

    def reached(self, snapshot: int | None) -> Future[None]:
        """Done when the rows include a snapshot (None: any), or with an error that stays."""
        self._refuse_elsewhere()
        future: Future[None] = Future()
        with self._lock:
            self._waiting.append((snapshot, future))
        self._wake()
        return future

    @property
    def checked_at(self) -> datetime | None:
        self._refuse_elsewhere()
        millis = self._checked_millis
        return None if millis is None else _EPOCH + timedelta(milliseconds=millis)

    def subscribe(self, queue: ChangeQueue, current: bool) -> None:
        """Give the later changes of its keys to a queue. Raises as `rows`, and if a key does not fit."""
        self._watch.add(queue, self.rows, current)

    def save(self) -> None:
        """Save the rows now. Blocks.

        Raises:
            StreamConfigError: There is no file for them.
            TargetError: It cannot be written.
        """
        self.rows()
        if self._saved is None:
            raise StreamConfigError("save: give open_live the file, save_to=...")
        self._save(self._saved)

    def close(self) -> None:
        """End at once. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            stop = self._stop
        self._fail(StreamConfigError("the live table is closed: open another one"), is_final=True)
        self._rows = self._store = None
        if stop is not None:
            stop()
        self._sleeper.wake()

    def _refuse_elsewhere(self) -> None:
        if not self._origin.is_here:
            raise StreamConfigError("a live table does not work in a forked process: open it there")

    # ---- on its thread ----

    def _run(self) -> None:
        try:
            saved = None if self._saved is None else self._saved.load(self._stream)
            if saved is None or not self._has_continued(saved):
                self._follow(*self._opened(None))
            # After the end of a bounded stream the last state stays readable.
            with self._lock:
                if not self._is_final:
                    self._error, self._is_final = None, True
            self._watch.end(None)
            self._wake()
        except BaseException as error:  # noqa: BLE001 - the next call raises it
            self._fail(error, is_final=True)
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            stop, is_over = self._stop, self._error is not None
            self._next = None
            if is_over:
                self._rows = self._store = None
        if stop is not None:
            stop()

    def _has_continued(self, saved: SavedState) -> bool:
        """Follow the table from saved rows. False: it has no longer what follows them, and nothing was shown."""
        file = self._saved
        assert file is not None
        try:
            opened = self._opened(saved.position)
            self._store = self._restored(saved, opened[2])
            self._is_behind, self._position, file.position = True, saved.position, saved.position
            self._follow(*opened)
        except _GONE as error:
            if self._rows is not None or self._closed or self._is_emptied(saved.position):
                raise
            file.note_unused(str(error))
            with self._lock:
                stop = self._stop
            if stop is not None:
                stop()
            self._store = self._next = self._position = file.position = None
            self._is_behind = False
            return False
        return True

    def _is_emptied(self, position: Position) -> bool:
        """Whether the table of a position has no snapshots any more: it is being dropped, and gets no first one."""
        directory = self._stream.directory
        directory.snapshots.forget()
        return position.table == directory.identity and directory.snapshots.latest_id() is None

    def _restored(self, saved: SavedState, reader: ChunkReader) -> RowStore:
        wanted, rows = self._columns_of(reader), saved.rows
        held = HeldColumns(self._stream.directory.schema(saved.schema_id), rows.schema, saved.fields)
        if not held.are(wanted):
            rows = held.convert(rows, wanted)
        store = self._new_rows(wanted).load(rows)
        store.publish(saved.table_version)
        return store

    def _columns_of(self, reader: ChunkReader) -> HeldColumns:
        names = [field for field in reader.schema if field.name != ROW_KIND]
        return HeldColumns(self._stream.schema, pa.schema(names, reader.schema.metadata), reader.fields)

    def _opened(self, copied: Position | None) -> tuple[StreamScan, ScanDriver, ChunkReader]:
        self._refuse_table()
        stream = self._stream
        opened = open_chunks(stream.with_spec(spec_for_copy(stream, copied)), DEFAULT_BATCH_BYTES)
        _, _, reader = opened
        with self._lock:
            self._stop = reader.close
            is_closed = self._closed
        if is_closed:
            reader.close()
        # Raises if the key is not read as a whole.
        _ = self._columns_of(reader).keys
        return opened

    def _refuse_table(self) -> None:
        name, schema = self._stream.table.name, self._stream.schema
        if self._stream.spec.view is None and not schema.primary_keys:
            raise UnsupportedTableError(f"{name} has no primary key, by which a live table finds its rows.")
        if moved := moved_by(schema):
            raise UnsupportedTableError(
                f"{name}: the primary key lacks the partition columns {moved}, so that a row may move to another "
                "partition, and be set there before it is deleted in the old one; a live table would lose it."
            )

    def _follow(self, scan: StreamScan, driver: ScanDriver, reader: ChunkReader) -> None:
        backoff, attempt = Backoff(), 0
        while not self._closed:
            chunk, has_ended = None, False
            asked_millis = self._stream.clock.time_millis()
            try:
                try:
                    chunk = reader.look()
                except EndOfScan:
                    has_ended = True
                # Before waiting calls learn of new rows.
                self._recover()
                if chunk is not None:
                    self._take(chunk)
                else:
                    self._is_behind = False
                position = driver.position
                if (chunk is None or chunk.last) and self._next is None:
                    self._publish(driver, reader, position)
                    if self._saved is not None:
                        # Only what was saved is confirmed, so that the next start finds what follows.
                        self._save_if_due(self._saved)
                        position = self._saved.position
                    if driver.commit_mode is not None and position is not None:
                        scan.commit(position)
                if chunk is None and not has_ended:
                    self._checked_millis = asked_millis - driver.parts.get().options.delay_ms
            except PaimonStreamError as error:
                if not error.retriable or self._rows is None:
                    raise
                self._fail(error, is_final=False)
                attempt += 1
                text = "a live table failed (attempt %(attempt)d) and continues after a pause: %(error)s"
                _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
                self._sleeper.pause(backoff.pause(attempt), lambda: self._closed)
                continue
            if has_ended:
                return
            attempt = 0
            if chunk is None:
                driver.next_poll(lambda: self._closed).block()

    def _take(self, chunk: BatchChunk) -> None:
        plan = chunk.plan
        table_version = TableVersion(plan.position.snapshot - 1, plan.commit_time) if _is_end(chunk) else None
        rows = self._next
        if chunk.data is not None:
            batch = BlockingBatch(chunk, lambda: None)
            held = self._store if rows is None else rows
            if batch.begins_state:
                held = self._new_rows(HeldColumns.of(batch))
            if held is None:  # The live table was closed meanwhile.
                return
            rows = held.apply(batch, table_version)
        elif rows is not None and table_version is not None:
            rows.publish(table_version)
        if table_version is None or rows is None:
            self._next = rows
            return
        self._store, self._next, self._position = rows, None, plan.position
        if not self._is_behind:
            self._rows = rows
            if self._watch:
                self._watch.changed(rows)
            self._wake()

    def _publish(self, driver: ScanDriver, reader: ChunkReader, position: Position | None) -> None:
        if position is not None and position.is_inside:
            return
        rows = self._store
        if rows is None:
            rows = self._new_rows(self._columns_of(reader))
        if position is not None and position.snapshot - 1 > (rows.table_version.snapshot_id or 0):
            snapshot = position.snapshot - 1
            found = driver.parts.get().directory.snapshots.get_snapshots_batch([snapshot])[snapshot]
            time = (
                rows.table_version.commit_time if found is None else _EPOCH + timedelta(milliseconds=found.time_millis)
            )
            rows.publish(TableVersion(snapshot, time))
        self._store, self._position = rows, position
        if not self._is_behind:
            self._rows = rows
            self._wake()

    def _save_if_due(self, saved: SavedRows) -> None:
        if not self._is_behind and self._position != saved.position and saved.is_due(self._stream.clock.monotonic()):
            try:
                self._save(saved)
            except TargetError as error:
                _LOG.warning("rows_not_saved", "%(error)s", error=str(error))

    def _save(self, saved: SavedRows) -> None:
        # The position first: rows may be past it, because their changes may be applied twice.
        position, rows = self._position, self._rows
        if position is not None and rows is not None:
            saved.save(self._stream, rows, position)

    # ---- waiting calls ----

    def _raised(self, error: BaseException) -> BaseException:
        """The error with its first traceback, to which every raise would add."""
        return error.with_traceback(self._traceback)

    def _fail(self, error: BaseException, is_final: bool) -> None:
        with self._lock:
            if self._is_final and self._error is not None:
                return
            self._error, self._traceback, self._is_final = error, error.__traceback__, is_final
        if is_final:
            # Closing it is the usual end of a subscription.
            self._watch.end(None if self._closed else error)
        self._wake()

    def _recover(self) -> None:
        with self._lock:
            if not self._is_final:
                self._error = None

    def _wake(self) -> None:
        with self._lock:
            answers = [(future, self._answer(snapshot)) for snapshot, future in self._waiting]
            self._waiting = [
                each
                for each, (future, answer) in zip(self._waiting, answers, strict=True)
                if answer is None and not future.cancelled()
            ]
        for future, answer in answers:
            if answer is None or not future.set_running_or_notify_cancel():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(None)

    def _answer(self, wanted: int | None) -> BaseException | bool | None:
        """True if the rows include a snapshot, an error if they never will, otherwise None."""
        if self._is_final and self._error is not None:
            return self._raised(self._error)
        if self._rows is not None:
            reached = self._rows.table_version.snapshot_id
            if wanted is None or (reached is not None and reached >= wanted):
                return True
            if self._is_final:
                return StreamConfigError(f"the stream has ended at snapshot {reached}, before snapshot {wanted}")
        return None


def _is_end(chunk: BatchChunk) -> bool:
    return chunk.last and not chunk.plan.position.is_inside
