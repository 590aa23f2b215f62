"""`paimon-stream doctor`: what it finds, that it asks once and writes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import ConsumerManager, UnsupportedTableError
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.doctor import examination
from pypaimon.streaming.doctor.checks import CHECKS, diagnose, diagnosis_of
from pypaimon.streaming.doctor.examination import Layout
from pypaimon.streaming.doctor.findings import Finding, Level
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.table_traits import Retention, TableTraits
from pypaimon.streaming.paimon.internals import TableSchema
from support.docs.cli_runs import Program
from support.stores.fault_file_io import UNAVAILABLE, FaultFileIO, failing
from support.tables.chain_tables import DELTA, ChainTable
from support.tables.streamed_table import Table

_HOUR = 3_600_000


class Later(Clock):
    """A clock that is ahead."""

    def __init__(self, millis: int) -> None:
        self._millis = millis

    def time_millis(self) -> int:
        return Clock.time_millis(self) + self._millis


def found(table: Table, check: str, later: int = 0, **options: str) -> list[Finding]:
    """What one check finds."""
    return [
        each
        for each in diagnosis_of(examination.examine(table.handle(**options), Later(later))).findings
        if each.check == check
    ]


def only(table: Table, check: str, later: int = 0, **options: str) -> Finding:
    (finding,) = found(table, check, later, **options)
    return finding


def save(table: Table, next_snapshot: int, consumer_id: str = "etl") -> None:
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer(consumer_id, Consumer(next_snapshot))


def committed(warehouse: Path, commits: int = 4, **options: Any) -> Table:
    return Table(warehouse, **options).commit_each(range(commits))


def test_asks_once_for_each_file_and_writes_nothing(tmp_path: Path) -> None:
    table = committed(tmp_path, primary_key=True)
    save(table, 3)
    handle, asked = table.handle(), FaultFileIO()
    handle.file_io = asked
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    diagnosis = diagnose(handle)
    assert len(set(asked.calls)) == len(asked.calls)
    assert sum(diagnosis.requests.values()) == len(asked.calls) == 18
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_table_that_is_well(tmp_path: Path) -> None:
    table = committed(tmp_path, 2)
    save(table, 3)
    diagnosis = diagnose(table.handle())
    assert {each.level for each in diagnosis.findings} == {Level.OK}
    assert diagnosis.is_healthy
    texts = [each.text for each in diagnosis.findings]
    assert texts[0] == "An append table, without buckets."
    assert "A stream starts with the state of snapshot 2 (2 records), then the changes from snapshot 3 on." in texts
    assert "Consumer etl has read everything." in texts


def test_a_consumer_of_expired_snapshots_is_a_problem(tmp_path: Path) -> None:
    table = committed(tmp_path)
    save(table, 2)
    table.expire(3)
    finding = only(table, "consumers")
    assert (finding.level, finding.facts["next_snapshot"]) == (Level.PROBLEM, 2)
    assert "has lost snapshots" in finding.text
    save(table, 0)
    assert only(table, "consumers").text.startswith("Consumer etl is 2 snapshots behind"), "0 means the earliest"


def test_a_consumer_ahead_of_the_table_is_a_problem(tmp_path: Path) -> None:
    table = committed(tmp_path, 2)
    save(table, 4)
    assert "rolled back or re-created" in only(table, "consumers").text


def test_what_keeps_snapshots_is_reported(tmp_path: Path) -> None:
    table = committed(tmp_path)
    save(table, 2)
    options = {"snapshot.num-retained.min": "1"}
    assert only(table, "expiry", _HOUR // 2, **options).level is Level.OK, "young snapshots stay anyway"
    finding = only(table, "expiry", 2 * _HOUR, **options)
    assert (finding.level, finding.facts["kept_by"], finding.facts["kept_from"]) == (Level.NOTE, "etl", 2)
    assert only(table, "expiry", 2 * _HOUR).level is Level.OK, "the last ten stay anyway"


def test_what_is_kept_is_compared_with_what_the_options_promise(tmp_path: Path) -> None:
    table = committed(tmp_path, 8)
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "5"}
    finding = only(table, "expiry", **options)
    assert finding.level is Level.WARNING
    assert "5 at most. But 8 snapshots exist; the latest commit should have expired 3 of them (1 to 3)" in finding.text
    assert (finding.facts["kept"], finding.facts["overdue"]) == (8, 3)
    save(table, 3)
    warning, keeper = found(table, "expiry", **options)
    assert warning.facts["overdue"] == 1 == only(table, "maintenance", **options).facts["snapshots"]
    assert "Only consumer etl keeps snapshot 3" in keeper.text
    save(table, 1)
    assert [each.level for each in found(table, "expiry", **options)] == [Level.NOTE]
    assert only(table, "expiry", **(options | {"snapshot.num-retained.max": "8"})).facts["overdue"] == 0


def test_snapshots_that_were_too_old_at_the_latest_commit_are_overdue(tmp_path: Path) -> None:
    table = committed(tmp_path, 4)
    for number in (1, 2):
        snapshot = table.snapshot(number)
        snapshot["timeMillis"] -= 2 * _HOUR
        table.snapshot_path(number).write_text(json.dumps(snapshot))
    options = {"snapshot.num-retained.min": "1"}
    assert only(table, "expiry", **options).facts["overdue"] == 2
    # What has become old since then waits for a commit.
    assert only(table, "expiry", 24 * _HOUR, **options).facts["overdue"] == 2
    assert only(table, "expiry").facts["overdue"] == 0, "the last ten stay anyway"


def test_consumers_may_keep_changelogs_alone(tmp_path: Path) -> None:
    table = committed(tmp_path)
    save(table, 1)
    options = {"snapshot.num-retained.min": "1", "changelog.time-retained": "1 d", "consumer.changelog-only": "true"}
    finding = only(table, "expiry", 2 * _HOUR, **options)
    assert (finding.level, finding.facts["consumers_keep"]) == (Level.OK, "changelogs")
    (table.path / "changelog").mkdir()
    table.snapshot_path(1).rename(table.path / "changelog" / "changelog-1")
    table.expire(2)
    assert only(table, "consumers", **options).text == "Consumer etl is 4 snapshots behind."
    assert "has lost snapshots" in only(table, "consumers").text


@pytest.mark.parametrize(
    ("snapshot_id", "hours", "gone"), [(4, 2, False), (3, 2, True), (3, 0, False), (2, 0, True), (1, 0, True)]
)
def test_what_expires_is_old_or_too_much_and_not_among_the_last(snapshot_id: int, hours: int, gone: bool) -> None:
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}
    assert Retention.of(options).lets_go(snapshot_id, 10 * _HOUR, 5, (10 + hours) * _HOUR) is gone


def test_of_a_consumer_far_behind_the_age_is_reported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "MOST_RECENT", 1)
    table = committed(tmp_path)
    save(table, 2)
    assert "3 snapshots behind, the first one committed " in only(table, "consumers").text


def test_a_consumer_whose_file_will_expire_is_a_warning(tmp_path: Path) -> None:
    table = committed(tmp_path)
    save(table, 2)
    options = {"consumer.expiration-time": "4 h", "snapshot.num-retained.min": "1"}
    assert only(table, "consumers", _HOUR, **options).level is Level.NOTE, "its reader renews it in time"
    finding = only(table, "consumers", 3 * _HOUR, **options)
    assert finding.level is Level.WARNING
    assert "its file expires in" in finding.text
    assert "snapshot 2, which it wants next" in finding.text
    assert "at the next commit" in only(table, "consumers", 5 * _HOUR, **options).text


def test_a_consumer_that_nobody_reads_is_a_warning(tmp_path: Path) -> None:
    table = committed(tmp_path)
    save(table, 2)
    assert only(table, "consumers").level is Level.NOTE
    assert only(table, "consumers", 48 * _HOUR).level is Level.WARNING
    save(table, 5)
    assert only(table, "consumers", 48 * _HOUR).level is Level.OK, "who has read everything keeps nothing"


def test_a_snapshot_that_is_lost_is_a_problem(tmp_path: Path) -> None:
    table = committed(tmp_path)
    table.snapshot_path(2).unlink()
    finding = only(table, "snapshots")
    assert (finding.level, finding.facts["missing"]) == (Level.PROBLEM, [2])


@pytest.mark.parametrize(("name", "what"), [("baseManifestList", "manifests"), ("snapshot-4", "snapshot")])
def test_damage_is_a_problem_and_the_rest_is_reported(name: str, what: str, tmp_path: Path) -> None:
    table = committed(tmp_path)
    (table.path / ("snapshot" if what == "snapshot" else "manifest") / table.snapshot(4).get(name, name)).write_text("")
    handle = table.handle()
    TableDirectory.of(handle).store._common.sleep = lambda _: None
    diagnosis = diagnose(handle)
    (finding,) = (each for each in diagnosis.findings if each.level is Level.PROBLEM)
    assert finding.facts == {"what": what, "error": "CorruptTableError"}
    assert {"kind", "snapshots", "expiry"} <= {each.check for each in diagnosis.findings}


def test_a_store_that_fails_is_an_error_and_no_finding(tmp_path: Path) -> None:
    store, table = FaultFileIO(), committed(tmp_path, 1)
    store.wherever(lambda call: failing(UNAVAILABLE)(call) if "consumer" in call.path else call.answer())
    handle = table.handle(store)
    TableDirectory.of(handle).store._common.sleep = lambda _: None
    with pytest.raises(StoreError):
        diagnose(handle)


@pytest.mark.parametrize(
    ("bucket", "words"), [("2", "2 buckets"), ("-1", "dynamic buckets (-1)"), ("-2", "postponed buckets (-2)")]
)
def test_the_kind_of_buckets_is_reported(bucket: str, words: str, tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True, bucket=bucket)
    assert only(table, "kind").text == f"A primary-key table (k) with merge engine deduplicate, {words}."


def test_partitions_that_writers_refuse_are_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, program = committed(tmp_path, 1, primary_key=True), Program(tmp_path, capsys)
    assert found(table, "bucket_numbers") == []
    assert "until the table's option 'bucket' is 3, not 2" in program("rescale", "db.t", "3").err
    finding = only(table, "bucket_numbers")
    assert (finding.level, finding.facts) == (Level.PROBLEM, {"bucket": 2, "others": [3]})
    assert "paimon-stream rescale db.t 2" in finding.advice
    assert "until" not in program("rescale", "db.t", "2").err
    assert found(table, "bucket_numbers") == []


def test_of_a_chain_table_the_branch_that_streams_follow_is_looked_at(tmp_path: Path) -> None:
    diagnosis = diagnose(ChainTable(tmp_path).handle())
    assert diagnosis.findings[0].text.startswith(f"A chain table; what follows is of its branch {DELTA}. A primary-key")


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"most_runs": 8, "most_small_files": 50}, Level.OK, ""),
        ({"most_runs": 9}, Level.WARNING, "Compaction does not keep up"),
        ({"most_small_files": 51}, Level.WARNING, "commit less often"),
    ],
    ids=["well", "runs", "small files"],
)
def test_what_waits_for_a_compaction_is_a_warning(
    changed: dict[str, int], level: Level, words: str, tmp_path: Path
) -> None:
    seen = examination.examine(committed(tmp_path, 1).handle())
    assert seen.layout is not None
    (finding,) = CHECKS["files"](replace(seen, layout=replace(seen.layout, **changed)))
    assert finding.level is level
    assert words in finding.advice


def test_a_table_that_no_stream_takes_is_a_problem(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True, merge_engine="partial-update")
    finding = only(table, "damage")
    assert (finding.level, finding.facts["what"]) == (Level.PROBLEM, "stream")
    assert "'lookup' or 'full-compaction'" in finding.text


def test_what_no_stream_takes_is_what_streams_refuse(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("p", pa.string())])
    table = Table(tmp_path, columns=columns, partition_keys=["p"], scan__partitions="max_pt()")
    with pytest.raises(UnsupportedTableError) as refused:
        table.builder().new_streaming_scan()
    assert only(table, "damage").text == str(refused.value)


def test_changes_that_no_compaction_has_written_are_a_warning(tmp_path: Path) -> None:
    table = committed(tmp_path, 2, primary_key=True, changelog_producer="lookup")
    finding = only(table, "compaction")
    assert (finding.level, finding.facts) == (Level.WARNING, {"commits": 2})
    assert only(table, "waiting").facts == {"files": 2}


def test_overwrites_that_are_passed_over_are_a_warning(tmp_path: Path) -> None:
    table = committed(tmp_path, 1)
    table.commit([7], overwrite=True)
    finding = only(table, "overwrites")
    assert (finding.level, finding.facts) == (Level.WARNING, {"snapshots": [2]})
    assert "Targets and live tables follow overwrites" in str(finding.advice)
    assert only(table, "files").facts["files"] == 1, "what it removed is gone"
    assert found(table, "overwrites", **{"streaming-read-append-overwrite": "true"}) == []
    assert "streaming-read-append-overwrite" in only(table, "damage", **{"streaming-read-overwrite": "true"}).text


def test_rows_that_expire_are_noted(tmp_path: Path) -> None:
    table = committed(tmp_path, 1, primary_key=True)
    advice = only(table, "vanishing", **{"partition.expiration-time": "7 d"}).advice
    assert "Targets and live tables follow it" in str(advice)
    advice = only(table, "vanishing", **{"record-level.expire-time": "7 d"}).advice
    assert "refuse tables with a primary key" in str(advice)


def test_a_start_that_lacks_what_has_expired_is_a_warning(tmp_path: Path) -> None:
    table = committed(tmp_path)
    second = {"scan.snapshot-id": "2"}
    early = {"scan.timestamp-millis": str(table.snapshot(1)["timeMillis"] - 1)}
    assert [only(table, "start", **start).level for start in (second, early)] == [Level.OK, Level.OK]
    table.expire(3)
    for start in (second, early):
        finding = only(table, "start", **start)
        assert (finding.level, finding.facts["next_snapshot"]) == (Level.WARNING, 3)


def test_a_consumer_that_the_options_name_is_where_a_stream_continues(tmp_path: Path) -> None:
    table = committed(tmp_path, 2)
    save(table, 2)
    named = {"consumer-id": "etl"}
    assert only(table, "start").facts["next_snapshot"] == 3
    assert only(table, "start", **named).facts["next_snapshot"] == 2
    assert only(table, "start", **named, **{"consumer.ignore-progress": "true"}).facts["next_snapshot"] == 3


def test_an_empty_table_waits(tmp_path: Path) -> None:
    diagnosis = diagnose(Table(tmp_path).handle())
    assert diagnosis.is_healthy
    assert [each.check for each in diagnosis.findings] == ["kind", "changelog", "snapshots", "expiry"]


ENTRIES = pa.table(
    {
        "partition": pa.array([b"a", b"a", b"a", b"b", b"b", b"b", b"b"], pa.binary()),
        "bucket": pa.array([0, 0, 0, 0, 0, -2, -2], pa.int32()),
        "level": pa.array([0, 0, 5, 5, 5, 0, 0], pa.int32()),
        "file_name": ["1", "2", "3", "4", "5", "6", "7"],
        "file_size": [10, 10, 1000, 1000, 99, 10, 10],
        "row_count": [1, 1, 9, 9, 1, 1, 1],
    }
)


@pytest.mark.parametrize(
    ("producer", "later"), [("none", 0), ("lookup", 2), ("full-compaction", 2)], ids=lambda each: str(each)
)
def test_counts_what_a_first_plan_merges(producer: str, later: int) -> None:
    schema = TableSchema(fields=[], primary_keys=["k"], options={"changelog-producer": producer})
    layout = Layout.of(ENTRIES, TableTraits.of(schema), 1000)
    assert (layout.files, layout.records, layout.bytes) == (7, 23, 2139)
    assert (layout.small_files, layout.most_small_files) == (5, 2)
    assert (layout.buckets, layout.merged_buckets, layout.most_runs) == (3, 1, 3)
    assert (layout.later_files, layout.postponed_files) == (later, 2)


def test_the_program_shows_it_and_ends_with_1_for_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, program = committed(tmp_path, 2), Program(tmp_path, capsys)
    well = program("doctor", "db.t")
    assert (well.code, well.err) == (0, "")
    assert well.out.startswith("ok       An append table, without buckets.\n")
    assert well.lines[-1].startswith("db.t: 0 problems, 0 warnings; requests: ")
    save(table, 9)
    problem = program("doctor", "db.t", "--json")
    (record,) = problem.records
    assert (problem.code, record["healthy"]) == (1, False)
    (finding,) = (each for each in record["findings"] if each["level"] == "problem")
    assert finding["check"] == "consumers"
    assert finding["advice"]
