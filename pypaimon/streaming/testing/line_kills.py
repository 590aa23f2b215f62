"""`lines_of`: a call that ends at one of its lines, as if its program was killed there."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

_VISITS = 3
"""How often a line counts: the first rows of a loop are enough."""


class KilledError(BaseException):
    """The program is killed here."""


def lines_of(home: str, call: Callable[[], None], until: int | None = None) -> int:
    """Make a call, which may end as it comes to a line.

    A debugger, or whatever else traces the thread, sees nothing of it.

    Args:
        home: A file; lines of its directory count, in loops up to three times.
        call: The call.
        until: The number of the line at which it ends, from 1; None: it comes to its end.

    Returns:
        The number of lines that it came to; less than `until` if it came to its end.
    """
    directory = os.path.dirname(home)
    visits: Counter[tuple[str, int]] = Counter()
    count = 0

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if os.path.dirname(frame.f_code.co_filename) == directory else None

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and visits[place] < _VISITS:
            visits[place] += 1
            count += 1
            if count == until:
                raise KilledError
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    except KilledError:
        pass
    finally:
        sys.settrace(before)
    return count
