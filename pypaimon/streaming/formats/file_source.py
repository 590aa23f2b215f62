"""Formats of data files: what opens a file of each, and what follows from its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from pypaimon.streaming.formats.avro_source import AvroSource
from pypaimon.streaming.formats.lance_source import LanceSource
from pypaimon.streaming.formats.mosaic_source import MosaicSource
from pypaimon.streaming.formats.orc_source import OrcSource
from pypaimon.streaming.formats.parquet_source import ParquetSource
from pypaimon.streaming.formats.row_source import RowSource
from pypaimon.streaming.formats.vortex_source import VortexSource
from pypaimon.streaming.internals import DataField


class FileSource(Protocol):
    """An open file of any format: what is in it, and its rows.

    A new format is a module with such a class, and a line in `SOURCES` or `SCHEMALESS_SOURCES`. A class of the first is
    made of the file, a binary one that can seek; of the second also of the fields that the file must hold, in order.
    """

    pads_char: ClassVar[bool]
    """Whether values of CHAR are stored with blanks up to their length."""
    damage_words: ClassVar[tuple[str, ...]]
    """What texts of errors hold that Arrow raises as `OSError` for a damaged file, as for a store that fails."""

    schema: pa.Schema
    num_rows: int

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""


SOURCES: dict[str, Callable[[Any], FileSource]] = {
    "parquet": ParquetSource,
    "orc": OrcSource,
    "avro": AvroSource,
    "lance": LanceSource,
    "vortex": VortexSource,
    "mosaic": MosaicSource,
}
"""By format, which is also the extension of its files."""

SCHEMALESS_SOURCES: dict[str, Callable[[Any, Sequence[DataField]], FileSource]] = {"row": RowSource}
"""Those of formats whose files do not say which columns they hold."""

DAMAGE_WORDS = (
    "orrupt",
    "alformed",
    "decompress",
    "footer",
    *(word for source in (ParquetSource, OrcSource, AvroSource, RowSource) for word in source.damage_words),
)
"""What texts of errors hold that are not the store's."""
