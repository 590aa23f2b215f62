"""Java's tables followed to their end, as plans and as batches, through errors.

They hold what pypaimon does not write: deletion vectors, merged first plans, retracted overwrites, long-lived
changelogs, merged changelog files, data evolution, changed schemas. Read ahead, with collapsed catch-up.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming import EndOfScan, PaimonStreamError, Plan, StreamReadBuilder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.corpus.cases import load
from support.stores.fault_file_io import SCHEME, FaultFileIO

TABLES = {
    "pk_deletion_vectors_lookup": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "4"},
    "pk_overwrite_none": {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "streaming-read-overwrite": "true"},
    "pk_orc_lookup": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"},
    "decoupled_lookup": {"scan.mode": "from-timestamp", "scan.timestamp-millis": "0"},
    "precommit_compact_input": {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
    "data_evolution": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"},
    "schema_evolution_lookup": {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
    "append_multi_file": {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
}
Rows = list[tuple[Any, ...]]
Face = type["Plans"] | type["Batches"]


def builder_of(scenario: str, file_io: FaultFileIO | None = None) -> StreamReadBuilder:
    """To the latest snapshot, through the FileIO if there is one, with retries that do not pause."""
    catalog = CatalogFactory.create({"warehouse": str(load("java-2.1", scenario).warehouse)})
    table: Any = catalog.get_table("d.t").copy_without_time_travel(TABLES[scenario])
    if file_io is not None:
        table.file_io, table.table_path = file_io, SCHEME + str(table.table_path)
    TableDirectory.of(table).store._common.sleep = lambda _: None
    return StreamReadBuilder(table).with_include_row_kind(True).with_end(latest=True)


def rows_of(table: pa.Table | pa.RecordBatch) -> Rows:
    """As text, which tells -0.0 and lists apart."""
    return [tuple(map(repr, row.values())) for row in table.to_pylist()]


class Plans:
    """A stream, plan by plan; a plan whose read failed is read again."""

    def __init__(self, builder: StreamReadBuilder) -> None:
        self._read = builder.new_read()
        self._scan = builder.new_streaming_scan()
        self._plan: Plan | None = None

    def next(self) -> Rows | None:
        """The rows of the next plan; None at the end."""
        try:
            self._plan = self._plan or self._scan.plan()
        except EndOfScan:
            return None
        found = [] if self._plan is None else rows_of(self._read.to_arrow(self._plan.splits()))
        self._plan = None
        return found

    def close(self) -> None:
        self._scan.close()


class Batches:
    """A stream, batch by batch."""

    def __init__(self, builder: StreamReadBuilder) -> None:
        self._stream = builder.open_sync()

    def next(self) -> Rows | None:
        """The rows of the next batch; None at the end."""
        batch = next(self._stream, None)
        return None if batch is None else rows_of(batch.data)

    def close(self) -> None:
        self._stream.close()


def follow(builder: StreamReadBuilder, face: Face) -> tuple[Rows, int]:
    """All rows to the end, and how many errors came between them."""
    found: Rows = []
    errors = 0
    stream = None
    while True:
        try:
            stream = stream or face(builder)
            got = stream.next()
        except PaimonStreamError:
            errors += 1
            assert errors < 9
            continue
        if got is None:
            stream.close()
            return found, errors
        found += got
