"""The source driven as Spark drives it, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pypaimon.spark.read.stream_reader import PaimonStreamReader
from pypaimon.spark.source import PaimonDataSource
from support.spark.queries import options, spelled
from support.tables.streamed_table import Table

Offset = dict[str, Any]


class Driver:
    """A query without Spark: the same calls in the same order, each offset through JSON, tasks through pickle."""

    def __init__(self, table: Table | dict[str, str], **more: str) -> None:
        given = table if isinstance(table, dict) else options(table)
        lowered = {key.lower(): value for key, value in {**given, **spelled(more)}.items()}
        self.source = PaimonDataSource(lowered)
        self.reader: PaimonStreamReader = pickle.loads(pickle.dumps(self.source.streamReader(self.source.schema())))
        self.limit = self.reader.getDefaultReadLimit()

    def initial(self) -> Offset:
        return through_json(self.reader.initialOffset())

    def latest(self, start: Offset, limit: Any = None) -> Offset:
        return through_json(self.reader.latestOffset(start, limit or self.limit))

    def first(self) -> tuple[Offset, Offset]:
        """Start and end of the first batch."""
        start = self.initial()
        return start, self.latest(start)

    def rows(self, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
        found = []
        for task in self.reader.partitions(start, end):
            executor = pickle.loads(pickle.dumps(self.reader))
            for batch in executor.read(pickle.loads(pickle.dumps(task))):
                found += [tuple(row.values()) for row in batch.to_pylist()]
        return found

    def batches(self, start: Offset | None = None) -> list[list[tuple[Any, ...]]]:
        start = start or self.initial()
        found = []
        while (end := self.latest(start)) != start:
            found.append(self.rows(start, end))
            start = end
        return found


def through_json(offset: Offset) -> Offset:
    value: Offset = json.loads(json.dumps(offset))
    assert list(value) == list(offset)
    return value


def batch_tasks(given: dict[str, str]) -> Iterator[Iterator[pa.RecordBatch]]:
    """What each task of a batch read gives; reader and tasks go through pickle as to an executor."""
    source = PaimonDataSource({key.lower(): value for key, value in given.items()})
    reader: Any = source.reader(source.schema())
    for task in reader.partitions():
        executor = pickle.loads(pickle.dumps(reader))
        yield executor.read(pickle.loads(pickle.dumps(task)))


def batch_rows(table: Table, **more: str) -> list[tuple[Any, ...]]:
    tasks = batch_tasks({**options(table), **spelled(more)})
    return [tuple(row.values()) for task in tasks for batch in task for row in batch.to_pylist()]
