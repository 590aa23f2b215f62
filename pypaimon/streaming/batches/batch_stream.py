"""`BatchStream` and `BlockingBatchStream`: the common case in one object: rows as they come, read ahead, confirmed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.read_ahead import Piece, ReadAhead
from pypaimon.streaming.batches.stream_status import StreamStatus
from pypaimon.streaming.bridge import awaited
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.io_pool import detached
from pypaimon.streaming.lag import Lag
from pypaimon.streaming.plan import PlanKind
from pypaimon.streaming.position import Phase, Position
from pypaimon.streaming.scan import AsyncStreamingTableScan
from pypaimon.streaming.settings.options import CommitMode


class _BatchLoop:
    """What both streams share: which batches were handed out, and which position is confirmed by whom.

    Args:
        scan: Commits by hand; asks for plans when the reading ahead does.
        ahead: Reads them.
        commit: Who confirms batches; None: there is no progress to save.
        on_progress: Called with the status after each batch, or None.
    """

    def __init__(
        self,
        scan: AsyncStreamingTableScan,
        ahead: ReadAhead,
        commit: CommitMode | None,
        on_progress: Callable[[StreamStatus], None] | None,
    ) -> None:
        self.scan = scan
        self._ahead = ahead
        self._auto = commit is CommitMode.AUTO
        self._has_consumer = commit is not None
        self._on_progress = on_progress
        self._driving = threading.Lock()
        self._in_hand: Piece | None = None
        self._outstanding = False
        self._passed: Position | None = None
        self._stopping = False
        self._over = False
        self._status = StreamStatus()
        self._lag: Lag | None = None
        # The thread that reads ahead must not outlive a stream that nobody holds any more.
        weakref.finalize(self, detached, ahead.close)

    @property
    def status(self) -> StreamStatus:
        """What was handed out so far, and what waits. No IO."""
        return self._status.with_scan(self.scan.metrics, self._ahead.waiting_bytes, self._lag)

    @property
    def position(self) -> Position | None:
        """Where a restart goes on after the last batch that was handed out; None: at the configured start. No IO."""
        return self._status.position

    @property
    def delivered(self) -> Position | None:
        """Position behind the last plan that was handed out wholly; None before the first batch. No IO.

        As `position`, but known in the first plan of a stream too.
        """
        piece = self._in_hand
        if piece is None or self.position is not None:
            return self.position
        phase = Phase.FULL if piece.plan.kind is PlanKind.FULL else Phase.FOLLOW
        return Position(piece.plan.position.table, piece.plan.snapshot_id, phase=phase)

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: what is left of the plan in hand still comes."""
        self._stopping = True
        self.scan.stop()

    def _end(self) -> None:
        self._over = True
        self._ahead.close()

    @contextmanager
    def _driven(self) -> Iterator[None]:
        if not self._driving.acquire(blocking=False):
            raise StreamConfigError("this stream is being read by another call; open one stream per reader")
        try:
            yield
        finally:
            self._driving.release()

    def _confirmed_by_asking(self) -> Position | None:
        """What asking for more confirms in the automatic mode; None: nothing."""
        piece = self._in_hand
        return self._confirmed_by(piece) if self._auto and self._outstanding and piece is not None else None

    def _confirmed_by(self, piece: Piece) -> Position | None:
        """What a batch confirms, with the plans without rows that were passed over since; None: nothing."""
        if not self._has_consumer:
            raise StreamConfigError("there is no progress to save: build the stream with with_consumer_id(...)")
        if piece is self._in_hand and self._passed is not None:
            return self._passed
        return piece.plan.position if piece.last else piece.before

    def _on_confirmed(self, piece: Piece | None) -> None:
        if piece is None or (piece is self._in_hand and (piece.last or self._passed is not None)):
            self._outstanding = False

    def _take(self) -> Piece | None:
        """The next piece, if there is one by now."""
        piece = self._ahead.take()
        if piece is not None and piece.first and self._stopping:
            raise EndOfScan("the stream was stopped")
        return piece

    def _passes_over(self, piece: Piece) -> Position | None:
        """A plan without rows: what to confirm at once, since nothing before it is unconfirmed."""
        self._passed = piece.plan.position
        return self._passed if self._has_consumer and not self._outstanding else None

    def _hands_out(self, piece: Piece) -> None:
        self._in_hand, self._outstanding, self._passed = piece, True, None
        self._status = self._status.with_piece(piece)
        if self._on_progress is not None:
            self._on_progress(self.status)


class BatchStream(_BatchLoop):
    """Batches for `async for`; made by `StreamReadBuilder.open()`.

    Best within `async with`, which frees its threads at once; leaving it, in whatever way, confirms nothing.
    A cancelled wait loses nothing. After an error the next step tries again, and goes on where it was, without a row
    twice.

    With a consumer id and `commit="auto"`, asking for the next batch confirms the one before; with `commit="manual"`
    only `batch.commit()` does. What was only read ahead is never confirmed.
    """

    def __aiter__(self) -> BatchStream:
        return self

    async def __anext__(self) -> Batch:
        with self._driven():
            try:
                return await self._next()
            except EndOfScan:
                self._end()
                raise StopAsyncIteration from None

    async def _next(self) -> Batch:
        asked = self._confirmed_by_asking()
        if asked is not None:
            await self._confirm(asked, self._in_hand)
        while not self._over:
            await awaited(self._ahead.ready())
            piece = self._take()
            if piece is None:
                continue
            if piece.data is not None:
                self._hands_out(piece)
                return Batch(piece, self._commit)
            passed = self._passes_over(piece)
            if passed is not None:
                await self._confirm(passed, None)
        raise EndOfScan("the stream is closed")

    async def _commit(self, piece: Piece) -> None:
        position = self._confirmed_by(piece)
        if position is not None:
            await self._confirm(position, piece)

    async def _confirm(self, position: Position, piece: Piece | None) -> None:
        await self.scan.commit_async(position)
        self._on_confirmed(piece)

    async def lag(self) -> Lag:
        """How far the last batch is behind the table; before the first one, what is not read ahead yet.

        `status.lag` holds it from then on. From any task of the loop; costs what `scan.lag()` costs.
        """
        self._lag = await self.scan.lag_async(self.delivered)
        return self._lag

    async def aclose(self) -> None:
        """End at once; confirms nothing. Idempotent."""
        self._end()

    async def __aenter__(self) -> BatchStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()


class BlockingBatchStream(_BatchLoop):
    """Batches for a plain `for`; made by `StreamReadBuilder.open_sync()`. As `BatchStream`; Ctrl-C interrupts it."""

    def __iter__(self) -> BlockingBatchStream:
        return self

    def __next__(self) -> BlockingBatch:
        with self._driven():
            try:
                return self._next()
            except EndOfScan:
                self._end()
                raise StopIteration from None

    def _next(self) -> BlockingBatch:
        asked = self._confirmed_by_asking()
        if asked is not None:
            self._confirm(asked, self._in_hand)
        while not self._over:
            self._ahead.wait()
            piece = self._take()
            if piece is None:
                continue
            if piece.data is not None:
                self._hands_out(piece)
                return BlockingBatch(piece, self._commit)
            passed = self._passes_over(piece)
            if passed is not None:
                self._confirm(passed, None)
        raise EndOfScan("the stream is closed")

    def _commit(self, piece: Piece) -> None:
        position = self._confirmed_by(piece)
        if position is not None:
            self._confirm(position, piece)

    def _confirm(self, position: Position, piece: Piece | None) -> None:
        self.scan.commit(position)
        self._on_confirmed(piece)

    def lag(self) -> Lag:
        """How far the last batch is behind the table; before the first one, what is not read ahead yet.

        `status.lag` holds it from then on. From any thread; costs what `scan.lag()` costs.
        """
        self._lag = self.scan.lag(self.delivered)
        return self._lag

    def close(self) -> None:
        """End at once; confirms nothing. Idempotent."""
        self._end()

    def __enter__(self) -> BlockingBatchStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
