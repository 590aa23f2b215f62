"""Postponed buckets: compaction distributes their records over real buckets, in the order of writing."""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import CompactionReport, compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.commit.idempotent_commit import commit_compaction
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.tasks import Threads
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK
from support.tables.named_files import needed_files

pytestmark = [pytest.mark.slow, pytest.mark.soak]

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False), ("v", pa.int64())]
)
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by v": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": SUM,
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup of sums": {**SUM, "changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
}
LAST, STEP = 90, 1 if SOAK else 7
Rows = list[tuple[int, int, int, bool]]


def create(catalog: Any, name: str, options: dict[str, str]) -> Any:
    schema = Schema.from_pyarrow_schema(COLUMNS, partition_keys=["p"], primary_keys=["id", "p"], options=options)
    catalog.create_table(name, schema, False)
    return catalog.get_table(name)


def write(table: Any, rows: Rows, user: str = "writer") -> None:
    found = [{"id": key, "p": p, "v": v, "_row_kind": "-D" if gone else "+I"} for key, p, v, gone in rows]
    with stream_write_builder(table).with_commit_user(user).open_sync() as writer:
        writer.write(pa.Table.from_pylist(found, KINDED))
        writer.commit()


def batches(table: Any, start: str) -> list[dict[str, Any]]:
    builder = stream_read_builder(table).with_start(start).with_end(latest=True).with_include_row_kind()
    builder.with_raw("changelog-producer" not in PaimonTable(table).options)
    with builder.open_sync() as stream:
        return [row for batch in stream for row in batch.data.to_pylist()]


def state(table: Any) -> list[tuple[int, int, int]]:
    return sorted((row["p"], row["id"], row["v"]) for row in batches(table, "latest-full"))


def folded(table: Any) -> list[tuple[int, int, int]]:
    """The state that follows from all changes since the beginning."""
    rows: dict[tuple[int, int], int] = {}
    for row in batches(table, "earliest"):
        place = row["p"], row["id"]
        if row["_row_kind"] in ("+I", "+U"):
            rows[place] = row["v"]
        else:
            assert rows.pop(place, None) is not None or row["_row_kind"] == "-D"
    return sorted((*place, v) for place, v in rows.items())


def both(directory: str | Path, options: dict[str, str]) -> tuple[Any, Any]:
    """A table with postponed buckets, and one with a fixed bucket that gets the same records."""
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    postponed = {"bucket": "-2", "postpone.target-row-num-per-bucket": "5", "num-sorted-run.compaction-trigger": "3"}
    return create(catalog, "d.t", {**options, **postponed}), create(catalog, "d.fixed", {**options, "bucket": "1"})


ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(-5, 5), st.booleans()), max_size=12)
STEPS = st.lists(st.one_of(ROWS, st.sampled_from(["due", "full"])), min_size=3, max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=200 if SOAK else 3, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
@given(steps=STEPS)
def test_rows_are_those_of_a_table_with_fixed_buckets(kind: str, steps: list[Any]) -> None:
    no_deletes = "aggregation" in KINDS[kind].get("merge-engine", "")
    with TemporaryDirectory() as directory:
        table, fixed = both(directory, KINDS[kind])
        again = Compaction(PaimonTable(table))
        for step in [*steps, "due"]:
            if isinstance(step, str):
                report = again.run() if step == "due" else compact(table, full=True)
                assert not report.conflicts
                compact(fixed, full=True)
                assert state(table) == state(fixed)
                assert not any(bucket.bucket == -2 for bucket in table_files(table).buckets)
                if KINDS[kind].get("changelog-producer"):
                    assert folded(table) == state(fixed)
                continue
            rows = [(key, p, v, gone and not no_deletes) for key, p, v, gone in step]
            for target in (table, fixed):
                write(target, rows)


def test_files_of_one_writer_keep_their_order_and_the_one_that_began_first_comes_first(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {})
    for user, v in (("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)):
        write(table, [(1, 0, v, False)], user)
    compact(table)
    assert state(table) == [(0, 1, 4)]


def test_the_number_of_buckets_follows_the_options_once_and_then_the_files(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {})
    write(table, [(key, 0, 0, False) for key in range(11)])
    assert {bucket.bucket for bucket in compacted(table)} <= {-2, 0, 1, 2}
    assert [each.bucket for each in table_files(table).buckets] == [0, 1, 2]
    write(table, [(key, p, 0, False) for key in range(99) for p in (0, 1)])
    compact(table.copy({"postpone.default-bucket-num": "2"}))
    of_partition = [(each.partition["p"], each.bucket) for each in table_files(table).buckets]
    assert of_partition == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def compacted(table: Any) -> Any:
    return compact(table).compacted


def test_a_dry_run_names_the_postponed_files_and_writes_nothing(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {})
    write(table, [(1, 0, 1, False)])
    before = sorted(tmp_path.rglob("*"))
    report = compact(table, dry_run=True)
    assert [(each.bucket, each.before.files) for each in report.compacted] == [(-2, 1)]
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_postponed_meanwhile_waits_for_the_next_compaction(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {"changelog-producer": "lookup"})
    write(table, [(1, 0, 1, False)])
    report = while_compacting(table, lambda: write(table, [(1, 0, 2, False)]))
    assert not report.conflicts and state(table) == [(0, 1, 1)]
    compact(table)
    assert state(table) == folded(table) == [(0, 1, 2)]


def test_another_compaction_of_the_partition_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    """Its records may be newer, and would have the same numbers."""
    table, _ = both(tmp_path, {})
    write(table, [(1, 0, 1, False)])

    def other() -> None:
        # Another job distributes what came later, and leaves the first file where it is.
        write(table, [(1, 0, 2, False)])
        compact(table)

    report = while_compacting(table, other)
    assert report.conflicts and not report.new_snapshot_ids
    compact(table)
    assert state(table) == [(0, 1, 2)]


def while_compacting(table: Any, call: Any) -> CompactionReport:
    """Compact, and make a call after the files were written and before they are committed."""
    told: list[int] = []

    def on_progress(done: int, total: int) -> None:
        if done == total and not told:
            told.append(done)
            call()

    return compact(table, on_progress=on_progress)


def test_a_rule_for_new_partitions_is_not_one_for_those_that_are_there(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {})
    write(table, [(1, 0, 1, False)])
    strict = {"partition.timestamp-format.strict": "true", "partition.timestamp-formatter": "yyyyMMdd"}
    compact(table.copy({**strict, "partition.timestamp-pattern": "$p"}))
    assert state(table) == [(0, 1, 1)]


def test_partitions_are_distributed_together_and_committed_one_by_one(tmp_path: Path) -> None:
    table, _ = both(tmp_path, {"changelog-producer": "lookup"})
    write(table, [(key, p, 1, False) for key in range(3) for p in range(4)])
    before = {path for path in tmp_path.rglob("*.*") if path.is_file()}
    together: list[int] = []

    class Counting(Threads):
        def execute(self, table: PaimonTable, picker: Any, tasks: Any, done: Any) -> None:
            together.append(len(tasks))
            super().execute(table, picker, tasks, done)
            # Another job takes one of the partitions.
            compact(table.handle, partition={"p": 2})

    report = Compaction(PaimonTable(table), workers=Counting(2)).run()
    assert together == [4] and len(report.new_snapshot_ids) == 3
    assert {each.partition["p"] for each in report.conflicts} == {2}
    assert state(table) == [(p, key, 1) for p in range(4) for key in range(3)]
    assert before < {path for path in tmp_path.rglob("*.*") if path.is_file()}
    assert not unnamed(tmp_path)


def test_a_failed_commit_leaves_no_file_of_the_partitions_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = both(tmp_path, {"changelog-producer": "lookup"})
    write(table, [(key, p, 1, False) for key in range(3) for p in range(3)])
    runs = importlib.import_module("pypaimon.streaming.compaction.compaction_run")
    commits: list[int] = []

    def commit(*arguments: Any, **options: Any) -> Any:
        commits.append(1)
        if len(commits) == 2:
            raise KeyboardInterrupt
        return commit_compaction(*arguments, **options)

    monkeypatch.setattr(runs, "commit_compaction", commit)
    with pytest.raises(KeyboardInterrupt):
        compact(table)
    # Those of the commit that was cut off are its own matter.
    partitions = {path.parents[1].name for path in unnamed(tmp_path)}
    assert len(partitions) <= 1


def unnamed(directory: Path) -> list[Path]:
    home = directory / "d.db" / "t"
    named = needed_files(home)
    return [path for path in home.rglob("bucket-*/*") if path.is_file() and path.name not in named]


def test_an_error_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = both(tmp_path, {"changelog-producer": "lookup"})
    write(table, [(key, 0, 1, False) for key in range(20)])
    before = sorted(tmp_path.rglob("*.*"))

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(table, on_progress=fail)
    assert [each for each in sorted(tmp_path.rglob("*.*")) if each.is_file()] == [
        each for each in before if each.is_file()
    ]


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(1, LAST, STEP):
        table, fixed = both(tmp_path / str(steps), {"changelog-producer": "lookup"})
        for target in (table, fixed):
            write(target, [(key, 0, 1, False) for key in range(9)])
            write(target, [(key, 0, 2, key == 3) for key in range(5)])
        compact(fixed, full=True)
        dying = table.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            compact(dying)
        except Killed:
            compact(table)
            assert state(table) == state(fixed) == folded(table)
            continue
        break
    assert steps > 12
