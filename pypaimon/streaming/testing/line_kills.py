"""`lines_of`: a call that ends at one of its lines, as if its program was killed there."""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

_VISITS = 3
"""How often a line counts: the first rows of a loop are enough."""


class KilledError(BaseException):
    """The program is killed here."""


def lines_of(homes: Collection[str], call: Callable[[], None], until: int | None = None) -> int:
    """Make a call, which may end as it comes to a line.

    A debugger, or whatever else traces the thread, sees nothing of it.

    Args:
        homes: Directories; lines of the files in them count, in loops up to three times.
        call: The call.
        until: The number of the line at which it ends, from 1; None: it comes to its end.

    Returns:
        The number of lines that it came to; less than `until` if it came to its end.
    """
    visits: Counter[tuple[str, int]] = Counter()
    count = 0

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if os.path.dirname(frame.f_code.co_filename) in homes else None

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


def homes_of(target: Any) -> set[str]:
    """The directories of the target's classes and of its `apply`, also where something else is wrapped around it."""
    modules = {kind.__module__ for kind in type(target).__mro__} - {"builtins", "typing", "abc"}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    code = getattr(inspect.unwrap(target.apply), "__code__", None)
    files.add(None if code is None else code.co_filename)
    return {os.path.dirname(file) for file in files if file}
