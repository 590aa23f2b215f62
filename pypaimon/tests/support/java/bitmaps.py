"""Java's own 64-bit bitmaps, of the library that Paimon uses, which PySpark brings along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from support.java.home import java_home


class JavaBitmaps:
    """Makes and unites bitmaps in a process of Java.

    Args:
        jvm: What its gateway shows of it.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def of(self, ranges: Iterable[tuple[int, int]], removed: Iterable[int] = (), *, optimized: bool = True) -> bytes:
        """A serialized bitmap.

        Args:
            ranges: First and last value of each, which are added in this order; unsigned.
            removed: Values that are taken out again.
            optimized: Whether runs are stored as such.
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
