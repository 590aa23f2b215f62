"""The one module for Spark that imports what is internal in pypaimon: its write path, and catalogs."""

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
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.row.generic_row import GenericRowDeserializer
from pypaimon.table.row.row_kind import RowKind
from pypaimon.write.file_store_write import FileStoreWrite
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor
from pypaimon.write.table_commit import StreamTableCommit
from pypaimon.write.writer.append_only_data_writer import AppendOnlyDataWriter
from pypaimon.write.writer.data_writer import DataWriter
from pypaimon.write.writer.key_value_data_writer import KeyValueDataWriter
from pypaimon.write.writer.postpone_data_writer import PostponeDataWriter

__all__ = [
    "JSON",
    "AppendOnlyDataWriter",
    "BucketMode",
    "CatalogFactory",
    "ChangelogProducer",
    "DataFileMeta",
    "DataWriter",
    "FileStoreTable",
    "FileStoreWrite",
    "FixedBucketRowKeyExtractor",
    "GenericRowDeserializer",
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
