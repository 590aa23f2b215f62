"""`LagListener`: logs the lag of queries."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pypaimon.streaming.logs import StreamLog

_LOG = StreamLog(__name__)


class LagListener(StreamingQueryListener):
    """Logs at INFO, after each batch, how far each Paimon source of a query is behind its table.

    `spark.streams.addListener(LagListener())`. Unknown numbers are shown as `?`.
    """

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to log."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        for source in progress.sources:
            lag = lag_of(source)
            if lag is not None:
                shown = {key: "?" if value is None else value for key, value in lag.items()}
                lag_text = (
                    "{snapshotsBehind} snapshots, {rowsBehind} rows, {millisBehind} ms behind snapshot {snapshot}"
                )
                _LOG.info(
                    "query_lag",
                    f"query %(query)s, batch %(batch)d: {lag_text.format_map(shown)}",
                    query=str(progress.name or progress.id),
                    batch=progress.batchId,
                    snapshot=lag["snapshot"],
                    snapshots=lag["snapshotsBehind"],
                    rows=lag["rowsBehind"],
                    millis=lag["millisBehind"],
                )

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to log."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to log."""


def lag_of(source: Any) -> dict[str, Any] | None:
    """The lag in a source's progress event; None if the source is not ours."""
    text = source.latestOffset
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return value if isinstance(value, dict) and "snapshotsBehind" in value else None
