"""Primary-key tables with deletion vectors: what readers see is what was written before the last compaction."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.metadata.index_manifests import IndexEntry
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.write_internals import SchemaChange
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.tables.handles import batch_table, read_with, write_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 100 if SOAK else 2
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())])
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
VECTORS = {"deletion-vectors.enabled": "true", "bucket": "1"}
LEVELS = {**VECTORS, "num-sorted-run.compaction-trigger": "9", "target-file-size": "1 b"}
CLUSTERED = {"pk-clustering-override": "true", "clustering.columns": "b,a"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate, levels of formats": {"file.format.per.level": "0:avro,4:orc", "data-file.thin-mode": "true"},
    "deduplicate by a": {"sequence.field": "a"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
    "clustered": CLUSTERED,
    "clustered, first-row": {**CLUSTERED, "merge-engine": "first-row"},
    "clustered, first-row without vectors": {
        **CLUSTERED,
        "merge-engine": "first-row",
        "deletion-vectors.enabled": "false",
    },
}
VALUES = st.one_of(st.none(), st.integers(-2, 2))
Row = tuple[int, Any, Any, bool]
ROWS = st.lists(st.tuples(st.integers(0, 30), VALUES, VALUES, st.booleans()), min_size=1, max_size=12)
STEPS = st.lists(st.one_of(ROWS, ROWS, st.sampled_from(["due", "due", "full"])), min_size=4, max_size=14)


class Marked:
    """A table with deletion vectors, and one without, into which the same is written, and which is never compacted."""

    def __init__(self, directory: Path, options: dict[str, str], *, is_there: bool = False) -> None:
        catalog = CatalogFactory.create({"warehouse": str(directory)})
        catalog.create_database("d", is_there)
        plain = {key: value for key, value in options.items() if not key.startswith(("deletion-", "changelog-", "pk-"))}
        for name, each in (("t", options), ("plain", plain)):
            schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options=each)
            catalog.create_table(f"d.{name}", schema, is_there)
        self.table, self.plain = catalog.get_table("d.t"), catalog.get_table("d.plain")
        # A delete is forgotten once it is compacted, and so is its sequence field.
        self.adds_only = "sequence.field" in options or "merge-engine" in options
        self.model: list[Any] = []

    def write(self, rows: list[Row]) -> None:
        found = [
            {"id": key, "a": a, "b": b, "_row_kind": "-D" if gone and not self.adds_only else "+I"}
            for key, a, b, gone in rows
        ]
        for table in (self.table, self.plain):
            write_with(stream_write_builder(table).with_commit_user("writer"), pa.Table.from_pylist(found, KINDED))

    def compact(self, *, full: bool = False) -> None:
        report = compact(self.table, full=full)
        assert not report.conflicts
        self.model = self._read(self.plain)

    def check(self) -> None:
        """Readers see what was compacted, and above level 0 each key is there once."""
        assert self._read(self.table) == self.model
        directory = TableDirectory.of(self.table)
        reader = FileReader(PaimonTable(self.table), directory, lambda: None)
        keys: Counter[int] = Counter()
        for bucket in self.buckets():
            for file in bucket.files:
                if file.level:
                    for batch in reader.records([file], levels=False):
                        assert not set(batch["_VALUE_KIND"].to_pylist()) & {1, 3}
                        keys.update(batch["id"].to_pylist())
        assert keys == Counter(row[0] for row in self.model)
        index = self.index()
        assert len({(each.partition, each.bucket) for each in index}) == len(index), "one index file for each bucket"
        live = {file.name: file.read.row_count for bucket in self.buckets() for file in bucket.files}
        for found in (found for each in index for found in each.ranges):
            assert 0 < (found.cardinality or 0) <= live[found.data_file]

    def check_pypaimon(self) -> None:
        """pypaimon's own reader, which knows vectors of 32 bits."""
        data = batch_table(self.table)
        assert sorted((tuple(row.values()) for row in data.to_pylist()), key=repr) == self.model

    def buckets(self) -> list[LiveBucket]:
        directory = TableDirectory.of(self.table)
        snapshot = directory.snapshots.get_latest_snapshot()
        if snapshot is None:
            return []
        buckets = live_buckets(PaimonTable(self.table), LiveEntries().look(directory, snapshot))
        return list(VectorIndex.of(PaimonTable(self.table), directory, snapshot).attached(buckets))

    def index(self) -> tuple[IndexEntry, ...]:
        directory = TableDirectory.of(self.table)
        snapshot = directory.snapshots.get_latest_snapshot()
        if snapshot is None or not snapshot.index_manifest:
            return ()
        return directory.manifests.index_entries(snapshot.index_manifest)

    def count(self) -> int:
        """How many rows are marked."""
        return sum(found.cardinality or 0 for each in self.index() for found in each.ranges)

    def changes(self) -> dict[int, tuple[Any, Any]]:
        """The rows of all changes since the beginning, each of which must fit what is there."""
        rows: dict[int, tuple[Any, Any]] = {}
        with stream_read_builder(self.table).with_start("earliest").with_end(latest=True).open_sync() as stream:
            for row in (row for batch in stream for row in batch.data.to_pylist()):
                values = row["a"], row["b"]
                if row.get("_row_kind", "+I") in ("-U", "-D"):
                    assert rows.pop(row["id"]) == values, row
                else:
                    assert row["id"] not in rows, row
                    rows[row["id"]] = values
        return rows

    @staticmethod
    def _read(table: Any) -> list[Any]:
        builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_raw(True)
        rows = read_with(builder)
        return sorted(((row["id"], row["a"], row["b"]) for row in rows), key=repr)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(
    steps=STEPS,
    trigger=st.integers(1, 4),
    small=st.sampled_from(["1 b", "1500 b", "128 mb"]),
    bitmap64=st.booleans(),
    producer=st.sampled_from(["none", "lookup"]),
)
def test_random_lives(engine: str, steps: list[Any], trigger: int, small: str, bitmap64: bool, producer: str) -> None:
    producer = "none" if engine.startswith("clustered") else producer
    options = {
        **VECTORS,
        **ENGINES[engine],
        "changelog-producer": producer,
        "deletion-vectors.bitmap64": str(bitmap64).lower(),
        "num-sorted-run.compaction-trigger": str(trigger),
        "target-file-size": small,
    }
    with TemporaryDirectory() as directory:
        marked = Marked(Path(directory), options)
        for step in [*steps, "full"]:
            if not isinstance(step, str):
                marked.write(step)
                continue
            marked.compact(full=step == "full")
            marked.check()
            if producer == "lookup":
                assert marked.changes() == {row[0]: row[1:] for row in marked.model}
        assert not any(each.ranges for each in marked.index()), "a full compaction leaves no vector"
        assert not compact(marked.table, full=True).compacted
        assert all(file.level for bucket in marked.buckets() for file in bucket.files)


def upserts(*keys: int, value: int) -> list[Row]:
    return [(key, value, value, False) for key in keys]


@pytest.fixture(scope="module", params=[LEVELS, LEVELS | CLUSTERED], ids=["levels", "clustered"])
def levels(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Marked:
    """A table with files on two levels, of which the higher one has marked rows, or on one that is clustered; the tests
    change copies.
    """
    marked = Marked(tmp_path_factory.mktemp("levels"), request.param)
    marked.write(upserts(*range(12), value=0))
    marked.compact(full=True)
    marked.write([*upserts(3, 5, value=1), (7, None, None, True)])
    marked.compact()
    marked.check()
    assert marked.count() == 3
    return marked


def copied(levels: Marked, directory: Path) -> Marked:
    shutil.copytree(Path(str(levels.table.table_path)).parents[1], directory, dirs_exist_ok=True)
    copy = Marked(directory, LEVELS, is_there=True)
    copy.model = levels.model
    return copy


def test_what_is_marked_lasts_until_a_full_compaction(tmp_path: Path, levels: Marked) -> None:
    marked = copied(levels, tmp_path)
    marked.check_pypaimon()
    marked.write(upserts(8, 40, value=2))
    is_clustered = "pk-clustering-override" in marked.table.table_schema.options
    # Two on level 0, and the two below the marked ones
    assert table_files(marked.table).due.files == (2 if is_clustered else 4)
    marked.compact()
    marked.check()
    marked.check_pypaimon()
    assert marked.count() == 4
    marked.compact(full=True)
    marked.check()
    (entry,) = marked.index()
    assert (entry.ranges, entry.row_count) == ((), 0)


@pytest.mark.parametrize("force", ["true", "false"])
def test_rows_that_are_marked_meanwhile_stay_gone(tmp_path: Path, levels: Marked, force: str) -> None:
    """Forced, it rewrites a file that has no vector when it begins; else it drops vectors that are others by then."""
    marked = copied(levels, tmp_path)
    if force == "true":
        marked.compact(full=True)
    others = iter([upserts(11, 3, value=5)])

    def meanwhile() -> None:
        for rows in others:
            marked.write(rows)
            marked.compact()

    table = marked.table.copy({"compaction.force-rewrite-all-files": force})
    report = Compaction(PaimonTable(table), full=True).run(check=meanwhile)
    assert report.conflicts
    assert not report.new_snapshot_ids
    marked.check()
    marked.compact(full=True)
    marked.check()


def test_a_process_dies_at_every_request(tmp_path: Path, levels: Marked) -> None:
    for steps in range(1 + sample_seed() % 19, 90, 19):
        marked = copied(levels, tmp_path / str(steps))
        marked.write(upserts(3, 4, 50, value=9))
        table = marked.table.copy({})
        table.file_io = MortalFileIO(steps)
        try:
            compact(table)
        except Killed:
            marked.compact()
            marked.check()
            continue
        break
    assert 19 < steps < 80


def test_an_index_file_that_is_damaged_ends_the_compaction(tmp_path: Path, levels: Marked) -> None:
    marked = copied(levels, tmp_path)
    marked.write(upserts(4, value=9))
    (entry,) = marked.index()
    (path,) = tmp_path.rglob(entry.file_name)
    path.write_bytes(path.read_bytes()[:-1])
    files = set(tmp_path.rglob("data-*"))
    with pytest.raises(CorruptTableError, match=entry.file_name):
        compact(marked.table)
    assert set(tmp_path.rglob("data-*")) == files


def test_vectors_that_others_have_replaced_and_that_have_expired_are_a_conflict(tmp_path: Path, levels: Marked) -> None:
    marked = copied(levels, tmp_path)
    marked.write(upserts(8, value=9))
    (entry,) = marked.index()
    paths = iter(list(tmp_path.rglob(entry.file_name)))

    def meanwhile() -> None:
        for path in paths:
            marked.compact()
            path.unlink()

    report = Compaction(PaimonTable(marked.table)).run(check=meanwhile)
    assert (len(report.conflicts), report.new_snapshot_ids) == (1, ())
    marked.check()


def test_a_delete_that_is_passed_over_leaves_the_row_of_before(tmp_path: Path, levels: Marked) -> None:
    """The option was set later than the delete was written."""
    marked = copied(levels, tmp_path)
    marked.write([(4, None, None, True)])
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    for name in ("t", "plain"):
        catalog.alter_table(f"d.{name}", [SchemaChange.set_option("ignore-delete", "true")], False)
    before = marked.model
    compact(marked.table)
    assert marked._read(marked.table) == before


def test_vectors_next_to_each_other_are_requested_once(tmp_path: Path, levels: Marked) -> None:
    marked = copied(levels, tmp_path)
    directory = TableDirectory.of(marked.table)
    (bucket,) = marked.buckets()
    files = [file for file in bucket.files if file.deletions is not None]
    assert len(files) == 3
    reader = FileReader(PaimonTable(marked.table), directory, lambda: None).expecting(files)
    asked = directory.store.requests["read"]
    for file in files:
        assert not list(reader.records([file], levels=False))
    assert directory.store.requests["read"] <= asked + 2, "the schema, and the index file"
