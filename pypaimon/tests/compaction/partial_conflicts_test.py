"""One bucket that another job has changed does not throw away the work of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import CompactionReport, compact
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.tasks import CompactionTask, Done, TaskPicker, Threads
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.tables.named_files import needed_files
from support.tables.rescaled_tables import created, rows, state, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "lookup": {"changelog-producer": "lookup"},
    "merged changelogs": {"changelog-producer": "lookup", "precommit-compact": "true"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "append with buckets": {"bucket-key": "id", "compaction.min.file-num": "2"},
}
BUCKETS = 6
LAST, STEP = 220, 1 if SOAK else 19


class First(Threads):
    """Executes the first task alone, as another job does that found no more than that."""

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        super().execute(table, picker, tasks[:1], done)


def filled(directory: Path, kind: str) -> Any:
    table = created(directory, {**KINDS[kind], "bucket": str(BUCKETS)})
    for turn in range(3):
        write(table, turn, range(40 - turn))
    return table


def other_job(table: Any) -> CompactionReport:
    return Compaction(PaimonTable(table), full=True, workers=First(1)).run()


def compacted(table: Any, meanwhile: Callable[[], object]) -> CompactionReport:
    """Compact, and let others act after the files were written and before they are committed."""
    called: list[int] = []

    def on_progress(done: int, total: int) -> None:
        if done == total and not called:
            called.append(done)
            meanwhile()

    return compact(table, full=True, on_progress=on_progress)


def unnamed(directory: Path) -> set[str]:
    home = directory / "d.db" / "t"
    found = {path for path in home.rglob("*/bucket-*/*") if path.is_file()} | set(home.glob("index/*"))
    return {path.name for path in found} - needed_files(home)


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_buckets_are_committed(tmp_path: Path, kind: str) -> None:
    table = filled(tmp_path / "w", kind)
    others: list[CompactionReport] = []
    report = compacted(table, lambda: others.append(other_job(table)))
    (other,) = others[0].compacted
    assert [(each.partition, each.bucket) for each in report.conflicts] == [(other.partition, other.bucket)]
    assert len(report.compacted) == 2 * BUCKETS - 1 and len(report.new_snapshot_ids) == 1
    assert not unnamed(tmp_path / "w")
    assert not compact(table, full=True).compacted
    undisturbed = filled(tmp_path / "alone", kind)
    compact(undisturbed, full=True)
    assert state(table) == state(undisturbed) != []
    assert sorted(map(str, rows(table, "earliest"))) == sorted(map(str, rows(undisturbed, "earliest")))


def test_files_of_a_partition_that_is_gone_are_deleted(tmp_path: Path) -> None:
    table = filled(tmp_path, "lookup")
    builder = table.new_batch_write_builder()
    report = compacted(table, lambda: builder.new_commit().truncate_partitions([{"p": 1}]))
    assert {each.partition["p"] for each in report.conflicts} == {1}
    assert {each.partition["p"] for each in report.compacted} == {0} and not unnamed(tmp_path)
    assert {p for p, _, _ in state(table)} == {0}


def test_if_all_buckets_conflict_nothing_is_committed(tmp_path: Path) -> None:
    table = filled(tmp_path, "lookup")
    report = compacted(table, lambda: compact(table, full=True))
    assert len(report.conflicts) == 2 * BUCKETS and not report.compacted and not report.new_snapshot_ids
    assert not unnamed(tmp_path)


class Expired(LocalFileIO):  # type: ignore[misc]
    """The snapshot of this name has expired at once."""

    name = ""

    def new_input_stream(self, path: Any) -> Any:
        if self.name and str(path).endswith(self.name):
            raise FileNotFoundError(path)
        return super().new_input_stream(path)


def test_a_snapshot_that_expires_at_once_is_no_error(tmp_path: Path) -> None:
    table = filled(tmp_path / "w", "lookup")
    running = table.copy({})
    running.file_io = Expired()

    def other() -> None:
        (number,) = other_job(table).new_snapshot_ids
        running.file_io.name = f"snapshot-{number + 1}"

    report = compacted(running, other)
    assert len(report.compacted) == 2 * BUCKETS - 1 and len(report.conflicts) == len(report.new_snapshot_ids) == 1
    # Which files the snapshot names is not known, so none is deleted.
    assert unnamed(tmp_path / "w")
    undisturbed = filled(tmp_path / "alone", "lookup")
    compact(undisturbed, full=True)
    assert state(table) == state(undisturbed) != []


@pytest.mark.parametrize("kind", ["merged changelogs", "deletion vectors"])
def test_a_process_dies_at_every_request(tmp_path: Path, kind: str) -> None:
    undisturbed = filled(tmp_path / "alone", kind)
    compact(undisturbed, full=True)
    for steps in range(LAST - 1 - sample_seed() % STEP, 0, -STEP):
        home = tmp_path / str(steps)
        table = filled(home, kind)
        dying = table.copy({})
        dying.file_io = MortalFileIO(10_000)

        def other(table: Any = table, dying: Any = dying, steps: int = steps) -> None:
            other_job(table)
            dying.file_io.steps_left = steps

        try:
            compacted(dying, other)
        except Killed:
            compact(table, full=True)
        else:
            assert not unnamed(home)
        assert state(table) == state(undisturbed)
