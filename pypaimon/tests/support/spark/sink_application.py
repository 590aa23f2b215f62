"""A Spark application in a process group of its own, which tests kill; as a program, that application.

It streams into Paimon tables, standing still at a point until it is killed. The job is a JSON object in the
environment: `warehouse`, `home`, `signals`, and `queries`: name, source, table, checkpoint, and `stop`: point and batch
at which the query stands still, telling so by a file in `signals`. Without `stop` a query runs until all is read. A
query without a table stands still in its first batch, once that is read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pypaimon.spark.source import PaimonDataSource
from pypaimon.spark.write.sink import Sink
from pypaimon.spark.write.stream_writer import PaimonStreamWriter, TaskMessage
from pypaimon.streaming.commit.snapshot_commit import SnapshotCommit
from support.repository import program
from support.spark.session import NO_WORKER, new_session

CHILD = "support.spark.sink_application"
POINTS = ("write", "after-write", "after-publish", "after-commit")
LIMIT = 600


class Application:
    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.signals = Path(job["signals"])
        self._log = (directory / "spark.log").open("ab")
        self._begin = self._log.tell()
        environment = {**os.environ, "SINK_TEST_JOB": json.dumps(job)}
        self.process = subprocess.Popen(
            program(CHILD), stdout=self._log, stderr=self._log, env=environment, start_new_session=True,
            cwd=directory,
        )  # fmt: skip

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the application does; an application that ended before it is a failure."""
        limit = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, f"the application ended; see {self._log.name}"
            assert time.monotonic() < limit, f"nothing happened for {LIMIT} s; see {self._log.name}"
            time.sleep(0.05)

    @property
    def gave_up(self) -> bool:
        """Whether it has ended because Spark could not start a Python process in time: a death like any other."""
        log = Path(self._log.name).read_bytes()[self._begin :]
        return self.process.poll() is not None and NO_WORKER.encode() in log

    def finish(self) -> None:
        assert self.process.wait(LIMIT) == 0, f"the application failed; see {self._log.name}"

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *exception: object) -> None:
        """kill -9 of driver, JVM and workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


JOB = "SINK_TEST_JOB"


class StoppingWriter(PaimonStreamWriter):
    """The sink's writer, with places to stand still."""

    name = ""

    @classmethod
    def named(cls, name: str, options: Mapping[str, str], schema: StructType, overwrite: bool) -> StoppingWriter:
        writer = cls(Sink.of(options, schema, overwrite, streaming=True))
        writer.name = name
        return writer

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        from pyspark import TaskContext

        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        message = super().write(self._watched(iterator, batch))
        self._reach("after-write", batch)
        return message

    def _watched(self, iterator: Iterator[Any], batch: int) -> Iterator[Any]:
        for each in iterator:
            yield each
            self._reach("write", batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        publish = SnapshotCommit._publish

        def watched(*arguments: Any) -> Any:
            self._reach("before-publish", batchId)
            done = publish(*arguments)
            self._reach("after-publish", batchId)
            return done

        SnapshotCommit._publish = watched
        super().commit(messages, batchId)
        self._reach("after-commit", batchId)

    def _reach(self, point: str, batch: int) -> None:
        job = json.loads(os.environ[JOB])
        if job["stops"].get(self.name) == [point, batch]:
            Path(job["signals"], f"{self.name}-{point}").touch()
            threading.Event().wait()


class StoppingSource(PaimonDataSource):
    """The data source, with the writer above."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingWriter:
        options = dict(self.options)
        return StoppingWriter.named(options.pop("queryname"), options, schema, overwrite)


def main() -> None:
    job = json.loads(os.environ[JOB])
    # A slot for each query, since tasks that stand still keep theirs.
    spark = new_session(Path(job["home"]), **{"spark.master": f"local[{len(job['queries']) + 1}]"})
    spark.dataSource.register(StoppingSource)
    spark.dataSource.register(PaimonDataSource)
    queries = [start(spark, job, query) for query in job["queries"]]
    for query in queries:
        query.awaitTermination()
    Path(job["signals"], "done").touch()
    spark.stop()


def start(spark: Any, job: dict[str, Any], query: dict[str, Any]) -> Any:
    reader = spark.readStream.format(query["format"]).options(**query.get("source_options", {}))
    if "schema" in query:
        reader = reader.schema(query["schema"])
    frame = reader.load(query["source"]) if "source" in query else reader.load()
    writer = frame.writeStream.option("checkpointLocation", query["checkpoint"]).trigger(availableNow=True)
    if "table" not in query:

        def hold(batch: Any, _: int) -> None:
            batch.collect()
            Path(job["signals"], f"{query['name']}-batch").touch()
            threading.Event().wait()

        return writer.foreachBatch(hold).start()
    writer = writer.format("stopping").option("warehouse", job["warehouse"])
    return writer.option("table", query["table"]).option("queryname", query["name"]).start()


if __name__ == "__main__":
    main()
    sys.exit(0)
