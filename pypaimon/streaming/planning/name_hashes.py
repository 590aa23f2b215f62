"""Java's hashes of file names, by which files are divided that are in no order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def name_hashes(names: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Java's `String.hashCode` of each name, which goes through its UTF-16 units."""
    array = names.combine_chunks()
    if pc.all(pc.string_is_ascii(array), min_count=0).as_py():
        array = array.cast(pa.large_string())
        offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        units: npt.NDArray[Any] = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
    else:
        encoded = [name.encode("utf-16-be") for name in array.to_pylist()]
        offsets = np.cumsum([0, *(len(name) // 2 for name in encoded)])
        units = np.frombuffer(b"".join(encoded), dtype=">u2")
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.zeros(len(array), dtype=np.int64)
    # All names advance together, one UTF-16 unit per step; names that have ended take no part. The product stays below
    # 2^37, so that 64 bits hold it until it is cut to the 32 bits of a Java int.
    for position in range(int(lengths.max(initial=0))):
        longer = position < lengths
        hashes[longer] = (hashes[longer] * 31 + units[starts[longer] + position]) & 0xFFFFFFFF
    return np.where(hashes >= 1 << 31, hashes - (1 << 32), hashes)
