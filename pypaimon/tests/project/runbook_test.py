"""The runbook: the words of errors that it shows are those that come, and its dashboard names what is exported."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from pypaimon.spark.errors import ErrorContext
from pypaimon.streaming import ConsumerManager, PaimonStreamError, PositionExpiredError, stream_read_builder
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.telemetry import StreamMetrics
from support.docs.doc_pages import DOCS, blocks
from support.repository import ROOT
from support.stores.fault_file_io import FORBIDDEN, UNAVAILABLE, FaultFileIO, failing
from support.tables.orders import catalog, orders
from support.tables.streamed_table import Table, available

DASHBOARD = (ROOT / "examples" / "grafana_dashboard.json").read_text(encoding="utf-8")
ALERTS = (ROOT / "examples" / "prometheus_alerts.yaml").read_text(encoding="utf-8")
SHOWN = [block.text for block in blocks(DOCS / "operations.md") if block.language == "console"]


def expired(table: Table) -> None:
    ConsumerManager(table.handle().file_io, str(table.path)).reset_consumer("etl", Consumer(2))
    table.expire(3)
    with table.builder().with_consumer_id("etl").new_streaming_scan() as scan:
        scan.plan()


def cut_off(table: Table) -> None:
    with table.builder().with_start("earliest").new_streaming_scan() as scan:
        position = available(scan)[-1].position
    table.rollback(2)
    with table.builder().with_start(position=position).new_streaming_scan() as scan:
        scan.plan()


def recreated(table: Table) -> None:
    with table.builder().with_start("latest").new_streaming_scan() as scan:
        scan.plan()
        table.recreate()
        for _ in range(20):
            scan.plan()


def rolled_back(table: Table) -> None:
    with table.builder().with_start("earliest").with_prefetch(0).new_streaming_scan() as scan:
        available(scan)
        table.rollback(3)
        table.commit_each((7, 8))
        scan.plan()


def taken_over(table: Table) -> None:
    builder = table.builder().with_start("earliest").with_consumer_id("etl")
    with builder.open_sync() as first, builder.open_sync() as second:
        next(first)
        next(second)
        next(first)
        next(first)


def damaged(table: Table) -> None:
    table.snapshot_path(2).write_text("{")
    with table.builder().with_start("earliest").new_streaming_scan() as scan:
        available(scan)


def lost(table: Table) -> None:
    next(table.path.rglob("*.parquet")).unlink()
    with table.builder().with_start("earliest").with_end(latest=True).open_sync() as stream:
        list(stream)


def refused(table: Table) -> None:
    asked(table, lambda store: store.wherever(failing(FORBIDDEN)))


def unavailable(table: Table) -> None:
    asked(table, lambda store: store.wherever(failing(UNAVAILABLE)))


def hanging(table: Table) -> None:
    never = threading.Event()
    asked(table, lambda store: store.wherever(lambda _: never.wait()), io_timeout=0.05)


def asked(table: Table, go_wrong: Callable[[FaultFileIO], None], io_timeout: float = 60.0) -> None:
    store = FaultFileIO()
    builder = table.builder(store, io_timeout=io_timeout)
    with builder.new_streaming_scan() as scan:
        go_wrong(store)
        scan.plan()


def checkpoint(table: Table) -> None:
    error = PositionExpiredError(2, 3, 4)
    raise PaimonStreamError(ErrorContext(streaming=True).message(error))


TROUBLES = (
    *(expired, recreated, rolled_back, cut_off, taken_over, damaged, lost),
    *(refused, unavailable, hanging, checkpoint),
)


def words(text: str) -> re.Pattern[str]:
    """What a block shows of an error: numbers may be others, and what `…` stands for."""
    escaped = re.sub(r"\\?\s+", " ", re.escape(" ".join(text.split())))
    return re.compile(re.sub(r"\d+", r"[\\d.]+", escaped).replace("…", ".*"))


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: str(each.__name__))
def test_the_words_of_each_error_are_those_that_come(trouble: Callable[[Table], None], tmp_path: Path) -> None:
    table = Table(tmp_path).commit_each(range(4))
    with pytest.raises(PaimonStreamError) as raised:
        trouble(table)
    error = raised.value
    text = str(error) if trouble is checkpoint else f"{type(error).__name__}: {error}"
    assert [shown for shown in SHOWN if words(shown).fullmatch(text)], text


def test_every_error_that_is_shown_has_its_trouble() -> None:
    assert len(SHOWN) == len(TROUBLES)


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, set[str]]:
    """Names of metrics as OpenTelemetry's exporter for Prometheus writes them, and the labels of each."""
    reader = InMemoryMetricReader()
    metrics = StreamMetrics(MeterProvider([reader]).get_meter("test"))
    table: Any = orders(catalog(tmp_path))
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).open_sync() as stream:
        metrics.add(stream)
        list(stream)
        data = reader.get_metrics_data()
    assert data is not None
    found = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
    return {
        metric.name.replace(".", "_") + "_total" * (isinstance(metric.data, Sum) and metric.data.is_monotonic): {
            key.replace(".", "_") for point in metric.data.data_points for key in point.attributes or ()
        }
        for metric in found
    }


def expressions() -> list[str]:
    """What dashboard and alerts ask Prometheus for."""
    board, rules = json.loads(DASHBOARD), yaml.safe_load(ALERTS)
    asked_for = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked_for += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    return asked_for + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_dashboard_and_alerts_name_what_is_exported(exported: dict[str, set[str]]) -> None:
    named = {name for text in expressions() for name in re.findall(r"\bpaimon_stream_\w+", text)}
    assert named == set(exported), "no other name, and none is left out"
    of_prometheus = {"job", "instance"}
    for text in expressions():
        labels = of_prometheus.union(*(exported[name] for name in re.findall(r"\bpaimon_stream_\w+", text)))
        told = re.findall(r"\b(\w+)(?:=~|!~|!=|=)", text)
        told += [label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", text) for label in group.split(", ")]
        assert set(told) <= labels, text


def test_alerts_lead_to_the_runbook() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]]
    assert all(rule["annotations"]["runbook"].startswith("docs/operations.md#") for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 5
