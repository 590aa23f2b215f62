"""What the workers of a `DatabaseEngine` do, and how it runs, as values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.followed_table import CutPlan, FollowedTable
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.tables_of_database import OpenedTable
from pypaimon.streaming.internals import TableSchema

_FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class OnTableError(Enum):
    """What becomes of a table that meets an error which does not pass."""

    PARK = "park"
    RAISE = "raise"


@dataclass(frozen=True)
class EngineSettings:
    """How an engine runs.

    Attributes:
        discovery_seconds: Between two looks at which tables there are.
        read_ahead_bytes: Reading pauses while so many bytes of rows wait, of all tables together.
        batch_bytes: A plan with more bytes of rows comes as several chunks.
        on_table_error: What becomes of a table that meets an error which does not pass.
        is_bounded: Whether the streams end: which tables there are is asked once then.
        places: Where an earlier stream stood, by name; None: there was none.
    """

    discovery_seconds: float
    read_ahead_bytes: int
    batch_bytes: int
    on_table_error: OnTableError
    is_bounded: bool
    places: dict[str, TablePlace] | None


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """A table that is to be opened: a new one, or one that may not be what it was.

    Attributes:
        name: Its name.
        is_new: Whether it came while others were followed already.
        since: How many looks at which tables there are had been taken when it was seen that it may be another table
            than the name tells; None: that was not seen.
        attempt: How often in a row it failed in a way that may pass.
    """

    name: str
    is_new: bool
    since: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Discovery:
    """The look at which tables there are."""


@dataclass(frozen=True, slots=True, eq=False)
class KeepingAlive:
    """The look after saved progress of tables that nobody reads for now."""


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """A table whose stream is to be made.

    Attributes:
        name: Its name.
        opened: The table.
        is_new: Whether it is read from its first row, if it stands nowhere.
        place: Where the stream stands in it; None: nowhere.
        schema: Of what was handed out of it last, under another name perhaps; None: nothing was.
        cut: The plan of which a part was handed out; None: there is none.
        attempt: How often in a row it failed in a way that may pass.
    """

    name: str
    opened: OpenedTable
    is_new: bool
    place: TablePlace | None = None
    schema: TableSchema | None = None
    cut: CutPlan | None = None
    attempt: int = 0


Job = FollowedTable | Opening | Beginning | Discovery | KeepingAlive


@dataclass(frozen=True, slots=True)
class Telling:
    """An event, and what it changes once it was told."""

    event: DatabaseEvent
    apply: Callable[[], object] = lambda: None


def pause_before(attempt: int) -> float:
    """Seconds until what may pass is tried again; half of it is chance."""
    return min(_FIRST_PAUSE * (1 << min(attempt, 10)), LONGEST_PAUSE) * (0.5 + random.random() / 2)
