"""Data files of Paimon's format `row`: rows one after the other in compressed blocks, whose index pypaimon reads."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pypaimon.streaming.formats.row_blocks import decode_block
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.model.arrow_types import arrow_schema, with_arrow_types

if TYPE_CHECKING:
    from pypaimon.streaming.formats.row_reader import BoundedRowReader


class RowSource:
    """One file, whose blocks are read one at a time.

    Such a file does not say which columns it holds.

    Args:
        stream: The file, which can seek.
        fields: The columns that it holds, in order.

    Attributes:
        schema: Its columns.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ("row file", "Row file")

    def __init__(self, stream: Any, fields: Sequence[DataField]) -> None:
        self._stream = stream
        self._fields = with_arrow_types(fields)
        self.schema: pa.Schema = arrow_schema(self._fields)
        self.num_rows: int = self._reader(self.schema.names)._total_row_count

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one.

        Raises:
            ValueError: A block is damaged.
        """
        reader = self._reader(list(columns))
        if isinstance(self._stream, RemoteFile):
            self._stream.will_read([(0, sum(reader._block_compressed_sizes))])
        for index in range(reader._block_count):
            block = decode_block(reader._read_and_decompress_block(index), self._fields, list(columns))
            for start in range(0, block.num_rows, batch_size):
                yield block.slice(start, batch_size)

    def _reader(self, columns: list[str]) -> BoundedRowReader:
        # Only here: it is pypaimon's, and brings its readers along.
        from pypaimon.streaming.formats.row_reader import BoundedRowReader

        return BoundedRowReader(_OneFile(self._stream), "", columns, self._fields, None)


class _OneFile:
    """As much of a FileIO as the reader needs, for a file that is open and stays so."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> Any:
        return self._stream

    def __exit__(self, *_: object) -> None:
        pass

    def get_file_size(self, _: str) -> int:
        self._stream.seek(0, io.SEEK_END)
        return int(self._stream.tell())

    def new_input_stream(self, _: str) -> _OneFile:
        return self
