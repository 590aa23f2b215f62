"""`WriterSettings`: what a writer was told; and how it says that it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.commit.request import Overwrite
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError


class WriterClosedError(PaimonStreamError):
    """The writer has ended: it was closed, an error or a cancellation came in the midst of what it did, or it was made
    in a process from which this one was forked. Open a new one under the same commit user: its `last_committed` tells
    what the table holds."""


class WriterConflictError(PaimonStreamError):
    """Another writer committed meanwhile, of the same commit user, or keys of a table with dynamic buckets; this commit
    is not visible, and the writer ended."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a writer was told.

    Attributes:
        user: Commit user.
        kind_column: Column of row kinds; None: `_row_kind`, where the table has no column of that name.
        overwrite: Whether each commit replaces what is there, and of which partitions.
        memory_limit: Bytes of rows that may wait in memory; None: the table's `write-buffer-size`.
        is_named: Whether the program chose the commit user, so that a later writer may go on under it.
    """

    user: str
    kind_column: str | None = None
    overwrite: Overwrite = False
    memory_limit: int | None = None
    is_named: bool = False


def kind_column(table: Any, given: str | None) -> str | None:
    """Column of row kinds that the writer was told, or the table's option; StreamConfigError where they differ."""
    of_table: str | None = table.options.options.to_map().get("rowkind.field")
    if of_table is not None and given not in (None, of_table):
        raise StreamConfigError(
            f"with_row_kind_column({given!r}): the table's option 'rowkind.field' names '{of_table}'; leave it out."
        )
    return of_table or given


def check_watermark(watermark: int | None) -> None:
    """Raise StreamConfigError unless it is a number."""
    if watermark is not None and (isinstance(watermark, bool) or not isinstance(watermark, int)):
        raise StreamConfigError(f"commit: a watermark is a number of epoch milliseconds, got {watermark!r}.")
