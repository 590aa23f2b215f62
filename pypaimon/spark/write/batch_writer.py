"""`PaimonBatchWriter`: `df.write.format("pypaimon")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pypaimon.spark.errors import readable
from pypaimon.spark.write.sink import SinkWriter, TaskFiles, task_property

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class BatchTaskMessage(WriterCommitMessage):
    """What a task reports to the driver.

    Attributes:
        origin: Spark's id of the streaming query within whose `foreachBatch` it ran, or None.
    """

    files: TaskFiles
    origin: str | None = None


class PaimonBatchWriter(SinkWriter, DataSourceArrowWriter):
    """Writes and commits a DataFrame. With options `query-id` and `batch-id`, once per pair, as in `foreachBatch`."""

    @readable
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchTaskMessage:
        return BatchTaskMessage(
            self._sink.write(iterator, self._sink.options.query_id), task_property("sql.streaming.queryId")
        )

    @readable
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        tasks = [message for message in messages if isinstance(message, BatchTaskMessage)]
        files = [task.files for task in tasks]
        query, batch = self._sink.identity
        if query is None:
            self._sink.commit_batch(files)
        else:
            self._sink.commit_once(query, batch, files, origin=next((task.origin for task in tasks), None))

    @readable
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of a write that cannot have been committed, since some task has not finished."""
        self._sink.abort([message.files if isinstance(message, BatchTaskMessage) else None for message in messages])
