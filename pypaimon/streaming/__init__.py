"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads.

Importing this package makes `new_stream_read_builder()` of every table class return `StreamReadBuilder` of this
package, and programs that import the classes of pypaimon's stream from their modules get ours (nothing else changes in
pypaimon, and its own modules keep its own classes). `stream_read_builder(table)` is the same without touching the
classes.
The rest is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.install import install

if TYPE_CHECKING:
    from pypaimon.streaming.batches.batch import Batch as Batch
    from pypaimon.streaming.batches.batch import BlockingBatch as BlockingBatch
    from pypaimon.streaming.batches.batch_stream import BatchStream as BatchStream
    from pypaimon.streaming.batches.batch_stream import BlockingBatchStream as BlockingBatchStream
    from pypaimon.streaming.batches.run_forever import run_forever as run_forever
    from pypaimon.streaming.batches.run_forever import run_forever_async as run_forever_async
    from pypaimon.streaming.batches.stream import StreamStatus as StreamStatus
    from pypaimon.streaming.commit.request import CommitReport as CommitReport
    from pypaimon.streaming.compaction.background import Compactor as Compactor
    from pypaimon.streaming.compaction.background import compactor as compactor
    from pypaimon.streaming.compaction.compactor import compact as compact
    from pypaimon.streaming.compaction.reports import CompactedBucket as CompactedBucket
    from pypaimon.streaming.compaction.reports import CompactionReport as CompactionReport
    from pypaimon.streaming.compaction.reports import FileCount as FileCount
    from pypaimon.streaming.compaction.table_files import BucketFiles as BucketFiles
    from pypaimon.streaming.compaction.table_files import TableFiles as TableFiles
    from pypaimon.streaming.compaction.table_files import table_files as table_files
    from pypaimon.streaming.concurrency.clock import Clock as Clock
    from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo as ConsumerInfo
    from pypaimon.streaming.consumers.consumer_manager import ConsumerManager as ConsumerManager
    from pypaimon.streaming.consumers.consumer_manager import list_consumers as list_consumers
    from pypaimon.streaming.copying.copy_stream import copy_stream as copy_stream
    from pypaimon.streaming.copying.copy_stream import copy_stream_sync as copy_stream_sync
    from pypaimon.streaming.copying.replication import Replication as Replication
    from pypaimon.streaming.copying.replication import replicate as replicate
    from pypaimon.streaming.copying.replication import replicate_async as replicate_async
    from pypaimon.streaming.databases.builder import DatabaseStreamBuilder as DatabaseStreamBuilder
    from pypaimon.streaming.databases.builder import stream_database as stream_database
    from pypaimon.streaming.databases.copy import DatabaseTarget as DatabaseTarget
    from pypaimon.streaming.databases.copy import copy_database as copy_database
    from pypaimon.streaming.databases.duckdb_database import DuckDBDatabase as DuckDBDatabase
    from pypaimon.streaming.databases.events import DatabaseEvent as DatabaseEvent
    from pypaimon.streaming.databases.events import SchemaChanged as SchemaChanged
    from pypaimon.streaming.databases.events import TableAdded as TableAdded
    from pypaimon.streaming.databases.events import TableDropped as TableDropped
    from pypaimon.streaming.databases.events import TableFailed as TableFailed
    from pypaimon.streaming.databases.events import TableRecovered as TableRecovered
    from pypaimon.streaming.databases.events import TableRenamed as TableRenamed
    from pypaimon.streaming.databases.events import TableSkipped as TableSkipped
    from pypaimon.streaming.databases.lag import DatabaseLag as DatabaseLag
    from pypaimon.streaming.databases.lag import TableLag as TableLag
    from pypaimon.streaming.databases.paimon_database import PaimonDatabase as PaimonDatabase
    from pypaimon.streaming.databases.position import DatabasePosition as DatabasePosition
    from pypaimon.streaming.databases.position import TablePlace as TablePlace
    from pypaimon.streaming.databases.stream import BlockingDatabaseStream as BlockingDatabaseStream
    from pypaimon.streaming.databases.stream import BlockingTableBatch as BlockingTableBatch
    from pypaimon.streaming.databases.stream import DatabaseStream as DatabaseStream
    from pypaimon.streaming.databases.stream import TableBatch as TableBatch
    from pypaimon.streaming.errors import AssignmentLostError as AssignmentLostError
    from pypaimon.streaming.errors import BadChangeError as BadChangeError
    from pypaimon.streaming.errors import BadRowError as BadRowError
    from pypaimon.streaming.errors import CommitConflictError as CommitConflictError
    from pypaimon.streaming.errors import CommitFailedError as CommitFailedError
    from pypaimon.streaming.errors import CommitUnknownError as CommitUnknownError
    from pypaimon.streaming.errors import ConsumerConflictError as ConsumerConflictError
    from pypaimon.streaming.errors import CorruptTableError as CorruptTableError
    from pypaimon.streaming.errors import EndOfScan as EndOfScan
    from pypaimon.streaming.errors import IOTimeoutError as IOTimeoutError
    from pypaimon.streaming.errors import NullColumnError as NullColumnError
    from pypaimon.streaming.errors import PaimonStreamError as PaimonStreamError
    from pypaimon.streaming.errors import PositionBeyondLatestError as PositionBeyondLatestError
    from pypaimon.streaming.errors import PositionExpiredError as PositionExpiredError
    from pypaimon.streaming.errors import SchemaChangedError as SchemaChangedError
    from pypaimon.streaming.errors import SchemaChangeRefusedError as SchemaChangeRefusedError
    from pypaimon.streaming.errors import SchemaMismatchError as SchemaMismatchError
    from pypaimon.streaming.errors import StoreError as StoreError
    from pypaimon.streaming.errors import StreamConfigError as StreamConfigError
    from pypaimon.streaming.errors import StrictModeError as StrictModeError
    from pypaimon.streaming.errors import TableChangedError as TableChangedError
    from pypaimon.streaming.errors import TablesFailedError as TablesFailedError
    from pypaimon.streaming.errors import TargetError as TargetError
    from pypaimon.streaming.errors import UnsupportedFileError as UnsupportedFileError
    from pypaimon.streaming.errors import UnsupportedTableError as UnsupportedTableError
    from pypaimon.streaming.errors import WriterClosedError as WriterClosedError
    from pypaimon.streaming.errors import WriterConflictError as WriterConflictError
    from pypaimon.streaming.feeds.ray_feed import RayFeed as RayFeed
    from pypaimon.streaming.feeds.ray_feed import ray_dataset as ray_dataset
    from pypaimon.streaming.feeds.torch_feed import TorchFeed as TorchFeed
    from pypaimon.streaming.groups.assigned_slots import Assignment as Assignment
    from pypaimon.streaming.groups.group_stream import BlockingGroupBatch as BlockingGroupBatch
    from pypaimon.streaming.groups.group_stream import BlockingGroupStream as BlockingGroupStream
    from pypaimon.streaming.groups.group_stream import GroupBatch as GroupBatch
    from pypaimon.streaming.groups.group_stream import GroupStream as GroupStream
    from pypaimon.streaming.groups.group_stream import GroupStreamBuilder as GroupStreamBuilder
    from pypaimon.streaming.live.live_table import BlockingLiveTable as BlockingLiveTable
    from pypaimon.streaming.live.live_table import LiveTable as LiveTable
    from pypaimon.streaming.maintenance.maintain import maintain as maintain
    from pypaimon.streaming.maintenance.plan import MaintenancePlan as MaintenancePlan
    from pypaimon.streaming.maintenance.plan import MaintenanceReport as MaintenanceReport
    from pypaimon.streaming.maintenance.policy import MaintenancePolicy as MaintenancePolicy
    from pypaimon.streaming.metadata.snapshots import Snapshot as Snapshot
    from pypaimon.streaming.metadata.snapshots import SnapshotManager as SnapshotManager
    from pypaimon.streaming.model.plan import Plan as Plan
    from pypaimon.streaming.model.plan import PlanKind as PlanKind
    from pypaimon.streaming.model.plan import SplitMode as SplitMode
    from pypaimon.streaming.model.plan import StreamSplit as StreamSplit
    from pypaimon.streaming.model.position import ChainBase as ChainBase
    from pypaimon.streaming.model.position import Phase as Phase
    from pypaimon.streaming.model.position import Position as Position
    from pypaimon.streaming.model.position import Unit as Unit
    from pypaimon.streaming.planning.catch_up import IncrementalDiffScanner as IncrementalDiffScanner
    from pypaimon.streaming.planning.follow_up import ChangelogFollowUpScanner as ChangelogFollowUpScanner
    from pypaimon.streaming.planning.follow_up import DeltaFollowUpScanner as DeltaFollowUpScanner
    from pypaimon.streaming.planning.follow_up import FollowUpScanner as FollowUpScanner
    from pypaimon.streaming.planning.follow_up import SnapshotFiles as SnapshotFiles
    from pypaimon.streaming.planning.follow_up import SnapshotReader as SnapshotReader
    from pypaimon.streaming.read_builder import StreamReadBuilder as StreamReadBuilder
    from pypaimon.streaming.read_builder import stream_read_builder as stream_read_builder
    from pypaimon.streaming.reading.blob import Blob as Blob
    from pypaimon.streaming.scanning.lag import Lag as Lag
    from pypaimon.streaming.scanning.metrics import ScanMetrics as ScanMetrics
    from pypaimon.streaming.spec.openers import AsyncStreamingTableScan as AsyncStreamingTableScan
    from pypaimon.streaming.spec.openers import StreamTableRead as StreamTableRead
    from pypaimon.streaming.targets.changes import last_changes as last_changes
    from pypaimon.streaming.targets.dict_target import DictTarget as DictTarget
    from pypaimon.streaming.targets.dict_target import apply_to_dict as apply_to_dict
    from pypaimon.streaming.targets.lakes.delta_target import DeltaTarget as DeltaTarget
    from pypaimon.streaming.targets.lakes.iceberg_target import IcebergTarget as IcebergTarget
    from pypaimon.streaming.targets.lakes.parquet_target import ParquetTarget as ParquetTarget
    from pypaimon.streaming.targets.paimon_target import PaimonTarget as PaimonTarget
    from pypaimon.streaming.targets.sql.duckdb_target import DuckDBTarget as DuckDBTarget
    from pypaimon.streaming.targets.sql.postgres_target import PostgresTarget as PostgresTarget
    from pypaimon.streaming.targets.sql.sqlite_target import SQLiteTarget as SQLiteTarget
    from pypaimon.streaming.targets.target import Target as Target
    from pypaimon.streaming.targets.target import is_to_apply as is_to_apply
    from pypaimon.streaming.telemetry import StreamMetrics as StreamMetrics
    from pypaimon.streaming.writing.builder import StreamWriteBuilder as StreamWriteBuilder
    from pypaimon.streaming.writing.builder import stream_write_builder as stream_write_builder
    from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter as BlockingStreamWriter
    from pypaimon.streaming.writing.stream_writer import StreamWriter as StreamWriter

_EXPORTS = {
    "batches.batch": ("Batch", "BlockingBatch"),
    "batches.batch_stream": ("BatchStream", "BlockingBatchStream"),
    "batches.run_forever": ("run_forever", "run_forever_async"),
    "batches.stream": ("StreamStatus",),
    "read_builder": ("StreamReadBuilder", "stream_read_builder"),
    "spec.openers": ("AsyncStreamingTableScan", "StreamTableRead"),
    "commit.request": ("CommitReport",),
    "compaction.background": ("Compactor", "compactor"),
    "compaction.compactor": ("compact",),
    "compaction.reports": ("CompactedBucket", "CompactionReport", "FileCount"),
    "compaction.table_files": ("BucketFiles", "TableFiles", "table_files"),
    "concurrency.clock": ("Clock",),
    "consumers.consumer_manager": ("ConsumerInfo", "ConsumerManager", "list_consumers"),
    "copying.copy_stream": ("copy_stream", "copy_stream_sync"),
    "copying.replication": ("Replication", "replicate", "replicate_async"),
    "databases.builder": ("DatabaseStreamBuilder", "stream_database"),
    "databases.copy": ("DatabaseTarget", "copy_database"),
    "databases.duckdb_database": ("DuckDBDatabase",),
    "databases.events": (
        "DatabaseEvent",
        "SchemaChanged",
        "TableAdded",
        "TableDropped",
        "TableFailed",
        "TableRecovered",
        "TableRenamed",
        "TableSkipped",
    ),
    "databases.lag": ("DatabaseLag", "TableLag"),
    "databases.paimon_database": ("PaimonDatabase",),
    "databases.position": ("DatabasePosition", "TablePlace"),
    "databases.stream": ("BlockingDatabaseStream", "BlockingTableBatch", "DatabaseStream", "TableBatch"),
    "errors": (
        "AssignmentLostError",
        "BadChangeError",
        "BadRowError",
        "CommitConflictError",
        "CommitFailedError",
        "CommitUnknownError",
        "ConsumerConflictError",
        "CorruptTableError",
        "EndOfScan",
        "IOTimeoutError",
        "NullColumnError",
        "PaimonStreamError",
        "PositionBeyondLatestError",
        "PositionExpiredError",
        "SchemaChangeRefusedError",
        "SchemaChangedError",
        "SchemaMismatchError",
        "StoreError",
        "StreamConfigError",
        "StrictModeError",
        "TableChangedError",
        "TablesFailedError",
        "TargetError",
        "UnsupportedFileError",
        "UnsupportedTableError",
        "WriterClosedError",
        "WriterConflictError",
    ),
    "feeds.ray_feed": ("RayFeed", "ray_dataset"),
    "feeds.torch_feed": ("TorchFeed",),
    "groups.assigned_slots": ("Assignment",),
    "groups.group_stream": (
        "BlockingGroupBatch",
        "BlockingGroupStream",
        "GroupBatch",
        "GroupStream",
        "GroupStreamBuilder",
    ),
    "live.live_table": ("BlockingLiveTable", "LiveTable"),
    "maintenance.maintain": ("maintain",),
    "maintenance.plan": ("MaintenancePlan", "MaintenanceReport"),
    "maintenance.policy": ("MaintenancePolicy",),
    "metadata.snapshots": ("Snapshot", "SnapshotManager"),
    "model.plan": ("Plan", "PlanKind", "SplitMode", "StreamSplit"),
    "model.position": ("ChainBase", "Phase", "Position", "Unit"),
    "planning.follow_up": (
        "ChangelogFollowUpScanner",
        "DeltaFollowUpScanner",
        "FollowUpScanner",
        "SnapshotFiles",
        "SnapshotReader",
    ),
    "planning.catch_up": ("IncrementalDiffScanner",),
    "reading.blob": ("Blob",),
    "scanning.lag": ("Lag",),
    "scanning.metrics": ("ScanMetrics",),
    "targets.changes": ("last_changes",),
    "targets.dict_target": ("DictTarget", "apply_to_dict"),
    "targets.lakes.delta_target": ("DeltaTarget",),
    "targets.lakes.iceberg_target": ("IcebergTarget",),
    "targets.lakes.parquet_target": ("ParquetTarget",),
    "targets.paimon_target": ("PaimonTarget",),
    "targets.sql.duckdb_target": ("DuckDBTarget",),
    "targets.sql.postgres_target": ("PostgresTarget",),
    "targets.sql.sqlite_target": ("SQLiteTarget",),
    "targets.target": ("Target", "is_to_apply"),
    "telemetry": ("StreamMetrics",),
    "writing.builder": ("StreamWriteBuilder", "stream_write_builder"),
    "writing.stream_writer": ("BlockingStreamWriter", "StreamWriter"),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


install()

__all__ = sorted(["install", *_MODULES])
