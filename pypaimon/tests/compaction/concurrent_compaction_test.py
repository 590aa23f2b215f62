"""What others do to a table while it is compacted, requests that fail, and processes that die: no row is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import compact, stream_write_builder
from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.live_files import LiveEntries
from pypaimon.streaming.compaction.tasks import Threads
from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import AtomicType
from pypaimon.streaming.paimon.write_internals import SchemaChange
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.spark.sink_world import COLUMNS, World, write
from support.tables.handles import batch_table, create_table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

DUE = {"num-sorted-run.compaction-trigger": "2", "compaction.min.file-num": "2"}
LAST = 60
STEP = 1 if SOAK else 9


def world_of(directory: Path, *, keyed: bool) -> World:
    world = World(directory, keyed=keyed)
    for _ in range(3):
        world.run()
    return world


def rows_of(table: Any) -> list[tuple[int, int]]:
    data = batch_table(table)
    return list(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def due(world: World, file_io: MortalFileIO | None = None) -> Any:
    return world.table(file_io).copy(DUE)


def meanwhile(world: World, action: Callable[[], Any]) -> Any:
    """A handle of the table at whose last but one request before publishing something else happens."""
    counting = MortalFileIO()
    trial = World(world.path.parent.parent / "trial", keyed=world.keyed)
    for _ in range(3):
        trial.run()
    compact(due(trial, counting), full=True)
    file_io = MortalFileIO()
    file_io.interruption = (counting.steps - 5, action)
    return due(world, file_io)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_writer_commits_meanwhile(tmp_path: Path, keyed: bool) -> None:
    world = world_of(tmp_path / "w", keyed=keyed)
    report = compact(meanwhile(world, world.other), full=True)
    assert len(report.new_snapshot_ids) == 1
    world.check()
    assert not report.conflicts
    compact(due(world), full=True)
    world.check()
    assert world.live_files() <= world.data_files()


@pytest.mark.parametrize("keyed", [False, True])
def test_another_compaction_was_faster(tmp_path: Path, keyed: bool) -> None:
    world = world_of(tmp_path / "w", keyed=keyed)
    faster: list[Any] = []
    report = compact(meanwhile(world, lambda: faster.append(compact(due(world), full=True))), full=True)
    assert faster[0].new_snapshot_ids
    assert report.conflicts
    assert not report.new_snapshot_ids
    world.check()
    # What the slower one wrote is gone; the files of the state before stay until it expires.
    fresh = compact(due(world), full=True)
    assert not fresh.compacted
    assert world.live_files() <= world.data_files()


@pytest.mark.parametrize("keyed", [False, True])
def test_it_takes_longer_than_snapshots_are_kept(tmp_path: Path, keyed: bool) -> None:
    world = world_of(tmp_path / "w", keyed=keyed)
    others = iter([3])

    def meanwhile() -> None:
        for count in others:
            for _ in range(count):
                world.other()
            world.expire()

    report = Compaction(PaimonTable(due(world)), full=True).run(check=meanwhile)
    assert report.new_snapshot_ids == (world.latest(),)
    assert not report.conflicts
    world.check()
    compact(due(world), full=True)
    world.check()


def test_of_a_table_that_is_rolled_back_meanwhile_no_file_is_left_over(tmp_path: Path) -> None:
    world = world_of(tmp_path / "w", keyed=False)
    files = world.data_files()

    def meanwhile() -> None:
        (world.path / "snapshot" / "snapshot-3").unlink(missing_ok=True)
        (world.path / "snapshot" / "LATEST").write_text("2")

    with pytest.raises(PaimonStreamError, match=r"rolled back to before snapshot 3.*its files are deleted"):
        Compaction(PaimonTable(due(world)), full=True).run(check=meanwhile)
    assert world.data_files() == files


@pytest.mark.parametrize("keyed", [False, True])
def test_a_process_dies_at_every_request(tmp_path: Path, keyed: bool) -> None:
    for steps in range(1 + sample_seed() % STEP, LAST, STEP):
        world = world_of(tmp_path / str(steps), keyed=keyed)
        try:
            compact(due(world, MortalFileIO(steps)), full=True)
        except Killed:
            world.check()
            compact(due(world), full=True)
            world.check()
            assert world.live_files() <= world.data_files()
            continue
        break
    assert 9 < steps < LAST - STEP


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_file_stops_it_and_changes_nothing(tmp_path: Path, threads: int) -> None:
    world = world_of(tmp_path, keyed=True)
    before, latest = world.data_files(), world.latest()
    victim = next(path for path in world.path.rglob("data-*") if path.name in world.live_files())
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(CorruptTableError, match=victim.name):
        compact(due(world), full=True, threads=threads)
    assert (world.data_files(), world.latest()) == (before, latest)


def test_a_missing_file_stops_it_and_changes_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=True)
    victim = next(path for path in world.path.rglob("data-*") if path.name in world.live_files())
    victim.unlink()
    before, latest = world.data_files(), world.latest()
    with pytest.raises(CorruptTableError, match=victim.name):
        compact(due(world), full=True)
    assert (world.data_files(), world.latest()) == (before, latest)


@pytest.mark.parametrize(("keyed", "threads"), [(False, 1), (True, 1), (True, 2)])
def test_files_that_others_have_replaced_and_that_have_expired_are_a_conflict(
    tmp_path: Path, keyed: bool, threads: int
) -> None:
    catalog = World(tmp_path).catalog
    keys = {"primary_keys": ["id", "v"], "options": {"bucket": "1"}} if keyed else {}
    table = create_table(catalog, "parts", COLUMNS, partition_keys=["v"], **keys)

    def commit(row: tuple[int, int], overwrite: bool) -> None:
        commit_batch(PaimonTable(table), write(table, [row], "writer", overwrite), overwrite=overwrite)

    for number in range(6):
        commit((number, number % 2), False)
    path = Path(str(table.table_path))
    replaced = [*(path / "v=1").rglob("data-*"), *(path / "snapshot").glob("snapshot-*")]
    others, lock = iter([(7, 1)]), threading.Lock()

    def meanwhile() -> None:
        with lock:
            for row in others:
                commit(row, True)
                for each in replaced:
                    each.unlink()

    report = Compaction(PaimonTable(table), full=True, workers=Threads(threads)).run(check=meanwhile)
    assert [each.partition for each in report.compacted] == [{"v": 0}]
    assert [each.partition for each in report.conflicts] == [{"v": 1}]
    assert sorted(rows_of(table)) == [(0, 0), (2, 0), (4, 0), (7, 1)]


def test_a_list_of_changes_that_has_expired_has_all_looked_at(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=False)
    directory = TableDirectory.of(world.table())
    entries = LiveEntries()
    entries.look(directory, directory.snapshots.get(1))
    second, last = directory.snapshots.get(2), directory.snapshots.get(3)
    (world.path / "manifest" / second.delta_manifest_list).unlink()
    assert set(entries.look(directory, last)["file_name"].to_pylist()) == world.live_files()


def test_the_table_is_altered_and_written_between_any_two_requests(tmp_path: Path) -> None:
    for steps in range(1, 6):
        world = world_of(tmp_path / str(steps), keyed=False)

        def alter(world: World = world) -> None:
            world.catalog.alter_table("db.t", [SchemaChange.add_column("more", AtomicType("INT"))], False)
            world.other()

        file_io = MortalFileIO()
        file_io.interruption = (steps, alter)
        assert compact(due(world, file_io)).new_snapshot_ids
        assert world.rows() == world.model


def test_after_many_snapshots_all_is_looked_at(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=False)
    directory = TableDirectory.of(world.table())
    entries = LiveEntries()
    entries.look(directory, directory.snapshots.get(1))
    last = (world.path / "snapshot" / "snapshot-3").read_text()
    for number in range(4, 200):
        (world.path / "snapshot" / f"snapshot-{number}").write_text(last.replace('"id": 3,', f'"id": {number},'))
    snapshot = directory.snapshots.get(199)
    asked = directory.store.requests["read"]
    assert set(entries.look(directory, snapshot)["file_name"].to_pylist()) == world.live_files()
    assert directory.store.requests["read"] < asked + 20


def test_several_threads_do_what_one_does(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=True)
    dry = compact(due(world), full=True, dry_run=True)
    report = compact(due(world), full=True, threads=3)
    assert len(report.compacted) > 1
    assert report.before == dry.before
    world.check()
    assert not compact(due(world), full=True).compacted


def test_each_run_of_one_compaction_commits_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=False)
    compaction = Compaction(PaimonTable(due(world)), full=True)
    assert len(compaction.run().new_snapshot_ids) == 1
    assert not compaction.run().new_snapshot_ids
    for _ in range(3):
        world.run()
    assert len(compaction.run().new_snapshot_ids) == 1
    world.check()


def test_a_compaction_stopped_in_the_middle_of_a_bucket_leaves_no_file(tmp_path: Path) -> None:
    catalog = World(tmp_path).catalog
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    options = {
        "bucket": "1",
        "target-file-size": "20 kb",
        "file-index.bloom-filter.columns": "v",
        "file-index.in-manifest-threshold": "1 b",
    }
    table = create_table(catalog, "t2", columns, primary_keys=["id"], options=options)
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        # The one that is large, and overlaps no other, lies between two that are rewritten.
        for first, count in ((0, 100), (0, 100), (100, 1000), (1100, 100), (1100, 100)):
            ids = range(first, first + count)
            writer.write(pa.table([pa.array(ids), [f"{number * 7919**9}" for number in ids]], schema=columns))
            writer.commit()
    files = set(Path(str(table.table_path)).glob("bucket-0/*"))
    batches = iter(range(4))

    def stop() -> None:
        if next(batches, None) is None:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        Compaction(PaimonTable(table), full=True).run(check=stop)
    assert set(Path(str(table.table_path)).glob("bucket-0/*")) == files


@pytest.mark.parametrize("keys", [[], ["id"]], ids=["append", "keyed"])
@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_nulls_from_before_a_column_was_not_null_are_an_error_of_their_file(
    tmp_path: Path, format_: str, keys: list[str]
) -> None:
    catalog = World(tmp_path).catalog
    options = {"file.format": format_, "alter-column-null-to-not-null.disabled": "false"} | (
        {"bucket": "1"} if keys else {}
    )
    catalog.create_table("db.nulls", Schema.from_pyarrow_schema(COLUMNS, primary_keys=keys, options=options), False)
    directory = Path(str(catalog.get_table("db.nulls").table_path))
    with stream_write_builder(catalog.get_table("db.nulls")).with_commit_user("writer").open_sync() as writer:
        for rows in ([[1], [1]], [[2], [None]]):
            before = set(directory.rglob("data-*"))
            writer.write(pa.table(rows, schema=COLUMNS))
            writer.commit()
    (damaged,) = set(directory.rglob("data-*")) - before
    catalog.alter_table("db.nulls", [SchemaChange.update_column_nullability(["v"], False)], False)
    with pytest.raises(CorruptTableError, match="column 'v' is BIGINT NOT NULL, and a row holds null in it") as caught:
        compact(catalog.get_table("db.nulls"), full=True)
    assert not caught.value.retriable
    assert Path(caught.value.path).name == damaged.name
    assert set(directory.rglob("data-*")) == {*before, damaged}


def test_options_that_are_altered_make_other_files_due(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=False)
    compaction = Compaction(PaimonTable(world.table()))
    assert not compaction.run().compacted
    world.catalog.alter_table("db.t", [SchemaChange.set_option("compaction.min.file-num", "2")], False)
    assert compaction.run().compacted
    world.check()


def test_keys_may_differ_by_a_nanosecond_from_file_to_file(tmp_path: Path) -> None:
    catalog = World(tmp_path).catalog
    columns = pa.schema([pa.field("id", pa.timestamp("ns"), nullable=False), ("v", pa.int64())])
    table = create_table(
        catalog, "fine", columns, primary_keys=["id"], options={"bucket": "1", "target-file-size": "1 b"}
    )
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        for _ in range(2):
            writer.write(pa.table([pa.array([1, 2, 3], pa.timestamp("ns")), [1, 2, 3]], schema=columns))
            writer.commit()
    assert compact(table, full=True).after.files == 3


def test_a_column_may_be_called_after_a_type_that_is_refused(tmp_path: Path) -> None:
    catalog = World(tmp_path).catalog
    columns = pa.schema([("place", pa.struct([("blob_id", pa.int64())]))])
    catalog.create_table("db.named", Schema.from_pyarrow_schema(columns), False)
    assert compact(catalog.get_table("db.named")).snapshot_id is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"deletion-vectors.enabled": "true", "merge-engine": "first-row"}, "deletion-vectors.enabled.*first-row"),
        ({"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"}, "full-compaction"),
        ({"pk-btree.index.columns": "v"}, "pk-btree"),
        ({"record-level.expire-time": "1 d"}, "record-level.time-field"),
        ({"file-index.bsi.columns": "k"}, "file indexes"),
        ({"file.format": "csv"}, "csv"),
    ],
)
def test_what_cannot_be_compacted_is_refused_before_a_byte_is_written(
    tmp_path: Path, options: dict[str, str], named: str
) -> None:
    world = world_of(tmp_path, keyed=True)
    before = world.data_files()
    with pytest.raises(UnsupportedTableError, match=named):
        compact(world.table().copy_without_time_travel(options), full=True)
    assert world.data_files() == before


def test_a_table_without_a_snapshot_has_nothing_to_do(tmp_path: Path) -> None:
    report = compact(World(tmp_path).table())
    assert (report.snapshot_id, report.compacted) == (None, ())


def test_errors_are_those_of_this_library(tmp_path: Path) -> None:
    world = world_of(tmp_path, keyed=True)
    with pytest.raises(PaimonStreamError, match="the table has no partitions"):
        compact(world.table(), partition={"day": "2026-01-01"})
