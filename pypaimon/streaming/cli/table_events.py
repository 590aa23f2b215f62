"""What commands about several tables say beside rows: what happens to tables, and which of them have failed."""

from __future__ import annotations

from collections.abc import Mapping

from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed, TableSkipped
from pypaimon.streaming.errors import TablesFailedError


def tell_event(event: DatabaseEvent) -> None:
    """Say what happens to tables beside rows; errors are in the log."""
    if isinstance(event, TableSkipped):
        text = f"{event.table} is passed over: {' '.join(event.reason.split())}"
    elif isinstance(event, TableDropped):
        text = f"{event.table} was dropped"
    elif isinstance(event, TableRenamed):
        text = f"{event.former} was renamed to {event.table}"
    else:
        return
    say(text)


def refuse_failed(failed: Mapping[str, Exception]) -> None:
    """Raise what tables have failed with, if any has."""
    if failed:
        raise TablesFailedError(failed)
