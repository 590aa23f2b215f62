"""`task_picker`: the `TaskPicker` of each kind of table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pypaimon.streaming.compaction.evolution import EvolutionTaskPicker
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.postponed import PostponedTaskPicker
from pypaimon.streaming.compaction.tasks import AppendTaskPicker, KeyedTaskPicker, TaskPicker
from pypaimon.streaming.metadata.paimon_table import PaimonTable


def task_picker(table: PaimonTable, reader: FileReader, now: Callable[[], datetime] | None = None) -> TaskPicker:
    """The task picker of a table that can be compacted. `now` is in its time zone; None: by the computer's clock."""
    now = now or table.zone.now
    if table.traits.postpone:
        return PostponedTaskPicker(table, reader, now)
    if table.is_primary_key_table:
        return KeyedTaskPicker(table, reader, now)
    if table.traits.data_evolution:
        return EvolutionTaskPicker(table, reader)
    return AppendTaskPicker(table, reader)
