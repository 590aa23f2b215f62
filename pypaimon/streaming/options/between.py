"""`Between` and `End`: a range of a table's history that is read, and where a stream ends.

Java's rules for ranges: docs/java-semantics.md#batch-ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import choice, millis, typed
from pypaimon.streaming.options.option_key import LOCAL_TIME, OptionKey, TableOptions
from pypaimon.streaming.options.table_kinds import BetweenMode

RANGE_KEYS = (
    option_keys.INCREMENTAL_BETWEEN,
    option_keys.INCREMENTAL_BETWEEN_TIMESTAMP,
    option_keys.INCREMENTAL_TO_AUTO_TAG,
)
"""The options that name a range."""


class Ends(str, Enum):
    """The kind of the ends of a range."""

    SNAPSHOTS = "snapshots"
    """Snapshot ids or tags. Texts are tags if both tags exist, else ids."""
    TIMES = "times"
    """Epoch milliseconds."""
    AUTO_TAG = "auto tag"
    """The end is an automatic tag, the start the one before it."""


@dataclass(frozen=True, slots=True)
class Between:
    """The changes after one moment of a table's history, up to and with another one.

    Attributes:
        given: The call or option that asks for it, for errors.
        ends: The kind of `start` and `end`.
        start: The range begins after it; None for an automatic tag.
        end: The range ends with it.
        mode: How the range is read.
        tag_to_snapshot: Tags stand for the ids of their snapshots. Otherwise two tags mean a difference of states.
        kinds: Rows come with their kinds, so that a difference turns one state into the other. Otherwise it holds the
            rows that are new or changed, as in Java.
    """

    given: str
    ends: Ends
    start: int | str | None
    end: int | str
    mode: BetweenMode = BetweenMode.AUTO
    tag_to_snapshot: bool = False
    kinds: bool = False

    @property
    def may_compare(self) -> bool:
        """Whether it may be a difference of two states: texts are tags, or ids, only once they were looked up."""
        by_tags = isinstance(self.end, str) and not self.tag_to_snapshot
        return by_tags or self.mode is BetweenMode.DIFF

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if isinstance(start, int) and isinstance(end, int) and end < start:
            raise StreamConfigError(f"{self.given}: the start comes after the end; swap them.")
        if self.tag_to_snapshot and self.mode is BetweenMode.DIFF:
            raise StreamConfigError(
                f"{self.given}: the mode 'diff' and 'incremental-between-tag-to-snapshot' contradict each other: two "
                "tags are a difference of states without the second."
            )


def between_of_arguments(start: Any, end: Any, mode: Any, tag_to_snapshot: Any) -> Between:
    """The range that the arguments of the builder's `with_range` ask for.

    Raises:
        StreamConfigError: The ends are of different kinds or the wrong way round, or `mode` is unknown.
    """
    given = f"with_range({_shown(start)}, {_shown(end)})"
    chosen = choice(BetweenMode, "with_range: mode", mode)
    by_ids = typed(bool, "with_range: tag_to_snapshot", tag_to_snapshot)
    if by_ids and not (isinstance(start, str) and isinstance(end, str)):
        raise StreamConfigError(f"{given}: tag_to_snapshot=True goes with two tags.")
    if start is None and isinstance(end, str):
        return Between(given, Ends.AUTO_TAG, None, end, chosen)
    kind = next((each for each in (int, str, datetime) if isinstance(start, each) and isinstance(end, each)), bool)
    if isinstance(start, bool) or isinstance(end, bool) or kind is bool:
        raise StreamConfigError(
            f"{given}: give two snapshot ids (int), two tags (str) or two times (aware datetime); or None and an "
            "automatic tag."
        )
    if kind is datetime:
        times = millis("with_range: start", start), millis("with_range: end", end)
        return Between(given, Ends.TIMES, *times, chosen)
    return Between(given, Ends.SNAPSHOTS, start, end, chosen, by_ids)


def _shown(end: Any) -> str:
    return str(end) if isinstance(end, datetime) else repr(end)


def between_of_options(options: TableOptions) -> Between | None:
    """The range that options name; None if they name none.

    Raises:
        StreamConfigError: They name several ranges, or one that cannot be parsed.
    """
    keys = [key for key in RANGE_KEYS if key.set_as(options)]
    if not keys:
        return None
    if len(keys) > 1:
        names = "' and '".join(map(str, keys))
        raise StreamConfigError(f"Options '{names}' are both set; give one of them.")
    (key,) = keys
    text = key.of(options) or ""
    given = f"Option '{key}' = '{text}'"
    mode = option_keys.INCREMENTAL_BETWEEN_SCAN_MODE.of(options)
    if key is option_keys.INCREMENTAL_TO_AUTO_TAG:
        return Between(given, Ends.AUTO_TAG, None, text, mode)
    by_times = key is option_keys.INCREMENTAL_BETWEEN_TIMESTAMP
    start, end = _two(given, text, "times" if by_times else "snapshots or tags")
    if by_times:
        return Between(given, Ends.TIMES, _millis(options, key, start), _millis(options, key, end), mode)
    by_ids = option_keys.INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT.of(options)
    return Between(given, Ends.SNAPSHOTS, start, end, mode, by_ids)


def _two(given: str, text: str, what: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise StreamConfigError(f"{given}: give two {what}, 'start,end'.")
    return parts[0], parts[1]


def _millis(options: TableOptions, key: OptionKey[Any, Any], text: str) -> int:
    """The value of epoch milliseconds or of a local time."""
    return int(text) if text.isdecimal() else LOCAL_TIME.read(key.name, text, options)


@dataclass(frozen=True, slots=True)
class End:
    """Where a stream ends; at most one of the first three fields is set.

    Attributes:
        latest: At the snapshot that is the latest when the stream starts.
        snapshot_id: After this snapshot.
        millis: Before the first snapshot committed later than this (epoch milliseconds).
        exists: `snapshot_id` is in the table, so that it is not waited for if a rollback removes it.
    """

    latest: bool = False
    snapshot_id: int | None = None
    millis: int | None = None
    exists: bool = False


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
