"""`Bitmap`: the index that tells for each value of a column the rows that have it."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues

_CODES = {pa.int8(): ">b", pa.int16(): ">h", pa.int32(): ">i", pa.int64(): ">q"}
_BLOCK_BYTES = 16 << 10
_NO_LENGTH = -1


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where the rows of a value are: an offset in the body, or, of one row, which it is, less than 0."""

    key: bytes
    offset: int
    length: int

    def written(self, version: int) -> bytes:
        return self.key + (struct.pack(">i", self.offset) if version == 1 else self._with_length())

    def _with_length(self) -> bytes:
        return struct.pack(">ii", self.offset, self.length)


class Bitmap:
    """The index of one column of one file.

    Args:
        options: Of the index: `version`, and `index-block-size`.
        floats: Whether keys are the bits of floats, which sort otherwise than these.

    Raises:
        StreamConfigError: One of them cannot be read.
    """

    def __init__(self, options: OptionValues, floats: bool) -> None:
        version = options.integer("version")
        self._version = 2 if version is None else version
        if self._version not in (1, 2):
            raise StreamConfigError(f"'file-index.bitmap': expected version 1 or 2, got {version}.")
        self._block_bytes = options.size_bytes("index-block-size", _BLOCK_BYTES)
        self._floats = floats
        self._keys: list[pa.Array] = []

    def add(self, keys: pa.Array) -> None:
        """Take the keys of more rows."""
        self._keys.append(keys)

    def data(self) -> bytes:
        """The index."""
        found = pa.chunked_array(self._keys).combine_chunks().dictionary_encode()
        distinct: pa.Array = found.dictionary
        nulls = np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))
        body: list[bytes] = []
        null_data = _bitmap(nulls)
        if len(nulls) > 1:
            body.append(null_data)
        place = sum(map(len, body))
        entries = []
        for key, rows in zip(_written(distinct), self._rows(found, distinct), strict=True):
            if len(rows) == 1:
                entries.append(_Entry(key, -1 - int(rows[0]), _NO_LENGTH))
                continue
            body.append(_bitmap(rows))
            entries.append(_Entry(key, place, len(body[-1])))
            place += len(body[-1])
        head = struct.pack(">bii?", self._version, len(found), len(entries), len(nulls) > 0)
        if len(nulls):
            head += struct.pack(">i", -1 - int(nulls[0]) if len(nulls) == 1 else 0)
            head += struct.pack(">i", len(null_data)) if self._version == 2 else b""
        ordered = [entries[number] for number in self._order(distinct).tolist()]
        listed = b"".join(entry.written(1) for entry in ordered) if self._version == 1 else self._blocks(ordered)
        return head + listed + b"".join(body)

    def _rows(self, found: pa.DictionaryArray, distinct: pa.Array) -> Iterator[npt.NDArray[np.int64]]:
        """The rows of each value."""
        codes = pc.fill_null(found.indices, len(distinct)).to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(distinct)), side="right")
        return (order[first:end] for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False))

    def _order(self, distinct: pa.Array) -> npt.NDArray[np.int64]:
        """The values as Java sorts them: texts by their bytes, -0.0 before 0.0, NaN last."""
        if self._floats:
            bits = distinct.to_numpy()
            distinct = pa.array(np.where(bits >= 0, bits, ~bits ^ np.iinfo(bits.dtype).min))
        order: npt.NDArray[np.int64] = pc.sort_indices(distinct).to_numpy().astype(np.int64)
        return order

    def _blocks(self, entries: list[_Entry]) -> bytes:
        """Entries in blocks, behind a list of the first key of each of these."""
        blocks: list[list[_Entry]] = []
        size = self._block_bytes
        for entry in entries:
            more = len(entry.key) + 8
            if not blocks or size + more > self._block_bytes:
                blocks.append([])
                size = 4
            blocks[-1].append(entry)
            size += more
        written = [struct.pack(">i", len(block)) + b"".join(entry.written(2) for entry in block) for block in blocks]
        offsets = np.cumsum([0, *map(len, written)]).tolist()
        firsts = [block[0].key + struct.pack(">i", offset) for block, offset in zip(blocks, offsets, strict=False)]
        head = struct.pack(">i", len(blocks)) + b"".join(firsts) + struct.pack(">i", offsets[-1])
        return head + b"".join(written)


def _written(distinct: pa.Array) -> Iterator[bytes]:
    code = _CODES.get(distinct.type)
    pack: Callable[..., bytes] = struct.Struct(code).pack if code else _text
    return (pack(key) for key in distinct.to_pylist())


def _text(key: bytes) -> bytes:
    return struct.pack(">i", len(key)) + key


def _bitmap(rows: npt.NDArray[np.int64]) -> bytes:
    found = BitMap(array("I", rows.astype(np.uint32).tobytes()))
    found.run_optimize()
    data: bytes = found.serialize()
    return data
