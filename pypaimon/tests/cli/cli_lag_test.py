"""`paimon-stream lag`: what it shows for each consumer, and what an alert can rely on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import ConsumerManager, list_consumers, stream_read_builder
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from support.docs.cli_runs import Program
from support.tables.orders import append, catalog, events, orders

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Orders with four snapshots."""
    return orders(catalog(tmp_path))


def save(table: Any, next_snapshot: int, name: str = "etl") -> None:
    manager = ConsumerManager(table.file_io, table.table_path)
    manager.write(ConsumerName.parse(name), Consumer(next_snapshot))


def lag(program: Program, *arguments: str) -> dict[str, Any]:
    found = program("lag", "db.orders", "--format", "json", *arguments)
    assert (found.code, found.err) == (0, "")
    (record,) = found.records
    return record


def test_says_how_many_snapshots_and_rows_are_unread_and_how_old_they_are(table: Any, program: Program) -> None:
    save(table, 3)
    found = lag(program)
    expected = {"consumer": "etl", "state": "behind", "snapshots": 2, "rows": 2, "next_snapshot": 3, "latest": 4}
    assert {key: found[key] for key in expected} == expected
    assert found["seconds"] > 0


def test_caught_up_is_zero(table: Any, program: Program) -> None:
    save(table, 5)
    found = lag(program)
    assert [found[key] for key in ("state", "snapshots", "rows", "seconds")] == ["caught up", 0, 0, 0]


def test_what_is_not_known_is_null(table: Any, program: Program) -> None:
    save(table, 7)
    found = lag(program)
    assert [found[key] for key in ("state", "snapshots", "rows", "seconds")] == ["ahead of the table", None, None, None]


def test_an_expired_consumer_is_called_so(table: Any, program: Program) -> None:
    save(table, 1)
    Path(str(table.table_path), "snapshot", "snapshot-1").unlink()
    found = lag(program)
    assert (found["state"], found["rows"], found["earliest"]) == ("expired", None, 2)
    save(table, 2)
    assert lag(program)["state"] == "behind"


def test_a_consumer_that_has_read_nothing_begins_at_the_earliest_snapshot(table: Any, program: Program) -> None:
    save(table, 0)
    found = lag(program)
    assert (found["state"], found["snapshots"], found["rows"]) == ("behind", 4, 5)
    assert [each.lag for each in list_consumers(table)] == [4]
    Path(str(table.table_path), "snapshot", "snapshot-1").unlink()
    found = lag(program)
    assert (found["state"], found["snapshots"], found["earliest"]) == ("behind", 3, 2)


def test_shards_have_a_line_each_and_first_plans_are_reported(table: Any, program: Program) -> None:
    save(table, 2, "etl.shard-0-of-2")
    save(table, 3, "etl.shard-1-of-2.first-plan")
    found = program("lag", "db.orders", "--format", "json").records
    assert [(each["consumer"], each["state"]) for each in found] == [
        ("etl.shard-0-of-2", "behind"),
        ("etl.shard-1-of-2", "in its first plan"),
    ]


def test_a_first_plan_of_a_snapshot_that_was_rolled_back_is_lost(table: Any, program: Program) -> None:
    save(table, 4, "etl.first-plan")
    assert lag(program)["state"] == "in its first plan"
    table.rollback_to(3)
    found = lag(program)
    assert (found["state"], found["snapshots"]) == ("rolled back", None)
    (listed,) = program("consumers", "list", "db.orders", "--format", "json").records
    assert listed["state"] == "rolled back"


def test_the_table_for_people(table: Any, program: Program) -> None:
    save(table, 3)
    header, row = program("lag", "db.orders").lines
    assert header.split()[:5] == ["consumer", "state", "snapshots", "rows", "seconds"]
    assert row.split()[:4] == ["etl", "behind", "2", "2"]


def test_without_consumers_it_says_so(table: Any, program: Program) -> None:
    found = program("lag", "db.orders")
    assert (found.code, found.out, found.err) == (0, "", "db.orders has no consumers\n")


def test_a_limit_without_a_consumer_is_not_a_success(table: Any, program: Program) -> None:
    found = program("lag", "db.orders", "--max-lag", "1")
    assert (found.code, "no consumers to compare with --max-lag 1" in found.err) == (3, True)


def test_an_id_that_is_not_there_is_an_error(table: Any, program: Program) -> None:
    save(table, 3)
    found = program("lag", "db.orders", "elt")
    assert (found.code, found.err) == (1, "paimon-stream: there is no consumer elt; there is: etl\n")


@pytest.mark.parametrize(("limit", "code"), [("2", 0), ("1", 3), ("1d", 0), ("0s", 3)])
def test_max_lag_decides_the_exit_code(table: Any, program: Program, limit: str, code: int) -> None:
    save(table, 3)
    found = program("lag", "db.orders", "--max-lag", limit)
    assert found.code == code
    assert ("more than " + limit in found.err) == (code == 3)


@pytest.mark.parametrize(("next_snapshot", "state"), [(7, "ahead of the table"), (1, "expired")])
def test_what_cannot_be_measured_is_above_every_limit(
    table: Any, program: Program, next_snapshot: int, state: str
) -> None:
    save(table, next_snapshot)
    Path(str(table.table_path), "snapshot", "snapshot-1").unlink()
    found = program("lag", "db.orders", "--max-lag", "1000000")
    assert (found.code, found.err) == (3, f"paimon-stream: consumer etl is {state}\n")


def test_an_invalid_limit_is_refused(table: Any, program: Program) -> None:
    found = program("lag", "db.orders", "--max-lag", "much")
    assert found.code == 2
    assert "'much'" in found.err


def test_watching_shows_it_again_and_again(table: Any, program: Program) -> None:
    save(table, 3)
    with program.start("lag", "db.orders", "--watch=0.1", "--format", "json") as running:
        assert running.stdout is not None
        before = json.loads(running.stdout.readline())
        save(table, 5)
        while (after := json.loads(running.stdout.readline()))["snapshots"]:
            pass
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=600)
    assert (before["snapshots"], after["state"]) == (2, "caught up")
    assert (running.returncode, errors) == (130, "")


def test_a_table_that_only_raw_streams_can_follow_has_a_lag_too(tmp_path: Path, program: Program) -> None:
    table = events(catalog(tmp_path), "db.orders")
    scan = stream_read_builder(table).with_consumer_id("etl").new_streaming_scan()
    with scan:
        assert scan.plan() is not None
        assert scan.plan() is None
    append(table, 5)
    assert lag(program)["snapshots"] == 1
