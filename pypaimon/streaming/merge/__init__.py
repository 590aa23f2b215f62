"""Merge-on-read in columns: one module per merge engine."""

from pypaimon.streaming.merge.aggregation import Aggregation
from pypaimon.streaming.merge.deduplicate import Deduplicate
from pypaimon.streaming.merge.engine import merge_engine
from pypaimon.streaming.merge.first_row import FirstRow
from pypaimon.streaming.merge.groups import LEVEL, MergeEngine
from pypaimon.streaming.merge.merging import merge_batches
from pypaimon.streaming.merge.net import net_changes
from pypaimon.streaming.merge.partial_update import PartialUpdate, SequenceGroup
from pypaimon.streaming.merge.sections import UnsortedRunError, sorted_runs

__all__ = [
    "LEVEL",
    "Aggregation",
    "Deduplicate",
    "FirstRow",
    "MergeEngine",
    "PartialUpdate",
    "SequenceGroup",
    "UnsortedRunError",
    "merge_batches",
    "merge_engine",
    "net_changes",
    "sorted_runs",
]
