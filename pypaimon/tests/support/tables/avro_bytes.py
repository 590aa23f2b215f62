"""Files in Avro put together byte by byte, so that they may say what no writer writes."""

from __future__ import annotations

import json
from typing import Any


def container(schema: Any, count: int, records: bytes, codec: bytes = b"null") -> bytes:
    """A container file of one block that announces `count` records."""
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    metadata = b"".join(avro_text(key.encode()) + avro_text(value) for key, value in header.items())
    return (
        b"Obj\x01"
        + avro_long(2)
        + metadata
        + avro_long(0)
        + bytes(16)
        + avro_long(count)
        + avro_text(records)
        + bytes(16)
    )


def avro_long(value: int) -> bytes:
    """A number: zigzag, in groups of seven bits."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def avro_text(value: bytes) -> bytes:
    """Bytes or a text: its length, and it."""
    return avro_long(len(value)) + value
