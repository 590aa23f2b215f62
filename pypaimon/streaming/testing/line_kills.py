"""`lines_of`: makes a call that ends at one of its lines, as if the program were killed there."""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

_VISITS = 3
"""How often a line is counted: the first iterations of a loop are enough."""


class KilledError(BaseException):
    """Ends a call where the program would be killed."""


def lines_of(homes: Collection[str], call: Callable[[], None], until: int | None = None) -> int:
    """Make a call, and end it at one of its lines.

    A debugger, or another tracer of the thread, sees nothing of the call.

    Args:
        until: The number of the line at which the call ends, from 1. None: run the whole call.
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
    """The directories of the target's classes and of its `apply`, unwrapped.

    Includes the packages around the target's own, if it holds objects of their classes.
    """
    package = type(target).__module__.rpartition(".")[0]
    held = {type(value).__module__ for value in getattr(target, "__dict__", {}).values()}
    modules = {kind.__module__ for kind in type(target).__mro__} - {"builtins", "typing", "abc"}
    modules |= {name for name in held if package.startswith(f"{name.rpartition('.')[0]}.")}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    code = getattr(inspect.unwrap(target.apply), "__code__", None)
    files.add(None if code is None else code.co_filename)
    return {os.path.dirname(file) for file in files if file}
