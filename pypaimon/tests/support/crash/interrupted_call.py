"""`Interrupt`: Ctrl-C as a call comes to a line of the library."""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pypaimon.streaming

LIBRARY = str(Path(str(pypaimon.streaming.__file__)).parent)


class Interrupt:
    """Raises `KeyboardInterrupt` once, as this thread comes to a line of the library for the n-th time.

    The end of a `with` block counts as a line too, and is left out: a signal handler does not run between the block
    and the release of its lock.

    Args:
        line: File and line number; None: it raises nothing.
        number: n, from 1.

    Attributes:
        has_come: Whether it was raised.
    """

    def __init__(self, line: str | None = None, number: int = 0) -> None:
        self.seen: Counter[str] = Counter()
        self._at = line, number
        self.has_come = False

    def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns, or the interrupt."""
        before = sys.gettrace()
        sys.settrace(before if self.has_come else self._on_call)
        try:
            return function()
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        entered: set[int] = set()

        def on_event(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and not self.has_come and not self._ends_with(frame, entered):
                line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self.seen[line] += 1
                if (line, self.seen[line]) == self._at:
                    self.has_come = True
                    raise KeyboardInterrupt
            return on_event

        return on_event

    @staticmethod
    def _ends_with(frame: FrameType, entered: set[int]) -> bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if not line.startswith("with "):
            return False
        known = frame.f_lineno in entered
        entered.add(frame.f_lineno)
        return known
