"""What doctor finds of maintenance: what is due, which consumers hold it back, what earlier runs have left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import ConsumerManager, MaintenancePolicy, maintain
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.doctor import Finding, Level, diagnose
from support.tables.streamed_table import Table
from support.tables.tagged_tables import AUTOMATIC, at_days, filled

pytestmark = pytest.mark.slow

SOON = {"snapshot__num_retained__min": "2", "snapshot__time_retained": "0s"}
CHECKS = ("maintenance", "held_back", "kept_by_tags", "unfinished", "earliest_hint")


def findings(table: Table, handle: Any = None) -> dict[str, list[Finding]]:
    found = diagnose(handle or table.handle()).findings
    return {name: [each for each in found if each.check == name] for name in CHECKS}


def save(table: Table, name: str, next_snapshot: int) -> None:
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer(name, Consumer(next_snapshot))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, "t", **SOON).commit_each(range(12))


def test_it_reports_what_a_run_expires(table: Table) -> None:
    save(table, "idle", 9)
    (finding,) = findings(table)["maintenance"]
    assert finding.level is Level.NOTE
    assert finding.text == "A run of maintenance would expire 7 snapshots (1 to 7)."
    assert "paimon-stream maintain" in finding.advice
    plan = maintain(table.handle()).plan
    assert len(plan.snapshot_ids) == finding.facts["snapshots"] and plan.earliest_id == finding.facts["earliest_after"]
    (finding,) = findings(table)["maintenance"]
    assert (finding.level, finding.text) == (Level.OK, "Nothing is due for maintenance.")


def test_it_names_the_consumers_that_hold_expiry_back(table: Table) -> None:
    for name, number in (("slow", 3), ("etl", 6), ("done", 13)):
        save(table, name, number)
    found = findings(table)["held_back"]
    assert [each.text for each in found] == [
        "Consumer slow keeps 9 snapshots (2 to 10) that would expire otherwise; it reads snapshot 3 next.",
        "Consumer etl keeps 6 snapshots (5 to 10) that would expire otherwise; it reads snapshot 6 next.",
    ]
    assert [each.facts["snapshots"] for each in found] == [9, 6]
    for number in range(8):
        save(table, f"many{number}", 4)
    assert findings(table)["held_back"][-1].text == "5 more consumers keep some of the same snapshots."


def test_it_names_what_tags_and_stopped_runs_have_left(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    table.handle().create_tag("young", 12)
    maintain(table.handle())
    (table.path / "consumer").mkdir(exist_ok=True)
    plan = table.path / "consumer" / "maintenance-x"
    plan.write_text('{"version": 1, "files": []}')
    found = findings(table)
    assert found["kept_by_tags"][0].text == "1 tag (kept) keeps the files of snapshots that have expired."
    assert found["unfinished"][0].level is Level.WARNING
    assert found["unfinished"][0].text == "1 run of maintenance has not ended, or is running now: maintenance-x."
    maintain(table.handle())
    assert findings(table)["unfinished"], "it may be running"
    os.utime(plan, (time.time() - 3600,) * 2)
    maintain(table.handle())
    assert not findings(table)["unfinished"]


@pytest.mark.parametrize(("hint", "level"), [(5, Level.WARNING), (0, Level.NOTE), (1, None)])
def test_it_reports_a_stale_hint(table: Table, hint: int, level: Level | None) -> None:
    (table.path / "snapshot" / "EARLIEST").write_text(str(hint))
    found = findings(table)["earliest_hint"]
    assert [each.level for each in found] == ([] if level is None else [level])


def test_a_tag_that_cannot_be_read_is_a_problem_and_no_plan_is_made(table: Table) -> None:
    (table.path / "tag").mkdir()
    (table.path / "tag" / "tag-t").write_text("{")
    diagnosis = diagnose(table.handle())
    assert not diagnosis.is_healthy
    assert not [each for each in diagnosis.findings if each.check in ("maintenance", "held_back")]


def test_the_requests_grow_with_the_logarithm_of_the_snapshots(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", snapshot__num_retained__min="1", snapshot__time_retained="1 h")
    table.commit_each(range(120))
    without = diagnose(table.handle(snapshot__num_retained__min="200")).requests["read"]
    # All are young, so the bisection reads the most.
    diagnosis = diagnose(table.handle())
    assert diagnosis.requests["read"] - without <= 7
    assert [each.level for each in diagnosis.findings if each.check == "maintenance"] == [Level.OK]


def test_automatic_tags_are_due_by_their_own_snapshots(tmp_path: Path) -> None:
    """The times of snapshots that doctor has not read are no ground for tags."""
    table = filled(Table(tmp_path, "t", primary_key=True, tag__num_retained_max="2", **AUTOMATIC))
    at_days(table, 1, 1.1, 2, 2.1, 3, 4)
    kept = table.handle(snapshot__num_retained__min="7")
    (finding,) = findings(table, kept)["maintenance"]
    assert finding.text == "A run of maintenance would create automatic tags."
    assert len(maintain(kept).plan.created_tags) == 2
    table.commit([10])
    at_days(table, 1, 1.1, 2, 2.1, 3, 4, 4.1)
    (finding,) = findings(table, kept)["maintenance"]
    assert (finding.level, finding.facts["tags"], finding.facts["automatic_tags_due"]) == (Level.OK, [], False)
    assert maintain(kept).plan.is_empty


def test_it_counts_bytes_and_orphans_where_it_is_asked_to(table: Table) -> None:
    (table.path / "manifest" / "lost").write_bytes(b"12345")
    (table.path / "manifest" / "young").write_bytes(b"1")
    os.utime(table.path / "manifest" / "lost", (1e9, 1e9))
    assert not [each for each in diagnose(table.handle()).findings if each.check == "orphans"]
    (finding,) = [each for each in diagnose(table.handle(), orphans=True).findings if each.check == "orphans"]
    report = maintain(table.handle(), MaintenancePolicy(orphan_age=86_400))
    assert finding.facts == {
        "files": len(report.plan.files),
        "bytes": report.plan.bytes,
        "orphans": 1,
        "orphan_bytes": 5,
    }
    assert f"would delete {len(report.plan.files)} files (" in finding.text and "1 of them orphans (5" in finding.text
    (finding,) = [each for each in diagnose(table.handle(), orphans=True).findings if each.check == "orphans"]
    assert finding.level is Level.OK


def test_partitions_that_expire_are_due(tmp_path: Path) -> None:
    columns = pa.schema([("day", pa.string()), ("k", pa.int64())])
    table = Table(tmp_path, "t", columns=columns, partition_keys=["day"], partition__expiration_time="1 d")
    table.commit([("2020-01-01", 1), ("2999-01-01", 2)])
    (finding,) = findings(table)["maintenance"]
    assert finding.text == "A run of maintenance would expire 1 partition (day=2020-01-01)."
    assert [*maintain(table.handle()).plan.partitions] == finding.facts["partitions"] == [{"day": "2020-01-01"}]
