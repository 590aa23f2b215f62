"""What writes tables in pypaimon and is used here; importing it costs all of pypaimon's write path."""

from pypaimon.catalog.catalog_exception import ColumnAlreadyExistException
from pypaimon.common.options.core_options import ChangelogProducer
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.snapshot.renaming_snapshot_commit import RenamingSnapshotCommit
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.table.bucket_mode import BucketMode
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.write.file_store_write import FileStoreWrite
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor
from pypaimon.write.table_commit import StreamTableCommit
from pypaimon.write.writer.append_only_data_writer import AppendOnlyDataWriter
from pypaimon.write.writer.data_writer import DataWriter
from pypaimon.write.writer.key_value_data_writer import KeyValueDataWriter
from pypaimon.write.writer.postpone_data_writer import PostponeDataWriter

__all__ = [
    "AppendOnlyDataWriter",
    "BucketMode",
    "ChangelogProducer",
    "ColumnAlreadyExistException",
    "DataWriter",
    "FileStoreTable",
    "FileStoreWrite",
    "FixedBucketRowKeyExtractor",
    "KeyValueDataWriter",
    "PostponeDataWriter",
    "RenamingSnapshotCommit",
    "SchemaChange",
    "SnapshotCommit",
    "StreamTableCommit",
]
