"""The time zone of this process, for a while."""

from __future__ import annotations

import os
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
