"""Progress of a query under a consumer id: pins and saves, for Spark's order of calls."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.spark.read.offset import Offset
from pypaimon.spark.read.source_stream import new_progress
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.spec.resolve import ResolvedStream


class QueryProgress:
    """Saves what Spark has committed; does nothing without a consumer id.

    Spark commits a batch only when it plans the next one, and after a restart when that plans its first. So what is
    saved lags one batch: a reader that starts by the consumer file repeats rows, and never misses any.
    """

    def __init__(self, stream: ResolvedStream) -> None:
        self._progress = new_progress(stream)
        self._clock = stream.clock
        consumer = stream.options.consumer
        self._ignores_saved = consumer is not None and consumer.ignore_progress
        self._opened = False
        self._saved: Position | None = None
        self._reached: Position | None = None

    def saved(self) -> Position | None:
        """What the consumer has saved, where a query without checkpoint begins."""
        if self._progress is None:
            return None
        if not self._opened:
            saved = self._progress.open(self._clock.monotonic()).saved
            self._saved = None if saved is None else saved.position
            self._opened = True
        return None if self._ignores_saved else self._saved

    def planned(self, start: Offset, end: Offset, plans: Sequence[Plan]) -> None:
        """A batch is handed out: what it reads is kept from expiry from now on."""
        begin = end.origin if start.is_initial else start.position
        if self._progress is None or begin is None or end.position is None:
            return
        if self._reached == end.position:
            return
        self._begin(begin)
        if end.position != begin:
            if plans:
                self._progress.on_plan(end.position)
            else:
                self._progress.on_passed_over(end.position)
        self._reached = end.position

    def commit(self, end: Offset) -> None:
        """A batch has arrived."""
        if self._progress is None or end.position is None:
            return
        if self._reached is None:
            self._begin(end.position)
        self._progress.confirm(end.position)
        self._progress.flush(self._clock.monotonic())

    def keep_alive(self) -> None:
        """Rewrite the files of an idle query before `consumer.expiration-time` takes them."""
        if self._progress is not None and self._opened:
            self._progress.flush(self._clock.monotonic())
            self._progress.keep_alive(self._clock.monotonic())

    def _begin(self, position: Position) -> None:
        assert self._progress is not None
        self.saved()
        if self._reached != position:
            self._progress.begin(position, self._clock.monotonic())
            self._reached = position
