"""`BoundedRowReader`: pypaimon's reader of the index and the blocks of a file of format `row`."""

from __future__ import annotations

from pypaimon.streaming.formats.zstd import decompress_zstd
from pypaimon.streaming.read_internals import FormatRowReader

_MOST_BYTES = 1 << 30
"""Of one block, decompressed; writers begin a new one from 64 KB on."""


class BoundedRowReader(FormatRowReader):
    """pypaimon's reader, but that no block grows beyond the size which the file says it has."""

    def _read_and_decompress_block(self, block_idx: int) -> bytes:
        size = self._block_uncompressed_sizes[block_idx]
        if size > _MOST_BYTES:
            raise ValueError(f"block {block_idx} is said to hold {size} bytes")
        with self._file_io.new_input_stream(self._file_path) as stream:
            stream.seek(self._block_offsets[block_idx])
            data = stream.read(self._block_compressed_sizes[block_idx])
        return decompress_zstd(bytes(data), size)
