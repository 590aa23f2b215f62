"""Indexes of blob files: what pypaimon writes is read, and no damage passes for values."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from pypaimon.common.delta_varint_compressor import DeltaVarintCompressor
from pypaimon.schema.data_types import AtomicType

from pypaimon.streaming.formats.blob_format import (
    NULL,
    PLACEHOLDER,
    BlobIndex,
    array_elements,
    decode_varints,
    map_elements,
    parse_index,
    tail_length,
)


def blob_file(lengths: Sequence[int]) -> bytes:
    records = [length if length < 0 else length + 16 for length in lengths]
    index = DeltaVarintCompressor.compress(records)
    return b"\0" * sum(max(0, record) for record in records) + index + struct.pack("<IB", len(index), 1)


def parsed(file: bytes) -> BlobIndex:
    return parse_index(file[len(file) - tail_length(file[-5:], len(file)) :], len(file))


def test_values_are_where_their_records_are_and_some_have_none() -> None:
    index = parsed(blob_file([10, NULL, 0, PLACEHOLDER, 1000]))
    assert index.lengths.tolist() == [10, NULL, 0, PLACEHOLDER, 1000]
    assert index.offsets[[0, 2, 4]].tolist() == [4, 30, 46]
    assert not len(parsed(blob_file([])).lengths)


def test_numbers_of_any_size_are_those_that_were_written() -> None:
    rng = random.Random(7)
    numbers = [rng.randrange(-(2 ** rng.randrange(1, 62)), 2 ** rng.randrange(1, 62)) for _ in range(5000)]
    deltas = [numbers[0], *(after - before for before, after in pairwise(numbers))]
    assert decode_varints(DeltaVarintCompressor.compress(numbers)).tolist() == deltas


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_file_that_lost_its_end_is_not_a_blob_file(cut: int) -> None:
    file = blob_file([5, 20, NULL, 7])
    with pytest.raises(ValueError, match=r"index|version|bytes"):
        parsed(file[: len(file) - cut])


@pytest.mark.parametrize(
    "damage",
    [[3], [50], [-3], [2**62, 2**62, 2**62, 2**62], [17, 2**63 - 20]],
    ids=["no room for a frame", "less than there is", "no such mark", "sums beyond integers", "longer than the file"],
)
def test_lengths_that_do_not_fit_are_refused(damage: list[int]) -> None:
    index = DeltaVarintCompressor.compress(damage)
    file = b"\0" * 100 + index + struct.pack("<IB", len(index), 1)
    with pytest.raises(ValueError, match="do not add up"):
        parsed(file)


def test_a_file_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 2"):
        parsed(blob_file([1])[:-1] + b"\x02")


@pytest.mark.parametrize("position", range(13))
def test_a_collection_whose_header_or_index_is_damaged_is_refused(position: int) -> None:
    """Every byte of it says something."""
    index = DeltaVarintCompressor.compress([3, NULL, 2])
    payload = struct.pack("<IBI", 1094861634, 1, 3) + b"abcde" + index + struct.pack("<I", len(index))
    elements = array_elements(len(payload), lambda start, length: payload[start : start + length])
    assert elements.lengths.tolist() == [3, NULL, 2]

    said = [*range(9), *range(len(payload) - 4, len(payload))]
    damaged = bytearray(payload)
    damaged[said[position]] ^= 0x55
    with pytest.raises((ValueError, struct.error)):
        array_elements(len(damaged), lambda start, length: bytes(damaged[start : start + length]))


def test_a_map_with_an_invalid_date_is_damaged() -> None:
    key = struct.pack("<i", 2**31 - 1)
    payload = struct.pack("<IBI", 0x4D424342, 1, 1) + key + b"v" + bytes([2 * len(key), 2]) + struct.pack("<II", 1, 1)
    with pytest.raises(ValueError, match="key of a map"):
        map_elements(len(payload), lambda start, length: payload[start : start + length], AtomicType("DATE"))
