"""Random lives of tables that this library writes and compacts: rows stay, streams see nothing, files are as Java's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets
from pypaimon.streaming.merge.runs import key_order
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.tables.handles import catalog_with_database, create_table, read_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 300 if SOAK else 2
BUDGET = settings(
    max_examples=EXAMPLES, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False), ("v", pa.int64())]
)
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by v": {"sequence.field": "v"},
    "deduplicate, thin": {"data-file.thin-mode": "true", "file.format.per.level": "0:avro,4:orc"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "input": {"changelog-producer": "input"},
}
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(-5, 5), st.booleans()), max_size=12)
STEPS = st.lists(st.one_of(ROWS, st.sampled_from(["due", "full", "p=0"])), min_size=3, max_size=14)


class Life:
    """A table and what its rows and changes should be."""

    def __init__(self, directory: str, keys: list[str], options: dict[str, str]) -> None:
        catalog = catalog_with_database(directory, "d")
        self.table = create_table(
            catalog, "t", COLUMNS, partition_keys=["p"], primary_keys=keys, options=options, database="d"
        )
        self.keyed = bool(keys)
        self.raw = options.get("merge-engine") in ("partial-update", "aggregation")
        self.sorted = "clustering.columns" in options
        self.ordered = not keys and "bucket" in options and not self.sorted

    def write(self, rows: list[tuple[int, int, int, bool]]) -> None:
        found = [{"id": key, "p": p, "v": v, "_row_kind": "-D" if gone else "+I"} for key, p, v, gone in rows]
        columns = KINDED if self.keyed else COLUMNS
        with stream_write_builder(self.table).with_commit_user("writer").open_sync() as writer:
            writer.write(pa.Table.from_pylist([{name: row[name] for name in columns.names} for row in found], columns))
            writer.commit()

    def rows(self) -> list[str]:
        return self._read("latest-full")

    def changes(self) -> list[str]:
        return self._read("earliest")

    def _read(self, start: str) -> list[str]:
        builder = stream_read_builder(self.table).with_start(start).with_end(latest=True)
        return [str(row) for row in read_with(builder.with_raw(self.raw))]

    def buckets(self) -> list[LiveBucket]:
        directory = TableDirectory.of(self.table)
        snapshot = directory.snapshots.get_latest_snapshot()
        return (
            []
            if snapshot is None
            else list(live_buckets(PaimonTable(self.table), LiveEntries().look(directory, snapshot)))
        )

    def check_files(self) -> None:
        """Above level 0 no two files of a level hold the same key; every file is there."""
        for bucket in self.buckets():
            assert all(Path(str(file.read.file_path)).exists() for file in bucket.files)
            for level in {file.level for file in bucket.files} - {0} if self.keyed else ():
                bounds = sorted(
                    (key_order(file.read.min_key), key_order(file.read.max_key))
                    for file in bucket.files
                    if file.level == level
                )
                assert all(one[1] < other[0] for one, other in pairwise(bounds))


@pytest.mark.parametrize("engine", ENGINES)
@BUDGET
@given(
    steps=STEPS,
    trigger=st.integers(1, 4),
    small=st.sampled_from(["1 b", "1500 b", "128 mb"]),
    buckets=st.integers(1, 2),
)
def test_keyed_tables(engine: str, steps: list[Any], trigger: int, small: str, buckets: int) -> None:
    options = {
        **ENGINES[engine],
        "bucket": str(buckets),
        "num-sorted-run.compaction-trigger": str(trigger),
        "target-file-size": small,
    }
    with TemporaryDirectory() as directory:
        live(Life(directory, ["id", "p"], options), steps)


@pytest.mark.parametrize("bucket", [{}, {"bucket": "2", "bucket-key": "id"}])
@BUDGET
@given(steps=STEPS, least=st.integers(1, 4), small=st.sampled_from(["1 b", "1500 b", "128 mb"]))
def test_append_tables(bucket: dict[str, str], steps: list[Any], least: int, small: str) -> None:
    options = {**bucket, "compaction.min.file-num": str(least), "target-file-size": small}
    with TemporaryDirectory() as directory:
        life = Life(directory, [], options)
        live(life, steps)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clustering.incremental": "true"},
        {
            "clustering.incremental": "true",
            "bucket": "2",
            "bucket-key": "id",
            "bucket-append-ordered": "false",
            "clustering.strategy": "hilbert",
        },
    ],
    ids=["on request", "clustered", "buckets"],
)
@BUDGET
@given(steps=STEPS, trigger=st.integers(1, 4), small=st.sampled_from(["1 b", "1500 b", "128 mb"]))
def test_sorted_tables(options: dict[str, str], steps: list[Any], trigger: int, small: str) -> None:
    given = {"num-sorted-run.compaction-trigger": str(trigger), "target-file-size": small, "clustering.columns": "v,id"}
    order = {} if options else {"order_by": ["v", "id"], "strategy": "zorder"}
    with TemporaryDirectory() as directory:
        live(Life(directory, [], {**given, **options}), steps, **order)


def live(life: Life, steps: list[Any], **order: Any) -> None:
    again = Compaction(PaimonTable(life.table))
    for step in steps:
        if not isinstance(step, str):
            life.write(step)
            continue
        rows, changes = life.rows(), life.changes()
        partition = {"p": 0} if step == "p=0" else None
        report = again.run() if step == "due" else compact(life.table, full=True, partition=partition, **order)
        assert not report.conflicts
        assert all(each.partition["p"] == 0 for each in report.compacted) or partition is None
        assert (life.rows() == rows) if life.ordered else (sorted(life.rows()) == sorted(rows))
        assert life.changes() == changes
        life.check_files()
        if step == "due":
            # One that has looked before finds what one finds that looks at all.
            for _ in range(50):
                if not again.run().compacted:
                    break
            assert not compact(life.table, dry_run=True).compacted
        if step == "full" and not order:
            assert not compact(life.table, full=True).compacted
    if life.keyed and steps[-1] == "full":
        assert all(file.level for each in life.buckets() for file in each.files)
