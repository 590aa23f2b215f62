"""Translates errors of databases, lakes and files to errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TargetError

Errors = tuple[type[Exception], ...]

_PASSING = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""


@contextmanager
def translate_errors(where: str, errors: Errors, conflicts: Errors = ()) -> Iterator[None]:
    try:
        yield
    except PaimonStreamError:
        raise
    except conflicts as error:
        raise commit_conflict(where, error) from error
    except errors as error:
        refused = TargetError(
            f"{where}: {one_line(error)}. The plan is there as a whole, or not at all. Once the cause is gone, "
            "replicate(...) continues where the table stands, with a new target if a connection was lost. If others "
            "have changed the table, bring it back to what it was, or drop it: a stream that begins with the state "
            "fills it again."
        )
        refused.retriable = _may_pass(error)
        raise refused from error


def _may_pass(error: Exception) -> bool:
    """Whether an error is of a lock or a conflict, which passes. A lost connection stays lost, as a full disk does."""
    is_conflict = type(error).__name__ == "TransactionException"  # of DuckDB, which has no error codes
    is_locked = re.search(r"database (table )?is locked", str(error)) is not None  # SQLite's SQLITE_BUSY and _LOCKED
    return is_conflict or is_locked or getattr(error, "sqlstate", None) in _PASSING


def commit_conflict(where: str, error: Exception) -> StreamConfigError:
    """The error for a plan that conflicts with a concurrent commit."""
    return StreamConfigError(
        f"{where}: {one_line(error)}. Others have committed to it in the same moment, or the answer to a commit "
        "was lost. The plan is there as a whole, or not at all: replicate(...) continues where the table stands."
    )


def one_line(error: Exception) -> str:
    """The text of an error in one line, without colours."""
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split()).removesuffix(".")
