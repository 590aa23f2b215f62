"""`Bounds`: where a stream ends, and which snapshots it holds back (docs/java-semantics.md#ends)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options.stream_options import StreamOptions


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of one stream, and its delay.

    Attributes:
        options: The stream's settings.
        now_millis: The wall clock, epoch milliseconds.
    """

    options: StreamOptions
    now_millis: Callable[[], int]

    def last_id(self, latest_at_start: int | None) -> int | None:
        """Id of the last snapshot of the stream; None if no snapshot id bounds it."""
        end = self.options.end
        return latest_at_start if end is None or end.snapshot_id is None else end.snapshot_id

    def check_first_plan(self, snapshot: Snapshot) -> None:
        """Refuse a first full plan that holds more than the bound allows.

        Raises:
            StreamConfigError: Its snapshot is later than the last one of the stream.
        """
        last = self.last_id(None)
        if last is not None and snapshot.id > last:
            raise StreamConfigError(
                f"The first full plan would be of snapshot {snapshot.id}, beyond the end at snapshot {last}. "
                f"Start with with_start(snapshot_id={last}, full=True)."
            )

    def is_beyond(self, snapshot: Snapshot) -> bool:
        """Whether the stream ends before this snapshot, by its watermark or its commit time.

        A first full plan of such a snapshot is still handed out, as the last plan.
        """
        bound, end = self.options.end_watermark, self.options.end
        if bound is not None and snapshot.watermark is not None and snapshot.watermark > bound:
            return True
        return end is not None and end.millis is not None and snapshot.time_millis > end.millis

    def ends_when_caught_up(self) -> bool:
        """Whether a stream that has read everything ends, because its last commit time has passed."""
        end = self.options.end
        return end is not None and end.millis is not None and self.now_millis() > end.millis

    def is_held_back(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is younger than `streaming.read.snapshot.delay`."""
        delay = self.options.delay_ms
        return delay > 0 and snapshot.time_millis > self.now_millis() - delay
