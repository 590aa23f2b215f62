"""Avro object container files: framing and codecs, as far as the blocks of records."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
_ZSTD_STEP = 4096
_MOST_BYTES = 1 << 30
"""Of the records that are decompressed together: far beyond what Paimon writes, far below what ends a process."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of an Avro object container file, as they are stored.

    Attributes:
        schema: The writer's schema as JSON.
        codec: How they are compressed.
        blocks: Number of records that each announces, and its bytes.
    """

    schema: bytes
    codec: str
    blocks: tuple[tuple[int, bytes], ...]

    def each(self) -> Iterator[Blocks]:
        """Every block by itself."""
        return (replace(self, blocks=(block,)) for block in self.blocks)

    @property
    def count(self) -> int:
        """Number of records that are announced."""
        return sum(count for count, _ in self.blocks)

    def decompressed(self) -> Iterator[tuple[int, bytes]]:
        """The blocks, decompressed.

        Raises:
            ValueError: One is damaged, or announces more records than it can hold, or they have more than 1 GiB.
        """
        size = 0
        for announced, stored in self.blocks:
            block = _CODECS[self.codec](stored, _MOST_BYTES - size)
            if not 0 <= announced <= len(block):
                raise ValueError(f"an Avro block of {len(block)} bytes announces {announced} records")
            size += len(block)
            yield announced, block


def framed(data: bytes) -> Blocks:
    """The blocks of a container file.

    Raises:
        ValueError: It is not one, it is cut off, a sync marker is wrong, or its codec is not known.
    """
    if not data.startswith(MAGIC):
        raise ValueError("not an Avro file" if data else "the file is empty")
    cursor = _Cursor(data, len(MAGIC))
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


class _Cursor:
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


def _zstandard(block: bytes, most: int) -> bytes:
    import zstandard

    pieces: list[bytes] = []
    size = position = 0
    try:
        while position < len(block):
            # A block may be several frames; what lies behind the end of one is the beginning of the next.
            frame = zstandard.ZstdDecompressor().decompressobj()
            while not frame.eof:
                if position >= len(block):
                    raise ValueError("an Avro block is cut off")
                # A little at a time, for a few bytes can stand for thousands of times as many.
                pieces.append(frame.decompress(block[position : position + _ZSTD_STEP]))
                position += _ZSTD_STEP
                size = _checked(size + len(pieces[-1]), most)
            position = min(position, len(block)) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise ValueError(f"an Avro block cannot be decompressed: {error}") from error
    return b"".join(pieces)


def _checked(size: int, most: int) -> int:
    if size > most:
        raise ValueError(f"the Avro blocks hold more than {_MOST_BYTES} bytes decompressed")
    return size


def _snappy(block: bytes, most: int) -> bytes:
    # The block begins with its decompressed size, as a varint; a CRC-32 of the plain bytes lies behind it.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    _checked(size, most)
    compressed, checksum = block[:-4], block[-4:]
    try:
        plain: bytes = pa.Codec("snappy").decompress(compressed, size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"an Avro block cannot be decompressed: {error}") from error
    if zlib.crc32(plain).to_bytes(4, "big") != checksum:
        raise ValueError("the checksum of an Avro block is wrong")
    return plain


def _limited(decompressor: Callable[[], Any]) -> Callable[[bytes, int], bytes]:
    def run(block: bytes, most: int) -> bytes:
        stream = decompressor()
        try:
            # One byte more than is allowed shows that there is more.
            plain: bytes = stream.decompress(block, most + 1)
        except (zlib.error, OSError, EOFError, lzma.LZMAError) as error:
            raise ValueError(f"an Avro block cannot be decompressed: {error}") from error
        _checked(len(plain), most)
        if not stream.eof:
            raise ValueError("an Avro block is cut off")
        return plain

    return run


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda block, most: block,
    # Negative: bare deflate, without the header and checksum of zlib.
    "deflate": _limited(lambda: zlib.decompressobj(-zlib.MAX_WBITS)),
    "bzip2": _limited(bz2.BZ2Decompressor),
    "xz": _limited(lzma.LZMADecompressor),
    "snappy": _snappy,
    "zstandard": _zstandard,
}
