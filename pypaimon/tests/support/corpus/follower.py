"""Java's tables followed to their end through errors; as a program, with a fork while a request is under way.

They hold what pypaimon does not write: deletion vectors, merged first plans, retracted overwrites, long-lived
changelogs, merged changelog files, data evolution, changed schemas. Read ahead, with collapsed catch-up.

Arguments, several times: a table of the corpus, `Plans` or `Batches`, and the number of the request.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import warnings
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming import EndOfScan, PaimonStreamError, Plan, StreamReadBuilder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.corpus.cases import load
from support.stores.fault_file_io import SCHEME, Call, FaultFileIO

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
PATIENCE = 60
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


def be_child(builder: Any, file_io: FaultFileIO, face: Face, wanted: Rows) -> None:
    """Read with the builder that was inherited; if that waits for ever the child is killed, and tells where."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(PATIENCE)
    # A thread of the parent may have held it; it is none of the library's.
    file_io._lock = threading.Lock()
    assert follow(builder, face) == (wanted, 0)


def check(scenario: str, face: Face, number: int) -> None:
    wanted, _ = follow(builder_of(scenario), face)
    file_io = FaultFileIO()
    builder = builder_of(scenario, file_io)
    held, go_on = threading.Event(), threading.Event()

    def hold(call: Call) -> Any:
        held.set()
        assert go_on.wait(2 * PATIENCE)
        return call.answer()

    file_io.at(number, hold)
    found: list[tuple[Rows, int]] = []
    thread = threading.Thread(target=lambda: found.append(follow(builder, face)), daemon=True)
    thread.start()
    while thread.is_alive() and not held.is_set():
        # How many requests there are may depend on which come first.
        thread.join(0.01)
    child = get_context("fork").Process(target=be_child, args=(builder, file_io, face, wanted))
    child.start()
    child.join()
    go_on.set()
    thread.join(PATIENCE)
    assert (child.exitcode, found) == (0, [(wanted, 0)])


if __name__ == "__main__":
    # What Python warns of is what is tested here.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    arguments = iter(sys.argv[1:])
    for scenario in arguments:
        check(scenario, globals()[next(arguments)], int(next(arguments)))
        print(scenario, flush=True)
