"""`BuilderSettings`: the setters of a stream's builder. Each checks its arguments and stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeVar

from pypaimon.streaming.builder.content_settings import ContentSettings
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import at_least, choice, finite_seconds, typed
from pypaimon.streaming.options.between import between_of_arguments
from pypaimon.streaming.options.end import end_of_arguments
from pypaimon.streaming.options.start import start_of_arguments
from pypaimon.streaming.options.stream_options import (
    CatchUp,
    CommitMode,
    ConsumerOptions,
    Limits,
    OnExpired,
    OnOverwrite,
    OnSchemaChange,
)
from pypaimon.streaming.paimon.internals import PaimonFollowUpScanner

B = TypeVar("B", bound="BuilderSettings")


class BuilderSettings(ContentSettings):
    """The setters of `StreamReadBuilder`: each changes the builder and returns it; `copy()` branches.

    Names of columns are checked at once if the table is known, else by the first step.
    """

    def with_raw(self: B, raw: bool = True) -> B:
        """Accept every merge engine: follow-ups are the records as written, first plans are merged as always."""
        self._given = replace(self._given, raw=typed(bool, "with_raw", raw))
        return self

    # ---- start and end ----

    def with_start(
        self: B,
        mode: Literal["latest-full", "latest", "earliest", "compacted-full"] | None = None,
        *,
        snapshot_id: int | None = None,
        timestamp: datetime | str | int | None = None,
        file_creation_time: datetime | str | int | None = None,
        creation_time: datetime | str | int | None = None,
        tag: str | None = None,
        position: Position | str | None = None,
        full: bool = False,
    ) -> B:
        """Set the start of the stream; give exactly one. An existing consumer overrides all of them except `position`.

        Args:
            mode: `"latest-full"`, `"latest"`, `"earliest"` or `"compacted-full"`.
            snapshot_id: Changes from this snapshot on.
            timestamp: Changes committed at this time or later: an aware datetime, its ISO 8601 text, or epoch
                milliseconds; so the other times.
            file_creation_time: The state, of files created at this time or later, then changes.
            creation_time: Changes since this time if the table reaches back that far, else as `file_creation_time`.
            tag: Changes after a tag.
            position: A saved position, or its JSON.
            full: With `snapshot_id` or `tag`: its full state first.

        Raises:
            StreamConfigError: None or several are given, or one has a wrong type.
        """
        given = {
            "mode": mode,
            "snapshot_id": snapshot_id,
            "timestamp": timestamp,
            "file_creation_time": file_creation_time,
            "creation_time": creation_time,
            "tag": tag,
            "position": position,
        }
        self._given = replace(self._given, start=start_of_arguments(given, full))
        return self

    def with_end(
        self: B,
        *,
        latest: bool = False,
        snapshot_id: int | None = None,
        timestamp: datetime | str | int | None = None,
        watermark: int | None = None,
    ) -> B:
        """Set the end of the stream; give exactly one.

        Args:
            latest: At the snapshot that is the latest when the stream starts; at once on an empty table.
            snapshot_id: After this snapshot.
            timestamp: Before the first snapshot committed later than this; once that is past, when caught up, too.
            watermark: Before the first snapshot with a greater watermark (epoch milliseconds).

        Raises:
            StreamConfigError: None or several are given, or one has a wrong type.
        """
        bound, greatest_watermark = end_of_arguments(latest, snapshot_id, timestamp, watermark)
        self._given = replace(self._given, end=bound, end_watermark=greatest_watermark)
        return self

    def between(
        self: B,
        start: int | str | datetime | None,
        end: int | str | datetime,
        mode: Literal["auto", "delta", "changelog", "diff"] = "auto",
        *,
        tag_to_snapshot: bool = False,
    ) -> B:
        """Read what happened after `start`, up to and including `end`, and end. Replaces start and end.

        Resume it with the same range and `with_start(position=...)`. It has no consumer id, and an expired snapshot of
        it is an error.

        Args:
            start: A snapshot id, a tag or a time (aware datetime). An id may be that of the snapshot just before the
                earliest one. A time means the newest snapshot that is not later. None: the automatic tag before `end`.
            end: As `start`.
            mode: `"delta"`: the files that APPEND snapshots added, as written; `"changelog"`: changelog files;
                `"auto"`: the changelog if the table has a changelog producer, else the delta; `"diff"`: the difference
                of the states at both ends. Two tags are always a difference. With row kinds a difference turns the
                earlier state into the later one; without them it holds new and changed rows.
            tag_to_snapshot: Use the snapshot ids of two tags.

        Raises:
            StreamConfigError: The ends are of different kinds or in the wrong order, or `mode` is unknown.
        """
        self._given = replace(self._given, between=between_of_arguments(start, end, mode, tag_to_snapshot))
        return self

    # ---- running ----

    def with_poll_interval_ms(self: B, poll_interval_ms: int) -> B:
        """Set the pause after a poll that found nothing, in milliseconds (default 1000)."""
        self._given = replace(self._given, poll_interval_ms=at_least(1, "with_poll_interval_ms", poll_interval_ms))
        return self

    def with_consumer_id(
        self: B,
        consumer_id: str,
        commit: Literal["auto", "manual"] = "auto",
        member: str | None = None,
        ignore_progress: bool = False,
    ) -> B:
        """Save progress under a name, and resume where it was saved.

        Args:
            consumer_id: The name; Java readers see the same one.
            commit: `"auto"`: requesting the next plan confirms the one before; `"manual"`: only `scan.commit` does.
            member: Name of this reader among several that share the id (needed with chosen buckets).
            ignore_progress: Begin as configured, but save.

        Raises:
            StreamConfigError: The id is not a valid file name, or `commit` is unknown.
        """
        mode = choice(CommitMode, "with_consumer_id: commit", commit)
        reader_name(consumer_id, member=member)
        ignore = typed(bool, "with_consumer_id: ignore_progress", ignore_progress)
        options = ConsumerOptions(consumer_id, mode, member, ignore)
        self._given = replace(self._given, consumer=options)
        return self

    def with_shard(self: B, index: int, count: int) -> B:
        """Read shard `index` of `count`: the shards of a table are disjoint and together complete."""
        at_least(1, "with_shard: count", count)
        if at_least(0, "with_shard: index", index) >= count:
            raise StreamConfigError(f"with_shard({index}, {count}): index must be from 0 to {count - 1}")
        self._given = replace(self._given, shard=(index, count))
        return self

    def with_buckets(self: B, bucket_ids: Iterable[int]) -> B:
        """Read only these buckets."""
        if isinstance(bucket_ids, (str, dict)) or not isinstance(bucket_ids, Iterable):
            raise StreamConfigError(f"with_buckets({bucket_ids!r}): give a list of bucket numbers")
        buckets = frozenset(typed(int, "with_buckets", each) for each in bucket_ids)
        if not buckets:
            raise StreamConfigError("with_buckets: the list is empty, so the stream would never read a row")
        return self.with_bucket_filter(buckets.__contains__)

    def with_bucket_filter(self: B, bucket_filter: Callable[[int], bool]) -> B:
        """Read only buckets for which this is true."""
        if not callable(bucket_filter):
            raise StreamConfigError(f"with_bucket_filter({bucket_filter!r}): give a function of a bucket number")
        self._given = replace(self._given, bucket_filter=bucket_filter)
        return self

    def with_limits(
        self: B, max_rows: int | None = None, max_bytes: int | None = None, max_splits: int | None = None
    ) -> B:
        """Set soft bounds of each plan, which may cut inside a snapshot; a plan has at least one unit.

        Args:
            max_rows: Physical records.
            max_bytes: Bytes of files.
            max_splits: Units: files, or whole buckets if files are merged.
        """
        for name, value in (("max_rows", max_rows), ("max_bytes", max_bytes), ("max_splits", max_splits)):
            if value is not None:
                at_least(1, f"with_limits: {name}", value)
        self._given = replace(self._given, limits=Limits(max_rows, max_bytes, max_splits))
        return self

    def with_catch_up(self: B, mode: Literal["auto", "replay", "net"], after: int | None = None) -> B:
        """Choose how to catch up with many unread snapshots.

        Args:
            mode: `"auto"`: read several snapshots of an append table as one plan if that gives the same rows;
                `"replay"`: never; `"net"`: read one change per key of primary-key tables.
            after: Number of unread snapshots (`"auto"`: that append) from which on they become one plan; default 8, for
                `"net"` 2. At most 256 are read together: a greater number replays. In mode `"auto"` rows do not depend
                on it.

        Raises:
            StreamConfigError: `mode` is unknown, or `after` is below 1 or given with `"replay"`.
        """
        chosen = choice(CatchUp, "with_catch_up", mode)
        if after is not None:
            at_least(1, "with_catch_up: after", after)
            if chosen is CatchUp.REPLAY:
                raise StreamConfigError("with_catch_up('replay', after=...): a replay never catches up at once")
        self._given = replace(self._given, catch_up=chosen, catch_up_after=after)
        return self

    def with_follow_up_scanner(self: B, scanner: PaimonFollowUpScanner | None) -> B:
        """Choose the snapshots to read after the start, and their files, by your own rule.

        Several snapshots then never become one plan. The start and `with_on_overwrite` do not change.

        Args:
            scanner: See `FollowUpScanner`; pypaimon's work, too. None: the table's own rule.

        Raises:
            StreamConfigError: The scanner has no method `should_scan`.
        """
        if isinstance(scanner, type) or (scanner is not None and not hasattr(scanner, "should_scan")):
            raise StreamConfigError(f"with_follow_up_scanner({scanner!r}): give an object with should_scan(snapshot)")
        self._given = replace(self._given, follow_up_scanner=scanner)
        return self

    def with_prefetch(self: B, plans: int) -> B:
        """Set how many plans are prefetched, 16 by default; 0 turns it off.

        Only metadata, until a plan is read: then the data files of the next plans are fetched as well, in a store.
        """
        self._given = replace(self._given, prefetch=at_least(0, "with_prefetch", plans))
        return self

    def with_io_timeout(self: B, seconds: float) -> B:
        """Set the time limit of one request in seconds; a longer one becomes a retriable `IOTimeoutError`.

        Waiting for a turn, pauses between retries, decoding and merging do not count. For files on a disk it applies to
        `open`, `open_sync` and `to_arrow_async`, which read on a thread.
        """
        timeout = finite_seconds("with_io_timeout", seconds, above_zero=True)
        self._given = replace(self._given, io_timeout=timeout)
        return self

    def with_on_expired(self: B, policy: Literal["fail", "earliest", "latest", "full"]) -> B:
        """Choose how to continue if a saved position has expired: `"fail"`, `"earliest"`, `"latest"` or `"full"`.

        With `open()` this also applies if data files of a plan expire before they are read. Rows of that plan that were
        given stay given; with `"full"` the next batch says by `begins_state` that they are void.
        """
        self._given = replace(self._given, on_expired=choice(OnExpired, "with_on_expired", policy))
        return self

    def with_on_schema_change(self: B, policy: Literal["fail", "follow", "ignore"]) -> B:
        """Choose what to do if columns that are read change: `"fail"`, `"follow"` or `"ignore"`."""
        self._given = replace(self._given, on_schema_change=choice(OnSchemaChange, "with_on_schema_change", policy))
        return self

    def with_on_overwrite(self: B, policy: Literal["skip", "read", "fail"] | None) -> B:
        """Choose what to do with OVERWRITE snapshots: `"skip"`, `"read"`, `"fail"`, or None for the table's options."""
        chosen = None if policy is None else choice(OnOverwrite, "with_on_overwrite", policy)
        self._given = replace(self._given, on_overwrite=chosen)
        return self
