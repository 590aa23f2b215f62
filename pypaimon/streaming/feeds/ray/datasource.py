"""`SplitsDatasource`: splits that are planned on the driver and read by tasks of Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.reading.read import StreamRead

_BYTES_IN_MEMORY = 3
"""Approximate ratio of the size of rows in memory to the size of their files."""


class SplitsDatasource(Datasource):  # type: ignore[misc, unused-ignore]
    """The rows of splits. The tasks get splits, and plan nothing."""

    def __init__(self, read: StreamRead, parts: Sequence[Sequence[StreamSplit]], schema: pa.Schema) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._read = read
        self._parts = parts
        self._schema = schema

    def get_name(self) -> str:
        return "Paimon"

    def estimate_inmemory_data_size(self) -> int:
        """Approximate bytes of the rows in memory."""
        return sum(map(_bytes, self._parts))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """At most as many tasks as Ray asks for, of about equal size."""
        packed: list[list[Sequence[StreamSplit]]] = [[] for _ in range(max(1, min(parallelism, len(self._parts))))]
        loads = [0] * len(packed)
        for part in self._parts:
            task = loads.index(min(loads))
            packed[task].append(part)
            loads[task] += _bytes(part)
        return [self._task([split for part in parts for split in part], per_task_row_limit) for parts in packed]

    def _task(self, splits: list[StreamSplit], limit: int | None) -> ReadTask:
        # The number of rows is known only after they are merged and filtered.
        metadata = BlockMetadata(num_rows=None, size_bytes=_bytes(splits), exec_stats=None, input_files=None)
        make = partial(_tables, self._read, splits, self._schema)
        # Older releases of Ray do not know the limit.
        limited: dict[str, Any] = {} if limit is None else {"per_task_row_limit": limit}
        return ReadTask(make, metadata, schema=self._schema, **limited)


def dataset_of(source: SplitsDatasource) -> ray.data.Dataset:
    """A dataset of the rows, which are read when it is used."""
    dataset: ray.data.Dataset = ray.data.read_datasource(source)
    return dataset


def _tables(read: StreamRead, splits: list[StreamSplit], schema: pa.Schema) -> Iterator[pa.Table]:
    given = False
    for batch in read.iter_batches(splits):
        yield pa.Table.from_batches([batch])
        given = True
    if not given:
        yield schema.empty_table()


def _bytes(splits: Sequence[StreamSplit]) -> int:
    return _BYTES_IN_MEMORY * sum(split.file_size for split in splits)
