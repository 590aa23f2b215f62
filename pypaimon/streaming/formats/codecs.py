"""Decompression of blocks up to a limit, because a few bytes of a damaged file may stand for gigabytes; and varints.

Decompression raises ValueError if a block is damaged or holds more than `most` bytes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

_ZSTD_STEP = 4096
_LZ4_LEAST_MATCH = 4
_LZ4_MORE = 255


def varint(value: int) -> bytes:
    """An unsigned number, seven bits in each byte, the lowest first; the highest bit says that another byte follows."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def zstd_frame(frame: bytes, most: int) -> bytes:
    import zstandard

    try:
        if zstandard.frame_content_size(frame) > most:
            raise _too_large(most)
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=most, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error


def zstd_frames(block: bytes, most: int) -> bytes:
    """Frames of Zstandard, one after the other; they need not say how much they hold."""
    import zstandard

    pieces: list[bytes] = []
    size = position = 0
    try:
        while position < len(block):
            frame = zstandard.ZstdDecompressor().decompressobj()
            while not frame.eof:
                if position >= len(block):
                    raise _cut_off()
                # In small steps, because a few bytes can stand for thousands of times as many.
                pieces.append(frame.decompress(block[position : position + _ZSTD_STEP]))
                position += _ZSTD_STEP
                size += len(pieces[-1])
                if size > most:
                    raise _too_large(most)
            position = min(position, len(block)) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    return b"".join(pieces)


def snappy(block: bytes, most: int) -> bytes:
    # It begins with its decompressed size, as a varint: seven bits in each byte, the lowest first.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return _by_arrow("snappy", block, size, most)


def snappy_with_checksum(block: bytes, most: int) -> bytes:
    """A block of Snappy, then a CRC-32 of the decompressed bytes, as Avro has it."""
    plain = snappy(block[:-4], most)
    if zlib.crc32(plain).to_bytes(4, "big") != block[-4:]:
        raise ValueError("the checksum of a block is wrong")
    return plain


def lz4(block: bytes, most: int) -> bytes:
    # Its size has to be summed up over its sequences: literals, then a match of at least 4 bytes.
    position = size = 0
    try:
        while position < len(block) and size <= most:
            # A token has both lengths, four bits each. After it: more of the literals' length, the literals, two bytes
            # of the match's offset, more of its length.
            token = block[position]
            literals, position = _lz4_length(block, token >> 4, position + 1)
            position += literals
            size += literals
            if position < len(block):
                match, position = _lz4_length(block, token & 15, position + 2)
                size += match + _LZ4_LEAST_MATCH
    except IndexError as error:
        raise _cut_off() from error
    return _by_arrow("lz4_raw", block, size, most)


def _lz4_length(block: bytes, length: int, position: int) -> tuple[int, int]:
    # 15: bytes follow that are added to it, the last of them below 255.
    byte = _LZ4_MORE if length == 15 else 0
    while byte == _LZ4_MORE:
        byte = block[position]
        length += byte
        position += 1
    return length, position


def _by_arrow(codec: str, block: bytes, size: int, most: int) -> bytes:
    if size > most:
        raise _too_large(most)
    try:
        return bytes(pa.Codec(codec).decompress(block, size))
    except (OSError, pa.ArrowException) as error:
        raise _damaged(error) from error


def _by_stream(decompressor: Callable[[], Any], block: bytes, most: int) -> bytes:
    stream = decompressor()
    try:
        # One byte more than is allowed shows that there is more.
        plain: bytes = stream.decompress(block, most + 1)
    except (zlib.error, OSError, EOFError, lzma.LZMAError) as error:
        raise _damaged(error) from error
    if len(plain) > most:
        raise _too_large(most)
    if not stream.eof:
        raise _cut_off()
    return plain


# A negative window: bare deflate, without the header and the checksum of zlib.
deflate = partial(_by_stream, partial(zlib.decompressobj, -zlib.MAX_WBITS))
bzip2 = partial(_by_stream, bz2.BZ2Decompressor)
xz = partial(_by_stream, lzma.LZMADecompressor)


def _too_large(most: int) -> ValueError:
    return ValueError(f"a block holds more than {most} bytes")


def _cut_off() -> ValueError:
    return ValueError("a block is cut off")


def _damaged(error: Exception) -> ValueError:
    return ValueError(f"a block cannot be decompressed: {error}")
