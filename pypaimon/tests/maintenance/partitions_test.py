"""Partitions that expire, are dropped, or are marked as done."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import (
    CorruptTableError,
    MaintenancePolicy,
    StreamConfigError,
    UnsupportedTableError,
    compact,
    maintain,
)
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.maintenance import drop_partitions, list_partitions, mark_partitions_done
from pypaimon.streaming.maintenance.partition_files import partitions_at
from pypaimon.streaming.maintenance.preparation import Preparation
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import every
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, available, rows

COLUMNS = pa.schema([("p", pa.string()), ("h", pa.int32()), ("k", pa.int64())])
ONE = pa.schema([("p", pa.string()), ("k", pa.int64())])
WEEK = {"partition__expiration_time": "7 d"}
ODD = [None, "  ", "a,b", "a=b", "2020-01-01,2", "not a time"]
NOW = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)


def partitioned(warehouse: Path, *partitions: Any, **options: str) -> Table:
    """A table with one row in each partition."""
    table = Table(warehouse, "t", columns=ONE, partition_keys=["p"], **options)
    for partition in partitions:
        table.commit([(partition, 1)])
    return table


def left(table: Table) -> list[str | None]:
    return [each.values["p"] for each in list_partitions(table.handle())]


def expire_at(table: Table, now: datetime, policy: MaintenancePolicy | None = None) -> Preparation:
    preparation = Preparation(PaimonTable(table.handle()), policy or MaintenancePolicy(), now)
    preparation.run()
    return preparation


@pytest.mark.parametrize("has_expired", [False, True])
def test_a_missing_manifest_is_damage_only_if_the_snapshot_is_still_there(tmp_path: Path, has_expired: bool) -> None:
    table = partitioned(tmp_path, "a", "b")
    directory = PaimonTable(table.handle()).new_directory()
    snapshot = directory.snapshots.get(1)
    (table.path / "manifest" / snapshot.delta_manifest_list).unlink()
    if has_expired:
        table.snapshot_path(1).unlink()
    with pytest.raises(MaintenanceConflictError if has_expired else CorruptTableError, match="snapshot 1 "):
        partitions_at(PaimonTable(table.handle()), directory, snapshot)


# ---- Drop


@pytest.mark.slow
def test_complete_values_are_exact_and_some_values_are_any(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", columns=COLUMNS, partition_keys=["p", "h"])
    for partition in ("a", "b", None):
        table.commit([(partition, hour, hour) for hour in (1, 2)])
    done = drop_partitions(table.handle(), [{"p": "a", "h": 1}, {"p": None}])
    assert done.partitions == ({"p": None, "h": "1"}, {"p": None, "h": "2"}, {"p": "a", "h": "1"})
    assert done.snapshot_id == 4 and table.rows() == [("a", 2, 2), ("b", 1, 1), ("b", 2, 2)]
    snapshot = table.snapshot(4)
    assert snapshot["commitKind"] == "OVERWRITE" and "changelogManifestList" not in snapshot
    assert drop_partitions(table.handle(), {"h": "2"}).snapshot_id == 5
    assert drop_partitions(table.handle(), {"h": 9}).snapshot_id is None and table.latest() == 5


@pytest.mark.slow
@pytest.mark.parametrize("value", ODD)
def test_any_value_can_be_dropped(tmp_path: Path, value: str | None) -> None:
    table = partitioned(tmp_path, *ODD)
    assert drop_partitions(table.handle(), {"p": value}, dry_run=True).partitions == ({"p": value},)
    assert drop_partitions(table.handle(), {"p": value}).partitions == ({"p": value},)
    assert {row[0] for row in table.rows()} == {*ODD} - {value}


@pytest.mark.parametrize("wrong", [[], {}, {"q": 1}, [{"p": "a"}, {"k": 1}]])
def test_what_names_no_partition_is_refused(tmp_path: Path, wrong: Any) -> None:
    table = partitioned(tmp_path, "a")
    with pytest.raises(StreamConfigError, match="partitions"):
        drop_partitions(table.handle(), wrong)
    assert table.latest() == 1


@pytest.mark.slow
def test_indexes_go_with_their_partition_and_streams_pass_over_it(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("p", pa.string(), False), pa.field("k", pa.int64(), False), ("v", pa.string())])
    table = Table(tmp_path, "t", columns=columns, partition_keys=["p"], primary_keys=["p", "k"], bucket="-1")
    for key in (1, 2):
        with table.writer().open_sync() as writer:
            writer.write(pa.table({"p": ["a", "b"], "k": [key] * 2, "v": ["x"] * 2}, schema=columns))
            writer.commit()
    builder = table.builder().with_start(snapshot_id=3)
    before = table.latest()
    drop_partitions(table.handle(), {"p": "a"})
    assert table.latest() == before + 1 and needed_files(table.path) <= files_of(table.path)
    with table.writer().open_sync() as writer:
        writer.write(pa.table({"p": ["a"], "k": [1], "v": ["y"]}, schema=columns))
        writer.commit()
    assert table.rows() == [("a", 1, "y"), ("b", 1, "x"), ("b", 2, "x")]
    with builder.new_streaming_scan() as scan:
        seen = [row for plan in available(scan) for row in rows(builder.new_read(), plan)]
    assert len(seen) == 1


@pytest.mark.slow
def test_a_compaction_of_a_partition_that_is_dropped_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    table = partitioned(tmp_path, *["a"] * 6, "b")
    done: list[Any] = []

    def drop(*_: int) -> None:
        if not done:
            done.append(drop_partitions(table.handle(), {"p": "a"}))

    report = compact(table.handle(), full=True, on_progress=drop)
    assert len(report.conflicts) == 1 and not report.compacted and table.rows() == [("b", 1)]


def test_a_chain_table_is_refused(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2020-01-01", **WEEK)
    chained = table.handle(chain_table__enabled="true")
    for refused in (lambda: drop_partitions(chained, {"p": "a"}), lambda: maintain(chained)):
        with pytest.raises(UnsupportedTableError, match="chain table"):
            refused()
    assert maintain(chained, MaintenancePolicy(expire_partitions=False)).plan.partitions == ()
    assert table.latest() == 1


# ---- Expire


def test_a_metastore_keeps_partitions_that_are_dropped_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = partitioned(tmp_path, "a", "b", metastore__partitioned_table="true")
    for value in ("a", "b"):
        drop_partitions(table.handle(), {"p": value})
    found = [each.getMessage() for each in caplog.records if "metastore.partitioned-table" in each.getMessage()]
    assert len([each for each in found if "dropped here from the table only" in each]) == 1


def test_partitions_expire_before_snapshots_as_planned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = partitioned(tmp_path, "2020-01-01", "2099-12-31", "2020-1-2 08:30:00", *ODD, **WEEK)
    with caplog.at_level(logging.WARNING):
        dry = maintain(table.handle(), dry_run=True)
    (warning,) = [each for each in caplog.records if getattr(each, "paimon", {}).get("event") == "partitions_untimed"]
    assert warning.paimon["count"] == len(ODD)  # type: ignore[attr-defined]
    expected = ({"p": "2020-01-01"}, {"p": "2020-1-2 08:30:00"})
    assert dry.plan.partitions == expected and dry.dropped_partitions == () and table.latest() == 9
    assert json.loads(dry.plan.to_json())["partitions"] == [*expected]
    with caplog.at_level(logging.INFO):
        report = maintain(table.handle())
    assert report.plan == dry.plan and report.dropped_partitions == expected
    (line,) = [each.paimon for each in caplog.records if getattr(each, "paimon", {}).get("event") == "maintained"]
    assert line["partitions"] == 2 and line["tags"] == line["created_tags"] == 0
    assert {*left(table)} == {"2099-12-31", *ODD} and table.latest() == 10
    assert maintain(table.handle()).plan.is_empty


def test_the_cut_is_after_the_begin(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2026-11-20 12:00:00", **WEEK, time_zone="UTC")
    for now in (NOW, NOW - timedelta(days=1)):
        expire_at(table, now)
        assert left(table)
    expire_at(table, NOW + timedelta(microseconds=1))
    assert not left(table)


@pytest.mark.slow
def test_only_some_expire_in_a_run_and_fewer_in_a_commit(tmp_path: Path) -> None:
    table = Table(tmp_path, "t", columns=ONE, partition_keys=["p"], **WEEK, partition__expiration_batch_size="40")
    days = [f"2020-{day // 28 + 1:02}-{day % 28 + 1:02}" for day in range(101)]
    table.commit([(day, 1) for day in reversed(days)])
    report = maintain(table.handle())
    assert [each["p"] for each in report.dropped_partitions] == days[:100] and left(table) == days[100:]
    assert table.ids() == [1, 2, 3, 4]
    assert not maintain(table.handle(partition__expiration_max_num="0")).plan.partitions
    assert len(maintain(table.handle()).dropped_partitions) == 1 and not table.rows()


def test_a_policy_replaces_the_age(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2020-01-01")
    assert maintain(table.handle()).plan.is_empty
    assert maintain(table.handle(), MaintenancePolicy(partition_age=timedelta(days=9999 * 365))).plan.is_empty
    assert maintain(table.handle(), MaintenancePolicy(partition_age=timedelta(days=90))).dropped_partitions


@pytest.mark.parametrize(
    ("options", "partition", "is_due"),
    [
        ({"partition__timestamp_formatter": "yyyyMMdd"}, "20200101", True),
        ({"partition__timestamp_formatter": "yyyyMMdd"}, "2020-01-01", False),
        ({"partition__timestamp_pattern": "$p-01"}, "2020-05", True),
        ({"partition__timestamp_pattern": "20$p 00:00:00"}, "20-5-7", True),
    ],
)
def test_the_options_say_how_times_are_read(
    tmp_path: Path, options: dict[str, str], partition: str, is_due: bool
) -> None:
    table = partitioned(tmp_path, partition, **WEEK, **options)
    assert bool(maintain(table.handle()).dropped_partitions) is is_due


def test_a_pattern_that_is_not_known_is_refused_before_anything_is_deleted(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2020-01-01", **WEEK, partition__timestamp_formatter="yyyy-MMM-dd")
    with pytest.raises(UnsupportedTableError, match=r"'partition.timestamp-formatter' = 'yyyy-MMM-dd': 'MMM'"):
        maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1))
    with pytest.raises(StreamConfigError, match=r"partition\.expiration-strategy"):
        maintain(table.handle(partition__expiration_strategy="org.example.Custom"))
    assert table.ids() == [1]


def test_late_rows_go_as_long_as_their_partition_is_old(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2020-01-01", **WEEK)
    preparation = Preparation(PaimonTable(table.handle()), MaintenancePolicy())
    table.commit([("2020-01-01", 2)])
    preparation.run()
    assert not table.rows()
    table.commit([("2020-01-01", 3)])
    assert table.rows() and maintain(table.handle()).dropped_partitions and not table.rows()


@pytest.mark.slow
def test_a_partition_that_is_written_after_the_plan_stays_if_its_last_write_counts(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "a", None, **WEEK, partition__expiration_strategy="update-time")
    assert maintain(table.handle()).plan.is_empty
    policy = MaintenancePolicy(partition_age=0.0)
    assert maintain(table.handle(), policy, dry_run=True).plan.partitions
    preparation = Preparation(PaimonTable(table.handle()), policy, datetime.now(timezone.utc))
    table.commit([("a", 2)])
    preparation.run()
    assert table.rows() == [("a", 1), ("a", 2)]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["values-time", "update-time"])
def test_a_run_that_is_killed_is_repeated(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, strategy: str
) -> None:
    marks = {"partition__idle_time_to_done": "1 ms", "partition__time_interval": "1 d"}
    table = partitioned(
        tmp_path, "2020-01-01", "2020-01-02", "2020-01-03", **WEEK, partition__expiration_batch_size="1",
        partition__expiration_max_num="2", partition__expiration_strategy=strategy, **marks,
    )  # fmt: skip
    policy = MaintenancePolicy(min_snapshots=1, max_snapshots=2, partition_age=0.0, rewrite_manifests=True)
    file_io = MortalFileIO()
    maintain(_handle(table.copy(tmp_path_factory.mktemp("count") / "wh"), file_io), policy)
    for step in every(23, range(file_io.steps)):
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            maintain(_handle(killed, MortalFileIO(step)), policy)
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        seen = killed.rows()
        while seen and not maintain(killed.handle(), policy).plan.is_empty:
            # Whatever was dropped stays dropped, and each run drops more.
            assert len(killed.rows()) <= len(seen)
            seen = killed.rows()
            assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        assert not killed.rows()
        shutil.rmtree(killed.path.parents[1])


def _handle(table: Table, file_io: Any) -> Any:
    handle = table.handle()
    handle.file_io = file_io
    return handle


# ---- Done marks


def marked(table: Table) -> dict[str, Any]:
    return {path.parent.name: json.loads(path.read_text() or "{}") for path in table.path.rglob("_SUCCESS")}


@pytest.mark.slow
def test_a_mark_keeps_its_first_time(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "a b", None)
    paths = mark_partitions_done(table.handle(), [{"p": "a b"}, {"p": None}, {"p": "none, yet"}])
    assert [Path(each).parent.name for each in paths] == ["p=a b", "p=__DEFAULT_PARTITION__", "p=none, yet"]
    first = marked(table)["p=a b"]
    assert first["creationTime"] == first["modificationTime"]
    time.sleep(0.01)
    mark_partitions_done(table.handle(), {"p": "a b"})
    again = marked(table)["p=a b"]
    assert again["creationTime"] == first["creationTime"] < again["modificationTime"]
    with pytest.raises(StreamConfigError, match="no value of h"):
        other = Table(tmp_path, "u", columns=COLUMNS, partition_keys=["p", "h"])
        mark_partitions_done(other.handle(), {"p": "a"})


IDLE = {"partition__idle_time_to_done": "1 h", "partition__time_interval": "1 d", "time_zone": "UTC"}


@pytest.mark.slow
def test_idle_partitions_are_marked_once_and_again_after_a_write(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2020-01-01", "2020-01-02", "not a time", **IDLE)
    written = datetime.now(timezone.utc)
    for minutes in (1, 59):
        expire_at(table, written + timedelta(minutes=minutes))
        assert not marked(table)
    (table.path / "p=2020-01-02" / "_SUCCESS").write_text("")  # Hadoop's
    expire_at(table, written + timedelta(minutes=61))
    first = marked(table)
    assert {*first} == {"p=2020-01-01", "p=2020-01-02"} and all("modificationTime" in each for each in first.values())
    expire_at(table, written + timedelta(minutes=62))
    assert marked(table) == first
    time.sleep(0.01)
    table.commit([("2020-01-01", 2)])
    expire_at(table, written + timedelta(minutes=30))
    assert marked(table) == first
    expire_at(table, written + timedelta(minutes=90))
    again = marked(table)
    assert again["p=2020-01-02"] == first["p=2020-01-02"]
    assert again["p=2020-01-01"]["modificationTime"] > first["p=2020-01-01"]["modificationTime"]


def test_a_partition_is_done_only_after_its_end(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "2026-11-27", **IDLE)
    end = datetime(2026, 11, 28, tzinfo=timezone.utc)
    # As if it had been written long before.
    later = max(end, datetime.now(timezone.utc) + timedelta(hours=2))
    if later == end:
        expire_at(table, end + timedelta(hours=1))
        assert not marked(table)
    expire_at(table, later + timedelta(hours=1, milliseconds=2))
    assert {*marked(table)} == {"p=2026-11-27"}


def test_what_is_marked_by_others_is_named_and_left_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = partitioned(tmp_path, "2020-01-01", **IDLE)
    later = datetime.now(timezone.utc) + timedelta(hours=2)
    handle = table.handle(partition__mark_done_action="http-report")
    with caplog.at_level(logging.WARNING):
        Preparation(PaimonTable(handle), MaintenancePolicy(), later).run()
    assert not marked(table) and "partition.mark-done-action" in caplog.text
    handle = table.handle(partition__mark_done_action="success-file,done-partition")
    Preparation(PaimonTable(handle), MaintenancePolicy(), later).run()
    assert marked(table) and "done-partition" in caplog.text


def test_by_watermark_a_partition_is_idle_when_the_watermark_has_passed(tmp_path: Path) -> None:
    """Whatever the time is; its last write counts by the watermark of the commit."""
    table = partitioned(tmp_path, "2026-11-27", "2026-11-28", **IDLE, partition__mark_done_action__mode="watermark")
    end = datetime(2026, 11, 28, tzinfo=timezone.utc)

    def at_watermarks(*hours: float | None) -> set[str]:
        """The marks, if the last of these snapshots are at these hours after the end of the first partition."""
        for number, each in zip(table.ids(), hours, strict=True):
            content = table.snapshot(number)
            content["watermark"] = None if each is None else round((end.timestamp() + 3600 * each) * 1000)
            table.snapshot_path(number).write_text(json.dumps(content))
        expire_at(table, end - timedelta(days=9))
        found = set(marked(table))
        for path in table.path.rglob("_SUCCESS"):
            path.unlink()
        return found

    assert at_watermarks(None, None) == set()
    assert at_watermarks(-5, 1) == set(), "exactly idle"
    table.commit([("2026-11-29", 1)])
    assert at_watermarks(-5, 1, 1.01) == {"p=2026-11-27"}
    table.commit([("2026-11-27", 2)])
    table.commit([("2026-11-29", 2)])
    assert at_watermarks(-5, 1, 1.01, 1.1, 2.1) == set(), "a late row"
    assert at_watermarks(-5, 1, 1.01, 1.1, 2.11) == {"p=2026-11-27"}


def test_marks_are_no_orphans(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "a", "b")
    mark_partitions_done(table.handle(), [{"p": "a"}, {"p": "b"}])
    drop_partitions(table.handle(), {"p": "b"})
    orphan = table.path / "p=a" / "bucket-0" / "orphan.parquet"
    orphan.write_text("")
    for path in table.path.rglob("*"):
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1, orphan_age=timedelta(days=2)))
    assert not orphan.exists() and {*marked(table)} == {"p=a", "p=b"}
