"""Reading a task on an executor: its splits as Arrow batches of exactly Spark's schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from pypaimon.spark.options.source_options import parse
from pypaimon.spark.read.source_stream import new_read, stream_of
from pypaimon.spark.read.tasks import FILES_SCHEMA, ORDINAL, SNAPSHOT_ID, data_columns
from pypaimon.spark.spark_versions import arrow_schema
from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
    from pypaimon.spark.read.tasks import Part, Task
    from pypaimon.streaming.reading.read import StreamRead

T = TypeVar("T")
_KEPT = 8
_known: OrderedDict[tuple[object, ...], Any] = OrderedDict()
_lock = ForkSafeLock(_known.clear)


def read_task(
    options: Mapping[str, str], schema: StructType, task: Task, *, batch: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    target = arrow_schema(schema)
    if schema == FILES_SCHEMA:
        from pypaimon.spark.read.file_rows import file_batches

        yield from file_batches(_stream_of(options, task), [part.split for part in task.parts], target)
        return
    read = _read_of(options, tuple(data_columns(schema.fieldNames())), task, batch)
    for part in task.parts:
        yield from _read_part(read, part, target)


def _read_part(read: StreamRead, part: Part, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    ordinal = part.ordinal
    for batch in read.iter_batches([part.split]):
        if batch.schema.equals(target):
            yield batch
            continue
        yield _as_spark_wants(batch, target, part.split.snapshot_id, ordinal)
        ordinal += batch.num_rows


def _as_spark_wants(batch: pa.RecordBatch, target: pa.Schema, snapshot_id: int, ordinal: int) -> pa.RecordBatch:
    from pypaimon.spark.arrow_types import cast

    names: Sequence[str] = batch.schema.names
    columns = []
    for field in target:
        if field.name in names:
            columns.append(cast(batch.column(field.name), field.type))
        elif field.name == SNAPSHOT_ID:
            columns.append(pa.repeat(pa.scalar(snapshot_id, pa.int64()), batch.num_rows))
        elif field.name == ORDINAL:
            columns.append(pa.array(np.arange(ordinal, ordinal + batch.num_rows)))
        else:
            assert field.name == ROW_KIND
            columns.append(row_kinds.constant(row_kinds.INSERT, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _kept(key: tuple[object, ...], make: Callable[[], T]) -> T:
    with _lock.held:
        if key not in _known:
            _known[key] = make()
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        _known.move_to_end(key)
        found: T = _known[key]
        return found


def _read_of(options: Mapping[str, str], columns: tuple[str, ...], task: Task, batch: bool) -> StreamRead:
    def made() -> StreamRead:
        parsed = parse(options)
        if batch:
            from pypaimon.spark.read.batch_reader import batch_options

            parsed = batch_options(parsed)
        return new_read(stream_of(parsed, parsed.columns or columns, task.schema_id), batch=batch)

    return _kept((frozenset(options.items()), columns, task.table, task.schema_id, batch), made)


def _stream_of(options: Mapping[str, str], task: Task) -> ResolvedStream:
    key = frozenset(options.items()), task.table, task.schema_id
    return _kept(key, lambda: stream_of(parse(options), None, task.schema_id))
