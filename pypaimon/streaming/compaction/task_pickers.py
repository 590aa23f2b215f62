"""`task_picker`: the `TaskPicker` of each kind of table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pypaimon.streaming.compaction.clustering import ClusteringTaskPicker, SortTaskPicker
from pypaimon.streaming.compaction.evolution import EvolutionTaskPicker
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.postponed import PostponedTaskPicker
from pypaimon.streaming.compaction.sort_order import SortOrder
from pypaimon.streaming.compaction.tasks import AppendTaskPicker, KeyedTaskPicker, TaskPicker
from pypaimon.streaming.metadata.paimon_table import PaimonTable


def task_picker(
    table: PaimonTable,
    reader: FileReader,
    now: Callable[[], datetime] | None = None,
    order: SortOrder | None = None,
) -> TaskPicker:
    """The task picker of a table that can be compacted.

    Args:
        now: The time, in the table's time zone; None: by the computer's clock.
        order: In which all rows are to be sorted; None: what is due by the table's options.
    """
    now = now or table.zone.now
    if order is not None:
        return SortTaskPicker(table, reader, order)
    if table.traits.postpone:
        return PostponedTaskPicker(table, reader, now)
    if table.is_primary_key_table:
        return KeyedTaskPicker(table, reader, now)
    if table.traits.data_evolution:
        return EvolutionTaskPicker(table, reader)
    clustering = SortOrder.of_clustering(table)
    if clustering is not None:
        return ClusteringTaskPicker(table, reader, clustering, now())
    return AppendTaskPicker(table, reader)
