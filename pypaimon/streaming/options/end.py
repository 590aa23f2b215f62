"""`End`: where a stream ends, as the builder was given it.

A table's options can only give a greatest watermark (`scan.bounded.watermark`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.arguments import millis, typed


@dataclass(frozen=True, slots=True)
class End:
    """Where a stream ends; at most one field is set.

    Attributes:
        latest: At the snapshot that is the latest when the stream starts.
        snapshot_id: After this snapshot.
        millis: Before the first snapshot committed later than this (epoch milliseconds).
    """

    latest: bool = False
    snapshot_id: int | None = None
    millis: int | None = None


def end_of_arguments(latest: Any, snapshot_id: Any, timestamp: Any, watermark: Any) -> tuple[End | None, int | None]:
    """The end that the arguments of `with_end` ask for, or a greatest watermark.

    Raises:
        StreamConfigError: No argument or several are given, or one has a wrong type.
    """
    chosen = [each for each in (snapshot_id, timestamp, watermark) if each is not None]
    if len(chosen) + typed(bool, "with_end: latest", latest) != 1:
        raise StreamConfigError("with_end: give exactly one of latest=True, snapshot_id, timestamp, watermark")
    if watermark is not None:
        return None, typed(int, "with_end: watermark", watermark)
    if snapshot_id is not None:
        return End(snapshot_id=typed(int, "with_end: snapshot_id", snapshot_id)), None
    if timestamp is not None:
        return End(millis=millis("with_end: timestamp", timestamp)), None
    return End(latest=True), None
