"""Partitions of the delta branch of a chain table are merged into its snapshot branch: once, whatever others do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, maintain, rollback
from pypaimon.streaming.compaction import chain_merge, compact_chain_table
from pypaimon.streaming.errors import (
    CommitConflictError,
    CommitFailedError,
    StreamConfigError,
    UnsupportedTableError,
)
from pypaimon.streaming.model.time_patterns import TimePattern
from support.corpus.cases import unpack
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.docs.cli_runs import Program
from support.samples import SOAK, sample_seed
from support.tables.chain_tables import DELTA, MERGED, SNAPSHOT, ChainTable, Change, read_all, two_regions
from support.tables.handles import batch_read

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LAST, STEP = 400, 1 if SOAK else 31
DAYS = [20260127 + day for day in range(5)]
TIMES = {"partition.timestamp-pattern": "$day", "partition.timestamp-formatter": "yyyyMMdd"}
FIRST, SECOND, THIRD, FOURTH, FIFTH = DAYS


def created(warehouse: Path, **options: str) -> ChainTable:
    return ChainTable(warehouse, **{**TIMES, **options})


def begun(warehouse: Path, **options: str) -> ChainTable:
    """The first day is whole, the next three have changes: of three keys one is changed and one deleted."""
    chain = created(warehouse, **options)
    chain.commit(SNAPSHOT, [("+I", "eu", FIRST, key, 1) for key in range(3)])
    chain.commit(DELTA, [("+U", "eu", SECOND, 0, 2), ("+I", "eu", SECOND, 3, 2)])
    chain.commit(DELTA, [("-D", "eu", THIRD, 1, 3), ("+I", "eu", THIRD, 4, 3)])
    chain.commit(DELTA, [("+U", "eu", FOURTH, 4, 4), ("+I", "us", FOURTH, 9, 4)])
    return chain


MERGED_ROWS = [(0, "v2"), (2, "v1"), (3, "v2"), (4, "v3")]
"""The rows of the third day of `begun`."""


def whole(chain: ChainTable, region: str = "eu", day: int = THIRD) -> list[tuple[int, str]]:
    """The rows of a partition of the snapshot branch, as pypaimon's batch reader finds them."""
    found = batch_read(chain.branch(SNAPSHOT))
    return sorted((row["k"], row["v"]) for row in found if (row["region"], row["day"]) == (region, day))


def expected(chain: ChainTable, region: str, day: int) -> list[tuple[int, int]]:
    """Keys and sequences of a partition of the chain, by the model."""
    bases = {each[2] for each in chain.written[SNAPSHOT] if each[1] == region and each[2] < day}
    base = max(bases, default=0)
    changes = [each for each in chain.written[SNAPSHOT] if each[1:3] == (region, base)]
    changes += [each for each in chain.written[DELTA] if each[1] == region and base < each[2] <= day]
    newest = {each[3]: each for each in sorted(changes, key=lambda each: each[4])}
    return sorted((key, each[4]) for key, each in newest.items() if each[0] != "-D")


def note_merge(chain: ChainTable, region: str, day: int) -> None:
    rows: list[Change] = [("+I", region, day, key, sequence) for key, sequence in expected(chain, region, day)]
    chain.written[SNAPSHOT] = [each for each in chain.written[SNAPSHOT] if each[1:3] != (region, day)] + rows


def files(chain: ChainTable) -> set[Path]:
    return {path for path in chain.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(40 if SOAK else 3))
def test_the_chain_reads_the_same_afterwards(tmp_path: Path, seed: int) -> None:
    rng = Random(f"{sample_seed()} {seed}")
    vectors = {"deletion-vectors.enabled": "true"} if rng.random() < 0.4 else {}
    chain = created(tmp_path, **{"write-only": "true", "bucket": rng.choice(["1", "3"]), **vectors})
    merges = 0
    for number, day in enumerate(DAYS):
        for region in ("eu", "us"):
            kinds, branch = (["+I"], SNAPSHOT) if rng.random() < 0.2 else (["+I", "+U", "-D"], DELTA)
            keys = rng.sample(range(8), rng.randint(1, 6))
            chain.commit(branch, [(rng.choice(kinds), region, day, key, 10 * number + key) for key in keys])
            if vectors:
                # Batch readers see compacted rows only.
                compact(chain.branch(branch), full=True)
        region, to_merge = rng.choice(["eu", "us"]), rng.choice(DAYS[: number + 1])
        is_new = not [each for each in chain.written[SNAPSHOT] if each[1:3] == (region, to_merge)]
        if [each for each in chain.written[DELTA] if each[1:3] == (region, to_merge)] and is_new:
            states = {(name, each): expected(chain, name, each) for name in ("eu", "us") for each in DAYS}
            report = compact_chain_table(chain.handle(), {"region": region, "day": to_merge})
            assert len(report.new_snapshot_ids) == bool(states[region, to_merge]) and not report.skipped
            note_merge(chain, region, to_merge)
            assert whole(chain, region, to_merge) == [(key, f"v{seq}") for key, seq in states[region, to_merge]]
            assert states == {(name, each): expected(chain, name, each) for name in ("eu", "us") for each in DAYS}
            merges += 1
        for options in ({}, MERGED):
            assert [rows for _, rows in read_all(chain.builder(**options))[:1]] == [
                chain.first_plan(merged=bool(options))
            ]
    assert merges


def test_all_partitions_with_a_value_are_merged_the_oldest_first(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    report = compact_chain_table(chain.handle(), {"region": "eu"})
    assert len(report.new_snapshot_ids) == 3
    assert [each.partition["day"] for each in report.compacted if each.after.files] == sorted(
        each.partition["day"] for each in report.compacted if each.after.files
    )
    assert whole(chain) == MERGED_ROWS
    assert whole(chain, day=FOURTH) == [*MERGED_ROWS[:3], (4, "v4")]
    assert not whole(chain, "us", FOURTH)


def test_what_was_merged_is_merged_again_on_demand_only(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    partition = {"region": "eu", "day": THIRD}
    compact_chain_table(chain.handle(), partition)
    chain.commit(DELTA, [("+I", "eu", SECOND, 7, 9)])
    before = files(chain)
    again = compact_chain_table(chain.handle(), partition)
    assert "overwrite=True" in again.skipped[0].reason and not again.new_snapshot_ids
    assert files(chain) == before and whole(chain) == MERGED_ROWS
    assert len(compact_chain_table(chain.handle(), partition, overwrite=True).new_snapshot_ids) == 1
    assert whole(chain) == [*MERGED_ROWS, (7, "v9")]
    # A partition that has no row is not kept with its old ones.
    chain.commit(DELTA, [("-D", "eu", THIRD, key, 10) for key in range(8)])
    compact_chain_table(chain.handle(), partition, overwrite=True)
    assert not whole(chain) and whole(chain, day=FIRST)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    before = files(chain)
    report = compact_chain_table(chain.handle(), {"day": FOURTH}, dry_run=True)
    assert {each.partition["region"]: each.before.rows for each in report.compacted if each.bucket == 0}
    assert sum(each.before.rows for each in report.compacted) == 9 and not report.after.files
    assert files(chain) == before


def test_options_of_reads_leave_out_no_row(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    compact_chain_table(chain.handle(scan__bucket="0"), {"region": "eu", "day": THIRD})
    assert whole(chain) == MERGED_ROWS
    with pytest.raises(StreamConfigError, match="Partition filter"):
        compact_chain_table(chain.handle(scan__partitions="region=eu,day=1"), {"region": "eu", "day": FOURTH})


def test_readers_of_deletion_vectors_see_what_was_merged(tmp_path: Path) -> None:
    chain = begun(tmp_path, **{"deletion-vectors.enabled": "true"})
    compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
    assert whole(chain) == MERGED_ROWS


@pytest.mark.parametrize("scenario", ["chain_table", "chain_table_dv"])
def test_rows_are_those_of_batch_reads_of_current_java(tmp_path: Path, scenario: str) -> None:
    """Of each partition, merged or whole, also with deletion vectors."""
    stored = unpack("java-2.1-more") / scenario
    batch = next(each for each in json.loads((stored / "expect.json").read_text())["batch"] if each["name"] == "latest")
    rows = [tuple(row[1:]) for row in batch["rows"]]
    merged = 0
    for day in {row[3] for row in rows}:
        shutil.copytree(stored / "wh", tmp_path / day)
        catalog = CatalogFactory.create({"warehouse": str(tmp_path / day)})
        report = compact_chain_table(catalog.get_table("d.t"), {"dt": day})
        found = [row for row in batch_read(catalog.get_table("d.t$branch_snapshot")) if row["dt"] == day]
        # Rows of the main branch are part of no chain.
        assert sorted(tuple(row.values()) for row in found) == [
            row for row in rows if row[3] == day and row[2] != "main"
        ]
        merged += len(report.new_snapshot_ids)
    assert merged == 2


def late_delta(chain: ChainTable) -> None:
    chain.commit(DELTA, [("+I", "eu", SECOND, 8, 8)])


def late_whole(chain: ChainTable) -> None:
    chain.commit(SNAPSHOT, [("+I", "eu", THIRD, 8, 8)])


def compactions(chain: ChainTable) -> None:
    for branch in (SNAPSHOT, DELTA):
        compact(chain.branch(branch), full=True)


def expiry(chain: ChainTable) -> None:
    """What is merged is rewritten, and the files that are read are deleted."""
    compactions(chain)
    for branch in (SNAPSHOT, DELTA):
        last = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
        maintain(chain.branch(branch).copy(last))


def others(chain: ChainTable) -> None:
    chain.commit(DELTA, [("+I", "eu", FIFTH, 8, 8), ("+I", "us", FIRST, 8, 8)])
    chain.commit(SNAPSHOT, [("+I", "us", FIRST, 8, 8)])


def same_merge(chain: ChainTable) -> None:
    compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})


def merge_before(chain: ChainTable) -> None:
    compact_chain_table(chain.handle(), {"region": "eu", "day": SECOND})


def new_column(chain: ChainTable) -> None:
    for branch in (SNAPSHOT, DELTA):
        chain.alter(branch, SchemaChange.add_column("w", AtomicType("INT")))


LATE = [*MERGED_ROWS, (8, "v8")]
MEANWHILE: dict[str, tuple[Callable[[ChainTable], None], list[list[tuple[int, str]]]]] = {
    "changes": (late_delta, [LATE]),
    # Before the merge begins it is the whole partition, and after it is merged an addition to it.
    "whole rows": (late_whole, [LATE, [(8, "v8")]]),
    "compactions": (compactions, [MERGED_ROWS]),
    "expiry": (expiry, [MERGED_ROWS]),
    "other partitions": (others, [MERGED_ROWS]),
    "the same merge": (same_merge, [MERGED_ROWS]),
    "the merge before": (merge_before, [MERGED_ROWS]),
    "another schema": (new_column, [MERGED_ROWS]),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_nothing_is_lost_beside_others(tmp_path: Path, what: str) -> None:
    """Whatever others do at whichever request, it is in the rows, or it is a conflict, which the next call settles."""
    action, outcomes = MEANWHILE[what]
    conflicts = 0
    for number in range(1 + sample_seed() % STEP, LAST, STEP):
        chain = begun(tmp_path / str(number))
        table = chain.handle()
        table.file_io = MortalFileIO()
        table.file_io.interruption = number, lambda chain=chain: action(chain)
        try:
            compact_chain_table(table, {"region": "eu", "day": THIRD})
        # A commit fails if the latest snapshot expires while it is read. The branches have different columns if one got
        # another schema before it was looked at, and the other after.
        except (CommitConflictError, CommitFailedError, UnsupportedTableError):
            conflicts += 1
            compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
        if table.file_io.interruption is not None:
            break
        # During the last look at the delta branch, which is made of requests at the same time, it may be too late.
        is_late = what == "changes" and table.file_io.steps - number < 2
        assert whole(chain) in [*outcomes, *([MERGED_ROWS] if is_late else [])], number
    assert STEP < number < LAST - STEP
    if SOAK:
        assert bool(conflicts) is (what not in ("compactions", "other partitions")), conflicts


@pytest.mark.parametrize("action", [late_delta, late_whole, same_merge, new_column])
def test_what_changes_right_before_the_commit_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[ChainTable], None]
) -> None:
    chain, commit = begun(tmp_path), chain_merge.commit_planned

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(chain_merge, "commit_planned", commit)
        action(chain)
        before.update(files(chain))
        return commit(*arguments)

    before = set[Path]()
    monkeypatch.setattr(chain_merge, "commit_planned", late)
    with pytest.raises(CommitConflictError):
        compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
    # Its files are deleted.
    assert len(before - files(chain)) == 2 and not files(chain) - before


@pytest.mark.parametrize("is_early", [False, True])
def test_rows_that_are_rolled_back_meanwhile_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    chain, commit = begun(tmp_path), chain_merge.commit_planned
    chain.commit(DELTA, [("+I", "eu", SECOND, 8, 8)])

    def roll_back() -> None:
        rollback(chain.branch(DELTA), snapshot_id=3)
        # The branch then ends after the snapshot that was merged.
        others(chain)
        chain.commit(DELTA, [("+I", "us", FIRST, 9, 9)])

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.setattr(chain_merge, "commit_planned", commit)
        if is_early:
            roll_back()
        report = commit(*arguments)
        roll_back()
        return report

    monkeypatch.setattr(chain_merge, "commit_planned", meanwhile)
    if is_early:
        with pytest.raises(CommitConflictError, match="was not committed"):
            compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
    compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
    assert whole(chain) == MERGED_ROWS


def test_changes_that_the_commit_would_hide_are_merged_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, commit = begun(tmp_path), chain_merge.commit_planned

    def early(*arguments: Any) -> Any:
        monkeypatch.setattr(chain_merge, "commit_planned", commit)
        report = commit(*arguments)
        late_delta(chain)
        return report

    monkeypatch.setattr(chain_merge, "commit_planned", early)
    assert len(compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD}).new_snapshot_ids) == 2
    assert whole(chain) == LATE


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_after_a_commit_says_that_it_must_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The same call would skip the partition, so that the late changes would stay hidden."""
    chain, commit, calls = begun(tmp_path), chain_merge.commit_planned, []

    def twice(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            late_delta(chain)
            return commit(*arguments)
        report = commit(*arguments)
        chain.commit(DELTA, [("+I", "eu", SECOND, 7, 7)])
        if fails:
            # The last look at the delta branch fails, and so does each repetition.
            break_next()
        return report

    def break_next() -> None:
        table.file_io.interruption = table.file_io.steps + 1, outage

    def outage() -> None:
        break_next()
        raise OSError("no answer")

    monkeypatch.setattr(chain_merge, "commit_planned", twice)
    table = chain.handle()
    table.file_io = MortalFileIO()
    with pytest.raises(CommitConflictError, match=r"Snapshot 2 of .* has partition .*overwrite=True"):
        compact_chain_table(table, {"region": "eu", "day": THIRD})
    monkeypatch.setattr(chain_merge, "commit_planned", commit)
    compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD}, overwrite=True)
    assert whole(chain) == [*MERGED_ROWS, (7, "v7"), *([] if fails else [(8, "v8")])]


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(1 + sample_seed() % STEP, LAST, STEP):
        chain = begun(tmp_path / str(steps))
        dying = chain.handle()
        dying.file_io = MortalFileIO(steps)
        try:
            compact_chain_table(dying, {"region": "eu", "day": THIRD})
        except Killed:
            assert whole(chain) in ([], MERGED_ROWS)
            compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
            assert whole(chain) == MERGED_ROWS
            assert chain.latest(SNAPSHOT)["id"] == 2
            continue
        break
    assert STEP < steps < LAST - STEP


def test_other_tables_are_refused_by_name(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    before = files(chain)
    for table, words in (
        (chain.branch(DELTA), "is not a chain table"),
        (chain.handle(merge_engine="partial-update"), "merge engine"),
        (chain.handle(changelog_producer="lookup"), "changelog-producer"),
        (chain.handle(query_auth__enabled="true"), "query-auth.enabled"),
    ):
        with pytest.raises(UnsupportedTableError, match=words):
            compact_chain_table(table, {"region": "eu", "day": THIRD})
    with pytest.raises(StreamConfigError, match="is not a partition column"):
        compact_chain_table(chain.handle(), {"v": "x"})
    with pytest.raises(StreamConfigError, match="expected values of partition columns"):
        compact_chain_table(chain.handle(), {})
    assert not compact_chain_table(chain.handle(), {"region": "none"}).compacted
    assert files(chain) == before


def test_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    chain.alter(DELTA, SchemaChange.add_column("w", AtomicType("INT")))
    with pytest.raises(UnsupportedTableError, match="have different columns"):
        compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})


def test_partitions_that_java_would_leave_out_are_refused_by_name(tmp_path: Path) -> None:
    chain = begun(tmp_path / "time")
    chain.commit(DELTA, [("+I", "eu", 20260230, 5, 9), ("+I", "eu", 20260301, 6, 9)])
    with pytest.raises(UnsupportedTableError, match=r"'day': 20260230.*'20260230', by which Java does not merge it"):
        compact_chain_table(chain.handle(), {"region": "eu", "day": 20260301})
    untimed = two_regions(tmp_path / "untimed")
    with pytest.raises(UnsupportedTableError, match=r"has no 'partition.timestamp-pattern'"):
        compact_chain_table(untimed.handle(), {"region": "eu", "day": 11})
    # A chain without a whole partition needs no times.
    assert len(compact_chain_table(untimed.handle(), {"region": "us", "day": 3}).new_snapshot_ids) == 1


@pytest.mark.parametrize(
    ("pattern", "exact", "others"),
    [
        ("yyyyMMdd", ["20260228", "20240229"], ["20260229", "20260431"]),
        ("yyyy-M-d", ["2026-1-5", "2026-10-15"], ["2026-01-05"]),
        ("yy/MM/dd HH:mm:ss.SSS", ["26/01/02 03:04:05.060"], ["26/01/02 24:00:00.000"]),
    ],
)
def test_a_time_is_exact_if_java_writes_the_same_text(pattern: str, exact: list[str], others: list[str]) -> None:
    times = TimePattern(pattern)
    assert [times.exact_nanos(text) for text in exact] == [times.nanos(text) for text in exact]
    assert None not in map(times.nanos, (*exact, *others))
    assert [times.exact_nanos(text) for text in others] == [None] * len(others)


def test_another_number_of_buckets_that_would_end_the_chain_is_refused_by_name(tmp_path: Path) -> None:
    chain = begun(tmp_path)
    chain.alter(SNAPSHOT, SchemaChange.set_option("bucket", "3"))
    with pytest.raises(UnsupportedTableError, match=r"would have 3 buckets.*after it have 2"):
        compact_chain_table(chain.handle(), {"region": "eu", "day": THIRD})
    # The last one is merged with nothing.
    compact_chain_table(chain.handle(), {"region": "eu", "day": FOURTH})
    assert whole(chain, day=FOURTH) == [*MERGED_ROWS[:3], (4, "v4")]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, chain = Program(tmp_path, capsys), begun(tmp_path)
    partition = ("--partition", "region=eu", "--partition", f"day={THIRD}")
    dry: Any = json.loads(program("compact-chain-table", "db.t", *partition, "--dry-run", "--json").out)
    assert sum(each["before"]["records"] for each in dry["compacted"]) == 7 and not whole(chain)
    assert "db.t: " in program("compact-chain-table", "db.t", *partition).out
    assert whole(chain) == MERGED_ROWS
    again = program("compact-chain-table", "db.t", *partition)
    assert again.code == 0 and "--overwrite" in again.out
    assert "became" in program("compact-chain-table", "db.t", *partition, "--overwrite").out
    # A mistyped value is not as if all were merged already.
    absent = program("compact-chain-table", "db.t", "--partition", "day=1")
    assert absent.code == 0 and "partition day=1: The delta branch has no such partition" in absent.out
    missing = program("compact-chain-table", "db.t")
    assert missing.code == 2 and "--partition" in missing.err
