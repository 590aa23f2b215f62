"""`StreamMetrics`: metrics of scans and streams for OpenTelemetry (extra `otel`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.batches.batch_stream import BatchStream, BlockingBatchStream
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.lazy_imports import LazyModule, naming_extra
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.scan import StreamScan

if TYPE_CHECKING:
    from opentelemetry import metrics
else:
    metrics = LazyModule("opentelemetry.metrics")

__all__ = ["StreamMetrics"]

Observed = StreamScan | BatchStream | BlockingBatchStream
Values = Iterable[tuple[float, Mapping[str, str]]]
_LAG_SECONDS = 1.0


class StreamMetrics:
    """Instruments of one meter, for any number of scans and streams, which are held weakly.

    Counters: `paimon.stream.plans`, `.records`, `.bytes`, `.idle_polls`, `.requests` (by `kind`) and, of streams of
    batches, `.rows` (by `row_kind`). Gauges: `paimon.stream.lag.snapshots`, `.lag.rows`, `.lag.seconds`,
    `.read_ahead.bytes`. The lag of a stream of batches is that of the last batch. An unknown lag is not reported. Each
    collection makes one request for the lag of each scan or stream; the other metrics make none.

    Args:
        meter: The meter of the application; None for one of the global provider.
    """

    def __init__(self, meter: metrics.Meter | None = None) -> None:
        with naming_extra("StreamMetrics", {"opentelemetry": "otel"}):
            from opentelemetry import metrics

        self._meter = meter or metrics.get_meter("pypaimon.streaming")
        self._clock = Clock()
        self._attributes: weakref.WeakKeyDictionary[Observed, Mapping[str, str]] = weakref.WeakKeyDictionary()
        self._lags: weakref.WeakKeyDictionary[Observed, tuple[float, Lag | None]] = weakref.WeakKeyDictionary()
        for name, unit, values in _COUNTERS:
            callbacks = [self._observe(values)]
            self._meter.create_observable_counter(f"paimon.stream.{name}", callbacks, unit)
        self._meter.create_observable_gauge("paimon.stream.read_ahead.bytes", [self._observe(_read_ahead)], "By")
        for field, unit in (("snapshots", "{snapshot}"), ("rows", "{row}"), ("seconds", "s")):
            callbacks = [self._observe(self._lag_values(field))]
            self._meter.create_observable_gauge(f"paimon.stream.lag.{field}", callbacks, unit)

    def add(self, observed: Observed, **attributes: str) -> None:
        """Report a scan or a stream as long as the program holds it.

        Args:
            observed: The scan or stream.
            attributes: Attributes of all its observations, in addition to `paimon.table`.
        """
        table = _scan(observed).table
        self._attributes[observed] = {"paimon.table": table.identifier.get_full_name(), **attributes}

    def _observe(self, values: Callable[[Observed], Values]) -> Callable[[Any], Iterable[metrics.Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_: Any) -> Iterable[metrics.Observation]:
            for observed, attributes in list(self._attributes.items()):
                for value, more in values(observed):
                    yield Observation(value, {**attributes, **more})

        return observe

    def _lag_values(self, field: str) -> Callable[[Observed], Values]:
        def values(observed: Observed) -> Values:
            lag = self._lag(observed)
            value = None if lag is None else getattr(lag, field)
            return [] if value is None else [(value, {})]

        return values

    def _lag(self, observed: Observed) -> Lag | None:
        """The lag, measured once for the three gauges of a collection."""
        now = self._clock.monotonic()
        measured, lag = self._lags.get(observed, (float("-inf"), None))
        if now - measured >= _LAG_SECONDS:
            try:
                position = None if isinstance(observed, StreamScan) else observed.delivered
                lag = _scan(observed).lag(position)
            except PaimonStreamError as error:
                log = StreamLog.of(__name__, _scan(observed).table)
                log.warning("lag_unknown", "the lag is unknown: %(error)s", error=str(error))
                lag = None
            self._lags[observed] = now, lag
        return lag


def _scan(observed: Observed) -> StreamScan:
    return observed if isinstance(observed, StreamScan) else observed.scan


def _requests(observed: Observed) -> Values:
    return [(count, {"kind": kind}) for kind, count in _scan(observed).metrics.requests.items()]


def _rows(observed: Observed) -> Values:
    if isinstance(observed, StreamScan):
        return []
    return [(count, {"row_kind": kind}) for kind, count in observed.status.rows_by_kind.items()]


def _read_ahead(observed: Observed) -> Values:
    return [] if isinstance(observed, StreamScan) else [(observed.status.read_ahead_bytes, {})]


def _counter(field: str) -> Callable[[Observed], Values]:
    return lambda observed: [(getattr(_scan(observed).metrics, field), {})]


_COUNTERS: tuple[tuple[str, str, Callable[[Observed], Values]], ...] = (
    ("plans", "{plan}", _counter("plans")),
    ("records", "{record}", _counter("records")),
    ("bytes", "By", _counter("bytes")),
    ("idle_polls", "{poll}", _counter("idle_polls")),
    ("requests", "{request}", _requests),
    ("rows", "{row}", _rows),
)
