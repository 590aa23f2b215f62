"""Something goes wrong at the n-th request of a read of Java's tables: rows stay exact.

The tables hold what pypaimon does not write: deletion vectors, merged first plans, retracted overwrites, long-lived
changelogs, merged changelog files, data evolution, changed schemas. Read ahead, with collapsed catch-up, as plans and
as batches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from commit_seed import commit_seed, is_drawn, seeded
from corpus_cases import load
from fault_file_io import FORBIDDEN, RESET, SCHEME, Call, Fault, FaultFileIO, failing, late, truncated
from pypaimon import CatalogFactory

from pypaimon.streaming import EndOfScan, PaimonStreamError, Plan, StreamReadBuilder
from pypaimon.streaming.metadata.table_directory import TableDirectory

SOAK = bool(os.environ.get("SOAK"))
EACH = 1 if SOAK else 64
"""Of how many requests one goes wrong, beside those of each kind."""
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
FAULTS: dict[str, Fault] = {
    "reset": failing(RESET),
    "403": failing(FORBIDDEN),
    "truncated": truncated,
    "answer lost": late,
}
PASSING = ("reset", "answer lost")
Rows = list[tuple[Any, ...]]


def builder_of(scenario: str, file_io: FaultFileIO) -> StreamReadBuilder:
    """To the latest snapshot, through the FileIO, with retries that do not pause."""
    catalog = CatalogFactory.create({"warehouse": str(load("java-2.1", scenario).warehouse)})
    table: Any = catalog.get_table("d.t").copy_without_time_travel(TABLES[scenario])
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


def follow(builder: StreamReadBuilder, face: type[Plans] | type[Batches]) -> tuple[Rows, int]:
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


class Once:
    """The first request for a file goes wrong."""

    def __init__(self, path: str, fault: Fault) -> None:
        self.happened = False
        self._path = path
        self._fault = fault

    def __call__(self, call: Call) -> Any:
        if self.happened or call.path != self._path:
            return call.answer()
        self.happened = True
        return self._fault(call)


def kind_of(path: str) -> str:
    """What a request asks for: `snapshot`, `manifest-list`, `index`, `data`, ..."""
    return re.sub(r"-?([0-9a-f]{8}-.*|[0-9]+)$", "", path.rpartition("/")[2])


def one_of_each_kind(paths: list[str], where: str, turn: int) -> Iterator[tuple[str, str]]:
    """One path of each kind and the name of a fault: another one for each kind, and at the next turn."""
    drawn = seeded(where)
    kinds = sorted({kind_of(path) for path in paths})
    for place, kind in enumerate(kinds, commit_seed() + turn):
        yield drawn.choice([path for path in paths if kind_of(path) == kind]), list(FAULTS)[place % len(FAULTS)]


CASES = [(scenario, face) for scenario in TABLES for face in (Plans, Batches)]


@pytest.mark.parametrize(("scenario", "face"), CASES)
def test_a_fault_at_any_request_leaves_the_rows_as_they_are(scenario: str, face: type[Plans] | type[Batches]) -> None:
    """One request of each kind, and some others; in the long form each with each fault."""
    file_io = FaultFileIO()
    fine, errors = follow(builder_of(scenario, file_io), face)
    paths = [path for kind, path in file_io.calls if kind == "read"]
    calls = len(file_io.calls)
    assert fine and not errors and calls > 20

    def check(name: str, where: Any, prepare: Callable[[FaultFileIO], None]) -> None:
        file_io = FaultFileIO()
        builder = builder_of(scenario, file_io)
        prepare(file_io)
        found, errors = follow(builder, face)
        assert found == fine, (name, where)
        assert not (errors and name in PASSING), (name, where)

    for path, name in one_of_each_kind(paths, f"{scenario} {face.__name__}", CASES.index((scenario, face))):
        once = Once(path, FAULTS[name])
        check(name, path, partial(FaultFileIO.wherever, fault=once))
        assert once.happened
    for name, fault in FAULTS.items():
        for number in range(1, calls + 1):
            if is_drawn(f"{scenario} {face.__name__} {name} {number}", EACH):
                check(name, number, partial(FaultFileIO.at, number=number, fault=fault))


def test_the_requests_of_these_tables_are_of_every_kind() -> None:
    """Deletion vectors among them."""
    kinds = set()
    for scenario in TABLES:
        file_io = FaultFileIO()
        follow(builder_of(scenario, file_io), Plans)
        kinds |= {kind_of(path) for kind, path in file_io.calls if kind == "read"}
    assert kinds >= {"snapshot", "schema", "manifest-list", "manifest", "index-manifest", "index", "data", "changelog"}
    assert kinds >= {"EARLIEST", "compacted-changelog"}, kinds
