"""A process that can open few more files."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


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
