"""Signals: what a handler raises in the middle of a wait, and SIGTERM as a request to end in good order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[None]:
    """Around a wait of Python that a signal may interrupt: for a condition, a future, an event, the start of a thread.

    Raises:
        BaseException: What a signal handler has raised meanwhile, such as KeyboardInterrupt.
    """
    handled = sys.exc_info()[1]
    try:
        yield
    except RuntimeError as error:
        # `Condition.wait` loses its lock if a handler raises right after it was released. Then leaving the `with` block
        # around fails, because it has no lock to release, and that error hides the one of the handler.
        raised = error.__context__
        if raised is None or raised is handled:
            raise
        raise raised from None


@contextmanager
def on_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """Call a function at the first SIGTERM; a second one ends the process as usual.

    Changes nothing outside the main thread, on Windows, and if the program has a handler of its own.

    Args:
        stop: Called in the main thread, wherever that is interrupted. It must not take locks.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if sys.platform == "win32" or not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
