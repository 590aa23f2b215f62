"""Waiting for what other threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE = 300
"""Seconds that only failures reach."""


def until(condition: Callable[[], object]) -> None:
    """Poll until it is true."""
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < end
        pause.wait(0.002)
