"""Avro object container files, written: records encoded by fastavro, or taken over from other files as they are."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pypaimon.streaming.formats.avro_container import encoded_bytes, encoded_long, stored_types

_MAGIC = b"Obj\x01"
_BLOCK_BYTES = 64 << 10


class AvroWriter:
    """Writes container files of one schema.

    Args:
        schema: Of the records, as Avro's JSON has it.
        codec: Avro's name of a codec: `null`, `deflate`, `bzip2`, `xz`, `snappy` or `zstandard`.

    Attributes:
        stored_schema: As `Container.schema` of the files: one that has the same holds records that can be taken over.
    """

    def __init__(self, schema: Mapping[str, Any], codec: str) -> None:
        if codec not in _COMPRESS:
            raise ValueError(f"the Avro codec {codec!r} is not known")
        self._text = json.dumps(schema).encode()
        self._codec = codec
        self.stored_schema = stored_types(self._text)

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """A record, as a file holds it between others.

        Raises:
            ValueError: A value is not of the type that the schema has.
        """
        import fastavro

        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, _parsed(self._text), record)
        except Exception as error:
            raise ValueError(f"a record does not fit its Avro schema: {error!r}") from error
        return stream.getvalue()

    def file(self, records: Iterable[bytes]) -> bytes:
        """A container file of encoded records; of none too."""
        header, sync = self._header()
        return header + b"".join(self._block(*block, sync) for block in _blocks((1, each) for each in records))

    def files(self, records: Iterable[tuple[int, bytes]], target: int) -> Iterator[tuple[int, bytes]]:
        """Container files of about a size, each behind the number of its records; none of no records.

        Args:
            records: Encoded records, some at a time behind their number; those of one time lie in one file.
            target: A file that has so many bytes is complete.
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
        """What a file begins with, and the marker that stands behind each of its blocks."""
        header = {"avro.schema": self._text, "avro.codec": self._codec.encode()}
        fields = (part for key, value in header.items() for part in (encoded_bytes(key.encode()), encoded_bytes(value)))
        sync = os.urandom(16)
        return b"".join((_MAGIC, encoded_long(len(header)), *fields, encoded_long(0), sync)), sync

    def _block(self, number: int, records: bytes, sync: bytes) -> bytes:
        packed = _COMPRESS[self._codec](records)
        return b"".join((encoded_long(number), encoded_long(len(packed)), packed, sync))


def _blocks(records: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The same, as few times as blocks should be."""
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


@lru_cache(maxsize=16)
def _parsed(schema: bytes) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _deflate(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(block) + packer.flush()


def _snappy(block: bytes) -> bytes:
    return bytes(pa.compress(block, "snappy", asbytes=True)) + zlib.crc32(block).to_bytes(4, "big")


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": _snappy,
    "zstandard": lambda block: bytes(pa.compress(block, "zstd", asbytes=True)),
}
