"""Files in Parquet and Avro as no writer makes them: another footer, pages that only Java writes, wrong lengths."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.formats import parquet_footer
from pypaimon.streaming.formats.parquet_footer import Struct

INT96 = 3
LZO = 3
UNKNOWN_LOGICAL_TYPE = 99


def parquet(rows: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, **options)
    return out.getvalue()


def with_footer(data: bytes, change: Callable[[Struct], None]) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = parquet_footer.decode_struct(data[-8 - length : -8])
    change(footer)
    encoded = parquet_footer.encode_struct(footer)
    return data[: -8 - length] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def chunks(footer: Struct) -> list[Struct]:
    return [chunk[3][1] for group in footer[4][1][1] for chunk in group[1][1][1]]


def int96_of_bytes(data: bytes) -> bytes:
    """The file whose columns of 12 bytes are INT96."""

    def change(footer: Struct) -> None:
        elements = [element for element in footer[2][1][1] if element.get(2) == (parquet_footer.I32, 12)]
        for element in elements:
            element[1] = parquet_footer.I32, INT96
            del element[2]
        for chunk in chunks(footer):
            if chunk[1] == (parquet_footer.I32, 7):
                chunk[1] = parquet_footer.I32, INT96
                chunk.pop(12, None)
        footer.pop(5, None)

    return with_footer(data, change)


def with_unknown_type(data: bytes, column: str) -> bytes:
    def change(footer: Struct) -> None:
        for element in footer[2][1][1]:
            if element[4][1] == column.encode():
                element[10] = parquet_footer.STRUCT, {UNKNOWN_LOGICAL_TYPE: (parquet_footer.STRUCT, {})}

    return with_footer(data, change)


def with_codec(data: bytes, column: str, codec: int) -> bytes:
    """The file that says of one column that it is compressed in another way."""

    def change(footer: Struct) -> None:
        for chunk in chunks(footer):
            if chunk[3][1][1] == [column.encode()]:
                chunk[4] = parquet_footer.I32, codec

    return with_footer(data, change)


def with_empty_page(rows: pa.Table) -> bytes:
    """A file whose last column, of nulls, has a page of version 2 as Java writes it: compressed, and of no bytes."""
    data = parquet(rows, use_dictionary=False, data_page_version="2.0", compression="snappy")
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = parquet_footer.decode_struct(data[-8 - length : -8])
    chunk = chunks(footer)[-1]
    first = chunk[9][1]
    header, start = parquet_footer.decode_struct(data, first)
    page = header[8][1]
    levels = page[5][1] + page[6][1]
    header[2] = header[3] = parquet_footer.I32, levels
    page.pop(7, None)
    content = parquet_footer.encode_struct(header) + data[start : start + levels]
    chunk[7] = parquet_footer.I64, len(content)
    encoded = parquet_footer.encode_struct(footer)
    return data[:first] + content + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


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
