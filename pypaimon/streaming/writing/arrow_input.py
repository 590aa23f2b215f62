"""`arrow_input`: what a writer is given, as Arrow's record batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.writing.row_layout import BadRowError

_CHUNK_ROWS = 1 << 17
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class ArrowInput:
    """Rows that a writer was given.

    Attributes:
        schema: Their columns.
        batches: The rows; of what is not wholly in memory they are made as they are asked for.
        in_memory: Whether all rows are there already, so that they can be checked before the first one is taken.
    """

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    in_memory: bool


def arrow_input(data: Any) -> ArrowInput:
    """What a writer was given, as Arrow.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a `Batch` of a stream, or
            anything else with `__arrow_c_stream__` or `__arrow_c_array__`.

    Raises:
        StreamConfigError: It is none of them, or holds what Arrow has no type for.
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
        return ArrowInput(data.schema, data.to_batches(max_chunksize=_CHUNK_ROWS), in_memory=True)
    if not isinstance(data, pa.RecordBatchReader):
        data = _reader(data)
    return ArrowInput(data.schema, data, in_memory=False)


def plain_schema(schema: pa.Schema, fields: Sequence[Any]) -> pa.Schema:
    """The schema in which `plain` gives its batches.

    Dictionaries and views become what they stand for. An integer of a wider type than the table's column becomes that,
    since pandas, polars and Python's numbers are 64 bits wide unless told otherwise; each value is checked.

    Args:
        schema: Columns of the rows.
        fields: pypaimon's fields of the table.
    """
    types = {field.name: arrow_type(field.type) for field in fields}
    # A name may differ from the table's in case.
    folded = {name.lower(): kind for name, kind in types.items()}
    targets = [types.get(field.name, folded.get(field.name.lower())) for field in schema]
    return pa.schema(
        [field.with_type(_plain_type(field.type, target)) for field, target in zip(schema, targets, strict=True)]
    )


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the types of `plain_schema`.

    Raises:
        BadRowError: A number is out of the range of its column.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [_plain(values, field) for field, values in zip(schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(values: pa.Array, field: pa.Field) -> pa.Array:
    if values.type.equals(field.type):
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        text = f"Column '{field.name}' holds a value out of the range of {field.type}: {error}."
        raise BadRowError(text) from error


def _plain_type(given: pa.DataType, target: pa.DataType | None) -> pa.DataType:
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_string_view(given):
        return pa.string()
    if pa.types.is_binary_view(given):
        return pa.binary()
    if given in _INTEGERS and target in _INTEGERS and _INTEGERS.index(target) < _INTEGERS.index(given):
        return target
    return given


def _is_frame(data: Any, library: str) -> bool:
    # Whoever holds a frame has imported its library.
    module = sys.modules.get(library)
    frame = getattr(module, "DataFrame", None)
    return frame is not None and isinstance(data, frame)


def _of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        # Columns of one name, numbers of more than 64 bits, values of several types.
        raise StreamConfigError(f"the DataFrame is no table of Arrow: {error}") from error


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
