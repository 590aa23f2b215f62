"""`StreamRead`: the splits of a plan as Arrow batches, tables, data frames or rows."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from pypaimon.streaming.concurrency.forking import polars_works
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.files.deletion_vectors import PlanVectors
from pypaimon.streaming.internals import DataField, OffsetRow, TableSchema
from pypaimon.streaming.io.io_pool import IOPool, spawn_detached
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.merge import MOST_RUNS
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import Plan, PlanKind, SplitMode, StreamSplit, plan_selection
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.options.views import LOGS
from pypaimon.streaming.reading.binlog import unbroken
from pypaimon.streaming.reading.blob import Blob, blobs_of
from pypaimon.streaming.reading.blob_values import BlobValues
from pypaimon.streaming.reading.missing_files import missing_file_error
from pypaimon.streaming.reading.output_columns import output_columns
from pypaimon.streaming.reading.planned_rows import parts_as_planned, planned_for
from pypaimon.streaming.reading.query_auth import Rules
from pypaimon.streaming.reading.read_layout import Layout, ReadSettings
from pypaimon.streaming.reading.read_parts import ReadParts
from pypaimon.streaming.reading.reading_order import in_reading_order
from pypaimon.streaming.reading.records import Records
from pypaimon.streaming.reading.split_files import deletion_files
from pypaimon.streaming.reading.split_reader import SplitReader

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
    import pandas  # type: ignore[import-untyped, unused-ignore]
    import polars

    import pypaimon.streaming.filter_internals as filter_internals
else:
    duckdb, pandas, polars = LazyModule("duckdb"), LazyModule("pandas"), LazyModule("polars")
    filter_internals = LazyModule("pypaimon.streaming.filter_internals")

T = TypeVar("T")
_THREADS = 8


class StreamRead:
    """What `StreamTableRead` does; its constructors are those of that one.

    Args:
        table: pypaimon's table.
        io_timeout: Seconds that one request may take.
        parts: What it works with. Who needs that while it is not known yet waits for it: no method that is awaited, but
            the properties, the blocking methods and pickling.
    """

    def __init__(self, table: Any, io_timeout: float, parts: Lazy[ReadParts]) -> None:
        self.table = table
        self.output_projection = None
        self.limit = None
        self._io_timeout = io_timeout
        self._parts = parts
        # What the last splits were planned with, whether they compare two states, and the read of those; None: this.
        self._taken: tuple[tuple[RowSelection, bool], StreamRead | None] | None = None
        # Not the pool of the store: reading a batch may ask that one for a schema or a deletion vector.
        self._pool = IOPool(_THREADS, io_timeout, "paimon-read", marked=True)
        # Nor that of the reads, which wait for those that open files.
        self._openers = IOPool(MOST_RUNS, io_timeout, "paimon-open", marked=True)
        # Bytes of plans that were made ahead go with the last read that might have taken them.
        weakref.finalize(self, spawn_detached, partial(_let_go, parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy elsewhere has threads and caches of its own."""
        return _unpickled, (type(self), self.table, self._io_timeout, self._settings)

    @property
    def predicate(self) -> filter_internals.Predicate | None:
        """Which rows are read."""
        return self._settings.predicate

    @property
    def include_row_kind(self) -> bool:
        """Whether the first column is `_row_kind`."""
        return self._settings.include_row_kind

    @property
    def read_type(self) -> list[DataField]:
        """The columns that come out, as pypaimon's fields: fields of rows inside of them, under their own names."""
        return list(self._layout_of(self._settings.schema).request)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what is read; of splits with a schema or columns of their own it is another one."""
        return self._arrow_schema(self._layout_of(self._settings.schema))

    def schema_of(self, plan: Plan) -> pa.Schema:
        """The Arrow schema of the rows of a plan, also of one that has none."""
        read = self._taking(plan_selection(plan), differences=plan.kind is PlanKind.DIFF)
        return read._arrow_schema(read._layout_of(plan.schema))

    def iter_batches(self, splits: Sequence[StreamSplit]) -> Iterator[pa.RecordBatch]:
        """Read lazily, batch by batch; batches are never empty.

        Of an OVERWRITE that may bring keys to other buckets, all that it took away comes before what it brought.

        Args:
            splits: Splits of a plan, `plan.splits()`. Their filter and columns hold where the read was given none.

        Raises:
            StreamConfigError: The read was given another filter, or other columns, than its splits were planned with.
        """
        splits = in_reading_order(splits)
        read = self._reader_of(splits)
        with read._parts.get().files_ahead.reading(splits):
            yield from read._batches(splits)

    def _batches(self, splits: Sequence[StreamSplit]) -> Iterator[pa.RecordBatch]:
        parts = self._parts.get()
        allowed: dict[int, Rules | None] = {}
        vectors = PlanVectors(parts.index_blocks, deletion_files(splits))
        for split in splits:
            bound = self._bound(split)
            schema_id, schema = bound.schema.id, self._arrow_schema(bound)
            if parts.auth is not None and schema_id not in allowed:
                allowed[schema_id] = parts.auth.rules(bound)
            blobs = BlobValues(parts.directory, bound, split, parts.settings) if bound.blobs else None
            try:
                for records in self._records(split, bound, allowed.get(schema_id), vectors):
                    columns = output_columns(records, bound, parts.settings, schema)
                    if not columns or not len(columns[0]):
                        continue
                    if blobs is None:
                        yield pa.RecordBatch.from_arrays(columns, schema=schema)
                    else:
                        yield from blobs.batches(columns, schema)
            except FileNotFoundError as error:
                raise missing_file_error(parts.directory, bound.schema, split, error) from error
            finally:
                if blobs is not None:
                    blobs.close()

    def _records(
        self, split: StreamSplit, bound: Layout, rules: Rules | None, vectors: PlanVectors
    ) -> Iterator[Records]:
        """The records of a split that come out, as far as the catalog's rules allow."""
        if rules is not None:
            bound = bound.reading(rules.needed)
        if split.mode is SplitMode.DIFF:
            # Rows that differ in a column that is not given out differ too.
            bound = bound.reading([field.name for field in bound.schema.fields])
        reader = SplitReader(
            self._parts.get().directory,
            bound,
            unmatched=self._settings.unmatched,
            keep_deletes=self._settings.view in LOGS,
            tell_deletes=self._settings.view in LOGS or self.include_row_kind,
            batch_size=self._settings.batch_size,
            openers=self._openers,
            vectors=vectors,
        )
        records = reader.read(split)
        if rules is not None:
            if reader.is_upserts(split) and self._settings.unmatched is Unmatched.DELETE:
                rules.refuse_upserts({*bound.schema.primary_keys, *bound.schema.partition_keys})
            records = rules.enforced(records, bound.fields)
        return unbroken(records) if bound.packed else records

    async def iter_batches_async(self, splits: Sequence[StreamSplit]) -> AsyncIterator[pa.RecordBatch]:
        """As `iter_batches`, without blocking the event loop: batch by batch on a thread.

        Cancelling, or leaving the loop, loses nothing but what was read.

        Raises:
            IOTimeoutError: A request did not come back within the IO timeout. Neither waiting for a thread nor
                decoding and merging count.
        """
        batches = self.iter_batches(splits)
        while (batch := await _hop(self._pool, next, batches, None)) is not None:
            yield batch

    async def to_arrow_async(self, splits: Sequence[StreamSplit]) -> pa.Table:
        """As `to_arrow`, without blocking the event loop; raises what `iter_batches_async` raises."""
        batches = [batch async for batch in self.iter_batches_async(splits)]
        return pa.Table.from_batches(batches, self._schema_of(splits))

    def to_arrow_batch_reader(
        self, splits: Sequence[StreamSplit], blob_parallelism: int | None = None, parallelism: int | None = None
    ) -> pa.RecordBatchReader:
        """Read lazily, as Arrow's own reader; the two numbers, which pypaimon has, change nothing here."""
        return pa.RecordBatchReader.from_batches(self._schema_of(splits), self.iter_batches(splits))

    def to_arrow(
        self, splits: Sequence[StreamSplit], parallelism: int | None = None, blob_parallelism: int | None = None
    ) -> pa.Table:
        """Read everything into one table; without splits an empty one."""
        return pa.Table.from_batches(self.iter_batches(splits), self._schema_of(splits))

    def to_pandas(self, splits: Sequence[StreamSplit], parallelism: int | None = None) -> pandas.DataFrame:
        """Read everything into a pandas data frame."""
        return self.to_arrow(splits).to_pandas()

    def to_polars(self, splits: Sequence[StreamSplit]) -> polars.DataFrame:
        """Read everything into a polars data frame; maps become lists of key and value."""
        import polars

        batches = list(self.iter_batches(splits)) or [pa.RecordBatch.from_pylist([], self._schema_of(splits))]
        return polars.concat([_polars_frame(batch) for batch in batches])

    def to_duckdb(
        self,
        splits: Sequence[StreamSplit],
        table_name: str,
        connection: duckdb.DuckDBPyConnection | None = None,
        parallelism: int | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """Read everything into a table registered with DuckDB.

        Args:
            splits: Splits of a plan.
            table_name: The name to register.
            connection: Where to register it; by default a new database in memory.
            parallelism: Changes nothing here.

        Returns:
            The connection.
        """
        import duckdb

        database = connection or duckdb.connect(database=":memory:")
        database.register(table_name, self.to_arrow(splits))
        return database

    def blobs(self, descriptors: Iterable[bytes | None] | pa.Array | pa.ChunkedArray) -> list[Blob | None]:
        """The blobs of a column that was read with `with_blob_descriptors(True)`, none of which is fetched yet.

        Args:
            descriptors: The column, or values of it.

        Raises:
            CorruptTableError: One of them is no descriptor.
        """
        if isinstance(descriptors, (pa.Array, pa.ChunkedArray)):
            descriptors = descriptors.to_pylist()
        return blobs_of(self._parts.get().directory, descriptors)

    def to_ray(
        self,
        splits: Sequence[StreamSplit],
        *,
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        override_num_blocks: int | None = None,
        **read_args: Any,
    ) -> Any:
        """Read everything here, and hand it to Ray as a dataset.

        Workers of Ray would read with pypaimon's own code, which gives other rows for splits of a stream.

        Args:
            splits: Splits of a plan.
            ray_remote_args: Changes nothing here.
            concurrency: Changes nothing here.
            override_num_blocks: Into how many blocks Ray divides it.
            read_args: Change nothing here.
        """
        # No extra of ours brings it: who asks for it has it.
        rows = import_module("ray").data.from_arrow(self.to_arrow(splits))
        return rows if override_num_blocks is None else rows.repartition(override_num_blocks)

    def to_iterator(self, splits: Sequence[StreamSplit]) -> Iterator[OffsetRow]:
        """Read row by row, as pypaimon's `InternalRow`: fields by place, the row kind beside them. Slow by nature.

        `get_blob` gives pypaimon's `Blob` of a field.
        """
        for batch in self.iter_batches(splits):
            kinds: Iterable[str] = ["+I"] * batch.num_rows
            if self.include_row_kind:
                kinds = batch.column(0).to_pylist()
                batch = batch.select(batch.schema.names[1:])
            codes = {name: code for code, name in enumerate(row_kinds.NAMES)}
            blobs = [index for index, field in enumerate(batch.schema) if pa.types.is_large_binary(field.type)]
            for kind, values in zip(kinds, _tuples(batch), strict=True):
                row = OffsetRow(values, 0, len(values), self.table.file_io, blobs)
                row.set_row_kind_byte(codes[kind])
                yield row

    def _reader_of(self, splits: Sequence[StreamSplit]) -> StreamRead:
        return self._taking(planned_for(splits), differences=any(split.mode is SplitMode.DIFF for split in splits))

    def _taking(self, planned: RowSelection | None, *, differences: bool) -> StreamRead:
        if planned is None:
            return self
        taken, key = self._taken, (planned, differences)  # Another thread may take other splits meanwhile.
        if taken is None or taken[0] != key:
            parts = parts_as_planned(own := self._parts.get(), planned, differences=differences)
            read = None if parts is own else made_read(type(self), self.table, self._io_timeout, Lazy.of(parts))
            taken = self._taken = key, read
        return taken[1] or self

    def _bound(self, split: StreamSplit) -> Layout:
        return self._layout_of(split.schema or self._settings.schema)

    def _layout_of(self, schema: TableSchema) -> Layout:
        return self._parts.get().layout_of(schema)

    @property
    def _settings(self) -> ReadSettings:
        return self._parts.get().settings

    def _schema_of(self, splits: Sequence[StreamSplit]) -> pa.Schema:
        read = self._reader_of(splits)
        return read._arrow_schema(read._bound(splits[0])) if splits else self.schema

    def _output_arrow_schema(self) -> pa.Schema:
        """The columns without the row kind, as pypaimon's `to_torch` asks for them."""
        return self._layout_of(self._settings.schema).arrow_schema

    def _arrow_schema(self, bound: Layout) -> pa.Schema:
        schema = bound.arrow_schema
        return schema.insert(0, row_kinds.ROW_KIND_FIELD) if self.include_row_kind else schema


R = TypeVar("R", bound=StreamRead)


def made_read(kind: type[R], table: Any, io_timeout: float, parts: Lazy[ReadParts]) -> R:
    """A read of some class with parts of its own; arguments: see `StreamRead`."""
    read = kind.__new__(kind)
    StreamRead.__init__(read, table, io_timeout, parts)
    return read


def read_of(directory: TableDirectory, settings: ReadSettings) -> StreamRead:
    """A read of a table that is known."""
    return StreamRead(directory.table, directory.store.pool.timeout, Lazy.of(ReadParts.of(directory, settings)))


def let_go(read: StreamRead) -> None:
    """Throw away bytes that were fetched for what might be read next; the read may go on."""
    _let_go(read._parts)


def release_threads(read: StreamRead) -> None:
    """Let the threads of a read end now; they come back when they are needed."""
    read._pool.release()
    read._openers.release()
    if read._parts.known is not None:
        read._parts.known.directory.store.pool.release()


def _let_go(parts: Lazy[ReadParts]) -> None:
    if parts.known is not None:
        parts.known.files_ahead.close()


def _unpickled(kind: type[R], table: Any, io_timeout: float, settings: ReadSettings) -> R:
    directory = TableDirectory.of(table, io_timeout)
    directory.know(settings.schema)
    return made_read(kind, table, io_timeout, Lazy.of(ReadParts.of(directory, settings)))


async def _hop(pool: IOPool, function: Callable[..., T], *args: Any) -> T:
    """Run a blocking call on a thread of the pool; may be cancelled at any time: what still runs is not waited for."""
    import asyncio

    pending = asyncio.wrap_future(pool.submit(function, *args))
    try:
        while not (await asyncio.wait({pending}, timeout=pool.tick))[0]:
            pool.give_up_overdue()
    except asyncio.CancelledError:
        pending.cancel()
        raise
    return pending.result()


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    if not batch.num_columns:
        return iter([()] * batch.num_rows)
    if not polars_works():
        from pypaimon.streaming.read_internals import polars_table

        return zip(*(column.to_pylist() for column in polars_table(batch).columns), strict=True)
    return _polars_frame(batch).iter_rows()


def _polars_frame(batch: pa.RecordBatch) -> polars.DataFrame:
    import polars

    from pypaimon.streaming.read_internals import polars_table

    frame = polars.from_arrow(polars_table(batch))
    assert isinstance(frame, polars.DataFrame)
    return frame
