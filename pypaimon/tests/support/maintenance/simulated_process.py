"""A process in which everything happens at once, and whose clock a world sets."""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.object_reads import ObjectReads
from pypaimon.streaming.maintenance import plan_execution
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from pypaimon.streaming.metadata import manifest_tables
from pypaimon.streaming.metadata.manifest_tables import Parser
from support.maintenance.memory_store import tag_of

_MODULE = importlib.import_module("pypaimon.streaming.maintenance.maintain")


@contextmanager
def simulated(world: Any) -> Iterator[None]:
    """Requests are made at once, on the caller's thread, and the time of maintenance is the world's.

    Args:
        world: The `World`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_tables, "_together", _DECODE)
        patch.setattr(IOPool, "submit", lambda _, function, *args: _Answer(function, args))
        patch.setattr(IOPool, "result", lambda _, future: future.result())
        for method in (_tagged, _put, _create, _creates):
            patch.setattr(ObjectReads, method.__name__[1:], method)
        patch.setattr(ObjectReads, "known_to_create", _creates)
        patch.setattr(_MODULE, "time", SimpleNamespace(time=lambda: world.objects.now + world.skew))
        # Names with a random part are the same whenever a seed is repeated.
        patch.setattr(os, "urandom", random.Random(world.rng.getrandbits(64)).randbytes)
        check = PlanExecution._check_unchanged

        def check_unchanged(run: Any, *args: Any) -> None:
            world._checking.add(world.depth)
            world.checked.discard(world.depth)
            world._blind.pop(world.depth, None)
            check(run, *args)

        patch.setattr(PlanExecution, "_check_unchanged", check_unchanged)
        counter = iter(range(1_000_000))
        patch.setattr(plan_execution, "uuid4", lambda: next(counter))
        yield


# ---- A client for objects that makes conditional writes, if the store does


def _tagged(reads: Any, path: str, otherwise: Callable[[], tuple[bytes, str | None]]) -> tuple[bytes, str | None]:
    data, _ = otherwise()
    return data, tag_of(data) if _creates(reads, path) else None


def _put(reads: Any, path: str, data: bytes, tag: str | None, create: bool, otherwise: Callable[[], None]) -> None:
    if not _creates(reads, path):
        otherwise()
    elif not reads._file_io.put_if(path, data, None if create else tag):
        raise FileExistsError(path)


def _create(reads: Any, path: str, data: bytes) -> bool | None:
    return reads._file_io.put_if(path, data, None) if _creates(reads, path) else None


def _creates(reads: Any, path: str) -> bool:
    return bool(reads._file_io.compares)


class _Decoded:
    """Tables of manifests that were decoded before: runs and seeds decode the same ones again and again."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, str], pa.Table] = {}

    def __call__(self, files: Sequence[bytes], parsers: Sequence[Parser], *rest: Any) -> list[pa.Table]:
        keys = [(data, len(each.columns), each.schema.names[0]) for data, each in zip(files, parsers, strict=True)]
        known = self._known
        new = [index for index, key in enumerate(keys) if key not in known]
        if new:
            if len(known) > _DECODED:
                known.clear()
                new = [*range(len(files))]
            found = _TOGETHER([files[index] for index in new], [parsers[index] for index in new], *rest)
            known.update(zip((keys[index] for index in new), found, strict=True))
        return [known[key] for key in keys]


_DECODED = 4000
"""The most tables that are kept."""
_TOGETHER = manifest_tables._together
_DECODE = _Decoded()


class _Answer:
    """The outcome of a request that was made at once."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._error: Exception | None = None
        self._value: Any = None
        try:
            self._value = function(*args)
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits
            self._error = error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """It is too late."""
