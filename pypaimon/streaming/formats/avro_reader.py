"""Avro data files as record batches of their own columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedContentError, UnsupportedTableError
from pypaimon.streaming.formats import avro_container, batch_sizes
from pypaimon.streaming.formats.avro_container import framed

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


class AvroFileReader:
    """One Avro file, decoded some blocks at a time."""

    def __init__(self, stream: Any) -> None:
        self._blocks = framed(stream.read())
        record = json.loads(avro_container.stored_types(self._blocks.schema))
        if isinstance(record, list):
            # In files of vectors the rows that Java writes are nullable.
            (record,) = (branch for branch in record if branch != "null")
        self._types = pa.schema([(field["name"], _column_type(field)) for field in record["fields"]])
        # polars does not know maps, and writes to stderr when it meets one.
        self._by_polars = not any(_holds_maps(field.type) for field in self._types)
        self._tables = self._decoded()
        self._first = next(self._tables)
        self.schema: pa.Schema = self._first.schema
        self.num_rows: int = self._blocks.count

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """See `FormatReader`; can be called once."""
        for table in chain([self._first], self._tables):
            yield from table.select(list(columns)).combine_chunks().to_batches(batch_size)

    def _decoded(self) -> Iterator[pa.Table]:
        for container in avro_container.containers(self._blocks, batch_sizes.DECODED_BYTES):
            table = avro_container.to_arrow(container) if self._by_polars else None
            if table is None:
                self._by_polars = False
                table = pa.Table.from_pylist(avro_container.to_records(container), self._types)
            yield table


def _holds_maps(kind: pa.DataType) -> bool:
    children = (kind.field(index).type for index in range(kind.num_fields))
    return bool(pa.types.is_map(kind) or any(map(_holds_maps, children)))


def _column_type(field: dict[str, Any]) -> pa.DataType:
    try:
        return _arrow_type(field["type"])
    except UnsupportedTableError as error:
        raise UnsupportedContentError(str(error), field["name"]) from error


def _arrow_type(avro: Any) -> pa.DataType:
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) == 1:
            return _arrow_type(branches[0])
    elif isinstance(avro, str) and avro in _PRIMITIVES:
        return _PRIMITIVES[avro]
    elif isinstance(avro, dict):
        return _complex_type(avro)
    raise UnsupportedTableError(f"columns of the Avro type {avro} cannot be read: rewrite the file without it")


def _complex_type(avro: dict[str, Any]) -> pa.DataType:
    name = avro["type"]
    if name == "record":
        return pa.struct([(field["name"], _arrow_type(field["type"])) for field in avro["fields"]])
    if name == "array":
        return pa.list_(_arrow_type(avro["items"]))
    if name == "map":
        return pa.map_(pa.string(), _arrow_type(avro["values"]))
    if name == "fixed":
        return pa.binary()
    return _arrow_type(name)
