"""What a file format consists of: `Format`, and the readers and writers of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.paimon.internals import DataField

DECODED_BYTES = 8 << 20
"""Bytes to decode at once, about."""

FIRST_ROWS = 1024
"""Most rows to decode first if their size is not known."""

_GROWTH = 64


class AdaptiveBatchSize:
    """Follows the size of the rows decoded last. It grows in steps, because the next rows may be larger."""

    def __init__(self, most: int, first: int = FIRST_ROWS, size: int = DECODED_BYTES) -> None:
        self._most = most
        self._size = size
        self.rows = max(1, min(most, first))

    def record(self, rows: int, size: int) -> None:
        if rows:
            self.rows = max(1, min(self._most, _GROWTH * rows, self._size * rows // max(size, 1)))


LocalZone: TypeAlias = Callable[[str | None, Mapping[str, tuple[int, int]], Sequence[str]], TimeZone | None]
"""In which zone's local time a file holds TIMESTAMP WITH LOCAL TIME ZONE; None: as moments in UTC. Called with the zone
that the file names, the bounds in stored milliseconds by column, and the columns that are read."""


class FormatReader(Protocol):
    """An open file of any format."""

    schema: pa.Schema
    num_rows: int

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order, of at least one column. Raises ValueError if the file is damaged,
        UnsupportedContentError if a column holds something that cannot be read.
        """


class FormatWriter(Protocol):
    """One file that is being written."""

    schema: pa.Schema

    def write(self, data: pa.Table) -> None:
        """Add rows, which have its schema and are in the normal form (`normal_table`)."""

    def size(self) -> int:
        """Bytes of the file so far, with an estimate of buffered rows."""

    def close(self) -> None:
        """Write the end of the file. The stream stays open."""


class FileContext(Protocol):
    """What the table knows about a file, for formats whose files do not say it."""

    def stored_fields(self) -> Sequence[DataField]:
        """The columns of the file, in stored order."""

    @property
    def local_zone(self) -> LocalZone | None:
        """See `LocalZone`."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How a file is written."""

    compression: str
    zstd_level: int = 1
    page_index: bool = True
    block_bytes: int | None = None  # Size of a stripe of ORC; None: 64 MB
    # The zone in whose local time ORC files hold TIMESTAMP WITH LOCAL TIME ZONE; None: as moments in UTC
    orc_zone: TimeZone | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """A format of data files. Each is made once, in `registry`."""

    name: str  # The name in `file.format`, which is also the suffix of its files
    # Opens a file: a binary one that can seek, and what the table knows about it
    reader: Callable[[Any, FileContext], FormatReader]
    # Starts a file, given a stream and the schema of all rows; None: read only. It raises StreamConfigError for a
    # codec, and UnsupportedTableError for a type, that the format lacks.
    writer: Callable[[Any, pa.Schema, WriteSettings], FormatWriter] | None = None
    # Parts of messages that mark an `OSError` of Arrow as one of a damaged file, and not of the store
    damage_words: tuple[str, ...] = ()
    # Whether files hold CHAR with blanks up to its length, which Java strips when it reads them
    pads_char: bool = False
    nanoseconds: bool = True  # Whether it can hold timestamps of nanoseconds (precision 7 to 9)
    own_types: frozenset[str] = frozenset()  # Types that Java writes into this format and not into every other one
    extra: str | None = None  # The extra of this package that installs the library; None: always installed

    def open(self, stream: Any, context: FileContext) -> FormatReader:
        """Open a file. Raises UnsupportedTableError if the library of the format is not installed, ValueError if the
        file is damaged.
        """
        try:
            return self.reader(stream, context)
        except ImportError as error:
            if self.extra is None:
                raise
            raise UnsupportedTableError(
                f"Files of the format '{self.name}' need the extra '{self.extra}': "
                f"pip install 'pypaimon-streaming[{self.extra}]' ({error})."
            ) from error
