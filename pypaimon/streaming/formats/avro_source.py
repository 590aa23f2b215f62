"""Avro data files as record batches of their own columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats import avro_container

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


class AvroSource:
    """One Avro file, decoded as a whole.

    Attributes:
        schema: The columns of the file; logical types are not applied.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ()

    def __init__(self, stream: Any) -> None:
        container = avro_container.parse(stream.read())
        schema = pa.schema(list(_arrow_type(json.loads(container.schema))))
        # polars does not know maps, and says so on stderr.
        table = None if any(_holds_maps(field.type) for field in schema) else avro_container.to_arrow(container)
        if table is None:
            table = pa.Table.from_pylist(avro_container.to_records(container), schema)
        self._table = table
        self.schema: pa.Schema = table.schema
        self.num_rows: int = container.count

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        yield from self._table.select(list(columns)).combine_chunks().to_batches(batch_size)


def _holds_maps(kind: pa.DataType) -> bool:
    children = (kind.field(index).type for index in range(kind.num_fields))
    return bool(pa.types.is_map(kind) or any(map(_holds_maps, children)))


def _arrow_type(avro: Any) -> pa.DataType:
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) == 1:
            return _arrow_type(branches[0])
    elif isinstance(avro, str) and avro in _PRIMITIVES:
        return _PRIMITIVES[avro]
    elif isinstance(avro, dict):
        return _complex_type(avro)
    raise UnsupportedTableError(f"Avro files with the type {avro} cannot be read.")


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
