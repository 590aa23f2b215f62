"""Blocks of the compressed parts of an ORC file: a header of three bytes, then data that is compressed or not."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.zstd import decompress_zstd

DEFAULT_BLOCK_SIZE = 1 << 18
HEADER_SIZE = 3


def decompressed_blocks(stored: bytes, codec: int, block_size: int) -> Iterator[bytes]:
    """The blocks of a compressed part of a file.

    Args:
        codec: The number that ORC gives to the compression.
        block_size: Most bytes of a block once it is decompressed, as the file's postscript has it.

    Raises:
        ValueError: A block is damaged, or larger than that.
        UnsupportedTableError: The compression is not known.
    """
    decompress = _CODECS.get(codec)
    if decompress is None:
        raise UnsupportedTableError(f"ORC files compressed with codec {codec} cannot be read.")
    position = 0
    while position < len(stored):
        # The header: the length of what follows, and in the lowest bit that it is stored as it is.
        start = position + HEADER_SIZE
        header = int.from_bytes(stored[position:start], "little")
        position = start + (header >> 1)
        if position > len(stored):
            raise ValueError("a block is cut off")
        block = stored[start:position]
        if header & 1 and len(block) > block_size:
            raise ValueError("a block is larger than the block size")
        try:
            yield block if header & 1 else decompress(block, block_size)
        except (IndexError, OSError, zlib.error) as error:
            raise ValueError(f"a block cannot be decompressed: {error}") from error


def _zlib(block: bytes, block_size: int) -> bytes:
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    data = decompressor.decompress(block, block_size)
    if not decompressor.eof:
        raise ValueError("a block ends too early, or is larger than the block size")
    return data


def _snappy(block: bytes, block_size: int) -> bytes:
    # The block begins with its decompressed size, as a varint: seven bits in each byte, the lowest first.
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return _by_arrow("snappy", block, size, block_size)


def _lz4(block: bytes, block_size: int) -> bytes:
    """Nothing tells the size beforehand but the sequences themselves: literals, then a match of at least 4 bytes."""
    position = size = 0
    while position < len(block) and size <= block_size:
        # A token has both lengths, four bits each. Behind it: more of the literals' length, the literals, two bytes of
        # the match's offset, more of its length.
        token = block[position]
        literals, position = _lz4_length(block, token >> 4, position + 1)
        position += literals
        size += literals
        if position < len(block):
            match, position = _lz4_length(block, token & 15, position + 2)
            size += match + 4
    return _by_arrow("lz4_raw", block, size, block_size)


def _lz4_length(block: bytes, length: int, position: int) -> tuple[int, int]:
    """A length whose first four bits are known, and where it ends."""
    # 15 says that bytes follow which are added to it, the last one of them below 255.
    byte = 255 if length == 15 else 0
    while byte == 255:
        byte = block[position]
        length += byte
        position += 1
    return length, position


def _by_arrow(codec: str, block: bytes, size: int, block_size: int) -> bytes:
    if size > block_size:
        raise ValueError("a block is larger than the block size")
    return bytes(pa.Codec(codec).decompress(block, size))


# By ORC's `CompressionKind`; 3 is LZO, which is not read here.
_CODECS: dict[int, Callable[[bytes, int], bytes]] = {1: _zlib, 2: _snappy, 4: _lz4, 5: decompress_zstd}
