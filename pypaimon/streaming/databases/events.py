"""Events of a stream of a database: tables that are added, renamed, dropped, changed, skipped, parked or resumed."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.paimon.internals import TableSchema


@dataclass(frozen=True, slots=True)
class DatabaseEvent:
    """Something that happened to a table.

    Attributes:
        table: Name of the table, without the database.
    """

    table: str


@dataclass(frozen=True, slots=True)
class TableAdded(DatabaseEvent):
    """A table is followed from now on. Comes before its first batch, also for tables that exist at the start."""


@dataclass(frozen=True, slots=True)
class TableRenamed(DatabaseEvent):
    """A table was renamed; its stream continues.

    Attributes:
        former: The former name.
    """

    former: str


@dataclass(frozen=True, slots=True)
class TableDropped(DatabaseEvent):
    """A table was dropped. Rows that were not handed out yet do not come."""


@dataclass(frozen=True, slots=True)
class TableSkipped(DatabaseEvent):
    """A matching table is not followed: for example, it is a view or cannot be streamed.

    Attributes:
        reason: The reason.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SchemaChanged(DatabaseEvent):
    """The batches of a table have a new schema from now on.

    Attributes:
        old: The schema of the batches before.
        new: The schema of the batches that follow.
    """

    old: TableSchema
    new: TableSchema


@dataclass(frozen=True, slots=True)
class TableFailed(DatabaseEvent):
    """A table is parked until `retry` because of an error that will not pass.

    Rows that were read before still come.

    Attributes:
        error: The error.
    """

    error: Exception


@dataclass(frozen=True, slots=True)
class TableRecovered(DatabaseEvent):
    """A parked table is read again."""
