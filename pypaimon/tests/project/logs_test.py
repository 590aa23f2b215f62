"""Log lines: what a stream tells, as words and as fields; each event is documented, and nothing secret is in it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from pypaimon.streaming import ConsumerManager, logs, stream_read_builder
from pypaimon.streaming.errors import StoreError, TargetError, what_fails
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.logs import FIELDS, Event, Outages, StreamLog
from support.repository import ROOT
from support.stores.fault_file_io import UNAVAILABLE, FaultFileIO, failing
from support.stores.virtual_clock import VirtualClock
from support.tables.orders import catalog, change, create_orders, events, orders
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """The fields of the lines so far of an event, at any level."""
    with caplog.at_level(logging.DEBUG, "pypaimon.streaming"):

        def fields(event: str) -> list[dict[str, Any]]:
            found = [vars(record)[FIELDS] for record in caplog.records if hasattr(record, FIELDS)]
            return [{k: v for k, v in each.items() if k != "event"} for each in found if each["event"] == event]

        yield fields


def test_a_line_says_its_fields_in_words_and_for_machines(caplog: pytest.LogCaptureFixture) -> None:
    log = StreamLog("pypaimon.streaming.x", table="db.t")
    with caplog.at_level(logging.INFO, "pypaimon.streaming"):
        log.debug("plan", "%(snapshot)d", snapshot=1)
        log.info("passed_over", "100 %% of %(snapshot)d", snapshot=2)
    (record,) = caplog.records
    assert record.getMessage() == "db.t: 100 % of 2"
    assert record.msg == "%(table)s: 100 %% of %(snapshot)d"
    assert vars(record)[FIELDS] == {"event": "passed_over", "table": "db.t", "snapshot": 2}
    assert json.loads(json.dumps(vars(record)[FIELDS]))["event"] == "passed_over"
    assert (record.name, record.filename) == ("pypaimon.streaming.x", Path(__file__).name)


def test_the_life_of_a_stream_with_a_consumer(tmp_path: Path, told: Any) -> None:
    table = orders(catalog(tmp_path))
    builder = stream_read_builder(table).with_end(latest=True).with_consumer_id("etl")
    with builder.open_sync() as stream:
        list(stream)
    assert told("consumer_opened") == [{"table": "db.orders", "consumer": "etl", "snapshot": None, "used": False}]
    assert told("start") == [{"table": "db.orders", "snapshot": 4, "full": True, "mode": "latest-full"}]
    assert [(each["snapshot"], each["kind"]) for each in told("plan")] == [(4, "full")]
    assert told("end") == [{"table": "db.orders", "snapshot": 5}]
    (fence,), (saved,) = told("consumer_fenced"), told("consumer_saved")
    assert (fence["consumer"], fence["snapshot"]) == ("etl.first-plan", 4)
    assert (saved["consumer"], saved["snapshot"]) == ("etl", 5)
    assert [each["consumer"] for each in told("consumer_deleted")] == ["etl.first-plan"]
    with builder.new_streaming_scan() as scan:
        list(scan.stream_sync())
    assert told("consumer_opened")[1:] == [{"table": "db.orders", "consumer": "etl", "snapshot": 5, "used": True}]
    assert [each["snapshot"] for each in told("resume")] == [5]


def test_an_empty_table_is_reported_once(tmp_path: Path, told: Any) -> None:
    with stream_read_builder(create_orders(catalog(tmp_path))).new_streaming_scan() as scan:
        assert [scan.plan() for _ in range(3)] == [None] * 3
    assert told("waiting") == [{"table": "db.orders"}]


@pytest.mark.parametrize("choice", ["auto", "replay"])
def test_a_catch_up_logs_its_choice_and_the_reason(tmp_path: Path, told: Any, choice: str) -> None:
    table = events(catalog(tmp_path), commits=40)
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True).with_catch_up(choice)
    with builder.with_prefetch(0).new_streaming_scan() as scan:
        kinds = [plan.kind.value for plan in scan.stream_sync()]
    found = told("catch_up")
    if choice == "auto":
        assert "collapsed" in kinds
        assert {each["choice"] for each in found} == {"collapsed"}
        assert all(each["first"] < each["last"] and each["reason"] for each in found)
    else:
        assert [(each["choice"], each["reason"]) for each in found] == [("replay", "catch_up='replay'")]
    assert [each["kind"] for each in told("plan")] == kinds


def test_a_primary_key_table_far_behind_logs_that_it_is_replayed(tmp_path: Path, told: Any) -> None:
    table = create_orders(catalog(tmp_path))
    for number in range(24):
        change(table, "+I", (number, "placed", None))
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).new_streaming_scan() as scan:
        assert len(list(scan.stream_sync())) == 24
    (line,) = told("catch_up")
    assert line["choice"] == "replay"
    assert "primary key" in line["reason"]


def test_a_request_that_is_repeated_is_reported(tmp_path: Path, told: Any) -> None:
    (tmp_path / "x").write_bytes(b"content")
    file_io = FaultFileIO()
    file_io.at(1, failing(UNAVAILABLE))
    assert Store(file_io, sleep=lambda _: None).read(str(tmp_path / "x")) == b"content"
    (line,) = told("retry")
    assert "SLOW_DOWN" in line.pop("error")
    assert line == {"kind": "read", "count": 1, "attempt": 1, "path": str(tmp_path / "x")}


def test_an_outage_is_one_warning_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails in it, and however often; all other lines are for somebody who looks closer."""
    clock = VirtualClock()
    monkeypatch.setattr(logs, "outages", Outages(clock.monotonic))
    file_io = FaultFileIO()
    file_io.wherever(failing(UNAVAILABLE))
    caplog.set_level(logging.DEBUG, "pypaimon.streaming")
    warned = []
    for _ in range(3):
        for name in ("a", "b"):
            with pytest.raises(StoreError) as caught:
                Store(file_io, sleep=lambda _: None).read(f"/lake/wh/{name}")
            StreamLog("pypaimon.streaming.x").outage("waits_out", "%(error)s", what_fails(caught.value), error="it")
        warned.append(sum(record.levelno == logging.WARNING for record in caplog.records))
        clock.now += 61
    assert warned == [1, 2, 3]
    assert len(caplog.records) == 3 * 2 * 5
    # Another store, or another kind of failure, is another outage.
    assert what_fails(caught.value) == "/lake/wh"
    others = TargetError(), TargetError(), StoreError()
    assert [logs.outages.is_due(what_fails(each)) for each in others] == [True, False, True]


def test_what_is_deleted_from_outside_is_reported(tmp_path: Path, told: Any) -> None:
    table = events(catalog(tmp_path))
    manager = ConsumerManager(table.file_io, table.table_path)
    with stream_read_builder(table).with_start("latest").with_consumer_id("etl").new_streaming_scan() as scan:
        assert scan.plan() is None
    manager.delete_consumer("etl")
    assert [each["consumer"] for each in told("consumer_deleted")] == ["etl"]


def test_passed_over_snapshots_are_reported_and_the_first_overwrite_is_a_warning(tmp_path: Path, told: Any) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    for _ in range(2):
        table.commit([2], overwrite=True)
    builder = table.builder().with_start("earliest").with_end(latest=True).with_prefetch(0)
    with builder.new_streaming_scan() as scan:
        list(scan.stream_sync())
    assert [each["snapshot"] for each in told("overwrite_passed_over")] == [2]
    assert [(each["snapshot"], each["commit"]) for each in told("passed_over")] == [(3, "OVERWRITE")]


def test_every_event_is_documented_with_its_level_and_fields() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z]+) \|", page, re.MULTILINE)
    documented = dict(rows)
    assert len(documented) == len(rows)
    assert set(documented) == set(get_args(Event))
    used: dict[str, set[str]] = {}
    for module in (ROOT / "pypaimon").glob("s*/**/*.py"):
        source = module.read_text(encoding="utf-8")
        for level, event in re.findall(r"\.(debug|info|warning|outage)\(\s*\"(\w+)\"", source):
            used.setdefault(event, set()).add("warning" if level == "outage" else level)
    assert used == {event: {level.lower()} for event, level in documented.items()}
