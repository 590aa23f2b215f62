"""Catching up: collapsed plans hold what replay hands out, in its order; net plans lead to the same table (B8)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import CorruptTableError, IncrementalDiffScanner, PlanKind, StreamConfigError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    catalog.create_database("d", True)
    return catalog


def create(catalog: Any, primary_keys: list[str] | None = None, **options: str) -> Any:
    dashed = {key.replace("_", "-"): value for key, value in options.items()}
    schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=primary_keys, options=dashed)
    catalog.create_table("d.t", schema, False)
    return catalog.get_table("d.t")


def write(table: Any, rows: dict[str, list[Any]], overwrite: bool = False) -> None:
    builder = table.new_batch_write_builder()
    if overwrite:
        builder = builder.overwrite()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table(rows, schema=SCHEMA))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def commits(table: Any, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        write(table, {"id": [number % 5, 100 + number % 3], "v": [f"a{number}", f"b{number}"]})


def plans(table: Any, mode: str, start: int, **settings: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    builder = table.new_stream_read_builder().with_catch_up(mode)
    if "shard" in settings:
        builder.with_shard(*settings["shard"])
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


def test_a_range_with_an_overwrite_is_collapsed_only_beside_it(catalog: Any, caplog: pytest.LogCaptureFixture) -> None:
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
    with pytest.raises(StreamConfigError, match="must lie before"):
        IncrementalDiffScanner(table).scan(7, 7)
