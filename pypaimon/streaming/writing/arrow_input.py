"""`arrow_input`: the data that a writer is given, as Arrow record batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.normal_form import normal_type

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 1 << 28
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class ArrowInput:
    """Rows that a writer was given."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]  # The rows. If they are not in memory, they are read while this is iterated.
    in_memory: bool  # Whether all rows are in memory, so that they can be checked before the first one is written


def arrow_input(data: Any) -> ArrowInput:
    """The data that a writer is given, as Arrow record batches.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a `Batch` of a stream, or
            anything else with `__arrow_c_stream__` or `__arrow_c_array__`.

    Raises:
        StreamConfigError: The data are of another type, or hold values for which Arrow lacks a type.
    """
    if isinstance(data, Batch | BlockingBatch):
        data = data.data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if _is_frame(data, "pandas"):
        data = _of_pandas(data)
    elif _is_frame(data, "polars"):
        data = data.to_arrow()
    if isinstance(data, pa.Table):
        return ArrowInput(data.schema, _pieces(data.to_batches(max_chunksize=_CHUNK_ROWS)), in_memory=True)
    if not isinstance(data, pa.RecordBatchReader):
        data = _reader(data)
    return ArrowInput(data.schema, _pieces(data), in_memory=False)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = max(1, batch.num_rows * _CHUNK_BYTES // max(_CHUNK_BYTES, _bytes_of(batch)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _bytes_of(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        # Arrow cannot count the bytes of views that are used.
        return int(batch.get_total_buffer_size())


def narrowed_schema(schema: pa.Schema, fields: Sequence[Any]) -> pa.Schema:
    """The given columns, with integer types narrowed to those of the table's columns.

    Numbers of pandas, polars and Python are 64 bits wide by default. Each value is checked when it is written.
    """
    types = {field.name: arrow_type(field.type) for field in fields}
    # Names match if they differ only in case.
    folded = {name.lower(): kind for name, kind in types.items()}
    targets = [types.get(field.name, folded.get(field.name.lower())) for field in schema]
    given = [normal_type(field.type) for field in schema]
    kinds = [_narrowed(one, other) for one, other in zip(given, targets, strict=True)]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


def _narrowed(given: pa.DataType, target: pa.DataType | None) -> pa.DataType:
    is_wider = given in _INTEGERS and target in _INTEGERS and _INTEGERS.index(target) < _INTEGERS.index(given)
    return target if is_wider else given


def _is_frame(data: Any, library: str) -> bool:
    # A caller that has a DataFrame has imported its library.
    module = sys.modules.get(library)
    frame = getattr(module, "DataFrame", None)
    return frame is not None and isinstance(data, frame)


def _of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        # Two columns of one name, numbers of more than 64 bits, or values of several types in a column.
        raise StreamConfigError(f"the DataFrame cannot be converted to Arrow: {error}") from error


def _reader(data: Any) -> pa.RecordBatchReader:
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
    raise StreamConfigError(
        "expected a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a batch of a stream "
        f"or anything with __arrow_c_stream__, got {type(data).__name__}. For rows in Python: "
        "pyarrow.Table.from_pylist(rows)."
    )
