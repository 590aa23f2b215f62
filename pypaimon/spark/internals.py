"""The one door of Spark's sink to what is internal in pypaimon's write path."""

from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.common.json_util import JSON
from pypaimon.common.options.core_options import ChangelogProducer, MergeEngine
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.snapshot.renaming_snapshot_commit import RenamingSnapshotCommit
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.table.bucket_mode import BucketMode
from pypaimon.table.row.row_kind import RowKind
from pypaimon.write.file_store_write import FileStoreWrite
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor
from pypaimon.write.table_commit import StreamTableCommit
from pypaimon.write.writer.key_value_data_writer import KeyValueDataWriter
from pypaimon.write.writer.postpone_data_writer import PostponeDataWriter

__all__ = [
    "JSON",
    "BucketMode",
    "CatalogFactory",
    "ChangelogProducer",
    "DataFileMeta",
    "FileStoreWrite",
    "FixedBucketRowKeyExtractor",
    "KeyValueDataWriter",
    "MergeEngine",
    "PostponeDataWriter",
    "PyarrowFieldParser",
    "RenamingSnapshotCommit",
    "RowKind",
    "Schema",
    "SchemaChange",
    "SnapshotCommit",
    "StreamTableCommit",
    "TableNotExistException",
]
