"""The index at the end of a blob file: where each of its values lies.

A blob file holds one column of consecutive rows. Each value stands in a record, between four bytes of magic before and
twelve of length and checksum behind it; the index behind all records has their lengths, as differences of variable
length; the last five bytes are the length of the index and the version of the format. Rows whose value is null, or that
leave it to an older file, have no record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NULL = -1
"""Length of a value that is null."""

PLACEHOLDER = -2
"""Length of a value that this file does not hold: an older file does."""

FRAME = 16
"""Bytes of a record that are not its value: between the values of two records, one after the other."""

FOOTER = 5
"""Bytes behind the index."""

_BEFORE = 4
_VERSION = 1
_LONGEST = 10

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlobIndex:
    """Where the values of a blob file lie.

    Attributes:
        offsets: First byte of each value.
        lengths: Bytes of each value; `NULL` and `PLACEHOLDER` where there is none.
    """

    offsets: Numbers
    lengths: Numbers


def tail_length(footer: bytes, file_size: int) -> int:
    """Bytes of the index and the footer.

    Args:
        footer: The end of the file, at least `FOOTER` bytes of it.
        file_size: Bytes of the file.

    Raises:
        ValueError: This is not the end of a blob file that can be read.
    """
    if len(footer) < FOOTER:
        raise ValueError(f"a blob file has at least {FOOTER} bytes, this one has {file_size}")
    length, version = struct.unpack("<iB", footer[-FOOTER:])
    if version != _VERSION:
        raise ValueError(f"it does not end as a blob file of version {_VERSION} does, but with version {version}")
    if not 0 <= length <= file_size - FOOTER:
        raise ValueError(f"its index has {length} bytes, the file {file_size}")
    return int(length) + FOOTER


def parse_index(tail: bytes, file_size: int) -> BlobIndex:
    """The index of a blob file.

    Args:
        tail: The last `tail_length` bytes of the file.
        file_size: Bytes of the file.

    Raises:
        ValueError: The index is damaged, or does not fit the file.
    """
    records = np.cumsum(decode_varints(tail[:-FOOTER]))
    empty = (records == NULL) | (records == PLACEHOLDER)
    sizes = np.where(empty, 0, records)
    end = file_size - len(tail)
    # Summed in floats first: what a damaged index says may overflow integers.
    if (sizes < np.where(empty, 0, FRAME)).any() or sizes.sum(dtype=np.float64) > 2 * file_size or sizes.sum() != end:
        raise ValueError(f"the lengths in its index do not add up to the {end} bytes before it")
    offsets = np.cumsum(sizes) - sizes + _BEFORE
    return BlobIndex(offsets, np.where(empty, records, records - FRAME))


def decode_varints(data: bytes) -> Numbers:
    """Integers of variable length, seven bits to a byte, the sign in the lowest bit.

    Raises:
        ValueError: One of them has no end, or too many bytes.
    """
    content = np.frombuffer(data, np.uint8)
    if not len(content):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(content < 0x80)
    if not len(ends) or ends[-1] != len(content) - 1:
        raise ValueError("an index ends in the midst of a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if sizes.max() > _LONGEST:
        raise ValueError(f"a number in an index has more than {_LONGEST} bytes")
    shifts = (np.arange(len(content)) - np.repeat(starts, sizes)) * 7
    bits = (content & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    joined = np.bitwise_or.reduceat(bits, starts)
    signs: Numbers = -(joined & np.uint64(1)).astype(np.int64)
    return (joined >> np.uint64(1)).astype(np.int64) ^ signs
