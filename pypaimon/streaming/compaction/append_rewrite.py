"""`AppendRewriter`: files of an append table written again as fewer ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.compaction.new_files import CompactedFiles
from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.writing.files.file_options import FileOptions
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter


class AppendRewriter:
    """Carries out packs of one table.

    Args:
        table: pypaimon's table.
        reader: Reads its files.
    """

    def __init__(self, table: Any, reader: FileReader) -> None:
        self._table = table
        self._reader = reader

    def compact(self, bucket: LiveBucket, files: Sequence[LiveFile]) -> Replaced:
        """Write the rows of files, in their order. Their numbers begin with the first number of the first file.

        Raises:
            FileNotFoundError: A file is missing; nothing is left of what was written.
            CorruptTableError: A file is damaged; likewise.
            StoreError: The store failed; likewise.
        """
        counter = Counter(files[0].read.min_sequence_number)
        options = FileOptions.of_compacted(self._table, 0)
        new = CompactedFiles(self._table, options, options.data, bucket, partial(AppendedFacts, counter))
        try:
            reader = self._reader.expecting(files)
            for file in files:
                for batch in reader.rows(file):
                    new.write(pa.Table.from_batches([batch]))
            return Replaced(list(files), new.take())
        except BaseException:
            new.abort()
            raise
