"""Avro files: read some blocks at a time, and written as Java writes them."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedContentError, UnsupportedTableError
from pypaimon.streaming.formats import avro_container, file_format
from pypaimon.streaming.formats.avro_container import (
    SYNC_SIZE,
    encoded_block,
    encoded_header,
    framed,
    parsed_schema,
    stored_types,
)
from pypaimon.streaming.formats.avro_encoding import encoded_records, record_bounds
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.model.normal_form import normal_table

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
        for container in avro_container.containers(self._blocks, file_format.DECODED_BYTES):
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


_BLOCK_BYTES = 64 << 10
_PIECE_BYTES, _PIECE_ROWS = 1 << 20, 1 << 16
"""Bytes of rows, as Arrow counts them, and most rows that are encoded at once. Several times as many bytes are in use
meanwhile, and some tens for each row, however few bytes it has."""
_CODEC_NAMES = {
    "none": "null", "null": "null", "zstd": "zstandard", "zstandard": "zstandard",
    "deflate": "deflate", "snappy": "snappy", "bzip2": "bzip2", "xz": "xz",
}  # fmt: skip
# Java's name of the record of a row; records within have the names of their fields appended.
_RECORD = "org.apache.paimon.avro.generated.record"
_TIME_UNITS = {"s": "millis", "ms": "millis", "us": "micros"}


class AvroWriter:
    """Writes container files of one schema, with one of Avro's codecs: `null`, `deflate`, `bzip2`, `xz`, `snappy` or
    `zstandard`.
    """

    def __init__(self, schema: Mapping[str, Any], codec: str) -> None:
        if codec not in _COMPRESS:
            raise ValueError(f"the Avro codec {codec!r} is not known")
        self._text = json.dumps(schema).encode()
        self._codec = codec
        # The schema without logical types. Records of a `Container` with an equal schema can be copied without decoding
        # them.
        self.stored_schema = stored_types(self._text)

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Encode one record. Raises ValueError if a value does not fit the schema."""
        import fastavro

        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed_schema(self._text), record)
        except Exception as error:
            raise ValueError(f"a record does not fit its Avro schema: {error!r}") from error
        return stream.getvalue()

    def file(self, records: Iterable[bytes]) -> bytes:
        header, sync = self._header()
        return header + b"".join(self._block(*block, sync) for block in _blocks((1, each) for each in records))

    def files(self, records: Iterable[tuple[int, bytes]], target: int) -> Iterator[tuple[int, bytes]]:
        """Container files, each with the number of its records; none without records. A file is complete once it has
        `target` bytes. Pieces of encoded records, each with the number of its records, are never split.
        """
        header, sync = self._header()
        count, parts, size = 0, [header], len(header)
        for number, block in _blocks(records):
            parts.append(self._block(number, block, sync))
            count, size = count + number, size + len(parts[-1])
            if size >= target:
                yield count, b"".join(parts)
                count, parts, size = 0, [header], len(header)
        if count:
            yield count, b"".join(parts)

    def _header(self) -> tuple[bytes, bytes]:
        sync = os.urandom(SYNC_SIZE)
        return encoded_header(self._text, self._codec, sync), sync

    def _block(self, number: int, records: bytes, sync: bytes) -> bytes:
        return encoded_block(number, _COMPRESS[self._codec](records), sync)


def _blocks(records: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    count, size = 0, 0
    held: list[bytes] = []
    for number, encoded in records:
        held.append(encoded)
        count, size = count + number, size + len(encoded)
        if size >= _BLOCK_BYTES:
            yield count, b"".join(held)
            count, size, held = 0, 0, []
    if count:
        yield count, b"".join(held)


def _deflate(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(block) + packer.flush()


def _snappy(block: bytes) -> bytes:
    return bytes(pa.compress(block, "snappy", asbytes=True)) + zlib.crc32(block).to_bytes(4, "big")


def _zstd(level: int) -> Callable[[bytes], bytes]:
    codec = pa.Codec("zstd", level)
    return lambda block: bytes(codec.compress(block, asbytes=True))


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": _snappy,
    "zstandard": lambda block: bytes(pa.compress(block, "zstd", asbytes=True)),
}


class AvroFileWriter:
    """One Avro data file that is being written; see `FormatWriter` and `Format.writer`."""

    def __init__(self, stream: Any, schema: pa.Schema, settings: WriteSettings) -> None:
        codec = _CODEC_NAMES.get(settings.compression)
        if codec is None:
            raise StreamConfigError(
                f"'file.compression' = '{settings.compression}': Avro files have {', '.join(_CODEC_NAMES)}."
            )
        self._stream = stream
        self.schema = pa.schema([field.with_type(_numbers(field.type, exact=True)) for field in schema])
        self._numbers = pa.schema([field.with_type(_numbers(field.type, exact=False)) for field in schema])
        self._compress = _zstd(settings.zstd_level) if codec == "zstandard" else _COMPRESS[codec]
        self._sync = os.urandom(SYNC_SIZE)
        self._held: list[tuple[int, bytes]] = []
        self._held_bytes = 0
        stream.write(encoded_header(json.dumps(avro_schema(schema)).encode(), codec, self._sync))

    def write(self, data: pa.Table) -> None:
        data = normal_table(data, self._numbers)
        piece = max(1, min(_PIECE_ROWS, _PIECE_BYTES * data.num_rows // max(1, data.nbytes)))
        for first in range(0, data.num_rows, piece):
            rows = data.slice(first, piece).combine_chunks()
            columns = [column.chunk(0) for column in rows.columns]
            self._add(*record_bounds(encoded_records(columns, list(self._numbers), rows.num_rows)))

    def size(self) -> int:
        """Bytes so far, without the unfinished block."""
        return int(self._stream.tell())

    def close(self) -> None:
        if self._held:
            self._end_block()

    def _add(self, bounds: npt.NDArray[np.int64], records: Any) -> None:
        first, rows = 0, len(bounds) - 1
        while first < rows:
            # Up to the record that fills the block.
            end = int(np.searchsorted(bounds, bounds[first] + _BLOCK_BYTES - self._held_bytes))
            end = min(max(end, first + 1), rows)
            part = bytes(records[bounds[first] : bounds[end]])
            self._held.append((end - first, part))
            self._held_bytes += len(part)
            if self._held_bytes >= _BLOCK_BYTES:
                self._end_block()
            first = end

    def _end_block(self) -> None:
        count = sum(count for count, _ in self._held)
        content = self._compress(b"".join(part for _, part in self._held))
        self._stream.write(encoded_block(count, content, self._sync))
        self._held, self._held_bytes = [], 0


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """Java's Avro schema of a file with these columns. Raises UnsupportedTableError if Avro has no such type."""
    return _record(list(schema), _RECORD)


def _record(fields: list[pa.Field], name: str) -> dict[str, Any]:
    columns: list[dict[str, Any]] = [{"name": each.name, "type": _type(each, f"{name}_{each.name}")} for each in fields]
    for column, field in zip(columns, fields, strict=True):
        if field.nullable:
            column["default"] = None
    return {"type": "record", "name": name, "fields": columns}


def _type(field: pa.Field, name: str) -> Any:
    found = _bare(field.type, name)
    return ["null", found] if field.nullable else found


def _bare(kind: pa.DataType, name: str) -> Any:
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "int" if kind.bit_width <= 32 else "long"
    if types.is_floating(kind):
        return "float" if kind.bit_width == 32 else "double"
    if types.is_string(kind) or types.is_large_string(kind):
        return "string"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) and not _decimal(kind):
        return "bytes"
    if _decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_timestamp(kind) and kind.unit in _TIME_UNITS:
        return {
            "type": "long",
            "logicalType": f"{'' if kind.tz is None else 'local-'}timestamp-{_TIME_UNITS[kind.unit]}",
        }
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        if types.is_string(key.type):
            return {"type": "map", "values": _type(item, name)}
        entries = [key.with_name("key"), item.with_name("value")]
        return {"type": "array", "items": _record(entries, name), "logicalType": "map"}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return {"type": "array", "items": _type(kind.value_field, name)}
    if types.is_struct(kind):
        return _record(list(kind), name)
    raise UnsupportedTableError(f"Avro files cannot have columns of type {kind}; set another 'file.format'.")


def _decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def _numbers(kind: pa.DataType, *, exact: bool) -> pa.DataType:
    """A type with Avro's numbers for dates and times; `exact`: change only types whose unit Avro lacks."""
    types = pa.types
    if types.is_timestamp(kind):
        return (pa.timestamp("ms", kind.tz) if kind.unit == "s" else kind) if exact else pa.int64()
    if types.is_time(kind):
        return pa.time32("ms") if exact else pa.int32()
    if types.is_date(kind):
        return kind if exact else pa.int32()
    if types.is_map(kind):
        key, item = (each.with_type(_numbers(each.type, exact=exact)) for each in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type, exact=exact)))
    if types.is_struct(kind):
        return pa.struct([each.with_type(_numbers(each.type, exact=exact)) for each in kind])
    return kind
