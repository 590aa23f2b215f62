"""What a database, a table or files refuse, as errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, TargetError

Errors = tuple[type[Exception], ...]

_PASSING = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""


@contextmanager
def translated(where: str, errors: Errors, conflicts: Errors = ()) -> Iterator[None]:
    """Errors of whoever keeps the rows as ours.

    Args:
        where: Who that is, as the error says it.
        errors: What it raises.
        conflicts: What it raises where others have committed in the same moment.

    Raises:
        StreamConfigError: Others have committed in the same moment.
        TargetError: It refuses.
    """
    try:
        yield
    except PaimonStreamError:
        raise
    except conflicts as error:
        raise same_moment(where, error) from error
    except errors as error:
        refused = TargetError(
            f"{where}: {one_line(error)}. The plan is there as a whole, or not at all. Once the cause is gone, "
            "replicate(...) goes on where the table stands, with a new target if a connection was lost. If others have "
            "changed the table, bring it back to what it was, or drop it: a stream from the state on fills it anew."
        )
        refused.retriable = _may_pass(error)
        raise refused from error


def _may_pass(error: Exception) -> bool:
    """Whether others are in the way only for now: a lost connection stays lost, and so does a full disk."""
    is_conflict = type(error).__name__ == "TransactionException"  # DuckDB's, where it has no codes
    is_locked = re.search(r"database (table )?is locked", str(error)) is not None  # SQLite's SQLITE_BUSY and _LOCKED
    return is_conflict or is_locked or getattr(error, "sqlstate", None) in _PASSING


def same_moment(where: str, error: Exception) -> StreamConfigError:
    """The error of a plan in whose moment others have committed.

    Args:
        where: Who keeps the rows, as the error says it.
        error: What it raised.
    """
    return StreamConfigError(
        f"{where}: {one_line(error)}. Others have committed to it in the same moment, or the answer to a commit "
        "was lost. The plan is there as a whole, or not at all: replicate(...) goes on where the table stands."
    )


def one_line(error: Exception) -> str:
    """What an error says, in one line and without colours."""
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split()).removesuffix(".")
