"""`paimon-stream snapshots` and `explain`: what a stream does with a table, and why."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import ConsumerManager, stream_read_builder, stream_write_builder
from pypaimon.streaming.consumers.consumer_manager import Consumer
from support.corpus.cases import load
from support.docs.cli_runs import Program
from support.samples import every, some
from support.tables.indexed_tables import tables as indexed_tables
from support.tables.orders import EVENTS, catalog, change, create_orders, events, orders, write
from support.tables.streamed_table import expire

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXPLAINED = ("append_compact", "pk_dedup_none", "pk_dedup_lookup", "pk_dedup_full-compaction")


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    return catalog(tmp_path)


# ---- snapshots ----


@pytest.mark.parametrize(
    "scenario", some("tables whose snapshots are shown", ["analyze", "append_overwrite", *EXPLAINED], 2)
)
def test_says_of_javas_snapshots_what_a_stream_does_with_them(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = load("java-2.1", scenario).warehouse
    found = Program(warehouse, capsys)("snapshots", "d.t", "--from", "1", "--format", "json")
    assert found.code == 0
    said = {each["snapshot"] for each in found.records if each["stream"] != "passed over"}

    builder = stream_read_builder(catalog_table(warehouse)).with_start("earliest").with_end(latest=True)
    with builder.with_catch_up("replay").with_raw().new_streaming_scan() as scan:
        assert said == {plan.snapshot_id for plan in scan.stream_sync()}
    assert {each["why"] for each in found.records if each["stream"] == "passed over"} - {""}


def catalog_table(warehouse: Path) -> Any:
    return CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")


def test_shows_the_last_ones_or_a_range(tables: Any, program: Program) -> None:
    orders(tables)

    def ids(*arguments: str) -> list[int]:
        return [each["snapshot"] for each in program("snapshots", "db.orders", "-f", "json", *arguments).records]

    assert ids() == [1, 2, 3, 4]
    assert ids("--last", "2") == [3, 4]
    assert ids("--from", "2", "--to", "3") == [2, 3]
    assert ids("--from", "1", "--last", "1") == [4]


def test_a_table_without_snapshots(tables: Any, program: Program) -> None:
    create_orders(tables)
    found = program("snapshots", "db.orders")
    assert (found.code, found.out, found.err) == (0, "", "db.orders has no such snapshots\n")


# ---- explain ----


def explain(program: Program, *arguments: str) -> dict[str, Any]:
    found = program("explain", *arguments, "--format", "json")
    assert (found.code, found.err) == (0, "")
    (record,) = found.records
    return record


def stages(found: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each["what"], each["dropped"], each["files"]) for each in found["stages"]]


@pytest.mark.parametrize("statistics", [False, True])
def test_explains_what_drops_files(tables: Any, program: Program, statistics: bool) -> None:
    """Manifests and files are pruned by partition; files also by statistics, if the writer creates them."""
    events(tables, **{"metadata.stats-mode": "full"} if statistics else {})
    found = explain(program, "db.events", "--filter", "day = '2026-11-21' AND value > 5")
    assert (found["snapshot"], found["kind"], found["passed_over"]) == (3, "full", 0)
    dropped = 1 if statistics else 0
    assert stages(found) == [
        ("in the snapshot", 0, 9),
        ("by partition", 6, 3),
        ("by bucket", 0, 3),
        ("by statistics of keys", 0, 3),
        ("by statistics of other columns", dropped, 3 - dropped),
    ]
    assert found["files_without_statistics"] == (0 if statistics else 9)
    assert len(found["files"]) == 3 - dropped
    assert {each["partition"]["day"] for each in found["files"]} == {"2026-11-21"}


def test_explains_which_manifests_are_skipped(tables: Any, program: Program) -> None:
    table = events(tables, commits=1)
    write(table, [{"day": date(2026, 12, 24), "value": 1}], EVENTS)
    found = explain(program, "db.events", "--filter", "day = '2026-12-24'")
    assert found["manifests"] == {"listed": 2, "read": 1, "skipped": 1}
    assert stages(found)[:2] == [("in the snapshot", 0, 4), ("by partition", 3, 1)]


def test_explains_buckets_and_keys(tables: Any, program: Program) -> None:
    change(create_orders(tables), "+I", *((number, "placed", None) for number in range(10)))
    found = explain(program, "db.orders", "--start", "1", "--filter", "id = 1 AND status = 'never'")
    by_bucket, by_key, by_value = stages(found)[-3:]
    assert by_bucket == ("by bucket", 1, 1)
    assert (by_key[2], by_value[1:]) == (1, (0, 1))
    assert stages(explain(program, "db.orders", "--start", "1", "--filter", "id > 50"))[-2:] == [
        ("by statistics of keys", 2, 0),
        ("by statistics of other columns", 0, 0),
    ]


def test_explains_what_embedded_indexes_drop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    indexed_tables(tmp_path)
    program = Program(tmp_path / "append_embedded", capsys)
    found = explain(program, "d.t", "--filter", "n = 30 AND s = 's31'")
    by_value, by_index = stages(found)[-2:]
    assert by_value == ("by statistics of other columns", 0, 8)
    assert by_index[0] == "by embedded indexes"
    assert by_index[1] >= 4 and by_index[1] + by_index[2] == 8
    assert len(found["files"]) == by_index[2]
    assert [each[0] for each in stages(explain(program, "d.t"))] == ["in the snapshot"]


@pytest.mark.parametrize("scenario", some("tables whose plans are explained", EXPLAINED, 1))
def test_its_account_is_that_of_the_plan(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left after the last step are the files of the plan, on Java's tables too."""
    program = Program(load("java-2.1", scenario).warehouse, capsys)
    snapshots = program("snapshots", "d.t", "--from", "1", "--format", "json").records
    starts = [["--start", str(each["snapshot"])] for each in snapshots if each["stream"] != "passed over"]
    for start in every(3, [[], *starts]):
        for condition in ([], ["--filter", "id > 2"], ["--filter", "id = 1"], ["--filter", "v IS NULL"]):
            found = explain(program, "d.t", *start, *condition)
            assert stages(found)[-1][2] == len(found["files"]), (start, condition)
            for before, after in pairwise(stages(found)):
                assert after[2] == before[2] - after[1]


def test_explains_the_next_snapshot_of_a_consumer_and_leaves_it_where_it_is(tables: Any, program: Program) -> None:
    table = orders(tables)
    manager = ConsumerManager(table.file_io, table.table_path)
    manager.reset_consumer("etl", Consumer(3))
    found = explain(program, "db.orders", "--consumer-id", "etl")
    assert (found["snapshot"], found["kind"], [each["rows"] for each in found["files"]]) == (3, "changelog", [1])
    assert manager.consumer("etl") == Consumer(3)


def test_explains_where_a_consumer_begins_that_has_read_nothing(tables: Any, program: Program) -> None:
    table = orders(tables)
    ConsumerManager(table.file_io, table.table_path).reset_consumer("etl", Consumer(0))
    assert explain(program, "db.orders", "--consumer-id", "etl")["snapshot"] == 1
    expire(Path(table.table_path), 3)
    assert explain(program, "db.orders", "--consumer-id", "etl")["snapshot"] == 3


def test_explains_a_tag_whose_snapshot_has_expired(tables: Any, program: Program) -> None:
    table = orders(tables)
    table.create_tag("second", 2)
    for number in (1, 2, 3):
        Path(table.table_path, "snapshot", f"snapshot-{number}").unlink()
    condition = ("--filter", "id = 1")
    found = explain(program, "db.orders", "--start", "full:tag:second", *condition)
    assert (found["snapshot"], found["kind"], found["splits"]) == (2, "full", 1)


def test_counts_requests_from_a_cold_start(tables: Any, program: Program) -> None:
    events(tables, commits=1)
    requests = explain(program, "db.events", "--start", "1")["requests"]
    assert requests.get("write", 0) == 0
    assert 3 <= requests["read"] <= 8


def test_a_filter_may_leave_nothing(tables: Any, program: Program) -> None:
    events(tables)
    found = explain(program, "db.events", "--start", "2", "--filter", "day = '1999-01-01'")
    assert (found["snapshot"], found["splits"], found["files"], found["stages"][-1]["files"]) == (2, 0, [], 0)


def test_for_people_it_is_a_page(tables: Any, program: Program) -> None:
    events(tables)
    lines = program("explain", "db.events", "--start", "2").lines
    assert lines[0].startswith("snapshot 2 of db.events: delta, committed ")
    assert any(line.startswith("requests from a cold start:") for line in lines)
    assert len([line for line in lines if "day=2026-11-2" in line]) == 3


def test_nothing_new_is_reported(tables: Any, program: Program) -> None:
    table = create_orders(tables)
    for start in ("latest-full", "latest"):
        found = program("explain", "db.orders", "--start", start)
        assert (found.code, found.out) == (0, "")
        assert "nothing new" in found.err
    change(table, "+I", (1, "placed", None))
    assert explain(program, "db.orders")["kind"] == "full"


def test_takes_the_consumer_that_an_option_names_and_leaves_its_reader_alone(tables: Any, program: Program) -> None:
    table = orders(tables)
    named = ("--start", "4", "--table-option", "consumer-id=etl")
    with stream_read_builder(table).with_consumer_id("etl", commit="manual").new_streaming_scan() as scan:
        scan.restore(2)
        plan = scan.plan()
        assert plan is not None
        assert explain(program, "db.orders", *named)["snapshot"] == 2
        ignored = explain(program, "db.orders", *named, "--table-option", "consumer.ignore-progress=true")
        assert ignored["snapshot"] == 4
        scan.commit(plan)
    assert explain(program, "db.orders", *named)["snapshot"] == 3


def test_a_consumer_that_was_rolled_back_is_an_error_as_for_its_reader(tables: Any, program: Program) -> None:
    table = orders(tables)
    with (
        stream_read_builder(table)
        .with_consumer_id("etl")
        .with_end(snapshot_id=3)
        .with_start("earliest")
        .open_sync() as stream
    ):
        assert list(stream)
    table.rollback_to(2)
    for id_ in (3, 4, 5):
        change(table, "+I", (id_, "placed", None))
    found = program("explain", "db.orders", "--consumer-id", "etl")
    assert found.code == 1 and "was rolled back" in found.err


def test_given_options_count_for_what_a_stream_does_with_a_snapshot(tables: Any, program: Program) -> None:
    table = events(tables, commits=1)
    with stream_write_builder(table).with_overwrite().open_sync() as writer:
        writer.write(EVENTS.empty_table())
        writer.commit()
    reading = ("--table-option", "streaming-read-append-overwrite=true")
    for options, stream in (((), "passed over"), (reading, "overwrite")):
        assert program("snapshots", "db.events", *options, "--format", "json").records[-1]["stream"] == stream
