"""Formats of data files: what opens a file of each, and what follows from its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from pypaimon.streaming.formats.avro_source import AvroSource
from pypaimon.streaming.formats.orc_source import OrcSource
from pypaimon.streaming.formats.parquet_source import ParquetSource


class FileSource(Protocol):
    """An open file of any format: what is in it, and its rows."""

    pads_char: ClassVar[bool]
    """Whether values of CHAR are stored with blanks up to their length."""
    damage_words: ClassVar[tuple[str, ...]]
    """What texts of errors hold that Arrow raises as `OSError` for a damaged file, as for a store that fails."""

    schema: pa.Schema
    num_rows: int

    def __init__(self, stream: Any) -> None: ...

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""


SOURCES: dict[str, type[FileSource]] = {"parquet": ParquetSource, "orc": OrcSource, "avro": AvroSource}
"""By format, which is also the extension of its files."""

DAMAGE_WORDS = (
    "orrupt",
    "alformed",
    "decompress",
    "footer",
    *(word for source in SOURCES.values() for word in source.damage_words),
)
"""What texts of errors hold that are not the store's."""
