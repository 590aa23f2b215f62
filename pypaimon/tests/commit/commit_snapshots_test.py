"""What the snapshots of commits say, of each kind, and which files their manifests hold."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder
from pypaimon.streaming.commit.idempotent_commit import commit_batch, commit_compaction, commit_once
from pypaimon.streaming.commit.request import CommitReport, CommitRequest
from pypaimon.streaming.errors import (
    CommitConflictError,
    CommitFailedError,
    PaimonStreamError,
    StreamConfigError,
    UnsupportedTableError,
)
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.write_internals import CommitMessage
from support.crash.crashing_file_io import MortalFileIO
from support.spark.sink_world import World, write
from support.stores.fault_file_io import FORBIDDEN, SCHEME, Call, FaultFileIO, failing
from support.tables import written_rows
from support.tables.handles import batch_table, catalog_with_database, create_table

LAST_SAFE_SNAPSHOT = "commit.strict-mode.last-safe-snapshot"

DAYS = pa.schema([("dt", pa.string()), ("v", pa.int64())])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def commit(world: World, identifier: int, rows: list[tuple[int, int]] | None = None, **settings: Any) -> CommitReport:
    """Commit rows, two by default."""
    rows = world.rows_of(identifier) if rows is None else rows
    messages = write(world.table(), rows, "query", False) if rows else []
    return commit_once(CommitRequest(PaimonTable(world.table()), "query", identifier, messages, **settings))


def snapshot(world: World, number: int | None = None) -> dict[str, Any]:
    found = json.loads((world.path / "snapshot" / f"snapshot-{number or world.latest()}").read_bytes())
    assert isinstance(found, dict)
    return found


def compaction(world: World, before: list[Any], rows: list[tuple[int, int]]) -> CommitMessage:
    """Files, and one with the rows of all of them."""
    (written,) = write(world.table(), rows, "compactor", False)
    after = [replace(file, file_source=1) for file in written.new_files]
    return CommitMessage(written.partition, written.bucket, [], compact_before=before, compact_after=after)


def test_the_fields_of_a_snapshot_are_javas(world: World) -> None:
    commit(world, 0)
    found = snapshot(world)
    named = {name: found.pop(name) for name in ("baseManifestList", "deltaManifestList", "uuid")}
    sizes = {name: found.pop(f"{name}Size") for name in ("baseManifestList", "deltaManifestList")}
    assert all((world.path / "manifest" / named[name]).stat().st_size == size for name, size in sizes.items())
    assert abs(found.pop("timeMillis") / 1000 - (world.path / "snapshot" / "snapshot-1").stat().st_mtime) < 60
    assert found == {
        "version": 3, "id": 1, "schemaId": 0, "commitUser": "query", "commitIdentifier": 0, "commitKind": "APPEND",
        "totalRecordCount": 2, "deltaRecordCount": 2, "nextRowId": 0,
    }  # fmt: skip


def test_a_commit_without_rows_leaves_a_snapshot_where_progress_needs_it(world: World) -> None:
    assert commit(world, 0, []).snapshot_id is None
    assert commit(world, 1, [], keep_empty=True, properties={"position": "7"}).snapshot_id == 1
    found = snapshot(world)
    assert (found["deltaRecordCount"], found["properties"]) == (0, {"position": "7"})
    assert commit(world, 1, [], keep_empty=True).repeated
    commit(world, 2)
    assert "properties" not in snapshot(world) and len(world.rows()) == 2


def test_the_watermark_never_falls_and_is_kept_where_none_is_given(world: World) -> None:
    marks = []
    for identifier, watermark in enumerate([None, 500, None, 400, 600]):
        commit(world, identifier, watermark=watermark)
        marks.append(snapshot(world).get("watermark"))
    assert marks == [None, 500, 500, 500, 600]


def test_statistics_of_the_table_are_kept_while_its_schema_is(world: World) -> None:
    commit(world, 0)
    path = world.path / "snapshot" / "snapshot-1"
    path.write_text(json.dumps({**snapshot(world), "statistics": "stat-1", "nextRowId": 12}))
    commit(world, 1)
    assert (snapshot(world)["statistics"], snapshot(world)["nextRowId"]) == ("stat-1", 12)
    commit(world, 2, schema_id=1)
    assert "statistics" not in snapshot(world) and snapshot(world)["schemaId"] == 1


def test_a_commit_of_changelog_alone_is_a_commit(world: World) -> None:
    (message,) = write(world.table(), [(1, 1)], "query", False)
    logged = CommitMessage(message.partition, message.bucket, [], changelog_files=message.new_files)
    assert commit_once(CommitRequest(PaimonTable(world.table()), "query", 0, [logged])).snapshot_id == 1
    found = snapshot(world)
    assert (found["changelogRecordCount"], found["totalRecordCount"]) == (1, 0)
    directory = TableDirectory.of(world.table())
    manifests = directory.manifests.manifest_list(found["changelogManifestList"], found["changelogManifestListSize"])
    assert directory.manifests.entries(manifests)["file_name"].to_pylist() == [message.new_files[0].file_name]


def test_frames_of_videos_are_refused(world: World) -> None:
    (message,) = write(world.table(), [(1, 1)], "query", False)
    apart = replace(message, new_files=[replace(message.new_files[0], file_name="data-1-0.video")])
    with pytest.raises(UnsupportedTableError, match=r"data-1-0\.video"):
        commit_once(CommitRequest(PaimonTable(world.table()), "query", 0, [apart]))
    assert world.latest() == 0


def test_a_compaction_replaces_files_and_keeps_what_came_meanwhile(world: World) -> None:
    messages = [write(world.table(), [(1, each)], "query", False)[0] for each in range(3)]
    for message in messages:
        commit_batch(PaimonTable(world.table()), [message], overwrite=False)
    before = [file for message in messages[:2] for file in message.new_files]
    work = compaction(world, before, [(1, 0), (1, 1)])
    report = commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [work]), planned_at=2)
    assert (report.snapshot_id, report.repeated, report.written.rows) == (4, False, 2)
    assert world.rows() == [(1, 0), (1, 1), (1, 2)]
    found = snapshot(world)
    assert (found["commitKind"], found["deltaRecordCount"], found["totalRecordCount"]) == ("COMPACT", 0, 3)
    directory = TableDirectory.of(world.table())
    manifests = directory.manifests.manifest_list(found["deltaManifestList"])
    # Expiry replays them in this order.
    assert directory.manifests.entries(manifests)["kind"].to_pylist() == [1, 1, 0]
    again = commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [work]), planned_at=2)
    assert (again.snapshot_id, again.repeated) == (4, True)
    assert world.rows() == [(1, 0), (1, 1), (1, 2)] and world.latest() == 4


def test_the_second_compaction_of_the_same_files_is_refused_and_its_files_are_deleted(world: World) -> None:
    (message,) = write(world.table(), [(1, 1)], "query", False)
    commit_batch(PaimonTable(world.table()), [message], overwrite=False)
    first, second = (compaction(world, message.new_files, [(1, 1)]) for _ in range(2))
    commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [first]), planned_at=1)
    with pytest.raises(CommitConflictError, match="not in the table any more"):
        commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 1, [second]), planned_at=1)
    assert world.rows() == [(1, 1)] and world.latest() == 2
    assert world.data_files() == world.live_files() | {message.new_files[0].file_name}


def test_files_of_a_compaction_stay_where_it_may_have_been_committed_before(world: World) -> None:
    (message,) = write(world.table(), [(1, 1)], "query", False)
    commit_batch(PaimonTable(world.table()), [message], overwrite=False)
    work = compaction(world, message.new_files, [(1, 1)])
    commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [work]), planned_at=1)
    for _ in range(2):
        world.other()
    (world.path / "snapshot" / "snapshot-2").unlink()
    with pytest.raises(CommitFailedError, match="its files are kept"):
        commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [work]), planned_at=1)
    assert world.rows() == sorted([(1, 1), *(row for row in world.rows() if row[0] == -1)])


@pytest.mark.slow
def test_files_of_a_compaction_that_was_committed_before_stay_whichever_request_fails(world: World) -> None:
    (message,) = write(world.table(), [(1, 1)], "query", False)
    commit_batch(PaimonTable(world.table()), [message], overwrite=False)
    work = compaction(world, message.new_files, [(1, 1)])
    commit_compaction(CommitRequest(PaimonTable(world.table()), "compactor", 0, [work]), planned_at=1)

    def refuse(call: Call) -> Any:
        # Nothing can be found out for a while, but files can be deleted.
        fails = call.kind != "delete" and len(file_io.calls) >= number
        return failing(FORBIDDEN)(call) if fails else call.answer()

    quick = {"commit.max-retries": "1", "commit.max-retry-wait": "1 ms"}
    for number in count(1):
        file_io = FaultFileIO()
        table = world.table(file_io).copy_without_time_travel(quick)
        table.table_path = f"{SCHEME}{world.path}"
        file_io.wherever(refuse)
        with suppress(PaimonStreamError):
            commit_compaction(CommitRequest(PaimonTable(table), "compactor", 0, [work]), planned_at=1)
        assert world.live_files() <= world.data_files()
        if len(file_io.calls) < number:
            break
    assert number > 3


@pytest.mark.slow
@pytest.mark.parametrize("further", [0, 1, 2, 3])
def test_files_stay_that_an_earlier_attempt_commits_at_any_moment_of_a_later_one(tmp_path: Path, further: int) -> None:
    """After so many further requests nothing can be found out for a while, but files can be deleted."""
    for number in count(1):
        if _requests_of_a_later_attempt(World(tmp_path / str(number)), number, further) < number:
            break
    assert number > 3


def _requests_of_a_later_attempt(world: World, number: int, further: int) -> int:
    """The requests of a later attempt, in the midst of which an earlier one with the same files commits."""
    messages, file_io = write(world.table(), [(1, 1)], "query", False), FaultFileIO()

    def answer(call: Call) -> Any:
        made = len(file_io.calls)
        if made == number:
            commit_once(CommitRequest(PaimonTable(world.table()), "query", 1, messages))
        fails = call.kind != "delete" and made >= number + further
        return failing(FORBIDDEN)(call) if fails else call.answer()

    table = world.table(file_io).copy_without_time_travel({"commit.max-retries": "1", "commit.max-retry-wait": "1 ms"})
    table.table_path = f"{SCHEME}{world.path}"
    file_io.wherever(answer)
    with suppress(PaimonStreamError, OSError):
        commit_once(CommitRequest(PaimonTable(table), "query", 1, messages))
    assert world.live_files() <= world.data_files()
    return len(file_io.calls)


def test_a_writer_that_compacts_too_makes_two_snapshots_of_one_identifier(world: World) -> None:
    (first,) = write(world.table(), [(1, 1)], "query", False)
    commit_batch(PaimonTable(world.table()), [first], overwrite=False)
    (second,) = write(world.table(), [(2, 2)], "query", False)
    work = compaction(world, first.new_files, [(1, 1)])
    both = replace(second, compact_before=work.compact_before, compact_after=work.compact_after)
    for repeated in (False, True):
        report = commit_once(CommitRequest(PaimonTable(world.table()), "query", 1, [both]))
        assert report.repeated == repeated and world.rows() == [(1, 1), (2, 2)]
    kinds = [(snapshot(world, number)["commitKind"], snapshot(world, number)["commitIdentifier"]) for number in (2, 3)]
    assert kinds == [("APPEND", 1), ("COMPACT", 1)] and world.latest() == 3


def test_a_compaction_that_cannot_follow_its_rows_is_left_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (first,) = write(world.table(), [(1, 1)], "query", False)
    work = compaction(world, first.new_files, [(1, 1)])
    (second,) = write(world.table(), [(2, 2)], "query", False)
    both = replace(second, compact_before=work.compact_before, compact_after=work.compact_after)
    commit_once(CommitRequest(PaimonTable(world.table()), "query", 1, [both], is_first_attempt=True))
    assert world.rows() == [(2, 2)] and world.latest() == 1
    assert "the compaction of a commit of db.t is left out" in caplog.text
    assert world.data_files() == world.live_files() | {first.new_files[0].file_name}


def days(tmp_path: Path) -> Any:
    """A table in partitions of days, with a row in each of three."""
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "days", DAYS, partition_keys=["dt"])
    commit_batch(PaimonTable(table), written(table, ("a", 1), ("b", 1), (None, 1)), overwrite=False)
    return table


def written(table: Any, *rows: tuple[str | None, int]) -> list[Any]:
    batch = pa.RecordBatch.from_pylist([{"dt": day, "v": value} for day, value in rows], DAYS)
    return written_rows.write(table, batch, user="query")


def held(table: Any) -> list[tuple[Any, ...]]:
    data = batch_table(table)
    return sorted(zip(data["dt"].to_pylist(), data["v"].to_pylist(), strict=True), key=str)


def spec(table: Any, value: str) -> PartitionSpec:
    return PartitionSpec.of(table.table_schema, {"dt": value}, "overwrite")


@pytest.mark.parametrize(
    ("overwrite", "expected"),
    [
        (False, [("a", 1), ("a", 2), ("b", 1), (None, 1)]),
        (True, [("a", 2), ("b", 1), (None, 1)]),
        ("a given one", [("a", 2), ("b", 1), (None, 1)]),
    ],
)
def test_an_overwrite_replaces_partitions(tmp_path: Path, overwrite: Any, expected: list[tuple[Any, int]]) -> None:
    table = days(tmp_path)
    commit_batch(
        PaimonTable(table),
        written(table, ("a", 2)),
        overwrite=overwrite if overwrite in (True, False) else spec(table, "a"),
    )
    assert held(table) == sorted(expected, key=str)
    found = TableDirectory.of(table).snapshots.get_latest_snapshot()
    assert found is not None and found.commit_kind == ("OVERWRITE" if overwrite else "APPEND")
    assert found.total_record_count == len(expected)


def test_an_overwrite_of_the_whole_table_needs_no_partition(tmp_path: Path) -> None:
    table = days(tmp_path).copy_without_time_travel({"dynamic-partition-overwrite": "false"})
    commit_batch(PaimonTable(table), [], overwrite=True)
    assert held(table) == []


def test_rows_of_other_partitions_than_are_overwritten_are_refused(tmp_path: Path) -> None:
    table = days(tmp_path)
    with pytest.raises(StreamConfigError, match=r"only .*'dt': 'b'.* is to be overwritten"):
        commit_batch(PaimonTable(table), written(table, ("a", 2)), overwrite=spec(table, "b"))
    assert held(table) == [("a", 1), ("b", 1), (None, 1)]


def test_new_rows_get_their_ids_when_they_are_committed(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    options = {"row-tracking.enabled": "true"}
    table = create_table(catalog, "days", DAYS, partition_keys=["dt"], options=options)
    for _ in range(2):
        commit_batch(PaimonTable(table), written(table, ("b", 1), ("a", 1), ("a", 2)), overwrite=False)
    directory = TableDirectory.of(table)
    latest = directory.snapshots.get_latest_snapshot()
    assert latest is not None and latest.next_row_id == 6
    entries = directory.manifests.entries(directory.manifests.manifest_list(latest.delta_manifest_list))
    columns = (entries[name].to_pylist() for name in ("row_count", "first_row_id", "max_sequence_number"))
    found = zip(*columns, strict=True)
    assert sorted(found) in ([(1, 3, 2), (2, 4, 2)], [(1, 5, 2), (2, 3, 2)])


@pytest.mark.parametrize("name", ["data-1-0.blob", "data-1-0.vector.avro"])
def test_columns_apart_are_refused_without_their_rows(tmp_path: Path, name: str) -> None:
    catalog = catalog_with_database(tmp_path)
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = create_table(catalog, "days", DAYS, options=options)
    (message,) = written(table, ("b", 1))
    apart = replace(message, new_files=[replace(message.new_files[0], file_name=name, write_cols=["dt"])])
    with pytest.raises(CommitFailedError, match=f"{re.escape(name)} holds columns of rows that are not part"):
        commit_batch(PaimonTable(table), [apart], overwrite=False)
    assert table.snapshot_manager().get_latest_snapshot() is None


def test_the_greatest_sequence_number_is_noted_where_writers_ask_for_it(tmp_path: Path) -> None:
    world = World(tmp_path, keyed=True)
    table = world.table().copy_without_time_travel({"write.sequence-number-init-mode": "snapshot"})
    noted = []
    for identifier in range(2):
        messages = write(world.table(), [(1, 1), (2, 2), (3, 3)], "query", False)
        commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages))
        greatest = max(file.max_sequence_number for message in messages for file in message.new_files)
        noted.append(snapshot(world)["properties"] == {"sequence.generation.max-sequence-number": str(greatest)})
    assert noted == [True, True]
    commit(world, 2)
    assert "properties" not in snapshot(world)
    commit_once(CommitRequest(PaimonTable(table), "query", 3, write(world.table(), [(1, 2)], "query", False)))
    # Of the commit before it nobody knows: who asks next looks at all files.
    assert "properties" not in snapshot(world)


def test_the_snapshot_is_the_sequence_number_where_it_orders_rows(tmp_path: Path) -> None:
    world = World(tmp_path, keyed=True)
    table = world.table().copy_without_time_travel({"sequence.snapshot-ordering": "true", "write-only": "true"})
    for identifier in range(2):
        messages = write(world.table(), [(1, 1), (2, 2), (3, 3)], "query", False)
        commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages))
    directory = TableDirectory.of(world.table())
    latest = directory.snapshots.get_latest_snapshot()
    assert latest is not None
    for name, number in ((latest.base_manifest_list, 1), (latest.delta_manifest_list, 2)):
        entries = directory.manifests.entries(directory.manifests.manifest_list(name))
        numbers = {*entries["min_sequence_number"].to_pylist(), *entries["max_sequence_number"].to_pylist()}
        assert numbers == {number}


@pytest.mark.parametrize("options", [{"manifest.format": "orc"}, {"manifest.compression": "brotli"}])
def test_manifests_that_cannot_be_written_are_refused_by_name(world: World, options: dict[str, str]) -> None:
    table = world.table().copy_without_time_travel(options)
    with pytest.raises((UnsupportedTableError, StreamConfigError), match=next(iter(options))):
        commit_once(CommitRequest(PaimonTable(table), "query", 0, write(world.table(), [(1, 1)], "query", False)))
    assert world.latest() == 0


@pytest.mark.parametrize("key", ["manifest.merge-min-count", "commit.max-retries", LAST_SAFE_SNAPSHOT])
def test_options_of_commits_are_read_before_a_file_is_written(world: World, key: str) -> None:
    table = world.table().copy_without_time_travel({key: "many"})
    for write_files in (lambda: stream_write_builder(table).open_sync().__enter__(), lambda: compact(table)):
        with pytest.raises(StreamConfigError, match=key):
            write_files()


@pytest.mark.parametrize("codec", ["null", "deflate", "zstd"])
def test_manifests_are_compressed_as_the_table_says(world: World, codec: str) -> None:
    table = world.table(MortalFileIO()).copy_without_time_travel({"manifest.compression": codec})
    commit_once(CommitRequest(PaimonTable(table), "query", 0, write(world.table(), [(1, 1)], "query", False)))
    name = {"zstd": b"zstandard"}.get(codec, codec.encode())
    assert all(name in path.read_bytes() for path in (world.path / "manifest").glob("manifest-*"))
    assert world.rows() == [(1, 1)]
