"""The memory that a call takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
_POOLS: list[pa.MemoryPool] = []
"""They must outlive what was allocated from them, some of which is cached."""


def peak_memory(run: Callable[[], T]) -> tuple[T, int]:
    """What a call returns, and the most bytes of Arrow and of Python that it takes."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    _POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        return run(), counted.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
