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
    from pypaimon.streaming.batches.batch import Batch, BlockingBatch
    from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
    from pypaimon.streaming.batches.stream_status import StreamStatus
    from pypaimon.streaming.builder.builder import StreamReadBuilder, stream_read_builder
    from pypaimon.streaming.concurrency.clock import Clock
    from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo, ConsumerManager, list_consumers
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
    from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
    from pypaimon.streaming.model.plan import Plan, PlanKind, SplitMode, StreamSplit
    from pypaimon.streaming.model.position import Phase, Position, Unit
    from pypaimon.streaming.planning.follow_up import ChangelogFollowUpScanner, DeltaFollowUpScanner, FollowUpScanner
    from pypaimon.streaming.planning.incremental_diff import IncrementalDiffScanner
    from pypaimon.streaming.reading.read import StreamTableRead
    from pypaimon.streaming.scanning.lag import Lag
    from pypaimon.streaming.scanning.metrics import ScanMetrics
    from pypaimon.streaming.scanning.scan import AsyncStreamingTableScan
    from pypaimon.streaming.telemetry import StreamMetrics

_ROOMS = {
    "AsyncStreamingTableScan": "scan",
    "Batch": "batches.batch",
    "BatchStream": "batches.batch_stream",
    "BlockingBatch": "batches.batch",
    "BlockingBatchStream": "batches.batch_stream",
    "ChangelogFollowUpScanner": "planning.follow_up",
    "Clock": "clock",
    "ConsumerConflictError": "errors",
    "ConsumerInfo": "consumers.consumer",
    "ConsumerManager": "consumers.consumer",
    "CorruptTableError": "errors",
    "DeltaFollowUpScanner": "planning.follow_up",
    "DuckDBTarget": "apply_changes",
    "EndOfScan": "errors",
    "FollowUpScanner": "planning.follow_up",
    "IOTimeoutError": "errors",
    "IncrementalDiffScanner": "planning.incremental_diff",
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
    "Snapshot": "metadata.snapshots",
    "SnapshotManager": "metadata.snapshots",
    "SplitMode": "plan",
    "StoreError": "errors",
    "StreamConfigError": "errors",
    "StreamMetrics": "telemetry",
    "StreamReadBuilder": "builder",
    "StreamSplit": "plan",
    "StreamStatus": "batches.stream_status",
    "StreamTableRead": "reading.read",
    "TableChangedError": "errors",
    "Unit": "position",
    "UnsupportedTableError": "errors",
    "apply_to_dict": "apply_changes",
    "last_changes": "apply_changes",
    "list_consumers": "consumers.consumer",
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
    "StreamMetrics",
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
