"""Row kinds as codes in files and as texts for users, and columns of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.model.system_columns import ROW_KIND

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
"""The codes of `_VALUE_KIND` (Java's `RowKind.toByteValue`)."""

NAMES = ("+I", "-U", "+U", "-D")

ROW_KIND_FIELD = pa.field(ROW_KIND, pa.string())


@lru_cache(maxsize=8)
def _repeated(code: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(NAMES[code], pa.string()), length)


_LETTERS = np.frombuffer("".join(NAMES).encode(), dtype=np.uint16)


@lru_cache(maxsize=8)
def _offsets(length: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(0, 2 * length + 1, 2, dtype=np.int32))


def constant(code: int, length: int) -> pa.Array:
    """A column of one row kind as text. Batches of the usual sizes share memory."""
    whole = max(1, 1 << (length - 1).bit_length()) if length else 1
    return _repeated(code, whole).slice(0, length)


def to_names(codes: pa.Array) -> pa.Array:
    if len(codes) == 0:
        return constant(INSERT, 0)
    lowest, highest = pc.min_max(codes).values()
    if lowest == highest and lowest.is_valid:
        return constant(lowest.as_py(), len(codes))
    # Every name has two letters, so this is twice as fast as taking from an array of texts.
    letters = _LETTERS[codes.to_numpy()]
    return pa.StringArray.from_buffers(len(codes), _offsets(len(codes)), pa.py_buffer(letters))


def are_added(names: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A mask of the row kinds that add a row: +I and +U. The names hold no nulls."""
    added = [_first_letters(chunk) == _PLUS for chunk in names.chunks]
    return np.concatenate([np.zeros(0, np.bool_), *added])


_PLUS = ord("+")


def _first_letters(names: pa.Array) -> npt.NDArray[np.uint8]:
    if not len(names):
        return np.zeros(0, np.uint8)
    _, offsets, letters = names.buffers()
    first = np.frombuffer(offsets, np.int32)[names.offset]
    return np.frombuffer(letters, np.uint8)[first : first + 2 * len(names) : 2]
