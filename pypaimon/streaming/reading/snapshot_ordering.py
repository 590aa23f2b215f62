"""Which of two records of a key is the newer one, where the order of snapshots decides.

Java's rules: docs/java-semantics.md#merge-engines.
"""

from __future__ import annotations

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.data_files import constant
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, WRITTEN_NUMBER
from pypaimon.streaming.options.table_traits import SNAPSHOT_ORDERING

_APPENDED, _COMPACTED = 0, 1


def numbered_by_snapshot(file: DataFileMeta, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records with the number of their snapshot as `_SEQUENCE_NUMBER`, as `sequence.snapshot-ordering` wants it.

    A commit notes its snapshot as the smallest sequence number of the files that it adds, and that stands for the
    numbers in them. A compaction has written the snapshots of its records into the file itself.

    Java leaves open which of two records of one snapshot is the newer one. Here the numbers decide that they were
    written with, `_WRITTEN_NUMBER`, so that no filter changes which it is.

    Raises:
        UnsupportedTableError: Nothing tells whether the file was appended or compacted.
    """
    if file.file_source not in (_APPENDED, _COMPACTED):
        raise UnsupportedTableError(
            f"{file.file_name} does not say whether it was appended or compacted, so that '{SNAPSHOT_ORDERING}' cannot "
            "order its records: it is older than the option. Java does not read such a table either."
        )
    batch = batch.append_column(WRITTEN_NUMBER, batch.column(SEQUENCE_NUMBER))
    if file.file_source == _COMPACTED:
        return batch
    place = batch.schema.get_field_index(SEQUENCE_NUMBER)
    return batch.set_column(place, batch.schema.field(place), constant(file.min_sequence_number, batch.num_rows))
