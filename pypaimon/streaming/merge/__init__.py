"""Merge-on-read in columns: one module per merge engine (docs/java-semantics.md#merge-engines)."""

from pypaimon.streaming.merge.aggregation import Aggregation
from pypaimon.streaming.merge.deduplicate import Deduplicate
from pypaimon.streaming.merge.engine import merge_engine
from pypaimon.streaming.merge.first_row import FirstRow
from pypaimon.streaming.merge.groups import LEVEL, MergeEngine
from pypaimon.streaming.merge.merging import merge_batches
from pypaimon.streaming.merge.net import differing_rows, net_changes
from pypaimon.streaming.merge.partial_update import PartialUpdate, SequenceGroup
from pypaimon.streaming.merge.sections import UnsortedRunError, sorted_runs
from pypaimon.streaming.merge.stages import MOST_RUNS

__all__ = [
    "LEVEL",
    "MOST_RUNS",
    "Aggregation",
    "Deduplicate",
    "FirstRow",
    "MergeEngine",
    "PartialUpdate",
    "SequenceGroup",
    "UnsortedRunError",
    "differing_rows",
    "merge_batches",
    "merge_engine",
    "net_changes",
    "sorted_runs",
]
