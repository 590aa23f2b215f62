"""`StreamRead`: the splits of a plan as Arrow batches, tables, data frames or rows."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.forking import polars_works
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.files.deletion_vectors import PlanVectors
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.lazy_imports import LazyModule, naming_extra
from pypaimon.streaming.merge import MOST_RUNS
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import Plan, PlanKind, SplitMode, StreamSplit, plan_selection
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import DataField, OffsetRow, TableSchema
from pypaimon.streaming.reading.blob import Blob, blobs_of
from pypaimon.streaming.reading.blob_values import BlobValues
from pypaimon.streaming.reading.query_auth import Rules
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings
from pypaimon.streaming.reading.read_parts import ReadParts, parts_as_planned, planned_for
from pypaimon.streaming.reading.records import Records, output_columns, unbroken
from pypaimon.streaming.reading.split_files import deletion_files, in_reading_order, missing_file_error
from pypaimon.streaming.reading.split_reader import SplitReader

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
    import pandas  # type: ignore[import-untyped, unused-ignore]
    import polars

    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    duckdb, pandas, polars = LazyModule("duckdb"), LazyModule("pandas"), LazyModule("polars")
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")

T = TypeVar("T")
_THREADS = 8


class StreamRead:
    """The methods of `StreamTableRead`, which adds its constructors.

    Args:
        table: pypaimon's table.
        io_timeout: Seconds that one request may take.
        parts: The parts of the read, once the table is known. Properties, blocking methods and pickling wait for them;
            awaited methods do not block.
    """

    def __init__(self, table: ReadableTable, io_timeout: float, parts: Lazy[ReadParts]) -> None:
        self.table = table
        self.output_projection = None
        self.limit = None
        self._io_timeout = io_timeout
        self._parts = parts
        # The settings that the last splits were planned with, whether they compare two states, and the read for them;
        # None: this one.
        self._taken: tuple[tuple[RowSelection, bool], StreamRead | None] | None = None
        # Not the pool of the store, because reading a batch may wait for that pool, for a schema or a deletion vector.
        self._pool = IOPool(_THREADS, io_timeout, "paimon-read", marked=True)
        # Not the pool of the reads, because these wait for the threads that open files.
        self._openers = IOPool(MOST_RUNS, io_timeout, "paimon-open", marked=True)
        # Prefetched bytes of later plans are dropped with the last read that might take them.
        weakref.finalize(self, spawn_detached, partial(_drop_prefetched, parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process has its own threads and caches."""
        return _unpickled, (type(self), self.table, self._io_timeout, self._settings)

    @property
    def predicate(self) -> filter_internals.Predicate | None:
        """The filter of the read."""
        return self._settings.predicate

    @property
    def include_row_kind(self) -> bool:
        """Whether the first column is `_row_kind`."""
        return self._settings.include_row_kind

    @property
    def read_type(self) -> list[DataField]:
        """The output columns as pypaimon's fields: fields of rows stay inside of their rows, under their own names."""
        return list(self._layout_of(self._settings.schema).request)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows. Splits with their own schema or columns have another one."""
        return self._arrow_schema(self._layout_of(self._settings.schema))

    def schema_of(self, plan: Plan) -> pa.Schema:
        """The Arrow schema of the rows of a plan, also of an empty plan."""
        read = self._taking(plan_selection(plan), differences=plan.kind is PlanKind.DIFF)
        return read._arrow_schema(read._layout_of(plan.schema))

    def iter_batches(self, splits: Sequence[StreamSplit]) -> Iterator[pa.RecordBatch]:
        """Read lazily, batch by batch; batches are never empty.

        If an OVERWRITE may move keys to other buckets, all rows that it removed come before those that it added.

        Args:
            splits: Splits of a plan, `plan.splits()`. A read without its own filter and columns takes theirs.

        Raises:
            StreamConfigError: The read has another filter, or other columns, than its splits were planned with.
        """
        splits = in_reading_order(splits)
        read = self._reader_of(splits)
        with read._parts.get().prefetcher.reading(splits):
            yield from read._batches(splits)

    def _batches(self, splits: Sequence[StreamSplit]) -> Iterator[pa.RecordBatch]:
        parts = self._parts.get()
        allowed: dict[int, Rules | None] = {}
        vectors = PlanVectors(parts.index_blocks, deletion_files(splits))
        for split in splits:
            layout = self._layout_for(split)
            schema_id, schema = layout.schema.id, self._arrow_schema(layout)
            if parts.auth is not None and schema_id not in allowed:
                allowed[schema_id] = parts.auth.rules(layout)
            blobs = BlobValues(parts.directory, layout, split, parts.settings) if layout.blobs else None
            try:
                for records in self._records(split, layout, allowed.get(schema_id), vectors):
                    columns = output_columns(records, layout, parts.settings, schema)
                    if not columns or not len(columns[0]):
                        continue
                    if blobs is None:
                        yield pa.RecordBatch.from_arrays(columns, schema=schema)
                    else:
                        yield from blobs.batches(columns, schema)
            except FileNotFoundError as error:
                with parts.settings.reader.advising():
                    raise missing_file_error(parts.directory, layout.schema, split, error) from error
            finally:
                if blobs is not None:
                    blobs.close()

    def _records(
        self, split: StreamSplit, layout: ReadLayout, rules: Rules | None, vectors: PlanVectors
    ) -> Iterator[Records]:
        if rules is not None:
            layout = layout.reading(rules.needed)
        if split.mode is SplitMode.DIFF:
            # Rows also differ if they differ only in a column that is not given out.
            layout = layout.reading([field.name for field in layout.schema.fields])
        reader = SplitReader(self._parts.get().directory, layout, self._settings, self._openers, vectors)
        records = reader.read(split)
        if rules is not None:
            if reader.is_upserts(split) and self._settings.unmatched is Unmatched.DELETE:
                rules.refuse_upserts({*layout.schema.primary_keys, *layout.schema.partition_keys})
            records = rules.enforced(records, layout.fields)
        return unbroken(records) if layout.packed else records

    async def iter_batches_async(self, splits: Sequence[StreamSplit]) -> AsyncIterator[pa.RecordBatch]:
        """As `iter_batches`, without blocking the event loop: batch by batch on a thread.

        Cancelling, or leaving the loop, loses only the rows that were read.

        Raises:
            IOTimeoutError: A request exceeded the IO timeout. Waiting for a thread, decoding and merging do not count.
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
        """Read lazily, as Arrow's own reader. The two numbers exist in pypaimon and have no effect here."""
        return pa.RecordBatchReader.from_batches(self._schema_of(splits), self.iter_batches(splits))

    def to_arrow(
        self, splits: Sequence[StreamSplit], parallelism: int | None = None, blob_parallelism: int | None = None
    ) -> pa.Table:
        """Read everything into one table, which is empty without splits."""
        return pa.Table.from_batches(self.iter_batches(splits), self._schema_of(splits))

    def to_pandas(self, splits: Sequence[StreamSplit], parallelism: int | None = None) -> pandas.DataFrame:
        """Read everything into a pandas data frame."""
        return self.to_arrow(splits).to_pandas()

    def to_polars(self, splits: Sequence[StreamSplit]) -> polars.DataFrame:
        """Read everything into a polars data frame; maps become lists of key and value."""
        return polars_frame(list(self.iter_batches(splits)), self._schema_of(splits))

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
            connection: Where to register it. Default: a new database in memory.
            parallelism: Has no effect here.

        Returns:
            The connection.
        """
        with naming_extra("to_duckdb", {"duckdb": "duckdb"}):
            import duckdb
        database = connection or duckdb.connect(database=":memory:")
        database.register(table_name, self.to_arrow(splits))
        return database

    def blobs(self, descriptors: Iterable[bytes | None] | pa.Array | pa.ChunkedArray) -> list[Blob | None]:
        """The blobs of a column that was read with `with_blob_descriptors(True)`. Fetches none of them.

        Args:
            descriptors: The column, or values of it.

        Raises:
            CorruptTableError: A value is not a descriptor.
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
        """Read everything in this process, and pass it to Ray as a dataset.

        Workers of Ray would read with pypaimon's own code, which gives other rows for splits of a stream.

        Args:
            splits: Splits of a plan.
            ray_remote_args: Has no effect here.
            concurrency: Has no effect here.
            override_num_blocks: The number of blocks of the dataset.
            read_args: Have no effect here.
        """
        # No extra of this package installs Ray, because its users have it.
        rows = import_module("ray").data.from_arrow(self.to_arrow(splits))
        return rows if override_num_blocks is None else rows.repartition(override_num_blocks)

    def to_iterator(self, splits: Sequence[StreamSplit]) -> Iterator[OffsetRow]:
        """Read row by row as pypaimon's `InternalRow`, with fields by position and the row kind. Slow by nature.

        `get_blob` returns pypaimon's `Blob` of a field.
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
        taken, key = self._taken, (planned, differences)  # Read `_taken` once, because another thread may replace it.
        if taken is None or taken[0] != key:
            parts = parts_as_planned(own := self._parts.get(), planned, differences=differences)
            read = None if parts is own else made_read(type(self), self.table, self._io_timeout, Lazy.of(parts))
            taken = self._taken = key, read
        return taken[1] or self

    def _layout_for(self, split: StreamSplit) -> ReadLayout:
        return self._layout_of(split.schema or self._settings.schema)

    def _layout_of(self, schema: TableSchema) -> ReadLayout:
        return self._parts.get().layout_of(schema)

    @property
    def _settings(self) -> ReadSettings:
        return self._parts.get().settings

    def _schema_of(self, splits: Sequence[StreamSplit]) -> pa.Schema:
        read = self._reader_of(splits)
        return read._arrow_schema(read._layout_for(splits[0])) if splits else self.schema

    def _output_arrow_schema(self) -> pa.Schema:
        """The schema without the row kind, which pypaimon's `to_torch` calls."""
        return self._layout_of(self._settings.schema).arrow_schema

    def _arrow_schema(self, layout: ReadLayout) -> pa.Schema:
        schema = layout.arrow_schema
        return schema.insert(0, row_kinds.ROW_KIND_FIELD) if self.include_row_kind else schema


R = TypeVar("R", bound=StreamRead)


def made_read(kind: type[R], table: ReadableTable, io_timeout: float, parts: Lazy[ReadParts]) -> R:
    """A read of a class with the arguments of `StreamRead`."""
    read = kind.__new__(kind)
    StreamRead.__init__(read, table, io_timeout, parts)
    return read


def fields_of(read: StreamRead, plan: Plan) -> Mapping[str, DataField]:
    """The fields of the table that the columns of a plan are, by the names of the columns."""
    taking = read._taking(plan_selection(plan), differences=plan.kind is PlanKind.DIFF)
    return taking._layout_of(plan.schema).output_fields


def output_fields(read: StreamRead) -> Mapping[str, DataField]:
    """As `fields_of`, for plans of the schema that the read was made with."""
    return read._layout_of(read._settings.schema).output_fields


def drop_prefetched(read: StreamRead) -> None:
    """Drop the prefetched bytes of later plans. The read stays usable."""
    _drop_prefetched(read._parts)


def _drop_prefetched(parts: Lazy[ReadParts]) -> None:
    if parts.known is not None:
        parts.known.prefetcher.close()


def _unpickled(kind: type[R], table: ReadableTable, io_timeout: float, settings: ReadSettings) -> R:
    directory = TableDirectory.of(table, io_timeout)
    directory.know(settings.schema)
    return made_read(kind, table, io_timeout, Lazy.of(ReadParts.of(directory, settings)))


async def _hop(pool: IOPool, function: Callable[..., T], *args: Any) -> T:
    """Run a blocking call on a thread of the pool. If it is cancelled, the thread is not waited for."""
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
        from pypaimon.streaming.paimon.read_internals import polars_table

        return zip(*(column.to_pylist() for column in polars_table(batch).columns), strict=True)
    return _polars_frame(batch).iter_rows()


def polars_frame(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> polars.DataFrame:
    """Rows as a polars data frame; maps become lists of key and value."""
    import polars

    return polars.concat([_polars_frame(batch) for batch in batches or [pa.RecordBatch.from_pylist([], schema)]])


def _polars_frame(batch: pa.RecordBatch) -> polars.DataFrame:
    import polars

    from pypaimon.streaming.paimon.read_internals import polars_table

    frame = polars.from_arrow(polars_table(batch))
    assert isinstance(frame, polars.DataFrame)
    return frame
