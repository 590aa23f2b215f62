"""`encoder`: Arrow tables into a Parquet, ORC or Avro file, piece by piece."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.writing.files.avro_encoder import AvroEncoder

_ORC = {"none": "UNCOMPRESSED", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "zlib": "ZLIB"}
_PARQUET = ("none", "uncompressed", "snappy", "gzip", "lz4", "zstd", "brotli")


class Encoder(Protocol):
    """One file that is being written."""

    def write(self, data: pa.Table) -> None:
        """Add rows. All calls have the same schema."""

    def size(self) -> int:
        """Bytes of the file so far; of what is held back yet, an estimate."""

    def close(self) -> None:
        """Write what belongs at the end. The stream stays open."""


def encoder(
    format_: str, stream: Any, schema: pa.Schema, compression: str, zstd_level: int, *, page_index: bool
) -> Encoder:
    """What writes a file.

    Args:
        format_: `parquet`, `orc` or `avro`.
        stream: Where to; with `write` and `tell`.
        schema: Schema of all rows.
        compression: Name of the codec, in lower case.
        zstd_level: Level of zstd.
        page_index: Whether a Parquet file has a page index.

    Raises:
        StreamConfigError: The format has no such codec.
        UnsupportedTableError: The format has no such type.
    """
    if format_ == "orc":
        return _Orc(stream, _codec(compression, _ORC, "ORC"))
    if format_ == "avro":
        return AvroEncoder(stream, schema, compression, zstd_level)
    codec = _codec(compression, {each: each for each in _PARQUET}, "Parquet")
    return _Parquet(stream, schema, codec, zstd_level if codec == "zstd" else None, page_index)


def _codec(name: str, known: dict[str, str], format_: str) -> str:
    if name not in known:
        raise StreamConfigError(f"'file.compression' = '{name}': {format_} files have {', '.join(known)}.")
    return known[name]


class _Parquet:
    def __init__(self, stream: Any, schema: pa.Schema, codec: str, level: int | None, page_index: bool) -> None:
        self._stream = stream
        self._writer = pq.ParquetWriter(
            stream, schema, compression=codec, compression_level=level, write_page_index=page_index
        )

    def write(self, data: pa.Table) -> None:
        self._writer.write_table(data)

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._writer.close()


class _Orc:
    def __init__(self, stream: Any, codec: str) -> None:
        self._stream = stream
        self._writer = orc.ORCWriter(stream, compression=codec)
        self._written = 0
        self._held = 0

    def write(self, data: pa.Table) -> None:
        self._writer.write(_without_times(data))
        # A stripe is written once it is full; until then Arrow holds it.
        written = int(self._stream.tell())
        self._held = self._held + data.nbytes if written == self._written else 0
        self._written = written

    def size(self) -> int:
        return self._written + self._held

    def close(self) -> None:
        self._writer.close()


def _without_times(data: pa.Table) -> pa.Table:
    """TIME as the integers that they are in Java's ORC files; Arrow writes none."""
    for index, field in enumerate(data.schema):
        if pa.types.is_time(field.type):
            milliseconds = pc.cast(data.column(index), pa.time32("ms")).cast(pa.int32())
            data = data.set_column(index, field.with_type(pa.int32()), milliseconds)
    return data
