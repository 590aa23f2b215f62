"""Merge-on-read in columns, as the merge engines of Java do (docs/java-semantics.md#merge-engines)."""

from pypaimon.streaming.merge.differences import differing_rows, net_changes
from pypaimon.streaming.merge.engines.engine import Aggregation, Deduplicate, FirstRow, MergeEngine
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.merge.engines.partial_update import PartialUpdate, SequenceGroup
from pypaimon.streaming.merge.merge_on_read import merge_batches
from pypaimon.streaming.merge.runs import UnsortedRunError, sorted_runs
from pypaimon.streaming.merge.stages import MERGED_ROWS, MOST_RUNS, in_key_order, parts_of_run, rows_of_batch

__all__ = [
    "MERGED_ROWS",
    "MOST_RUNS",
    "Aggregation",
    "Deduplicate",
    "FirstRow",
    "MergeEngine",
    "PartialUpdate",
    "SequenceGroup",
    "UnsortedRunError",
    "differing_rows",
    "in_key_order",
    "merge_batches",
    "merge_engine",
    "net_changes",
    "parts_of_run",
    "rows_of_batch",
    "sorted_runs",
]
