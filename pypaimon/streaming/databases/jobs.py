"""The jobs of the workers of a `DatabaseEngine`, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.followed_table import CutPlan, FollowedTable
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.tables_of_database import OpenedTable
from pypaimon.streaming.paimon.internals import TableSchema

BACKOFF = Backoff()


class OnTableError(Enum):
    """What happens to a table after an error that will not pass."""

    PARK = "park"
    RAISE = "raise"


@dataclass(frozen=True)
class EngineSettings:
    """How an engine runs.

    Attributes:
        discovery_seconds: Seconds between two listings of the tables.
        read_ahead_bytes: Reading pauses while this many bytes of rows are buffered, of all tables together.
        batch_bytes: Of a chunk, as for `ChunkReader`.
        on_table_error: What happens to a table after an error that will not pass.
        is_bounded: Whether the streams end; the tables are then listed only once.
        places: The positions of an earlier stream, by name; None without one.
    """

    discovery_seconds: float
    read_ahead_bytes: int
    batch_bytes: int
    on_table_error: OnTableError
    is_bounded: bool
    places: dict[str, TablePosition] | None


@dataclass(frozen=True, slots=True, eq=False)
class OpenJob:
    """Opens a table: a new one, or one that may not be the same as before.

    Attributes:
        name: Name of the table.
        is_new: Whether it appeared while others were already followed.
        since: The number of listings when the name was found to have a different table; None if it was not.
        attempt: The number of retriable failures in a row.
    """

    name: str
    is_new: bool
    since: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DiscoveryJob:
    """Lists the tables of the database."""


@dataclass(frozen=True, slots=True, eq=False)
class KeepAliveJob:
    """Renews the saved progress of tables that are not read at the moment."""


@dataclass(frozen=True, slots=True, eq=False)
class StartJob:
    """Starts the stream of a table.

    Attributes:
        name: Name of the table.
        opened: The table.
        is_new: Whether it is read from its first row, if it has no position.
        place: The position in it, if any.
        schema: The schema of the rows that were handed out last, perhaps under another name; None without any.
        cut: The plan that was only partly handed out, if any.
        attempt: The number of retriable failures in a row.
    """

    name: str
    opened: OpenedTable
    is_new: bool
    place: TablePosition | None = None
    schema: TableSchema | None = None
    cut: CutPlan | None = None
    attempt: int = 0


Job = FollowedTable | OpenJob | StartJob | DiscoveryJob | KeepAliveJob


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event, and a call for when the caller has received it."""

    event: DatabaseEvent
    apply: Callable[[], object] = lambda: None
