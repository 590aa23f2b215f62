"""`encoder`: Arrow tables into a Parquet, ORC or Avro file, piece by piece."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.writing.files.avro_encoder import AvroEncoder
from pypaimon.streaming.writing.files.format_limits import holds_moments
from pypaimon.streaming.writing.files.orc_encoder import OrcEncoder
from pypaimon.streaming.writing.files.parquet_encoder import ParquetEncoder


class Encoder(Protocol):
    """One file that is being written.

    Attributes:
        schema: The types that it takes.
    """

    schema: pa.Schema

    def write(self, data: pa.Table) -> None:
        """Add rows, which have its schema and are in the normal form (`normal_table`)."""

    def size(self) -> int:
        """Bytes of the file so far; of what is held back yet, an estimate."""

    def close(self) -> None:
        """Write what belongs at the end. The stream stays open."""


def encoder(
    format_: str,
    stream: Any,
    schema: pa.Schema,
    compression: str,
    zstd_level: int,
    *,
    page_index: bool,
    orc_zone: TimeZone | None = None,
) -> Encoder:
    """What writes a file.

    Args:
        format_: `parquet`, `orc` or `avro`.
        stream: Where to; with `write` and `tell`.
        schema: Schema of all rows.
        compression: Name of the codec, in lower case.
        zstd_level: Level of zstd.
        page_index: Whether a Parquet file has a page index.
        orc_zone: As clocks of which zone an ORC file holds TIMESTAMP WITH LOCAL TIME ZONE; None: as moments.

    Raises:
        StreamConfigError: The format has no such codec.
        UnsupportedTableError: The format has no such type.
    """
    if format_ == "orc":
        return OrcEncoder(stream, schema, compression, orc_zone if any(map(holds_moments, schema.types)) else None)
    if format_ == "avro":
        return AvroEncoder(stream, schema, compression, zstd_level)
    return ParquetEncoder(stream, schema, compression, zstd_level, page_index=page_index)
