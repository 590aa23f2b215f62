"""`PaimonBatchWriter`: `df.write.format("pypaimon")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pypaimon.spark.errors import readable
from pypaimon.spark.sink import Sink, TaskFiles

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class BatchTaskMessage(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        files: What was written.
    """

    files: TaskFiles


class PaimonBatchWriter(DataSourceArrowWriter):
    """Writes and commits a DataFrame. With options `query-id` and `batch-id`, once per pair, as in `foreachBatch`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @readable
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchTaskMessage:
        """Write the rows of one task; if that fails, delete what was written."""
        return BatchTaskMessage(self._sink.write(iterator, *self._sink.identity))

    @readable
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit everything in one snapshot."""
        files = [message.files for message in messages if isinstance(message, BatchTaskMessage)]
        query, batch = self._sink.identity
        if query is None:
            self._sink.commit_batch(files)
        else:
            self._sink.commit_once(query, batch, files)

    @readable
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of a write that surely was not committed: some task has not finished."""
        self._sink.abort([message.files if isinstance(message, BatchTaskMessage) else None for message in messages])
