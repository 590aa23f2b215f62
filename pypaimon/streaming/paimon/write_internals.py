"""Internals of pypaimon that write tables. They import pypaimon's whole write path."""

from pypaimon.catalog.catalog_exception import ColumnAlreadyExistException
from pypaimon.catalog.filesystem_catalog import FileSystemCatalog
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest import avro_codec
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import INDEX_MANIFEST_ENTRY_SCHEMA
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.snapshot.renaming_snapshot_commit import RenamingSnapshotCommit
from pypaimon.snapshot.snapshot import Snapshot as PaimonSnapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.table.bucket_mode import BucketMode
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.instant import Instant
from pypaimon.table.row.blob import BlobData
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.blob_format_writer import BlobFormatWriter
from pypaimon.write.commit_message import CommitMessage

__all__ = [
    "INDEX_MANIFEST_ENTRY_SCHEMA",
    "MANIFEST_ENTRY_SCHEMA",
    "MANIFEST_FILE_META_SCHEMA",
    "BlobData",
    "BlobFormatWriter",
    "BucketMode",
    "ColumnAlreadyExistException",
    "CommitMessage",
    "DeletionVectorMeta",
    "FileStoreTable",
    "FileSystemCatalog",
    "IndexFileMeta",
    "IndexManifestEntry",
    "Instant",
    "PaimonSnapshot",
    "PartitionStatistics",
    "RenamingSnapshotCommit",
    "Schema",
    "SchemaChange",
    "avro_codec",
    "canonical_data_file_path",
]
