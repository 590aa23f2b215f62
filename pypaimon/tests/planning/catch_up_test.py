"""Catching up: collapsed plans hold what replay hands out, in its order; net plans lead to the same table."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import (
    CorruptTableError,
    IncrementalDiffScanner,
    StreamConfigError,
    TableChangedError,
    compact,
)
from pypaimon.streaming.compaction import rewrite_file_index
from pypaimon.streaming.options.stream_options import CatchUp, OnOverwrite
from pypaimon.streaming.scanning.parts import steps_ahead
from pypaimon.streaming.stream_types import PlanKind
from support.models.table import Record
from support.samples import seeded
from support.tables.crafted_table import CraftedTable, WrittenFile
from support.tables.handles import catalog_with_database, create_table, option_names, write_by_pypaimon
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table, available
from support.tables.streamed_table import rows as table_rows

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return catalog_with_database(tmp_path, "d")


def create(catalog: Any, primary_keys: list[str] | None = None, **options: str) -> Any:
    named = option_names(options)
    return create_table(catalog, "t", SCHEMA, database="d", primary_keys=primary_keys, options=named)


def write(table: Any, rows: dict[str, list[Any]], overwrite: bool = False) -> None:
    write_by_pypaimon(table, pa.table(rows, schema=SCHEMA), overwrite=overwrite)


def commits(table: Any, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        write(table, {"id": [number % 5, 100 + number % 3], "v": [f"a{number}", f"b{number}"]})


def plans(table: Any, mode: str, start: int, **settings: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    builder = table.new_stream_read_builder().with_catch_up(mode)
    if "shard" in settings:
        builder.with_shard(*settings["shard"]).with_start(snapshot_id=start)
    if "max_splits" in settings:
        builder.with_limits(max_splits=settings["max_splits"])
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        scan.restore(start)
        while (plan := scan.plan()) is not None:
            yield plan, read.to_arrow(plan.splits()).to_pylist()


def rows(table: Any, mode: str, start: int, **settings: Any) -> list[dict[str, Any]]:
    return [row for _, part in plans(table, mode, start, **settings) for row in part]


@pytest.mark.parametrize("options", [{}, {"bucket": "2", "bucket_key": "id"}])
def test_a_collapsed_plan_holds_what_replay_hands_out_in_its_order(catalog: Any, options: dict[str, str]) -> None:
    table = create(catalog, **options)
    commits(table, 25)
    collapsed = list(plans(table, "auto", 3))
    assert PlanKind.COLLAPSED in [plan.kind for plan, _ in collapsed]
    assert collapsed[-1][0].snapshot_id == 25
    assert collapsed[-1][0].position.snapshot == 26
    for bucket in (0, 1):

        def of(mode: str, bucket: int = bucket) -> list[dict[str, Any]]:
            builder = table.new_stream_read_builder().with_catch_up(mode)
            read = builder.new_read()
            with builder.new_streaming_scan() as scan:
                scan.restore(3)
                found = []
                while (plan := scan.plan()) is not None:
                    mine = [split for split in plan.splits() if split.bucket == bucket]
                    found += read.to_arrow(mine).to_pylist()
                return found

        assert of("auto") == of("replay")


def test_collapsed_plans_obey_shards(catalog: Any) -> None:
    table = create(catalog)
    commits(table, 20)
    shards = [rows(table, "auto", 1, shard=(index, 3)) for index in range(3)]
    every = sorted(row["v"] for shard in shards for row in shard)
    assert every == sorted(row["v"] for row in rows(table, "replay", 1))


def test_with_limits_every_snapshot_is_replayed(catalog: Any) -> None:
    table = create(catalog)
    commits(table, 15)
    found = list(plans(table, "auto", 1, max_splits=1))
    assert {plan.kind for plan, _ in found} == {PlanKind.DELTA}
    assert [plan.snapshot_id for plan, _ in found] == list(range(1, 16))


def test_a_range_with_an_overwrite_is_collapsed_before_and_after_it_only(
    catalog: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(catalog)
    commits(table, 14)
    write(table, {"id": [1], "v": ["only"]}, overwrite=True)
    commits(table, 14, first=50)
    found = list(plans(table, "auto", 1))
    for plan, _ in found:
        if plan.kind is PlanKind.COLLAPSED:
            assert plan.snapshot_id != 15
    assert [row for _, part in found for row in part] == rows(table, "replay", 1)
    assert "only" not in [row["v"] for _, part in found for row in part]


@pytest.mark.parametrize(
    ("doubt", "reason"),
    [
        (None, "a replay would hand out the same files"),
        ("removed file", "a commit removed files"),
        ("unknown source", r"\d+ rows were appended, but files with \d+ of them are left"),
        ("no count", "a snapshot does not record how many records it added"),
    ],
)
def test_what_is_not_proven_is_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, doubt: str | None, reason: str
) -> None:
    """The commit in question adds as many rows as it removes, so that counts alone would prove it."""
    table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=0, options={"bucket": "-1"})
    key = table.columns.named("k").id
    files: list[WrittenFile] = []
    for number in range(20):
        file = table.file((None, 0), [Record("+I", (None, number), number, {key: number})])
        if doubt == "unknown source" and number == 17:
            file = replace(file, meta=replace(file.meta, file_source=None))
        table.commit("APPEND", [file], files[-1:] if doubt == "removed file" and number == 17 else [])
        files.append(file)
    if doubt == "no count":
        path = table.path / "snapshot" / "snapshot-18"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"deltaRecordCount": None}))
    drive = Drive(table.handle(), EARLIEST)
    with caplog.at_level(logging.INFO, logger="pypaimon.streaming.planning.catch_up"):
        plans = drive.run()
    assert (PlanKind.COLLAPSED in [plan.kind for plan in plans]) is (doubt is None)
    assert re.search(reason, caplog.text)
    assert drive.keys(plans) == list(range(20))


def test_with_data_evolution_every_snapshot_is_replayed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(tmp_path / "w", row_tracking__enabled="true", data_evolution__enabled="true").commit_each(range(20))
    with caplog.at_level(logging.INFO, logger="pypaimon.streaming.planning.catch_up"):
        plans = Drive.of(table, EARLIEST).run()
    assert [(plan.kind, plan.snapshot_id) for plan in plans] == [(PlanKind.DELTA, number) for number in range(1, 21)]
    assert "the table has data evolution" in caplog.text


def test_the_choice_and_its_reason_are_logged(catalog: Any, caplog: pytest.LogCaptureFixture) -> None:
    table = create(catalog)
    commits(table, 20)
    with caplog.at_level(logging.INFO, logger="pypaimon.streaming.planning.catch_up"):
        rows(table, "auto", 1)
    assert "as one plan" in caplog.text


def test_a_damaged_snapshot_ahead_is_an_error_after_the_rows_before_it(catalog: Any) -> None:
    table = create(catalog)
    commits(table, 20)
    damaged = Path(table.snapshot_manager().get_snapshot_path(18).removeprefix("file:"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    builder = table.new_stream_read_builder()
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        scan.restore(1)
        seen: list[str] = []
        with pytest.raises(CorruptTableError, match="snapshot-18"):
            while (plan := scan.plan()) is not None:
                seen += read.to_arrow(plan.splits())["v"].to_pylist()
        assert seen == [f"{letter}{number}" for number in range(17) for letter in "ab"]
        damaged.write_bytes(whole)
        while (plan := scan.plan()) is not None:
            seen += read.to_arrow(plan.splits())["v"].to_pylist()
    assert seen == [f"{letter}{number}" for number in range(20) for letter in "ab"]


@pytest.mark.parametrize("start", [1, 4])
def test_a_net_plan_leads_to_the_same_table_as_replay(catalog: Any, start: int) -> None:
    table = create(catalog, ["id"], bucket="2")
    commits(table, 12)

    def applied(mode: str, base: dict[int, str]) -> dict[int, str]:
        state = dict(base)
        for row in rows(table, mode, start):
            if row["_row_kind"] in ("-D", "-U"):
                assert state.pop(row["id"]) == row["v"], "a before image must be the row that was there"
            else:
                state[row["id"]] = row["v"]
        return state

    base = {row["id"]: row["v"] for row in rows(table, "replay", 1)} if start == 1 else {}
    if start > 1:
        builder = table.new_stream_read_builder().with_start(snapshot_id=start - 1, full=True)
        builder.with_end(snapshot_id=start - 1)
        read = builder.new_read()
        for plan in builder.new_streaming_scan().stream_sync():
            base = {row["id"]: row["v"] for row in read.to_arrow(plan.splits()).to_pylist()}
    else:
        base = {}
    net = list(plans(table, "net", start))
    assert [plan.kind for plan, _ in net] == [PlanKind.NET]
    assert net[0][0].snapshot_id == 12
    changed = [row["id"] for row in net[0][1] if row["_row_kind"] in ("+I", "+U", "-D")]
    assert len(changed) == len(set(changed)), "one change per key"
    replayed = dict(base)
    for row in rows(table, "replay", start):
        replayed[row["id"]] = row["v"]
    assert applied("net", base) == replayed


def test_the_diff_scanner_is_usable_alone(catalog: Any) -> None:
    table = create(catalog)
    commits(table, 10)
    plan = IncrementalDiffScanner(table).scan(4, 7)
    assert plan.kind is PlanKind.COLLAPSED
    read = table.new_stream_read_builder().new_read()
    assert sorted(read.to_arrow(plan.splits())["v"].to_pylist()) == ["a4", "a5", "a6", "b4", "b5", "b6"]
    with pytest.raises(StreamConfigError, match="must be before"):
        IncrementalDiffScanner(table).scan(7, 7)


def test_the_diff_scanner_leaves_out_postponed_rows(catalog: Any) -> None:
    table = create(catalog, ["id"], bucket="-2")
    commits(table, 1)
    compacted = compact(table).new_snapshot_ids[-1]
    commits(table, 1, first=5)
    read = table.new_stream_read_builder().new_read()

    def changes(start: int, end: int) -> list[dict[str, Any]]:
        return sorted(read.to_arrow(IncrementalDiffScanner(table).scan(start, end).splits()).to_pylist(), key=str)

    found = [{"_row_kind": "+I", "id": 0, "v": "a0"}, {"_row_kind": "+I", "id": 100, "v": "b0"}]
    assert changes(1, compacted) == changes(1, compacted + 1) == found
    assert changes(compacted, compacted + 1) == []


def test_the_diff_scanner_heeds_scan_partitions(catalog: Any) -> None:
    table = create_table(catalog, "p", SCHEMA, database="d", partition_keys=["v"])
    for number in range(3):
        write(table, {"id": [number, number], "v": ["x", "y"]})
    of_x = table.copy({"scan.partitions": "v=x"})
    (split,) = IncrementalDiffScanner(of_x).scan(1, 2).splits()
    assert split.partition.to_dict() == {"v": "x"}


def test_a_file_that_gets_other_indexes_is_no_new_file(catalog: Any) -> None:
    table = create(catalog)
    commits(table, 4)
    assert rewrite_file_index(table.copy({"file-index.bitmap.columns": "v"})).before.files == 4
    commits(table, 1, first=4)
    read = table.new_stream_read_builder().new_read()
    for start in range(1, 6):
        found = read.to_arrow(IncrementalDiffScanner(table).scan(start, 6).splits())["v"].to_pylist()
        assert sorted(found) == [f"{name}{number}" for name in "ab" for number in sorted({*range(start, 4), 4})]


def changes_of(states: list[dict[int, str]], draw: random.Random) -> list[tuple[str, int, str]]:
    """A commit of some inserts, updates and deletes; the state after it is added."""
    state, changes = dict(states[-1]), []
    for key in draw.sample(range(8), draw.randint(1, 5)):
        value = f"{len(states)}.{key}"
        if key in state and draw.random() < 0.5:
            changes.append(("-D", key, state.pop(key)))
        else:
            changes.append(("+U" if key in state else "+I", key, value))
            state[key] = value
    states.append(state)
    return changes


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_net_plan_of_deletes_leads_to_the_same_table(tmp_path: Path, producer: str) -> None:
    """From each snapshot on: a key that is gone is taken away as it was, one that came and went shows nowhere.

    One key is there until the last commit, so that each plan has a delete, whatever is drawn.
    """
    gone = 8
    table, draw = Table(tmp_path / "w", primary_key=True, changelog_producer=producer), seeded(f"net {producer}")
    states: list[dict[int, str]] = [{}]
    for number in range(12):
        changes = changes_of(states, draw)
        if number == 0:
            changes.append(("+I", gone, "gone"))
            states[-1][gone] = "gone"
        elif number == 11:
            changes.append(("-D", gone, states[-1].pop(gone)))
        table.commit(changes)
    for start in range(2, len(states) - 2):
        builder = table.builder().with_catch_up("net").with_end(latest=True).with_start(snapshot_id=start)
        read, state, found = builder.new_read(), dict(states[start - 1]), []
        for plan in builder.new_streaming_scan().stream_sync():
            assert plan.kind is PlanKind.NET
            found += table_rows(read, plan)
        for kind, key, value in found:
            if kind in ("-U", "-D"):
                assert state.pop(key) == value
            else:
                assert key not in state
                state[key] = value
        assert state == states[-1]
        assert ("-D", gone, "gone") in found
        ends = [key for kind, key, _ in found if kind != "-U"]
        assert len(ends) == len(set(ends)), "one change per key"
        assert all(states[start - 1].get(key) != states[-1].get(key) for key in ends), "no change that is none"


def test_a_collapsed_plan_reports_its_first_snapshot_and_leaves_out_what_is_held_back(tmp_path: Path) -> None:
    history = Table(tmp_path / "w")
    for key in range(1, 21):
        history.commit([key])
        path = history.snapshot_path(key)
        path.write_text(json.dumps(history.snapshot(key) | {"timeMillis": 1_000_000 + key}))
    drive = Drive.of(history, EARLIEST, delay_ms=10, millis=1_000_000 + 15 + 10)
    steps = [step for step in (drive.step() for _ in range(8)) if step.plan is not None]
    collapsed = steps[-1]
    assert collapsed.plan is not None and collapsed.plan.kind is PlanKind.COLLAPSED
    assert (collapsed.begins.snapshot, collapsed.plan.snapshot_id) == (3, 15)
    assert drive.run() == []
    drive.millis += 3
    assert drive.keys() == [16, 17, 18]


def test_a_net_plan_needs_the_state_before_it(tmp_path: Path) -> None:
    history = Table(tmp_path / "w", primary_key=True, bucket="1").commit_each(range(1, 9))
    history.expire(5)
    plans = Drive.of(history, EARLIEST, catch_up=CatchUp.NET).run()
    assert [(plan.kind, plan.snapshot_id) for plan in plans] == [(PlanKind.DELTA, 5), (PlanKind.NET, 8)]


@pytest.mark.parametrize(("count", "most"), [("9", 9), ("-1", 18)])
def test_scan_max_snapshot_count_bounds_what_is_not_confirmed(tmp_path: Path, count: str, most: int) -> None:
    history = Table(tmp_path / "w").commit_each(range(1, 21))
    builder = history.builder(**{"scan.max-snapshot.count": count}).with_start("earliest").with_prefetch(30)
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
        assert max(len(plan.splits()[0].files) for plan in plans) == most
        assert steps_ahead(scan._driver.parts.get().options) == (9 if count == "9" else 30)


@pytest.mark.parametrize("policy", [OnOverwrite.SKIP, OnOverwrite.FAIL])
def test_what_becomes_of_an_overwrite_is_the_same_far_behind(tmp_path: Path, policy: OnOverwrite) -> None:
    history = Table(tmp_path / "w", primary_key=True, bucket="1").commit_each(range(4))
    history.commit([10, 11], overwrite=True)
    for key in range(4):
        history.commit([20 + key])
    found = []
    for mode in (CatchUp.REPLAY, CatchUp.NET):
        drive = Drive.of(history, EARLIEST, catch_up=mode, on_overwrite=policy)
        keys: list[int] = []
        try:
            while not (step := drive.step()).idle:
                keys += [] if step.plan is None else drive.keys([step.plan])
        except TableChangedError:
            keys.append(-1)
        found.append(keys)
    assert found[0] == found[1] == [0, 1, 2, 3, *([-1] if policy is OnOverwrite.FAIL else [20, 21, 22, 23])]


def test_an_overwrite_that_takes_and_brings_nothing_is_refused_far_behind_too(tmp_path: Path) -> None:
    table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=0, options={"bucket": "-1"})
    for number in range(20):
        if number == 10:
            table.commit("OVERWRITE")
        table.commit("APPEND", [table.file((None, 0), [Record("+I", (None, number), number)])])
    drive = Drive(table.handle(), EARLIEST, on_overwrite=OnOverwrite.FAIL)
    with pytest.raises(TableChangedError, match="Snapshot 11 overwrites data"):
        drive.run()
    assert drive.position is not None and drive.position.snapshot == 11
