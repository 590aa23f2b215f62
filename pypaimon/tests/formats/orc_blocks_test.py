"""Blocks of ORC footers: whole, damaged, and larger than they may be."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.orc_tail import decompressed_blocks

pytestmark = pytest.mark.slow

BLOCK = 1 << 12


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _by_arrow(name: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.Codec(name).compress(data))


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: _deflate,
    2: _by_arrow("snappy"),
    4: _by_arrow("lz4_raw"),
    5: zstandard.ZstdCompressor().compress,
}
DATA = st.builds(lambda data, times: (data * times)[:BLOCK], st.binary(max_size=700), st.integers(1, 50))


def stored(block: bytes, original: bool = False) -> bytes:
    return (len(block) << 1 | original).to_bytes(3, "little") + block


@pytest.mark.parametrize("codec", COMPRESS)
@given(parts=st.lists(st.tuples(DATA, st.booleans()), max_size=4))
def test_what_was_compressed_comes_back(codec: int, parts: list[tuple[bytes, bool]]) -> None:
    file = b"".join(stored(data if plain else COMPRESS[codec](data), plain) for data, plain in parts)
    assert list(decompressed_blocks(file, codec, BLOCK)) == [data for data, _ in parts]


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("size", [BLOCK + 1, 1 << 24])
def test_a_block_that_grows_beyond_its_size_is_refused(codec: int, size: int) -> None:
    with pytest.raises(ValueError, match="block"):
        list(decompressed_blocks(stored(COMPRESS[codec](bytes(size))), codec, BLOCK))


@pytest.mark.parametrize("codec", COMPRESS)
@given(block=st.binary(max_size=200))
def test_random_bytes_are_an_error_or_a_block(codec: int, block: bytes) -> None:
    try:
        blocks = list(decompressed_blocks(stored(block), codec, BLOCK))
    except ValueError:
        return
    assert all(len(each) <= BLOCK for each in blocks)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedTableError, match="codec 3"):
        list(decompressed_blocks(stored(b"x"), 3, BLOCK))
