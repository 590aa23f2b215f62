"""Errors as Spark shows them: one readable line above the stack."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class PaimonSourceError(Exception):
    """What went wrong, in one line."""


class readable_errors:
    """Put what went wrong above the traceback.

    Spark shows a Python worker's whole traceback, whose last line is the message. A cause without a traceback of its
    own is printed before it, so that the message is the first line too. Where Spark simplifies tracebacks it drops
    causes, so errors of settings, whose stack tells nothing, come without one. (A generator-based context manager
    could not take the stack away: `contextlib` puts it back.)
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, stack: Any) -> None:
        from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, UnsupportedTableError

        if isinstance(error, (StreamConfigError, UnsupportedTableError)):
            raise error.with_traceback(None) from _first_line(error)
        if isinstance(error, PaimonStreamError):
            raise error from _first_line(error)


def _first_line(error: BaseException) -> PaimonSourceError:
    return PaimonSourceError(" ".join(str(error).split()))


def readable(function: F) -> F:
    """A function whose errors begin with a readable line, as within `readable_errors`."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with readable_errors():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
