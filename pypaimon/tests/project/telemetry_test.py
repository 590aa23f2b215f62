"""Metrics of OpenTelemetry: what a real reader of metrics collects of scans and streams."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.telemetry import StreamMetrics
from support.tables.orders import catalog, orders


class Collected:
    """A meter, and what is collected of it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.metrics = StreamMetrics(MeterProvider([self._reader]).get_meter("test"))

    def __call__(self) -> dict[tuple[str, ...], Any]:
        """Values by name and by what tells several points of one metric apart."""
        found: dict[tuple[str, ...], Any] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        told = [str(v) for k, v in sorted(point.attributes.items()) if k in ("kind", "row_kind")]
                        found[(metric.name.removeprefix("paimon.stream."), *told)] = point.value
                        assert point.attributes["paimon.table"] == "db.orders"
                        assert point.attributes["job"] == "etl"
        return found


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Orders with four snapshots."""
    return orders(catalog(tmp_path))


@pytest.fixture
def collected() -> Collected:
    return Collected()


def test_a_stream_reports_counters_and_lag(table: Any, collected: Collected) -> None:
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True)
    with builder.open_sync() as stream:
        collected.metrics.add(stream, job="etl")
        next(stream)
        assert collected()[("lag.snapshots",)] == 3, "what is read ahead is not delivered yet"
        list(stream)
    found = collected()
    assert (found[("plans",)], found[("rows", "-D")], found[("read_ahead.bytes",)]) == (4, 1, 0)
    assert found[("requests", "read")] > 0
    assert found[("bytes",)] > 0


def test_a_scan_reports_too(table: Any, collected: Collected) -> None:
    with stream_read_builder(table).with_start(snapshot_id=3).new_streaming_scan() as scan:
        collected.metrics.add(scan, job="etl")
        found = collected()
    assert (found[("lag.snapshots",)], found[("lag.rows",)], found[("plans",)]) == (2, 2, 0)
    assert ("read_ahead.bytes",) not in found


def test_what_is_unknown_is_not_reported(table: Any, collected: Collected, caplog: pytest.LogCaptureFixture) -> None:
    TableDirectory.of(table).store._common.sleep = lambda _: None
    with stream_read_builder(table).with_start(snapshot_id=3).new_streaming_scan() as scan:
        collected.metrics.add(scan, job="etl")
        Path(str(table.table_path), "snapshot", "snapshot-4").write_text("damaged")
        with caplog.at_level(logging.WARNING):
            found = collected()
    assert not [name for name, *_ in found if name.startswith("lag.")]
    assert "the lag is unknown" in caplog.text


def test_a_scan_that_nobody_holds_is_not_reported(table: Any, collected: Collected) -> None:
    collected.metrics.add(stream_read_builder(table).new_streaming_scan(), job="etl")
    gc.collect()
    assert collected() == {}
