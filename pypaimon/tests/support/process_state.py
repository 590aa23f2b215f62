"""What holds for this process for a while: its time zone, the most files and the longest one that it may have."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """As if the process had been started with this `TZ`."""
    before = os.environ.get("TZ")
    try:
        _set(name)
        yield
    finally:
        _set(before)


def _set(name: str | None) -> None:
    if name is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = name
    time.tzset()


@contextmanager
def descriptors(more: int) -> Iterator[None]:
    """Only so many more files can be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is one of numbers, of which the lowest that is free is taken.
    used = {int(number) for number in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{number}")}
    free = (number for number in itertools.count() if number not in used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """No file becomes longer than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
