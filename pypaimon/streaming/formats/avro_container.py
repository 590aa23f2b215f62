"""Avro object container files: blocks and codecs, and their records in bulk by polars or fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pypaimon.streaming.concurrency.forking import polars_works
from pypaimon.streaming.formats import codecs

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
_MOST_BYTES = 1 << 30
"""Most bytes of records in a file: far beyond what Paimon writes, far below what ends a process."""
_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda block, most: block,
    "deflate": codecs.deflate,
    "bzip2": codecs.bzip2,
    "xz": codecs.xz,
    "snappy": codecs.snappy_with_checksum,
    "zstandard": codecs.zstd_frames,
}
_PIECE = 8192
"""Records that polars decodes at once."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The compressed blocks of an Avro object container file."""

    schema: bytes
    codec: str
    blocks: tuple[tuple[int, bytes], ...]  # Number of records that each block announces, and its bytes

    def each(self) -> Iterator[Blocks]:
        return (replace(self, blocks=(block,)) for block in self.blocks)

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.blocks)

    def decompressed(self) -> Iterator[tuple[int, bytes]]:
        """Decompress the blocks. Raises ValueError if a block is damaged or announces more records than it can hold, or
        they hold more than 1 GiB.
        """
        size = 0
        for announced, stored in self.blocks:
            block = _CODECS[self.codec](stored, _MOST_BYTES - size)
            if not 0 <= announced <= len(block):
                raise ValueError(f"an Avro block of {len(block)} bytes announces {announced} records")
            size += len(block)
            yield announced, block


def framed(data: bytes) -> Blocks:
    """Find the blocks of a container file.

    fastavro's `block_reader` would do so too, but it decompresses without a limit. Raises ValueError if the file is not
    a container or is cut off, a sync marker is wrong, or its codec is not known.
    """
    if not data.startswith(MAGIC):
        raise ValueError("not an Avro file" if data else "the file is empty")
    cursor = _ByteCursor(data, len(MAGIC))
    header = cursor.map()
    sync = cursor.take(SYNC_SIZE)
    codec = header.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in _CODECS:
        raise ValueError(f"the Avro codec {codec!r} is not known")
    if "avro.schema" not in header:
        raise ValueError("the Avro header holds no schema")
    blocks: list[tuple[int, bytes]] = []
    while not cursor.at_end():
        blocks.append((cursor.long(), cursor.block()))
        if cursor.take(SYNC_SIZE) != sync:
            raise ValueError("a sync marker between Avro blocks is wrong")
    return Blocks(header["avro.schema"], codec, tuple(blocks))


class _ByteCursor:
    """Reads Avro primitives from bytes, never past their end."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def at_end(self) -> bool:
        return self._position == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"the file ends in the middle, at byte {len(self._data)}")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def long(self) -> int:
        # Seven bits in each byte, the lowest first; the highest bit says that another follows. Zigzag: signed numbers
        # alternate around 0, so that small ones stay short.
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise ValueError("an Avro number is longer than 64 bits")

    def block(self) -> bytes:
        return self.take(self.long())

    def map(self) -> dict[str, bytes]:
        entries: dict[str, bytes] = {}
        while count := self.long():
            # A negative count is followed by the size of the block in bytes.
            if count < 0:
                count = -count
                self.long()
            for _ in range(count):
                key = self.block().decode("utf-8", "replace")
                entries[key] = self.block()
        return entries


@dataclass(frozen=True, slots=True)
class Container:
    """An Avro object container file, decompressed."""

    schema: bytes  # The writer's schema as JSON, without logical types: timestamps are read as the stored integers
    blocks: tuple[tuple[int, bytes], ...]

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.blocks)

    @property
    def records(self) -> bytes:
        return b"".join(block for _, block in self.blocks)

    def pieces(self) -> Iterator[Container]:
        """Split into containers of whole blocks with about `_PIECE` records each; at least one."""
        first = count = 0
        for index, (records, _) in enumerate(self.blocks):
            if count and count + records > _PIECE:
                yield Container(self.schema, self.blocks[first:index])
                first, count = index, 0
            count += records
        yield Container(self.schema, self.blocks[first:])

    def plain(self) -> bytes:
        """The container without compression and as one block, which polars reads fastest."""
        # The marker between blocks may be any 16 bytes.
        sync = bytes(SYNC_SIZE)
        header = encoded_header(self.schema, "null", sync)
        return header + (encoded_block(self.count, self.records, sync) if self.count else b"")


def parse(data: bytes) -> Container:
    """Decompress a container file. Raises ValueError as `framed` and `Blocks.decompressed`."""
    found = framed(data)
    return Container(stored_types(found.schema), tuple(found.decompressed()))


def containers(blocks: Blocks, size: int) -> Iterator[Container]:
    """The records of a file in containers of whole blocks with about `size` bytes each; at least one. Raises ValueError
    as `Blocks.decompressed`.
    """
    schema = stored_types(blocks.schema)
    found: list[tuple[int, bytes]] = []
    held = 0
    for block in blocks.each():
        found += block.decompressed()
        held += len(found[-1][1])
        if held >= size:
            yield Container(schema, tuple(found))
            found, held = [], 0
    if found or not blocks.blocks:
        yield Container(schema, tuple(found))


def to_arrow(container: Container, paths: Collection[str] | None = None) -> pa.Table | None:
    """Decode all records with polars: 400 k records per second of 30 fields.

    They are decoded piece by piece, because polars holds the interpreter's lock while it makes Arrow's columns.

    Args:
        paths: The fields to read, such as `_FILE._FILE_NAME`. Each is a column of that name, in any order, unless a
            record around it may be null: then that record is the column. Missing fields are left out. None: the file's
            own, nested columns.

    Returns:
        None if polars does not know the schema (top-level unions, references to named types), finds damage, or does not
        work in this process.

    Raises:
        ValueError: There are more or fewer records than announced.
    """
    if not polars_works():
        return None
    import polars

    columns = None
    if paths is not None:
        schema, fields = _flat(container.schema)
        container = replace(container, schema=schema)
        columns = [field for field in fields if any(path == field or path.startswith(f"{field}.") for path in paths)]
    tables: list[pa.Table] = []
    for piece in container.pieces():
        try:
            table: pa.Table = polars.read_avro(io.BytesIO(piece.plain()), columns=columns).to_arrow()
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError):
            return None
        if table.num_rows != piece.count:
            raise ValueError(f"{piece.count} Avro records were announced, {table.num_rows} found")
        tables.append(table)
    return pa.concat_tables(tables)


def to_records(container: Container) -> list[dict[str, Any]]:
    """Decode all records with fastavro, which takes any schema, and is faster for a few records. Raises ValueError if
    the records do not fit the schema.
    """
    import fastavro

    encoded = container.records
    stream = io.BytesIO(encoded)
    try:
        schema = parsed_schema(container.schema)
        records: list[Any] = [fastavro.schemaless_reader(stream, schema, None) for _ in range(container.count)]
    except Exception as error:
        raise ValueError(f"the Avro records cannot be decoded: {error!r}") from error
    if stream.tell() != len(encoded):
        raise ValueError(f"there is more in the Avro blocks than the {container.count} records announced")
    if not all(isinstance(record, dict) for record in records):
        raise ValueError("the Avro file does not hold records")
    return records


def encoded_long(value: int) -> bytes:
    """An Avro `long`: zigzag, then seven bits in each byte."""
    return codecs.varint((value << 1) ^ (value >> 63))


def encoded_bytes(value: bytes) -> bytes:
    """Avro `bytes`, or a `string` in UTF-8."""
    return encoded_long(len(value)) + value


def encoded_header(schema: bytes, codec: str, sync: bytes) -> bytes:
    """The beginning of a container file, up to the marker before the first block."""
    header = {"avro.schema": schema, "avro.codec": codec.encode()}
    fields = [encoded_bytes(key.encode()) + encoded_bytes(value) for key, value in header.items()]
    return b"".join((MAGIC, encoded_long(len(header)), *fields, encoded_long(0), sync))


def encoded_block(count: int, content: bytes, sync: bytes) -> bytes:
    """A block of a container file, with the marker after it."""
    return b"".join((encoded_long(count), encoded_long(len(content)), content, sync))


@lru_cache(maxsize=64)
def stored_types(schema: bytes) -> bytes:
    """The schema without logical types, as in `Container.schema`; raises ValueError."""
    try:
        stored = _without_logical_types(json.loads(schema))
    except RecursionError as error:
        raise ValueError("the Avro schema is nested too deeply") from error
    if _has_weightless_items(stored):
        raise ValueError("the Avro schema has items without a size: a few bytes could announce any number of them")
    return json.dumps(stored).encode()


@lru_cache(maxsize=64)
def _flat(schema: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The schema with nested records replaced by their fields, and the names of all fields."""
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("fields"), list):
        return schema, ()
    # A record is encoded as its fields one after the other, so the same bytes can be read with either schema.
    fields = list(_flat_fields(parsed["fields"], ""))
    return json.dumps(parsed | {"fields": fields}).encode(), tuple(field["name"] for field in fields)


def _flat_fields(fields: list[Any], path: str) -> Iterator[dict[str, Any]]:
    for field in fields:
        kind, name = field["type"], f"{path}{field['name']}"
        if isinstance(kind, dict) and kind.get("type") == "record":
            yield from _flat_fields(kind["fields"], f"{name}.")
        else:
            yield {"name": name, "type": kind}


def _has_weightless_items(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_weightless_items(branch) for branch in schema)
    if not isinstance(schema, dict):
        return False
    items = schema.get("items", schema.get("values", "string"))
    return _is_weightless(items) or any(map(_has_weightless_items, (items, *_parts(schema))))


def _parts(schema: dict[str, Any]) -> list[Any]:
    fields = schema.get("fields")
    types = [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [schema.get("type"), *types]


def _is_weightless(schema: Any) -> bool:
    if isinstance(schema, dict):
        if schema.get("type") == "record":
            return all(map(_is_weightless, _parts(schema)[1:]))
        return bool(schema.get("size") == 0 or _is_weightless(schema.get("type")))
    return bool(schema == "null")


@lru_cache(maxsize=64)
def parsed_schema(schema: bytes) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema
