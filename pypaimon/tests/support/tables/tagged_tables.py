"""Tables whose tags come and go: what they hold, and what happens to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.maintenance import list_tags
from support.crash.crashing_file_io import MortalFileIO
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, rows

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
AUTOMATIC = {"tag__automatic_creation": "process-time", "time_zone": "UTC"}


def filled(table: Table) -> Table:
    """Six snapshots, of which the fifth has removed the rows of the others."""
    for key in range(4):
        table.commit([key])
    table.commit([7], overwrite=True)
    table.commit([8])
    return table


def at_days(table: Table, *days: float) -> None:
    """Move the commits of a table to these days of 2026, at noon plus parts of a day."""
    for number, day in zip(table.ids(), days, strict=True):
        moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=day - 1)
        content = table.snapshot(number)
        table.snapshot_path(number).write_text(json.dumps({**content, "timeMillis": round(moment.timestamp() * 1000)}))


def tags(table: Table) -> dict[str, int]:
    """The tags of a table with the ids of their snapshots."""
    return {each.name: each.snapshot.id for each in list_tags(table.handle())}


def keys_of(table: Table, name: str) -> list[int]:
    """The keys of the rows that a tag keeps."""
    builder = table.builder().with_start(tag=name, full=True)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        return sorted(key for _, key, _ in rows(builder.new_read(), plan))


def is_exact(table: Table) -> bool:
    """Whether a table has the files that it needs, and no others."""
    return files_of(table.path) == needed_files(table.path)


def steps_of(call: Callable[[Any], object], table: Table, warehouse: Path) -> int:
    """How many requests of the FileIO a call makes, on a copy of a table."""
    file_io = MortalFileIO()
    call(handle_of(table.copy(warehouse), file_io))
    return file_io.steps


def handle_of(table: Table, file_io: Any) -> Any:
    """A handle of a table with another FileIO."""
    handle = table.handle()
    handle.file_io = file_io
    return handle
