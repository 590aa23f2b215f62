"""`BucketFiles`: names and paths of the new files of one bucket."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.paimon.write_internals import canonical_data_file_path
from pypaimon.streaming.writing.files.file_options import FileKind, FileOptions


class BucketFiles:
    """Paths of new files of one bucket of one partition.

    Args:
        bucket: The bucket; -2 is the postponed one.
    """

    def __init__(self, table: PaimonTable, options: FileOptions, partition: tuple[Any, ...], bucket: int) -> None:
        self.table = table
        self.options = options
        self.partition = partition
        self.bucket = bucket
        self._paths = table.paths
        row = encoded_row(partition, table.partition_fields)
        (self._directory,) = self._paths.partitions(pa.array([row], pa.binary()))
        self._external = table.handle.path_factory().create_external_path_provider(
            partition, bucket, canonical_partition=True
        )
        # pypaimon's paths lose the nanoseconds of a partition, and are in the time zone of the process.
        kinds = [arrow_type(field.type) for field in table.partition_fields]
        self._is_spelled_here = any(pa.types.is_timestamp(kind) and (kind.tz or kind.unit == "ns") for kind in kinds)
        self._unique = uuid4()
        self._count = 0

    @property
    def external(self) -> bool:
        """Whether files are outside of the table's directory, so that their metadata needs the path."""
        return self._external is not None

    def new_path(self, kind: FileKind) -> tuple[str, str]:
        """Name and path of a new file."""
        name = f"{kind.prefix}{self._unique}-{self._count}{kind.suffix}"
        self._count += 1
        if self._external is not None:
            return name, str(self._external.get_next_external_data_path(name))
        path = self._paths.data_file(self._directory, self.bucket, name)
        if not isinstance(path, SpelledPath) and not self._is_spelled_here:
            # pypaimon's own, which knows how a local URI must be spelled.
            path = canonical_data_file_path(self.table.handle, self.partition, self.bucket, name)
        return name, str(path)
