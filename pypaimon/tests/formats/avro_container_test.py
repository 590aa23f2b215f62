"""Avro container files: every codec, and damage of any kind is an error."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA

from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.metadata.manifest_tables import manifest_parser
from support.samples import every
from support.tables.manifest_entries import avro, decoder, entry_record

pytestmark = [pytest.mark.slow, pytest.mark.soak]

__all__ = ["decoder"]


def _snappy(block: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(block, asbytes=True)) + struct.pack(">I", zlib.crc32(block))


def _deflate(block: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(block) + compressor.flush()


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": zstandard.compress,
}


def _number(value: int) -> bytes:
    value <<= 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _container(codec: str, blocks: list[tuple[int, bytes]]) -> bytes:
    header = {"avro.schema": json.dumps(MANIFEST_ENTRY_SCHEMA).encode(), "avro.codec": codec.encode()}
    out = b"Obj\x01" + _number(len(header))
    for key, value in header.items():
        out += _number(len(key)) + key.encode() + _number(len(value)) + value
    out += _number(0) + b"0123456789abcdef"
    for count, block in blocks:
        out += _number(count) + _number(len(block)) + block + b"0123456789abcdef"
    return out


def _blocks(codec: str) -> tuple[bytes, list[dict[str, Any]]]:
    records = [entry_record(f"file-{i}") for i in range(5)]
    halves = [avro_container.parse(avro(MANIFEST_ENTRY_SCHEMA, half)) for half in (records[:3], records[3:])]
    data = _container(codec, [(half.count, _CODECS[codec](half.records)) for half in halves])
    return data, manifest_parser()(avro(MANIFEST_ENTRY_SCHEMA, records)).to_pylist()


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", _CODECS)
def test_codecs(codec: str) -> None:
    data, wanted = _blocks(codec)
    assert manifest_parser()(data).to_pylist() == wanted


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", _CODECS)
def test_a_file_that_is_cut_off_anywhere(codec: str) -> None:
    data, _ = _blocks(codec)
    for length in every(5, range(len(data))):
        with pytest.raises(ValueError):  # noqa: PT011 - what is missing differs
            manifest_parser(5)(data[:length])


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", _CODECS)
def test_a_byte_that_is_wrong(codec: str) -> None:
    """Whatever it does to the file, only `ValueError` comes out, and never another number of entries."""
    data, _ = _blocks(codec)
    for offset in range(0, len(data), 3):
        broken = data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :]
        try:
            assert manifest_parser(5)(broken).num_rows == 5
        except ValueError:
            continue


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"PNG1", "not an Avro file"),
        (_container("lzo", []), "codec 'lzo' is not known"),
        (_container("null", [(1, b"")])[:-16] + bytes(16), "sync marker"),
        (avro({"type": "array", "items": "int"}, [[1]]), "does not hold records"),
    ],
    ids=["empty", "picture", "codec", "marker", "schema"],
)
def test_damage(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        manifest_parser()(data)
