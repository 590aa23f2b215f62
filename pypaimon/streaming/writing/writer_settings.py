"""`WriterSettings`: the settings of a writer, and checks of single ones."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.commit.request import Overwrite
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of a writer."""

    user: str
    kind_column: str | None = None  # Column of row kinds; None: `_row_kind`, if the table lacks a column of that name
    overwrite: Overwrite = False  # Which existing rows each commit replaces, as `CommitRequest.overwrite`
    memory_limit: int | None = None  # Bytes of rows that may be held in memory; None: the table's `write-buffer-size`
    is_named: bool = False  # Whether the program chose the commit user, so that a later writer may continue under it


def kind_column(options: OptionValues, given: str | None) -> str | None:
    """The column of row kinds, from the settings or the table's option. Raises StreamConfigError if they differ."""
    of_table = options.text("rowkind.field")
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
