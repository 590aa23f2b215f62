"""`WriterSettings`: the settings of a writer, and checks of single ones."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.commit.request import Overwrite
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of a writer.

    Attributes:
        user: Commit user.
        kind_column: Column of row kinds; None: `_row_kind`, if the table lacks a column of that name.
        overwrite: Which existing rows each commit replaces, as `CommitRequest.overwrite`.
        memory_limit: Bytes of rows that may be held in memory; None: the table's `write-buffer-size`.
        is_named: Whether the program chose the commit user, so that a later writer may continue under it.
    """

    user: str
    kind_column: str | None = None
    overwrite: Overwrite = False
    memory_limit: int | None = None
    is_named: bool = False


def kind_column(options: TableOptions, given: str | None) -> str | None:
    """The column of row kinds, from the settings or the table's option. Raises StreamConfigError if they differ."""
    of_table = option_keys.ROWKIND_FIELD.of(options)
    if of_table is not None and given not in (None, of_table):
        raise StreamConfigError(
            f"with_row_kind_column: got {given!r}, but the table's option 'rowkind.field' names '{of_table}'; leave it "
            "out.",
            option="with_row_kind_column",
        )
    return of_table or given


def check_watermark(watermark: int | None) -> None:
    """Raise StreamConfigError unless a watermark is a number or None."""
    if watermark is not None and (isinstance(watermark, bool) or not isinstance(watermark, int)):
        raise StreamConfigError(f"commit: a watermark is a number of epoch milliseconds, got {watermark!r}.")
