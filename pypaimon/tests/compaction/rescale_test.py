"""Rescaling: another number of buckets, the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CompactionReport,
    CorruptTableError,
    StrictModeError,
    UnsupportedTableError,
    compact,
    stream_write_builder,
    table_files,
)
from pypaimon.streaming.compaction import partition_rescale, rescale
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.tasks import Threads
from pypaimon.streaming.doctor import diagnose
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.docs.cli_runs import Program
from support.java.live import LiveJava
from support.java.shared_table import Shared
from support.samples import SOAK, sample_seed
from support.tables.named_files import needed_files
from support.tables.rescaled_tables import COLUMNS, altered, buckets_of, created, rows, state, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LAST, STEP = 400, 1 if SOAK else 29

CLUSTERED = {"pk-clustering-override": "true", "clustering.columns": "v"}
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by v": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "clustered": {**CLUSTERED, "deletion-vectors.enabled": "true"},
    "clustered, first-row": {**CLUSTERED, "merge-engine": "first-row", "ignore-delete": "true"},
    "append": {"bucket-key": "id"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buckets", [pytest.param(1, marks=pytest.mark.nightly), 5])
def test_the_rows_stay_and_streams_see_nothing(tmp_path: Path, kind: str, buckets: int) -> None:
    table = created(tmp_path, KINDS[kind])
    accepts_deletes = kind not in ("partial-update", "aggregation")
    write(table, 1, range(40))
    write(table, 2, range(0, 40, 3), deletes=accepts_deletes)
    compact(table, full=True)
    before, changes = state(table), rows(table, "earliest")
    table = altered(table, tmp_path, buckets)
    report = rescale(table, buckets)
    assert len(report.new_snapshot_ids) == 2 and not report.conflicts
    assert not [each for each in diagnose(table).findings if each.check == "overwrites"]
    assert state(table) == before
    assert buckets_of(table) == {p: set(range(buckets)) for p in (0, 1)}
    assert sorted(map(str, rows(table, "earliest"))) == sorted(map(str, changes))
    assert rescale(table, buckets).compacted == ()
    # The next compaction reports nothing again, and the table goes on.
    compact(table, full=True)
    assert sorted(map(str, rows(table, "earliest"))) == sorted(map(str, changes))
    write(table, 7, range(35, 45))
    compact(table, full=True)
    if kind not in ("aggregation", "first-row", "clustered, first-row", "append", "deduplicate by v"):
        assert state(table) == sorted(
            [(p, key, v) for p, key, v in before if key < 35] + [(p, key, 7) for p in (0, 1) for key in range(35, 45)]
        )


@pytest.mark.parametrize("postponed", [False, True])
def test_the_strict_mode_of_the_table_is_no_conflict(tmp_path: Path, postponed: bool) -> None:
    table = created(tmp_path, {"bucket": "-2", "postpone.default-bucket-num": "2"} if postponed else {})
    for value in range(3):
        write(table, value, range(20))
    assert compact(table, full=True).new_snapshot_ids
    write(table, 5, range(20))
    files = sorted(path for path in tmp_path.rglob("bucket-*/*"))
    strict = table.copy({"commit.strict-mode.last-safe-snapshot": "1"})
    with pytest.raises(StrictModeError):
        compact(strict) if postponed else rescale(strict, 3)
    assert sorted(path for path in tmp_path.rglob("bucket-*/*")) == files


def test_chosen_partitions_and_a_dry_run(tmp_path: Path) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    files = sorted(tmp_path.rglob("*"))
    dry = rescale(table, 3, where="p = 1", dry_run=True)
    assert {(each.partition["p"], each.bucket) for each in dry.compacted} == {(1, 0), (1, 1)}
    assert sorted(tmp_path.rglob("*")) == files
    rescale(table, 3, partition={"p": 1})
    assert buckets_of(table) == {0: {0, 1}, 1: {0, 1, 2}}


def test_idle_partitions_are_rescaled_although_they_were_compacted(tmp_path: Path) -> None:
    table = created(tmp_path, {"changelog-producer": "full-compaction"})
    write(table, 1, range(20))
    write(table, 2, range(20))
    assert rescale(table, 3, partition_idle_time=0.001).compacted
    assert buckets_of(table) == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert not rescale(table, 2, partition_idle_time=3600).compacted


def test_a_column_that_is_added_meanwhile_keeps_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    rescaled = partition_rescale._rescaled

    def late(*arguments: Any, **options: Any) -> CompactionReport:
        catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
        catalog.alter_table("d.t", [SchemaChange.add_column("w", AtomicType("INT"))], False)
        row = {"id": 1, "p": 0, "v": 1, "w": 5}
        columns = COLUMNS.append(pa.field("w", pa.int32()))
        with stream_write_builder(catalog.get_table("d.t")).with_commit_user("new").open_sync() as writer:
            writer.write(pa.Table.from_pylist([row], columns))
            writer.commit()
        return rescaled(*arguments, **options)

    monkeypatch.setattr(partition_rescale, "_rescaled", late)
    rescale(table, 3)
    latest = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    assert buckets_of(latest) == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert [(row["id"], row["w"]) for row in rows(latest, "latest-full") if row["w"] is not None] == [(1, 5)]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    before = set(tmp_path.rglob("*.parquet"))
    lost = min(before)
    lost.unlink()
    with pytest.raises(CorruptTableError, match=lost.name):
        rescale(table, 3)
    assert set(tmp_path.rglob("*.parquet")) == before - {lost}


def test_what_is_appended_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    rescaling = partition_rescale
    commit = rescaling.commit_replacement

    def late(*arguments: Any) -> Any:
        write(table, 2, range(3))
        return commit(*arguments)

    monkeypatch.setattr(rescaling, "commit_replacement", late)
    report = rescale(table, 3)
    assert not report.new_snapshot_ids and len(report.conflicts) == 4
    assert state(table) == [(p, key, 2 if key < 3 else 1) for p in (0, 1) for key in range(20)]


def test_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    commit, others = partition_rescale.commit_replacement, list[CompactionReport]()

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(partition_rescale, "commit_replacement", commit)
        others.append(rescale(table, 5, partition={"p": 0}))
        return commit(*arguments)

    monkeypatch.setattr(partition_rescale, "commit_replacement", late)
    report = rescale(table, 3)
    assert (
        {each.partition["p"] for each in others[0].compacted}
        == {0}
        == {each.partition["p"] for each in report.conflicts}
    )
    assert {each.partition["p"] for each in report.compacted} == {1}
    assert buckets_of(table) == {0: set(range(5)), 1: set(range(3))}
    assert state(table) == [(p, key, 1) for p in (0, 1) for key in range(20)]
    assert {path.name for path in tmp_path.rglob("bucket-*/*")} <= needed_files(tmp_path / "d.db" / "t")


@pytest.mark.parametrize("kind", ["deduplicate", "lookup"])
def test_a_process_dies_at_every_request(tmp_path: Path, kind: str) -> None:
    for steps in range(1 + sample_seed() % STEP, LAST, STEP):
        table = created(tmp_path / str(steps), KINDS[kind])
        write(table, 1, range(20))
        dying = table.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            rescale(dying, 3)
        except Killed:
            rescale(table, 3)
            assert buckets_of(table) == {0: {0, 1, 2}, 1: {0, 1, 2}}
            assert state(table) == [(p, key, 1) for p in (0, 1) for key in range(20)]
            continue
        break
    assert STEP < steps < LAST - STEP


def test_postponed_rows_are_distributed_first(tmp_path: Path) -> None:
    table = created(tmp_path, {"bucket": "-2", "postpone.default-bucket-num": "2"})
    write(table, 1, range(20))
    assert rescale(table, 3).compacted
    assert buckets_of(table) == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert state(table) == [(p, key, 1) for p in (0, 1) for key in range(20)]


def test_conflicts_of_the_compaction_before_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(tmp_path, {"bucket": "-2", "postpone.default-bucket-num": "2"})
    write(table, 1, range(20))
    others = iter([{"p": 0}])

    def replace() -> None:
        for partition in others:
            row = {"id": 5, "p": 0, "v": 7}
            builder = stream_write_builder(table).with_commit_user("other").with_overwrite(partition)
            with builder.open_sync() as writer:
                writer.write(pa.Table.from_pylist([row], COLUMNS))
                writer.commit()

    class Beaten(Compaction):
        def run(self, **arguments: Any) -> CompactionReport:
            return super().run(check=replace, **arguments)

    monkeypatch.setattr(partition_rescale, "Compaction", Beaten)
    report = rescale(table, 3)
    assert {each.partition["p"] for each in report.conflicts} == {0} and -2 in {
        each.bucket for each in report.conflicts
    }
    assert {each.partition["p"] for each in report.compacted} == {1}


def test_it_compacts_only_what_the_rescale_needs(tmp_path: Path) -> None:
    table = created(tmp_path, {})
    for turn in range(4):
        write(table, turn, range(20))
    assert len(rescale(table, 3).new_snapshot_ids) == 2
    assert kinds(tmp_path) == ["APPEND"] * 4 + ["OVERWRITE"] * 2
    looked_up = created(tmp_path / "lookup", {"changelog-producer": "lookup"})
    write(looked_up, 1, range(20))
    rescale(looked_up, 3, partition={"p": 0})
    looked_up = altered(looked_up, tmp_path / "lookup", 3)
    assert kinds(tmp_path / "lookup") == ["APPEND", "COMPACT", "OVERWRITE"]
    files = [each.files.files for each in table_files(looked_up).buckets if each.partition["p"] == 1]
    rescale(looked_up, 2)
    assert kinds(tmp_path / "lookup") == ["APPEND", "COMPACT", "OVERWRITE", "OVERWRITE"]
    assert [each.files.files for each in table_files(looked_up).buckets if each.partition["p"] == 1] == files


def kinds(directory: Path) -> list[str]:
    snapshots = (directory / "d.db" / "t" / "snapshot").glob("snapshot-*")
    found = sorted((json.loads(path.read_text()) for path in snapshots), key=lambda each: int(each["id"]))
    return [each["commitKind"] for each in found]


def test_a_table_without_fixed_buckets_is_refused(tmp_path: Path) -> None:
    table = created(tmp_path, {"bucket": "-1"})
    with pytest.raises(UnsupportedTableError, match="no fixed number of buckets"):
        rescale(table, 3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(20))
    program = Program(tmp_path, capsys)
    dry = json.loads(program("rescale", "d.t", "3", "--dry-run", "--json").out)
    assert len(dry["compacted"]) == 4 and buckets_of(table) == {0: {0, 1}, 1: {0, 1}}
    assert "d.t: 4 files" in program("rescale", "d.t", "3").out
    assert buckets_of(table) == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert "nothing is due" in program("rescale", "d.t", "3").out


@pytest.mark.java
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_java_continues_in_the_new_buckets(java: LiveJava, tmp_path: Path, producer: str) -> None:
    shared = Shared(java, tmp_path, keyed=True, **{"bucket": "2", "changelog-producer": producer})
    for turn in range(3):
        shared.ours((turn, f"ours {turn}"))
        shared.ours((50 + turn, "ours"))
        shared.javas((turn, f"java {turn}"), (100 + turn, "java"))
    java.call("alter", changes=[["set", "bucket", "3"]])
    rescale(shared.table, 3)
    shared.check()
    shared.javas((1, "java again"), (200, "java"))
    java.call("compact", full=True, options={"write-only": "false"})
    shared.check()
    shared.ours((2, "ours again"))
    compact(shared.table, full=True)
    shared.check()


def test_the_snapshot_names_the_schema_that_is_the_latest_when_it_is_committed(tmp_path: Path) -> None:
    table = created(tmp_path, {})
    write(table, 1, range(8))
    given = PaimonTable(altered(table, tmp_path, 3))

    class AlteringFirst(Threads):
        def execute(self, *arguments: Any, **named: Any) -> None:
            change = SchemaChange.add_column("more", AtomicType("INT"))
            CatalogFactory.create({"warehouse": str(tmp_path)}).alter_table("d.t", [change], False)
            super().execute(*arguments, **named)

    chosen = ChosenPartitions(given, {"p": 0})
    report = partition_rescale.rescale_partitions(given, 3, chosen, dry_run=False, dividing=AlteringFirst(1))
    (number,) = report.new_snapshot_ids
    snapshot = json.loads((Path(given.path) / "snapshot" / f"snapshot-{number}").read_text())
    assert snapshot["schemaId"] == given.new_directory().latest_schema().id == 2
