"""Index files of dynamic buckets: the hashes of a bucket's keys, each as four bytes, big-endian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pypaimon.streaming.commit.changes import AvroRecord
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import HASH
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import GenericRow
from pypaimon.streaming.paimon.write_internals import IndexFileMeta, IndexManifestEntry
from pypaimon.streaming.writing.dynamic_buckets.key_buckets import Hashes

_STORED = ">i4"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file of one bucket."""

    bucket: int
    name: str
    count: int
    external_path: str | None = None

    @staticmethod
    def of(record: AvroRecord) -> IndexFile:
        """The index file of a record of an index manifest."""
        return IndexFile(record["_BUCKET"], record["_FILE_NAME"], record["_ROW_COUNT"], record.get("_EXTERNAL_PATH"))


class PartitionIndex:
    """Reads and writes the index files of one partition."""

    def __init__(self, table: PaimonTable, partition: tuple[Any, ...]) -> None:
        self._directory = table.new_directory()
        self._partition = GenericRow(list(partition), table.partition_fields)
        self._paths = table.paths
        self.row = encoded_row(partition, table.partition_fields)
        (self._home,) = self._paths.partitions(pa.array([self.row], pa.binary()))

    def read(self, file: IndexFile) -> Hashes:
        """The hashes in a file."""
        path = self._paths.index_file(self._home, file.bucket, file.name, file.external_path)
        try:
            data = self._directory.store.read(path)
        except FileNotFoundError as error:
            raise CorruptTableError(path, "is named by the index manifest, and is missing") from error
        if len(data) != 4 * file.count:
            raise CorruptTableError(path, f"holds {len(data)} bytes, and {file.count} hashes were recorded")
        return np.frombuffer(data, _STORED).astype(np.int32)

    def begin_write(self, bucket: int, hashes: Hashes) -> tuple[IndexManifestEntry, Callable[[], None]]:
        """Write a new file of a bucket. One request.

        Returns:
            Its entry for an index manifest, and a call that waits until it is written and may raise `StoreError`.
        """
        name = f"index-{uuid4()}-0"
        data = hashes.astype(_STORED).tobytes()
        written = self._directory.store.begin_write_new(self._paths.index_file(self._home, bucket, name), data)
        file = IndexFileMeta(HASH, name, len(data), len(hashes))
        return IndexManifestEntry(int(EntryKind.ADD), self._partition, bucket, file), written
