"""Unions of serialized sets: roaring bitmaps and the sketches of Apache DataSketches."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.functions.bitmaps_64 import united_bitmaps

Union = Callable[[bytes, bytes], bytes]


def union_of(function: str, field: str) -> Union:
    """The function that unites two serialized sets.

    Raises:
        UnsupportedTableError: The package that reads such sets is not installed.
    """
    if function == "rbm32":
        return _bitmaps
    if function == "rbm64":
        return united_bitmaps
    if find_spec("datasketches") is None:
        raise UnsupportedTableError(
            f"Aggregate function '{function}' of field '{field}' needs a package: pip install datasketches."
        )
    return _theta_sketches if function == "theta_sketch" else _hll_sketches


def _bitmaps(accumulated: bytes, value: bytes) -> bytes:
    from pyroaring import BitMap

    united = BitMap.deserialize(accumulated) | BitMap.deserialize(value)
    united.run_optimize()
    return bytes(united.serialize())


def _theta_sketches(accumulated: bytes, value: bytes) -> bytes:
    sketches: Any = import_module("datasketches")
    union = sketches.theta_union()
    for serialized in (accumulated, value):
        union.update(sketches.compact_theta_sketch.deserialize(serialized))
    return bytes(union.get_result().serialize())


def _hll_sketches(accumulated: bytes, value: bytes) -> bytes:
    sketches: Any = import_module("datasketches")
    newer = sketches.hll_sketch.deserialize(value)
    # Java's union has the size of the newer sketch.
    union = sketches.hll_union(newer.lg_config_k)
    union.update(newer)
    union.update(sketches.hll_sketch.deserialize(accumulated))
    return bytes(union.get_result(sketches.tgt_hll_type.HLL_4).serialize_compact())
