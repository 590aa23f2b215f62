"""`SeenFiles`: small files that a program has read, so that its next look at a table need not read them again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from pypaimon.streaming.consumers.consumer_manager import last_write

_Key = TypeVar("_Key", bound=Hashable)
_SAME_TICK = timedelta(seconds=2)
"""Stores that record whole seconds may give a file that is replaced within that time the same status."""


class SeenFiles:
    """What files held, by their paths, as long as their statuses stay the same. For one look at a time."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[Any, Any]] = {}
        self._now: dict[str, tuple[Any, Any]] = {}

    def unchanged(self, status: Any) -> Any:
        """What a file held; None: it is new, or may have been replaced."""
        path, stamp = str(status.path), _stamp(status)
        before, content = self._before.get(path, (None, None))
        if before != stamp:
            return None
        self._now[path] = stamp, content
        return content

    def add(self, statuses: Mapping[_Key, Any], contents: Mapping[_Key, Any]) -> None:
        """Remember the files of a listing whose status shows whether they are replaced later, as by a rollback.

        A file could be replaced without a trace only in the second of its listing. No file is younger than that, so
        this concerns only those that are about as young as the youngest.
        """
        written = {key: last_write(each) for key, each in statuses.items()}
        newest = max((each for each in written.values() if each is not None), default=None)
        for key, content in contents.items():
            when = written[key]
            if when is not None and newest is not None and when < newest - _SAME_TICK:
                self._now[str(statuses[key].path)] = _stamp(statuses[key]), content

    def end_look(self) -> None:
        """Forget the files that this look has not found."""
        self._before, self._now = self._now, {}


def _stamp(status: Any) -> tuple[Any, ...]:
    return status.size, last_write(status)
