"""`PaimonStreamWriter`: one micro-batch into a table, exactly once per query and batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pypaimon.spark.errors import readable
from pypaimon.spark.write.sink import SinkWriter, TaskFiles, task_property

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task reports to the driver: files that nobody else knows of, and their batch."""

    query: str
    batch: int
    files: TaskFiles


class PaimonStreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Writes and commits one micro-batch.

    Spark makes one of these where it plans a batch, sends it to the tasks, and makes another one, in another process,
    to commit or abort. So everything that commit needs comes with the messages.
    """

    @readable
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        query, batch = task_property("sql.streaming.queryId"), task_property("streaming.sql.batchId")
        if query is None or batch is None:
            raise RuntimeError("Spark did not pass query and batch to the task; without them nothing is exactly once.")
        return TaskMessage(query, int(batch), self._sink.write(iterator, query))

    @readable
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        tasks = _tasks(messages)
        if not tasks and not self._sink.overwrite:
            return
        # Only tasks name the query, without which a repeated commit could not be recognised. Spark runs one even if
        # the data has no partition, so an overwrite without any is refused rather than made twice.
        queries = {task.query for task in tasks}
        if len(queries) != 1 or any(task.batch != batchId for task in tasks):
            raise RuntimeError(f"Messages of {sorted(queries)} came to the commit of batch {batchId}.")
        self._sink.commit_once(queries.pop(), batchId, [task.files for task in tasks])

    @readable
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of a batch that surely was not committed: some task has not finished."""
        self._sink.abort([message.files if isinstance(message, TaskMessage) else None for message in messages])


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    tasks = [message for message in messages if isinstance(message, TaskMessage)]
    if len(tasks) != len(messages):
        raise RuntimeError("A commit came with messages that no task of this sink wrote.")
    return tasks
