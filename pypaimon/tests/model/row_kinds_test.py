"""Row kinds as codes, as text, and what they say of a row."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from pypaimon.streaming.model import row_kinds
from support.samples import seeded


def kinds(random: Random, count: int) -> list[int]:
    return random.choices(range(random.choice([1, 4])), k=count)


@pytest.mark.parametrize("number", range(20))
def test_which_rows_are_there_from_then_on(number: int) -> None:
    """Of columns in pieces too, that begin anywhere in what is in memory."""
    random = seeded(f"kinds {number}")
    codes = [kinds(random, random.choice([0, 1, 5, 300])) for _ in range(random.randint(0, 4))]
    chunks = [row_kinds.to_names(pa.array(each, pa.int8())) for each in codes]
    begins = [random.randint(0, len(each)) for each in codes]
    ends = [random.randint(begin, len(each)) for begin, each in zip(begins, codes, strict=True)]
    pieces = [chunk.slice(begin, end - begin) for chunk, begin, end in zip(chunks, begins, ends, strict=True)]
    expected = [
        code in (0, 2) for each, begin, end in zip(codes, begins, ends, strict=True) for code in each[begin:end]
    ]
    assert row_kinds.are_added(pa.chunked_array(pieces, pa.string())).tolist() == expected
