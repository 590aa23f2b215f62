"""What happens to the tables of a database that is followed, beside rows."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.internals import TableSchema


@dataclass(frozen=True, slots=True)
class DatabaseEvent:
    """Something that happened to a table.

    Attributes:
        table: Its name, without the database.
    """

    table: str


@dataclass(frozen=True, slots=True)
class TableAdded(DatabaseEvent):
    """A table is followed from here on. Told before its first batch, of those that are there at the start too."""


@dataclass(frozen=True, slots=True)
class TableRenamed(DatabaseEvent):
    """A table has another name, and goes on where it was.

    Attributes:
        former: The name that it had.
    """

    former: str


@dataclass(frozen=True, slots=True)
class TableDropped(DatabaseEvent):
    """A table is gone. What was not handed out of it does not come."""


@dataclass(frozen=True, slots=True)
class TableSkipped(DatabaseEvent):
    """A table that matches is not followed: it is a view, say, or cannot be streamed.

    Attributes:
        reason: Why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SchemaChanged(DatabaseEvent):
    """Batches of a table have another schema from here on.

    Attributes:
        old: That of the batches before.
        new: That of the batches that follow.
    """

    old: TableSchema
    new: TableSchema


@dataclass(frozen=True, slots=True)
class TableFailed(DatabaseEvent):
    """A table is not read any more, until `retry` is called for it: it met an error that does not pass.

    What was read of it before still comes.

    Attributes:
        error: It.
    """

    error: Exception


@dataclass(frozen=True, slots=True)
class TableRecovered(DatabaseEvent):
    """A table that had failed has been read again."""
