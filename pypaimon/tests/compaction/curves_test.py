"""Places on space-filling curves: as their definitions say, and in the order of the values of one column."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.compaction.curves import WordRange, Words, hilbert, zorder
from pypaimon.streaming.merge.ordering import python_order
from support.samples import sample_seed

WHOLE = WordRange(0, (1 << 64) - 1)


def numbers(words: Sequence[Words]) -> list[int]:
    """The places of the rows as one number each."""
    return [
        sum(int(word) << 64 * (len(words) - 1 - place) for place, word in enumerate(row))
        for row in zip(*words, strict=True)
    ]


def interleaved(parts: Sequence[str]) -> int:
    """The bits of texts, in turn; a text that has ended is passed over."""
    bits = "".join(part[place] for place in range(max(map(len, parts))) for part in parts if place < len(part))
    return int(bits.ljust(-(-len(bits) // 64) * 64, "0"), 2)


def test_bits_are_taken_in_turn() -> None:
    rng = random.Random(sample_seed())
    for width in (1, 3, 8, 11):
        firsts = [rng.randrange(-(1 << 63), 1 << 63) for _ in range(20)]
        texts = [rng.randbytes(rng.randrange(14)) for _ in range(20)]
        lasts = [rng.randrange(-128, 128) for _ in range(20)]
        columns = [pa.array(firsts, pa.int64()), pa.array(texts, pa.binary()), pa.array(lasts, pa.int8())]
        expected = [
            interleaved(
                [
                    f"{first + (1 << 63):064b}",
                    "".join(f"{byte:08b}" for byte in text[:width].ljust(width, b"\0")),
                    f"{last + (1 << 63):064b}",
                ]
            )
            for first, text, last in zip(firsts, texts, lasts, strict=True)
        ]
        assert numbers(zorder(columns, width)) == expected


@pytest.mark.parametrize("dimensions", [2, 3])
def test_neighbours_on_hilberts_curve_are_neighbours(dimensions: int) -> None:
    side = 8
    cells = [tuple(number // side**place % side for place in range(dimensions)) for number in range(side**dimensions)]
    columns = [pa.array(each, pa.int16()) for each in zip(*cells, strict=True)]
    place = numbers(hilbert(columns, [WordRange(1 << 63, (1 << 63) + side - 1)] * dimensions))
    assert len(set(place)) == len(cells)
    order = sorted(range(len(cells)), key=place.__getitem__)
    for before, after in pairwise(order):
        assert sum(abs(a - b) for a, b in zip(cells[before], cells[after], strict=True)) == 1


def drawn(rng: random.Random, kind: pa.DataType, draw: Callable[[random.Random], Any]) -> list[Any]:
    return [None, *pa.array([draw(rng) for _ in range(60)], kind).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        (pa.int8(), lambda rng: rng.randrange(-128, 128)),
        (pa.int32(), lambda rng: rng.randrange(-(1 << 31), 1 << 31)),
        (pa.int64(), lambda rng: rng.randrange(-(1 << 63), 1 << 63)),
        (pa.float32(), lambda rng: rng.gauss(0, 1e9)),
        (pa.float64(), lambda rng: rng.choice([rng.gauss(0, 1e-9), math.inf, -math.inf, math.nan, 0.0, -0.0])),
        (pa.bool_(), lambda rng: rng.random() < 0.5),
        (pa.date32(), lambda rng: date.fromordinal(rng.randrange(1, 3_000_000))),
        (pa.time32("ms"), lambda rng: time(rng.randrange(24), rng.randrange(60), rng.randrange(60))),
        (pa.timestamp("s"), lambda rng: datetime(rng.randrange(1900, 2100), rng.randrange(1, 12), 3)),
        (pa.timestamp("us"), lambda rng: datetime(rng.randrange(1900, 2100), rng.randrange(1, 12), 3, 4, 5, 6, 7000)),
        (pa.timestamp("us", "UTC"), lambda rng: datetime(rng.randrange(1900, 2100), rng.randrange(1, 12), 3)),
        (pa.decimal128(9, 2), lambda rng: Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
        (pa.decimal128(38, 2), lambda rng: Decimal(rng.randrange(-(10**20), 10**20)) * 10**15),
        (pa.decimal128(20, 0), lambda rng: Decimal(rng.randrange(-(10**19), 10**19)).quantize(Decimal(1))),
        (pa.string(), lambda rng: "".join(rng.choice("aäz€\U0001f600") for _ in range(rng.randrange(3)))),
        (pa.binary(), lambda rng: rng.randbytes(rng.randrange(1, 8)).rstrip(b"\0")),
        (pa.binary(4), lambda rng: rng.randbytes(4)),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)  # fmt: skip
def test_places_of_one_column_have_the_order_of_its_values(
    kind: pa.DataType, draw: Callable[[random.Random], Any]
) -> None:
    values = drawn(random.Random(sample_seed()), kind, draw)
    column = pa.array(values, kind)
    other = pa.array([7] * len(values), pa.int32())
    by_place = sorted(zip(numbers(zorder([column, other], 8)), values, strict=True), key=lambda each: each[0])
    keys = [python_order(value) for _, value in by_place]
    # Nulls share their place with the least value.
    assert [key for key in keys if key != (0,)] == sorted(key for key in keys if key != (0,))
    assert by_place[0][0] == min(place for place, value in by_place if value is None)
    some = pa.chunked_array([column])
    spread = WordRange.of(some).spread(zorder([column], 8)[0])
    ordered = sorted(zip(spread.tolist(), values, strict=True), key=lambda each: (each[0], python_order(each[1])))
    assert [python_order(value) for _, value in ordered if value is not None] == [key for key in keys if key != (0,)]


def test_values_beyond_a_sample_are_taken_for_its_ends() -> None:
    sample = WordRange.of(pa.chunked_array([pa.array([100, 200], pa.int64())]))
    (words,) = zorder([pa.array([-(10**12), 60, 100, 200, 240, 10**12], pa.int64())], 8)
    found = sample.spread(words).tolist()
    assert found[0] == 0
    assert found == sorted(found)
    assert len(set(found)) == 6
    assert WordRange.of(pa.chunked_array([pa.array([None], pa.int64())])) == WHOLE
