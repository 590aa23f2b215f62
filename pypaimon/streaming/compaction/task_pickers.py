"""`task_picker`: the `TaskPicker` of each kind of table; `NewPicker`: how another one is made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from pypaimon.streaming.compaction.clustering import ClusteringTaskPicker, SortTaskPicker
from pypaimon.streaming.compaction.evolution import EvolutionTaskPicker
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_clustering import keyed_task_picker
from pypaimon.streaming.compaction.postponed import PostponedTaskPicker
from pypaimon.streaming.compaction.sort_order import SortOrder
from pypaimon.streaming.compaction.tasks import AppendTaskPicker, TaskPicker
from pypaimon.streaming.metadata.paimon_table import PaimonTable

NewPicker = Callable[[PaimonTable, FileReader], TaskPicker]
"""Makes the picker of what a caller asks for, whatever is due. Raises UnsupportedTableError if the table cannot have
it.
"""


def sort_picker(order: Callable[[PaimonTable], SortOrder] | None) -> NewPicker | None:
    """Makes pickers that sort all rows, in the order of a table; None: what is due is compacted."""
    return None if order is None else partial(_sorting, order)


def _sorting(order: Callable[[PaimonTable], SortOrder], table: PaimonTable, reader: FileReader) -> TaskPicker:
    return SortTaskPicker(table, reader, order(table))


def task_picker(table: PaimonTable, reader: FileReader, now: Callable[[], datetime] | None = None) -> TaskPicker:
    """The task picker of a table that can be compacted: what is due by its options.

    Args:
        now: The time, in the table's time zone; None: by the computer's clock.
    """
    now = now or table.zone.now
    if table.traits.postpone:
        return PostponedTaskPicker(table, reader, now)
    if table.is_primary_key_table:
        return keyed_task_picker(table, reader, now)
    if table.traits.data_evolution:
        return EvolutionTaskPicker(table, reader)
    clustering = SortOrder.of_clustering(table)
    if clustering is not None:
        return ClusteringTaskPicker(table, reader, clustering, now())
    return AppendTaskPicker(table, reader)
