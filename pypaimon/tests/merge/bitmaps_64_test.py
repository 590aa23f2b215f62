"""Unions of 64-bit bitmaps beside those of Java's library: the same bytes; and what is no bitmap."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.functions.bitmaps_64 import united_bitmaps
from support.java.home import java_home
from support.models.merging import aggregate
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class JavaBitmaps:
    """Makes and unites bitmaps in a process of Java."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def of(self, ranges: Iterable[tuple[int, int]], removed: Iterable[int] = (), *, optimized: bool = True) -> bytes:
        """A serialized bitmap.

        Args:
            ranges: First and last value of each, which are added in this order; unsigned.
        """
        bitmap = self._jvm.org.roaringbitmap.longlong.Roaring64Bitmap()
        for first, last in ranges:
            if last - first < 4:
                for value in range(first, last + 1):
                    bitmap.addLong(_signed(value))
            else:
                bitmap.addRange(_signed(first), _signed(last + 1))
        for value in removed:
            bitmap.removeLong(_signed(value))
        return self._bytes(bitmap, optimized)

    def union(self, first: bytes, second: bytes) -> bytes:
        """The second one put into the first, as Paimon's `rbm64` does it."""
        bitmap = self._read(first)
        getattr(bitmap, "or")(self._read(second))
        return self._bytes(bitmap, True)

    def _read(self, data: bytes) -> Any:
        bitmap = self._jvm.org.roaringbitmap.longlong.Roaring64Bitmap()
        bitmap.deserialize(self._jvm.java.io.DataInputStream(self._jvm.java.io.ByteArrayInputStream(data)))
        return bitmap

    def _bytes(self, bitmap: Any, optimized: bool) -> bytes:
        if optimized:
            bitmap.runOptimize()
        written = self._jvm.java.io.ByteArrayOutputStream()
        bitmap.serialize(self._jvm.java.io.DataOutputStream(written))
        return bytes(written.toByteArray())


@contextmanager
def java_bitmaps() -> Iterator[JavaBitmaps]:
    """Bitmaps of a process of Java, which ends with the context."""
    jars = Path(pyspark.__file__).parent / "jars"
    (gateway_jar,), bitmap_jars = jars.glob("py4j-*.jar"), jars.glob("RoaringBitmap-*.jar")
    port = launch_gateway(
        classpath=":".join(map(str, bitmap_jars)),
        jarpath=str(gateway_jar),
        java_path=str(java_home() / "bin" / "java"),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield JavaBitmaps(gateway.jvm)
    finally:
        gateway.shutdown()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


Range = tuple[int, int]
LENGTHS = [1, 1, 1, 2, 3, 4, 6, 10, 5000, 65536]
HIGHEST = (1 << 48) - 1


@pytest.fixture(scope="module")
def library() -> Iterator[JavaBitmaps]:
    with java_bitmaps() as bitmaps:
        yield bitmaps


def upper_bits(drawn: random.Random) -> int:
    """Upper 48 bits of values: close together, far apart, and above the largest signed number."""
    spread = drawn.choice([256, 1 << 12, 1 << 48])
    base = drawn.choice([0, 0x0102_0304_0000, HIGHEST - spread + 1 if spread < 1 << 48 else 0])
    return min(HIGHEST, base + drawn.randrange(spread))


def ranges(drawn: random.Random, known: list[int]) -> list[Range]:
    found = []
    for _ in range(drawn.choice([0, 1, 3, 10, 60])):
        upper = drawn.choice(known) if known and drawn.random() < 0.5 else upper_bits(drawn)
        known.append(upper)
        first = drawn.choice([0, drawn.randrange(30), drawn.randrange(1 << 16)])
        last = min(first + drawn.choice(LENGTHS), 1 << 16) - 1
        # Java takes no range that ends where signed numbers do.
        found.append((upper << 16 | first, min(upper << 16 | last, (1 << 64) - 2)))
    return [each for each in found if each[1] != (1 << 63) - 1]


def test_random_unions_are_java_s(library: JavaBitmaps) -> None:
    """Unions of unions, of bitmaps that lost values, and of those whose runs are not stored as such."""
    drawn = seeded("bitmaps")
    for _ in range(12 if SOAK else 5):
        known: list[int] = []
        united = library.of(ranges(drawn, known))
        for _ in range(5):
            added = ranges(drawn, known)
            removed = [first for first, _ in added if drawn.random() < 0.2]
            value = library.of(added, removed, optimized=drawn.random() < 0.5)
            expected = library.union(united, value)
            assert united_bitmaps(united, value) == expected
            united = expected


@pytest.mark.parametrize("count", [5, 17, 49, 256])
def test_nodes_grow_as_java_s(library: JavaBitmaps, count: int) -> None:
    """The byte that tells keys apart comes in any order, which the nodes of 48 children remember."""
    drawn = seeded(f"nodes {count}")
    keys = drawn.sample(range(256), count)
    for shift in (16, 40):
        united = expected = library.of([])
        for start in range(0, count, 7):
            value = library.of([(key << shift, key << shift) for key in keys[start : start + 7]])
            united, expected = united_bitmaps(united, value), library.union(expected, value)
            assert united == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(0, 65535)], [(3, 3)]),
        ([(n, n) for n in range(0, 9000, 2)], [(n, n) for n in range(1, 9000, 2)]),
        ([(n, n) for n in range(0, 6000, 2)], [(n, n) for n in range(6001, 9000, 2)]),
        ([(n, n + 1) for n in range(0, 900, 4)], [(n, n + 1) for n in range(900, 1200, 5)]),
        ([(n, n + 1) for n in range(0, 16, 4)], [(n, n) for n in range(16, 40, 3)]),
        ([(10, 500)], [(n, n) for n in range(600, 60_000, 3)]),
    ],
    ids=["full", "bits to runs", "values to bits", "runs and runs", "runs and values", "runs and bits"],
)
def test_containers_are_of_java_s_kinds(library: JavaBitmaps, first: list[Range], second: list[Range]) -> None:
    for left, right in ((first, second), (second, first)):
        for optimized in (True, False) if SOAK else (left is first,):
            united, value = library.of(left, optimized=optimized), library.of(right, optimized=optimized)
            assert united_bitmaps(united, value) == library.union(united, value)


def test_a_column_is_united(library: JavaBitmaps) -> None:
    one, other = library.of([(1, 5), (1 << 33, 1 << 33)]), library.of([(5, 9), ((1 << 64) - 3, (1 << 64) - 2)])
    assert aggregate("rbm64", pa.binary(), [one, None, other]) == library.union(one, other)


def test_an_invalid_bitmap_is_refused(library: JavaBitmaps) -> None:
    """Cut anywhere, or with other bytes: an error that names the function, or another bitmap, never something else."""
    drawn = seeded("damage")
    whole = library.of([(1, 5), (1 << 33, 1 << 33), (1 << 60, (1 << 60) + 70_000)])
    other = library.of([(7, 8)])
    for length in range(len(whole)):
        with pytest.raises(UnsupportedTableError, match="'rbm64'"):
            aggregate("rbm64", pa.binary(), [other, whole[:length]])
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[drawn.randrange(len(whole))] = drawn.randrange(256)
        try:
            aggregate("rbm64", pa.binary(), [bytes(damaged), other])
        except UnsupportedTableError:
            continue
