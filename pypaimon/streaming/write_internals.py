"""What writes tables in pypaimon and is used here; importing it costs all of pypaimon's write path."""

from pypaimon.catalog.catalog_exception import ColumnAlreadyExistException
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.snapshot.renaming_snapshot_commit import RenamingSnapshotCommit
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.table.bucket_mode import BucketMode
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.table_commit import StreamTableCommit

__all__ = [
    "BucketMode",
    "ColumnAlreadyExistException",
    "CommitMessage",
    "FileStoreTable",
    "RenamingSnapshotCommit",
    "SchemaChange",
    "SnapshotCommit",
    "StreamTableCommit",
    "canonical_data_file_path",
]
