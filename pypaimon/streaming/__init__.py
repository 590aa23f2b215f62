"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads.

Importing this package makes `new_stream_read_builder()` of every table class return `StreamReadBuilder` of this package
(and nothing else changes in pypaimon). `stream_read_builder(table)` is the same without touching the classes.
The rest is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.install import install

if TYPE_CHECKING:
    from pypaimon.streaming.apply_changes import DuckDBTarget, PaimonTarget, apply_to_dict, last_changes
    from pypaimon.streaming.batch import Batch, BlockingBatch
    from pypaimon.streaming.batch_stream import BatchStream, BlockingBatchStream
    from pypaimon.streaming.builder import StreamReadBuilder, stream_read_builder
    from pypaimon.streaming.clock import Clock
    from pypaimon.streaming.consumer import ConsumerInfo, ConsumerManager, list_consumers
    from pypaimon.streaming.errors import (
        ConsumerConflictError,
        CorruptTableError,
        EndOfScan,
        IOTimeoutError,
        PaimonStreamError,
        PositionBeyondLatestError,
        PositionExpiredError,
        SchemaChangedError,
        StoreError,
        StreamConfigError,
        TableChangedError,
        UnsupportedTableError,
    )
    from pypaimon.streaming.follow_up import ChangelogFollowUpScanner, DeltaFollowUpScanner, FollowUpScanner
    from pypaimon.streaming.incremental_diff import IncrementalDiffScanner
    from pypaimon.streaming.lag import Lag
    from pypaimon.streaming.metrics import ScanMetrics
    from pypaimon.streaming.plan import Plan, PlanKind, SplitMode, StreamSplit
    from pypaimon.streaming.position import Phase, Position, Unit
    from pypaimon.streaming.read import StreamTableRead
    from pypaimon.streaming.scan import AsyncStreamingTableScan
    from pypaimon.streaming.snapshots import Snapshot, SnapshotManager
    from pypaimon.streaming.stream_status import StreamStatus

_ROOMS = {
    "AsyncStreamingTableScan": "scan",
    "Batch": "batch",
    "BatchStream": "batch_stream",
    "BlockingBatch": "batch",
    "BlockingBatchStream": "batch_stream",
    "ChangelogFollowUpScanner": "follow_up",
    "Clock": "clock",
    "ConsumerConflictError": "errors",
    "ConsumerInfo": "consumer",
    "ConsumerManager": "consumer",
    "CorruptTableError": "errors",
    "DeltaFollowUpScanner": "follow_up",
    "DuckDBTarget": "apply_changes",
    "EndOfScan": "errors",
    "FollowUpScanner": "follow_up",
    "IOTimeoutError": "errors",
    "IncrementalDiffScanner": "incremental_diff",
    "Lag": "lag",
    "PaimonStreamError": "errors",
    "PaimonTarget": "apply_changes",
    "Phase": "position",
    "Plan": "plan",
    "PlanKind": "plan",
    "Position": "position",
    "PositionBeyondLatestError": "errors",
    "PositionExpiredError": "errors",
    "ScanMetrics": "metrics",
    "SchemaChangedError": "errors",
    "Snapshot": "snapshots",
    "SnapshotManager": "snapshots",
    "SplitMode": "plan",
    "StoreError": "errors",
    "StreamConfigError": "errors",
    "StreamReadBuilder": "builder",
    "StreamSplit": "plan",
    "StreamStatus": "stream_status",
    "StreamTableRead": "read",
    "TableChangedError": "errors",
    "Unit": "position",
    "UnsupportedTableError": "errors",
    "apply_to_dict": "apply_changes",
    "last_changes": "apply_changes",
    "list_consumers": "consumer",
    "stream_read_builder": "builder",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *_ROOMS))


install()

__all__ = [
    "AsyncStreamingTableScan",
    "Batch",
    "BatchStream",
    "BlockingBatch",
    "BlockingBatchStream",
    "ChangelogFollowUpScanner",
    "Clock",
    "ConsumerConflictError",
    "ConsumerInfo",
    "ConsumerManager",
    "CorruptTableError",
    "DeltaFollowUpScanner",
    "DuckDBTarget",
    "EndOfScan",
    "FollowUpScanner",
    "IOTimeoutError",
    "IncrementalDiffScanner",
    "Lag",
    "PaimonStreamError",
    "PaimonTarget",
    "Phase",
    "Plan",
    "PlanKind",
    "Position",
    "PositionBeyondLatestError",
    "PositionExpiredError",
    "ScanMetrics",
    "SchemaChangedError",
    "Snapshot",
    "SnapshotManager",
    "SplitMode",
    "StoreError",
    "StreamConfigError",
    "StreamReadBuilder",
    "StreamSplit",
    "StreamStatus",
    "StreamTableRead",
    "TableChangedError",
    "Unit",
    "UnsupportedTableError",
    "apply_to_dict",
    "install",
    "last_changes",
    "list_consumers",
    "stream_read_builder",
]
