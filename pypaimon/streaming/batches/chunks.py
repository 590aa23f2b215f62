"""`ChunkReader`: reads the rows of plans in chunks, on a thread, so that a hanging read blocks nobody."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from pypaimon.streaming.concurrency.clock import is_done_within
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.waits import run
from pypaimon.streaming.errors import EndOfScan, PositionExpiredError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.arrow_types import one_batch
from pypaimon.streaming.model.plan import Plan, PlanKind, StreamSplit
from pypaimon.streaming.model.position import Phase, Position, of_table
from pypaimon.streaming.model.row_kinds import NAMES, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import ROW_KIND, with_commit_columns, with_commit_fields
from pypaimon.streaming.options.read_scope import ReadScope
from pypaimon.streaming.paimon.internals import DataField, TableSchema
from pypaimon.streaming.reading.read import StreamRead, drop_prefetched, fields_of, output_fields
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.metrics import ScanMetrics
from pypaimon.streaming.scanning.scan import BlockingPlanStream

_BEFORE, _AFTER = NAMES[UPDATE_BEFORE], NAMES[UPDATE_AFTER]
_SOON_SECONDS = 1.0
"""How long rows that were read wait for the next ones, which a request may delay."""
_LEAST_BATCHES = 2
"""Batches that are pulled together: the second one, or its absence, shows whether the first one is the last."""
_MOST_BATCHES = 64
"""Batches in a chunk, so that the first rows of many small files do not wait for the last ones."""
_UNCUT_ROWS = 4096
"""Least number of rows in a batch that is cut because of its bytes."""


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """Rows of one plan, read.

    Attributes:
        before: Position after the previous plan with rows, or the start of the stream; None if that was not found yet.
        data: The rows; None for a plan without rows. Empty at the end of a plan whose last rows had been given before
            the end was known.
        first: Whether this is the beginning of the plan.
        last: Whether this is the end of the plan.
        begins_state: Whether a full state begins here, so that everything before is void.
        scope: The rows of the table that the stream reads.
        schema: The schema of the table with the names that a transform gave; None: that of the plan.
        fields: The fields of the table that the columns are, by the names of the columns.
        own: The columns that a transform made, which are not columns of the table.
        size: Bytes of the rows in memory.
    """

    plan: Plan
    before: Position | None
    data: pa.Table | None
    first: bool
    last: bool
    begins_state: bool = False
    scope: Lazy[ReadScope] = field(default_factory=lambda: Lazy.of(ReadScope()))
    schema: TableSchema | None = None
    fields: Lazy[Mapping[str, DataField]] = field(default_factory=lambda: Lazy.of({}))
    own: frozenset[str] = frozenset()
    size: int = field(init=False)

    def __post_init__(self) -> None:
        # Once, because it costs more than all else that is asked of a small chunk.
        object.__setattr__(self, "size", 0 if self.data is None else int(self.data.nbytes))

    @property
    def position(self) -> Position | None:
        """Where a restart continues after it: after its plan if this is the end, else before its plan."""
        return self.plan.position if self.last else self.before


class ChunkReader:
    """Reads the plans of a scan chunk by chunk. Not thread-safe. After an error the next call continues before it.

    Args:
        chunk_bytes: A chunk is complete once it holds this many bytes, or 64 record batches; larger batches are cut.
        timeout: Time limit of one request in seconds.
        commit_columns: Add columns with the commit of each row.
        splits_of: Chooses the splits of a plan; the same ones each time.
        scope: The rows of the table that the stream reads.
    """

    def __init__(
        self,
        driver: ScanDriver,
        read: StreamRead,
        chunk_bytes: int,
        timeout: float,
        commit_columns: bool = False,
        splits_of: Callable[[Plan], list[StreamSplit]] = Plan.splits,
        scope: Lazy[ReadScope] | None = None,
    ) -> None:
        self._driver = driver
        self._read = read
        self._chunk_bytes = chunk_bytes
        self._commit_columns = commit_columns
        self._splits_of = splits_of
        self._scope = scope or Lazy.of(ReadScope())
        self._pool = IOPool(1, timeout, "paimon-batches", marked=True)
        self._plans: BlockingPlanStream = BlockingPlanStream(driver, in_background=True)
        self._plan: Plan | None = None
        self._before: Position | None = None
        self._given_until: Position | None = None
        self._has_begun = False
        self._begins_state = False
        self._fields: Lazy[Mapping[str, DataField]] = Lazy.of({})
        self._given: pa.Schema | None = None
        self._given_rows = 0
        self._rows: _Rows | None = None
        self._resumed: tuple[Position, int] | None = None
        self._is_resumed = False

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, with the table's schema that the stream was built with."""
        return with_commit_fields(self._read.schema) if self._commit_columns else self._read.schema

    @property
    def fields(self) -> Mapping[str, DataField]:
        """The fields of the table that the columns of `schema` are, by the names of the columns."""
        return output_fields(self._read)

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of the scan that makes the plans. No IO."""
        return self._driver.metrics

    def next(self) -> BatchChunk:
        """The next chunk. Blocks, and must be called by a thread that no signal handler interrupts.

        Raises:
            EndOfScan: The stream has reached its bound, or was stopped.
            PaimonStreamError: See `AsyncStreamingTableScan.plan` and `StreamTableRead`.
        """
        chunk = self._next(self._wait_for_plan)
        assert chunk is not None
        return chunk

    def look(self, max_age: float = 0.0, *, in_background: bool = False) -> BatchChunk | None:
        """As `next`, without waiting: None if no new snapshot was found in the last `max_age` seconds or now.

        Args:
            in_background: See `ScanDriver.look`.
        """
        return self._next(partial(self._look_for_plan, max_age, in_background))

    @property
    def idle_age(self) -> float | None:
        """The age of a poll that found nothing, if `look` may return its answer; else None."""
        return self._driver.idle_age if self._plan is None else None

    def rest(self) -> None:
        """Drop prefetched plans, until the next call."""
        self._driver.leave()

    def _next(self, find_plan: Callable[[], Plan | None]) -> BatchChunk | None:
        while True:
            plan = self._plan or self._next_plan(find_plan)
            if plan is None:
                return None
            try:
                return self._next_of(plan)
            except PositionExpiredError as expired:
                # Rows of the plan that were given stay given. A full state that comes instead says that it begins.
                self._driver.start_again(plan, expired)
                self._plan, self._begins_state, self._given_until = None, False, None

    def _wait_for_plan(self) -> Plan:
        plan = next(self._plans, None)
        if plan is None:
            raise EndOfScan("the stream has reached its end")
        return plan

    def _look_for_plan(self, max_age: float, in_background: bool) -> Plan | None:
        handover = self._driver.handover
        handover.exclusively(lambda: run(self._driver.look(max_age, in_background=in_background)))
        return handover.take() if handover.has_item else None

    def _next_plan(self, find_plan: Callable[[], Plan | None]) -> Plan | None:
        self._before = self._driver.position
        if not self._has_begun:
            # Not when the stream is opened, because its scan may seek before the first batch.
            self._given_until, self._has_begun = self._before, True
        plan = find_plan()
        if plan is None:
            return None
        table = plan.position.table
        self._before = self._before and of_table(self._before, table)
        self._given_until = self._given_until and of_table(self._given_until, table)
        resumed = self._resumed
        self._is_resumed = resumed is not None and _are_same(plan.position, resumed[0])
        self._plan, self._given = plan, None
        self._fields = Lazy(partial(fields_of, self._read, plan))
        self._given_rows = resumed[1] if self._is_resumed and resumed is not None else 0
        if resumed is not None and plan.position >= resumed[0]:
            # Plans without rows may come before it.
            self._resumed = None
        # The mark stays until there are rows, because the first plans of a state may be empty.
        self._begins_state = not self._is_resumed and (self._begins_state or _begins_state(plan, self._before))
        return plan

    def resume_after(self, after: Position, rows: int) -> None:
        """Skip rows of a plan that another reader of this stream has given, if the plan is the same.

        Args:
            after: Position after that plan. A different plan that covers it is given as a whole.
        """
        self._resumed = after, rows

    def close(self) -> None:
        """End at once, including a call in which another thread waits."""
        self._driver.close()
        self._pool.close()
        if (rows := self._rows) is not None:
            rows.close()
        drop_prefetched(self._read)

    def _next_of(self, plan: Plan) -> BatchChunk:
        batches: list[pa.RecordBatch] = []
        try:
            last = self._collect(plan, batches)
        except BaseException:
            # Rows that were read come first. The next call raises the error again, if it persists.
            self._rows = None
            if not batches:
                raise
            last = False
        first = self._given is None and not self._is_resumed
        if batches:
            self._given = batches[0].schema
        data = self._empty(plan) if self._given is None else pa.Table.from_batches(batches, self._given)
        if self._commit_columns and data is not None:
            data = with_commit_columns(data, plan)
        self._given_rows += sum(batch.num_rows for batch in batches)
        if last:
            self._plan = self._rows = None
        begins_state = self._begins_state
        self._begins_state = begins_state and data is None
        before = self._before if self._given_until is None else self._given_until
        if last and (data is not None or not first):
            self._given_until = plan.position
        return BatchChunk(plan, before, data, first, last, begins_state, self._scope, fields=self._fields)

    def _empty(self, plan: Plan) -> pa.Table | None:
        """An empty table for an empty state in the middle of a stream, which makes earlier rows void; else None."""
        in_midst = self._before is not None or not plan.splits()
        emptied = in_midst and self._begins_state and _begins_state(plan, self._before)
        return self._read.schema_of(plan).empty_table() if emptied else None

    def _collect(self, plan: Plan, batches: list[pa.RecordBatch]) -> bool:
        """Add the record batches of a chunk. Returns whether the plan ends with them."""
        if self._rows is None:
            cut = _cut(self._read.iter_batches(self._splits_of(plan)), self._chunk_bytes)
            self._rows = _Rows(self._pool, _after(pairs_unbroken(cut), self._given_rows), self._chunk_bytes)
        rows, size = self._rows, 0
        is_done = rows.wait()
        while (batch := rows.first) is not None:
            is_full = len(batches) == _MOST_BATCHES or batch.nbytes > self._chunk_bytes - size
            if batches and (is_full or batch.schema != batches[0].schema):
                return False
            batches.append(batch)
            size += batch.nbytes
            rows.drop()
        ended = is_done and rows.has_ended()
        if not (ended or batches):
            raise EndOfScan("the stream is closed")
        return ended


def _are_same(one: Position, other: Position) -> bool:
    return one.order() == other.order() and (one.phase, one.since) == (other.phase, other.since)


def _begins_state(plan: Plan, before: Position | None) -> bool:
    """Whether a full state begins with a plan. Limits cut a state into several plans."""
    if plan.kind is not PlanKind.FULL or before is None:
        return plan.kind is PlanKind.FULL
    continues = before.phase is Phase.FULL and before.unit is not None and before.snapshot == plan.snapshot_id
    return not continues


class _Rows:
    """The record batches of a plan, pulled on a thread of a pool: a chunk at a time, since a call for each batch costs
    about as much as reading a small file.

    Args:
        chunk_bytes: Pulling pauses once there is a batch after those of a chunk, which shows that the plan continues.
    """

    def __init__(self, pool: IOPool, batches: Iterator[pa.RecordBatch], chunk_bytes: int) -> None:
        self._pool = pool
        self._batches = batches
        self._chunk_bytes = chunk_bytes
        self._is_closed = False
        self._pulled: deque[pa.RecordBatch] = deque()
        self._pulling: Future[bool] | None = None

    def wait(self) -> bool:
        """Wait until a chunk was pulled, or the next batch does not come soon after others.

        Returns:
            Whether nothing is being pulled any more. If that has failed, `has_ended` raises the error.
        """
        if self._pulling is None or self._has_paused():
            size = sum(batch.nbytes for batch in self._pulled)
            self._pulling = self._pool.submit(self._pull, size, len(self._pulled))
        count, until = 0, math.inf
        while not is_done_within(self._pulling, self._pool.tick):
            self._pool.give_up_overdue()
            if len(self._pulled) > count:
                count, until = len(self._pulled), time.monotonic() + _SOON_SECONDS
            elif time.monotonic() > until:
                return False
        return True

    @property
    def first(self) -> pa.RecordBatch | None:
        """The next batch that was pulled; it stays here until `drop`."""
        return self._pulled[0] if self._pulled else None

    def drop(self) -> None:
        self._pulled.popleft()

    def has_ended(self) -> bool:
        """Whether the plan ends with what was pulled; for a caller that knows that nothing is being pulled."""
        return self._pulling is not None and self._pulling.result()

    def _has_paused(self) -> bool:
        # After an error there may be batches that were pulled before it: they come first.
        pulling = self._pulling
        return pulling is not None and pulling.done() and pulling.exception() is None and not pulling.result()

    def close(self) -> None:
        """Pull no more than the current batch."""
        self._is_closed = True

    def _pull(self, size: int, count: int) -> bool:
        while count < _LEAST_BATCHES or (size <= self._chunk_bytes and count <= _MOST_BATCHES):
            if self._is_closed or self._pool.given_up:
                break
            batch = next(self._batches, None)
            if batch is None:
                return True
            self._pulled.append(batch)
            size, count = size + batch.nbytes, count + 1
        return False


def _cut(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `most_bytes` bytes at most; nothing is copied."""
    for batch in batches:
        if batch.num_rows < 2 * _UNCUT_ROWS:
            yield batch
            continue
        pieces = max(1, min(round(batch.nbytes / most_bytes), batch.num_rows // _UNCUT_ROWS))
        length = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, length):
            yield batch.slice(start, length)


def _after(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same batches without the first rows, which were given before an error; a plan reads the same each time."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows) if rows else batch
        rows = max(0, rows - batch.num_rows)


def pairs_unbroken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut so that no batch ends with a -U whose +U is the next row.

    Only such a pair is copied, into a batch of its own.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        if held is not None:
            if _kind(batch, 0) == _AFTER and batch.schema == held.schema:
                yield one_batch([held, batch.slice(0, 1)])
                batch = batch.slice(1)
            else:
                yield held
            held = None
        if _kind(batch, batch.num_rows - 1) == _BEFORE:
            batch, held = batch.slice(0, batch.num_rows - 1), batch.slice(batch.num_rows - 1)
        if batch.num_rows:
            yield batch
    if held is not None:
        yield held


def _kind(batch: pa.RecordBatch, row: int) -> str | None:
    """The kind of a row; None if rows have no kinds."""
    place = batch.schema.get_field_index(ROW_KIND)
    return None if place < 0 or not batch.num_rows else str(batch.column(place)[row])
