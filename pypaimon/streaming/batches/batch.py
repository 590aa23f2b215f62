"""`Batch` and `BlockingBatch`: rows of one plan, with their kinds, where they come from, and how to confirm them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.update_pairs import paired
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.read_scope import ReadScope

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
    import pandas  # type: ignore[import-untyped, unused-ignore]
    import polars
else:
    duckdb, pandas, polars = LazyModule("duckdb"), LazyModule("pandas"), LazyModule("polars")


class _Rows:
    """What both kinds of batches hold. Immutable."""

    def __init__(self, chunk: BatchChunk) -> None:
        assert chunk.data is not None
        self._chunk = chunk

    @property
    def data(self) -> pa.Table:
        """The rows. `_row_kind` is the first column where row kinds are included."""
        return self._chunk.data

    @property
    def kinds(self) -> pa.ChunkedArray:
        """The kind of each row, `+I -U +U -D`; of a stream without row kinds `+I` throughout."""
        if ROW_KIND in self.data.schema.names:
            return self.data.column(ROW_KIND)
        return pa.chunked_array([row_kinds.constant(row_kinds.INSERT, self.num_rows)])

    @property
    def rows(self) -> pa.Table:
        """The rows without their kinds."""
        return self.data.drop_columns([ROW_KIND]) if ROW_KIND in self.data.schema.names else self.data

    @property
    def _scope(self) -> ReadScope:
        """Which rows of the table the stream reads."""
        return self._chunk.scope.get()

    def update_pairs(self) -> pa.Table:
        """One row per change, updates with the row before and after: `_row_kind`, `before`, `after`.

        The last two are structs of the columns of `rows`: of +I and -D the one that there is, the other is null; of
        +U both. A -U and a +U are one update if they follow each other and have one primary key; a batch never ends
        between them. Without its partner, as tables may store it, a -U stays a row with `before` alone and the kind
        -U, a +U one with `after` alone: the row before is not known.

        Raises:
            StreamConfigError: The stream has row kinds, but not all columns of the primary key.
        """
        return paired(self.rows, self.kinds, self.schema.primary_keys if ROW_KIND in self.data.schema.names else ())

    @property
    def num_rows(self) -> int:
        """How many rows there are.

        0 only where there is something to tell without rows: a full state in the midst of a stream has none (see
        `begins_state`), or nothing but the end of a plan is left (see `is_last`).
        """
        return int(self.data.num_rows)

    @property
    def snapshot_id(self) -> int:
        """The snapshot that they come from; of a collapsed or net plan the last one."""
        return self._chunk.plan.snapshot_id

    @property
    def kind(self) -> PlanKind:
        """Where the rows come from: the full state, or changes."""
        return self._chunk.plan.kind

    @property
    def commit_time(self) -> datetime:
        """When the snapshot was committed (aware, UTC)."""
        return self._chunk.plan.commit_time

    @property
    def watermark(self) -> int | None:
        """The snapshot's watermark in epoch milliseconds, None if it has none."""
        return self._chunk.plan.watermark

    @property
    def schema(self) -> TableSchema:
        """Paimon's schema of the table that the rows were read with, as pypaimon's `TableSchema`, with all its columns.

        Arrow's, of the columns that are here, is `data.schema`.
        """
        return self._chunk.plan.schema

    @property
    def begins_state(self) -> bool:
        """Whether a full state begins with this batch: what was applied of earlier batches is void, empty the target.

        So it is at the start of a stream that reads the state of its table first, and in its midst where
        `with_on_expired(...)` lets it begin anew. The batches that follow add to the state, also those of later plans,
        into which `with_limits(...)` cuts it.
        """
        return self._chunk.begins_state

    @property
    def is_first(self) -> bool:
        """Whether this is the beginning of its plan."""
        return self._chunk.first

    @property
    def is_last(self) -> bool:
        """Whether this is the end of its plan.

        A plan of many bytes comes as several batches, and so does one whose next rows are late. If such a plan then
        turns out to have no more rows, its last batch has none.
        """
        return self._chunk.last

    @property
    def position(self) -> Position | None:
        """Where a restart goes on after this batch: after its plan if it is the last one of it, else before its plan,
        which then comes again as a whole; None if that is the configured start."""
        return self._chunk.plan.position if self.is_last else self._chunk.before

    @property
    def plan_before(self) -> Position | None:
        """Where the stream stood before the plan of this batch: after the last plan that had rows, or where it began.

        None where it had not found its start.
        """
        return self._chunk.before

    @property
    def plan_after(self) -> Position:
        """Where the stream goes on after the plan of this batch."""
        return self._chunk.plan.position

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """`data` for whatever takes Arrow's PyCapsules: `polars.DataFrame(batch)`, `pyarrow.table(batch)`."""
        return self.data.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas data frame."""
        return self.data.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars data frame; maps become lists of key and value."""
        import polars

        from pypaimon.streaming.read_internals import polars_table

        frames = [polars.from_arrow(polars_table(batch)) for batch in self.data.to_batches()]
        return polars.concat([frame for frame in frames if isinstance(frame, polars.DataFrame)])

    def to_duckdb(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """Register the rows with DuckDB under a name; returns the connection, by default a new one in memory."""
        import duckdb

        database = connection or duckdb.connect(database=":memory:")
        database.register(name, self.data)
        return database

    def __repr__(self) -> str:
        end = "" if self.is_last else ", more to come"
        return f"{type(self).__name__}({self.num_rows} rows, {self.kind.value} of snapshot {self.snapshot_id}{end})"


class Batch(_Rows):
    """Rows of an asynchronous stream."""

    def __init__(self, chunk: BatchChunk, commit: Callable[[BatchChunk], Awaitable[None]]) -> None:
        super().__init__(chunk)
        self._commit = commit

    async def commit(self) -> None:
        """Confirm this batch and all before it, and save progress under the consumer id.

        Progress is kept by plans: the rows of a plan are confirmed with its last batch, before that only all plans
        before it.

        Raises:
            StreamConfigError: The stream has no consumer id.
            ConsumerConflictError: Another reader has taken over; nothing was written.
        """
        await self._commit(self._chunk)


class BlockingBatch(_Rows):
    """Rows of a blocking stream."""

    def __init__(self, chunk: BatchChunk, commit: Callable[[BatchChunk], None]) -> None:
        super().__init__(chunk)
        self._commit = commit

    def commit(self) -> None:
        """As `Batch.commit`; blocks."""
        self._commit(self._chunk)
