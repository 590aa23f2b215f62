"""`ReadAhead`: pieces of data read on a thread before they are asked for, in order, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.io_pool import IOPool
from pypaimon.streaming.plan import Plan
from pypaimon.streaming.plan_stream import BlockingPlanStream
from pypaimon.streaming.position import Position
from pypaimon.streaming.reading.read import StreamTableRead
from pypaimon.streaming.scan import AsyncStreamingTableScan

READ_AHEAD_BYTES = 64 << 20
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one plan, read.

    Attributes:
        plan: The plan.
        before: Position before the plan; None where the stream had not found its start.
        data: The rows; None if the plan turned out to have none.
        first: Whether nothing of the plan came before.
        last: Whether nothing of the plan comes after.
    """

    plan: Plan
    before: Position | None
    data: pa.Table | None
    first: bool
    last: bool


class PieceReader:
    """Plans of a scan, read piece by piece. Not thread-safe. An error loses nothing: the next call goes on before it.

    Args:
        scan: Where plans come from.
        read: Reads them.
        piece_bytes: A piece is closed once it holds as much.
        timeout: Seconds that reading one record batch may take.
    """

    def __init__(self, scan: AsyncStreamingTableScan, read: StreamTableRead, piece_bytes: int, timeout: float) -> None:
        self._scan = scan
        self._read = read
        self._piece_bytes = piece_bytes
        self._pool = IOPool(1, timeout, "paimon-batches")
        self._plans: BlockingPlanStream = scan.stream_sync()
        self._plan: Plan | None = None
        self._before: Position | None = None
        self._given = 0
        self._pull: Callable[[], pa.RecordBatch | None] | None = None
        self._held: pa.RecordBatch | None = None

    def next(self) -> Piece:
        """The next piece. Blocks.

        Raises:
            EndOfScan: The stream has reached its bound, or was stopped.
            PaimonStreamError: See `AsyncStreamingTableScan.plan` and `StreamTableRead`.
        """
        if self._plan is None:
            self._before = self._scan.checkpoint()
            plan = next(self._plans, None)
            if plan is None:
                raise EndOfScan("the stream has reached its end")
            self._plan, self._given = plan, 0
        return self._next_of(self._plan)

    def close(self) -> None:
        """End at once, also a call that another thread is waiting in."""
        self._scan.close()
        self._pool.close()

    def _next_of(self, plan: Plan) -> Piece:
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            if self._pull is None:
                self._pull = _skipping(iter(self._read.iter_batches(plan.splits())), self._given)
                self._held = self._pool.run(self._pull)
            while (batch := self._held) is not None and _fits(batch, batches, self._piece_bytes - size):
                batches.append(batch)
                size += batch.nbytes
                self._held = self._pool.run(self._pull)
            last = self._held is None
        except BaseException:
            # What was read comes first; the next call meets the error again, if it is still there.
            self._pull = self._held = None
            if not batches:
                raise
            last = False
        first = self._given == 0
        data = pa.Table.from_batches(batches) if batches else None
        self._given += 0 if data is None else data.num_rows
        if last:
            self._plan = self._pull = None
        return Piece(plan, self._before, data, first, last)


def _fits(batch: pa.RecordBatch, batches: list[pa.RecordBatch], room: int) -> bool:
    return not batches or (batch.nbytes <= room and batch.schema == batches[0].schema)


def _skipping(batches: object, rows: int) -> Callable[[], pa.RecordBatch | None]:
    """Pull batches one by one, without the rows that were given before an error: a plan reads the same each time."""
    left = rows

    def pull() -> pa.RecordBatch | None:
        nonlocal left
        while (batch := next(batches, None)) is not None:  # type: ignore[call-overload]
            if left < batch.num_rows:
                batch, left = batch.slice(left), 0
                return batch
            left -= batch.num_rows
        return None

    return pull


class ReadAhead:
    """Reads pieces on a daemon thread of its own, which begins when it is first needed. Thread-safe.

    An error reaches the one who takes next, after all that was read before it; the one who then takes again gets
    another try.

    Args:
        reader: Reads them.
        max_bytes: Reading pauses while so many bytes wait to be taken; one piece always may.
    """

    def __init__(self, reader: PieceReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        # The lock itself is taken, not the condition: its `with` is one step, which no signal handler can cut in two.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # With the bytes that were read up to the end of each: a count of those that wait could be cut in two.
        self._pieces: deque[tuple[Piece, int]] = deque()
        self._read_bytes = 0
        self._error: BaseException | None = None
        self._reading = False
        self._closed = False
        self._waiting: Future[None] | None = None

    def waiting_bytes(self, taken: Piece | None = None) -> int:
        """Bytes that were read and not yet taken; without this piece."""
        with self._lock:
            if not self._pieces:
                return 0
            first, first_end = self._pieces[0]
            _, last_end = self._pieces[-1]
            return last_end - first_end + (0 if first is taken else _size(first))

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer; begins to read if nothing does."""
        with self._lock:
            if self._has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._waiting is None:
                self._waiting = Future()
            if not self._reading:
                threading.Thread(target=self._run, name="paimon-read-ahead", daemon=True).start()
            return self._waiting

    def peek(self) -> Piece | None:
        """The next piece, if there is one by now; it stays here until `drop`.

        Raises:
            EndOfScan: The stream has ended, or is closed.
            PaimonStreamError: Reading failed.
        """
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            if self._pieces:
                return self._pieces[0][0]
            error, self._error = self._error, None
            if error is not None:
                raise error
            return None

    def drop(self, piece: Piece | None) -> None:
        """A piece that was seen is the caller's now. Idempotent."""
        with self._lock:
            if self._pieces and self._pieces[0][0] is piece:
                self._pieces.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent."""
        with self._lock:
            self._closed = True
            self._pieces.clear()
            self._tell()
        self._reader.close()

    def _has_answer(self) -> bool:
        return bool(self._pieces) or self._error is not None or self._closed

    def _run(self) -> None:
        with self._lock:
            if self._reading:
                return
            self._reading = True
        while True:
            try:
                piece = self._reader.next()
            except BaseException as error:  # noqa: BLE001 - it belongs to the one who takes next
                with self._lock:
                    self._error = error
                    self._reading = False
                    self._tell()
                return
            with self._lock:
                if self._closed:
                    return
                self._read_bytes += _size(piece)
                self._pieces.append((piece, self._read_bytes))
                self._tell()
                self._changed.wait_for(self._may_read)
                if self._closed:
                    return

    def _may_read(self) -> bool:
        return self._closed or not self._pieces or self.waiting_bytes() < self._max_bytes

    def _tell(self) -> None:
        """Wake who waits; called with the lock held."""
        self._changed.notify_all()
        if self._waiting is not None:
            self._waiting.set_result(None)
            self._waiting = None


def _size(piece: Piece) -> int:
    return 0 if piece.data is None else int(piece.data.nbytes)
