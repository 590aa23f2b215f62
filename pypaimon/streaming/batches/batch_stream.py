"""`BatchStream` and `BlockingBatchStream`: the rows of a table as they come, prefetched and confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pypaimon.streaming.batches.batch import Batch, BatchRows, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.batches.stream import AsyncStream, BlockingStream, StreamLoop, StreamStatus
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import SchemaChangedError, StreamConfigError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.reading.read import polars_frame
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.scan import StreamScan

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]
    import polars
else:
    pandas, polars = LazyModule("pandas"), LazyModule("polars")

B = TypeVar("B")


class _TableLoop(StreamLoop[BatchChunk, B]):
    """What is special about the stream of a table: its position, and how it confirms plans.

    Args:
        scan: The scan, with manual commits.
        driver: Driver of the scan, from which `ahead` requests plans.
        ahead: Prefetches the rows of plans.
        on_progress: Called with the status after each batch, before it is given; or None.
    """

    def __init__(
        self,
        scan: StreamScan,
        driver: ScanDriver,
        ahead: ReadAhead,
        on_progress: Callable[[StreamStatus], None] | None,
    ) -> None:
        super().__init__(ahead, Clock(), on_progress)
        self.scan = scan
        self._ahead = ahead
        self._driver = driver
        self._confirmed: BatchChunk | None = None

    def __repr__(self) -> str:
        status = self._handover.state.status
        after = "before the first batch" if status.snapshot_id is None else f"after snapshot {status.snapshot_id}"
        name = self.scan.table.identifier.get_full_name()
        return f"{type(self).__name__}({name}, {after}, {status.rows} rows)"

    @property
    def position(self) -> Position | None:
        """Where a restart continues after the last batch; None: at the configured start. No IO."""
        return self._handover.state.status.position

    @property
    def delivered(self) -> Position | None:
        """Position after the last complete plan; None before the first batch. No IO.

        As `position`, but also known in the first plan of a stream.
        """
        hand = self._handover.state
        chunk = hand.chunk
        if chunk is None or hand.status.position is not None:
            return hand.status.position
        phase = Phase.FULL if chunk.plan.kind is PlanKind.FULL else Phase.FOLLOW
        return Position(chunk.plan.position.table, chunk.plan.snapshot_id, phase=phase)

    @property
    def _has_next(self) -> bool:
        """Whether the next batch is prefetched already."""
        return not self._is_stopped() and self._ahead.has_rows()

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler; see `StreamLoop.stop`."""
        self._stopping = True
        self.scan.stop()
        super().stop()

    def _whole_schema(self) -> pa.Schema:
        """The schema of all rows of a stream that ends. Blocks while the table is not known."""
        if not self._driver.parts.get().options.is_bounded:
            raise StreamConfigError(
                "one table of all rows needs a stream that ends: give it a with_end(...) or a with_range(...)"
            )
        return self._ahead.schema

    def _check_schema(self, batch: BatchRows, schema: pa.Schema) -> None:
        if batch.data.schema != schema:
            text = "the schema of the table has changed, and one table of all rows has one schema"
            raise SchemaChangedError(self.scan.table.table_schema.id, batch.schema.id, text)

    def _ended(self) -> Wait[None]:
        # A plain `close` has waited already.
        return Wait(lambda: None, self._driver.closed)

    def _chunk_of(self, item: BatchChunk) -> BatchChunk:
        return item

    def _offer(self, item: BatchChunk, chunk: BatchChunk) -> None:
        super()._offer(item, chunk)
        # Prefetching continues while the caller handles the batch.
        self._ahead.drop(item)

    def _pass_over(self, item: BatchChunk) -> Waits[None]:
        self._handover.move(replace(self._handover.state, passed=item.plan.position))
        if self._driver.commit_mode is not None and not self._is_outstanding():
            yield from self._confirm(item.plan.position, None)
        self._ahead.drop(item)

    # ---- what is confirmed ----

    def _confirm_received(self, item: BatchChunk) -> Waits[None]:
        if self._driver.commit_mode is CommitMode.AUTO and self._is_outstanding():
            yield from self._commit(item)

    def _commit(self, chunk: BatchChunk) -> Waits[None]:
        """Confirm a batch, including later plans without rows."""
        if self._driver.commit_mode is None:
            raise StreamConfigError("there is no progress to save: build the stream with with_consumer_id(...)")
        hand = self._handover.state
        position = (hand.passed if chunk is hand.chunk else None) or chunk.position
        if position is not None:
            yield from self._confirm(position, chunk)

    def _confirm(self, position: Position, chunk: BatchChunk | None) -> Waits[None]:
        yield Wait(lambda: self.scan.commit(position), lambda: self.scan.commit_async(position))
        hand = self._handover.state
        if chunk is hand.chunk and hand.ends_plan:
            self._confirmed = chunk

    def _is_outstanding(self) -> bool:
        """Whether the last batch, with all of its plan, is not confirmed yet."""
        return self._handover.state.chunk is not self._confirmed


class BatchStream(_TableLoop[Batch], AsyncStream[BatchChunk, Batch]):
    """Batches for `async for`; made by `StreamReadBuilder.open()`.

    Use it within `async with`, which frees its threads at once; leaving it confirms nothing. A cancelled wait loses
    nothing. After an error the next step retries and repeats no row.

    With a consumer id and `commit="auto"`, requesting the next batch confirms the one before; with `commit="manual"`
    only `batch.commit()` does. Prefetched rows are never confirmed.
    """

    def _new_batch(self, item: BatchChunk) -> Batch:
        return Batch(item, lambda: run_async(self._commit(item)))

    async def to_arrow(self) -> pa.Table:
        """The rest of a stream with an end as one Arrow table, in memory; ends the stream.

        Raises:
            StreamConfigError: The stream has no end.
            SchemaChangedError: The table's schema changes and the stream follows it.
        """
        found, schema = [], await call_on_thread(self._whole_schema, "paimon-schema")
        async with self:
            async for batch in self:
                self._check_schema(batch, schema)
                found.append(batch.data)
        return pa.concat_tables(found) if found else schema.empty_table()

    async def to_pandas(self) -> pandas.DataFrame:
        """As `to_arrow`, as a pandas data frame."""
        return (await self.to_arrow()).to_pandas()

    async def to_polars(self) -> polars.DataFrame:
        """As `to_arrow`, as a polars data frame; maps become lists of key and value."""
        rows = await self.to_arrow()
        return polars_frame(rows.to_batches(), rows.schema)

    async def lag(self) -> Lag:
        """The lag of the last batch; before the first one, of the prefetched rows.

        `status.lag` holds it afterwards. May be called from any task of the loop; costs as much as `scan.lag()`.
        """
        self._lag = await self.scan.lag_async(self.delivered)
        return self._lag


class BlockingBatchStream(_TableLoop[BlockingBatch], BlockingStream[BatchChunk, BlockingBatch]):
    """Batches for a plain `for`; made by `StreamReadBuilder.open_sync()`. As `BatchStream`; Ctrl-C interrupts it."""

    def _new_batch(self, item: BatchChunk) -> BlockingBatch:
        return BlockingBatch(item, lambda: run(self._commit(item)))

    def to_arrow(self) -> pa.Table:
        """The rest of a stream with an end as one Arrow table, in memory; raises as `to_arrow_batch_reader`."""
        return self.to_arrow_batch_reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """As `to_arrow`, as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As `to_arrow`, as a polars data frame; maps become lists of key and value."""
        rows = self.to_arrow()
        return polars_frame(rows.to_batches(), rows.schema)

    def lag(self) -> Lag:
        """The lag of the last batch; before the first one, of the prefetched rows.

        `status.lag` holds it afterwards. May be called from any thread; costs as much as `scan.lag()`.
        """
        self._lag = self.scan.lag(self.delivered)
        return self._lag

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rest of a stream with an end as an Arrow reader, which pulls batches as a plain `for` does.

        The schema is that of the table when the stream was built. The stream ends with its last row, or when the reader
        is deleted.

        Raises:
            StreamConfigError: The stream has no end.
            SchemaChangedError: Raised by the reader if the table's schema changes and the stream follows it.
        """
        return pa.RecordBatchReader.from_batches(schema := self._whole_schema(), self._record_batches(schema))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """`to_arrow_batch_reader()` for consumers of Arrow's PyCapsules: `polars.DataFrame(stream)`."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def _record_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self:
            for batch in self:
                self._check_schema(batch, schema)
                yield from batch.data.to_batches()
