"""`BuilderSettings`: the setters of a stream's builder: each checks what it is given, and keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeVar

from pypaimon.streaming.builder.content_settings import ContentSettings
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import PaimonFollowUpScanner
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

B = TypeVar("B", bound="BuilderSettings")


class BuilderSettings(ContentSettings):
    """The setters of `StreamReadBuilder`: each changes the builder and returns it; `copy()` branches.

    Names of columns are checked at once where the table is known, else by the first step.
    """

    def with_raw(self: B, raw: bool = True) -> B:
        """Refuse no merge engine; follow-ups are the records as written, first plans are merged as always."""
        self._given = replace(self._given, raw=typed(bool, "with_raw", raw))
        return self

    # ---- where it begins and ends ----

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
        """Where the stream begins; give exactly one. A consumer that exists beats any of them but `position`.

        Args:
            mode: `"latest-full"`, `"latest"`, `"earliest"` or `"compacted-full"`.
            snapshot_id: Changes from this snapshot on.
            timestamp: Changes committed at this time or later: an aware datetime, its ISO 8601 text, or epoch
                milliseconds; so the other times.
            file_creation_time: The state, of files created at this time or later, then changes.
            creation_time: Changes since this time if the table reaches back so far, else as `file_creation_time`.
            tag: What came after a tag.
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
        """Where the stream ends; give exactly one.

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
        """Read what happened after one moment, up to and with another, and end; in the place of a start and an end.

        A stream of it can be saved and gone on with as any other: give the same range and `with_start(position=...)`.
        It has no consumer id, and does not go on elsewhere where a snapshot of it has expired.

        Args:
            start: A snapshot id, a tag or a time (aware datetime). An id may be that of the snapshot just before the
                earliest one; a time stands for the newest snapshot that is not younger. None: the automatic tag
                before `end`.
            end: The same.
            mode: What is read: `"delta"`: the files that APPEND snapshots added, as they were written; `"changelog"`:
                changelog files; `"auto"`: the changelog where the table has a changelog producer, else the delta;
                `"diff"`: what the states at both ends differ in. Two tags are always a difference of states. With row
                kinds a difference turns the earlier state into the later one; without them it holds the rows that are
                new or changed.
            tag_to_snapshot: Two tags stand for the ids of their snapshots.

        Raises:
            StreamConfigError: The ends are of different kinds or the wrong way round, or `mode` is no choice.
        """
        self._given = replace(self._given, between=between_of_arguments(start, end, mode, tag_to_snapshot))
        return self

    # ---- how it runs ----

    def with_poll_interval_ms(self: B, poll_interval_ms: int) -> B:
        """Time from a poll that found nothing to the next one, in milliseconds (default 1000)."""
        self._given = replace(self._given, poll_interval_ms=at_least(1, "with_poll_interval_ms", poll_interval_ms))
        return self

    def with_consumer_id(
        self: B,
        consumer_id: str,
        commit: Literal["auto", "manual"] = "auto",
        member: str | None = None,
        ignore_progress: bool = False,
    ) -> B:
        """Save progress under a name, and begin where it was saved.

        Args:
            consumer_id: The name; Java readers see the same one.
            commit: `"auto"`: asking for the next plan confirms the one before; `"manual"`: only `scan.commit` does.
            member: Name of this reader among several that share the id (needed with chosen buckets).
            ignore_progress: Begin as configured, but save.

        Raises:
            StreamConfigError: The id cannot be a file name, or `commit` is no choice.
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
            raise StreamConfigError("with_buckets: the list is empty, so nothing would ever be read")
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
        """Soft bounds of each plan, which may cut inside a snapshot; at least one unit is handed out.

        Args:
            max_rows: Physical records.
            max_bytes: Bytes of files.
            max_splits: Units: files, or whole buckets where files are merged.
        """
        for name, value in (("max_rows", max_rows), ("max_bytes", max_bytes), ("max_splits", max_splits)):
            if value is not None:
                at_least(1, f"with_limits: {name}", value)
        self._given = replace(self._given, limits=Limits(max_rows, max_bytes, max_splits))
        return self

    def with_catch_up(self: B, mode: Literal["auto", "replay", "net"], after: int | None = None) -> B:
        """How to catch up when far behind.

        Args:
            mode: `"auto"`: several snapshots of an append table as one plan, where that is proven to hold what their
                own plans would; `"replay"`: never; `"net"`: of primary-key tables one change per key.
            after: From so many snapshots on (`"auto"`: that append) it happens at once; default 8, for `"net"` 2. At
                most 256 are looked at together: a greater number replays. In mode `"auto"` rows do not depend on it.

        Raises:
            StreamConfigError: `mode` is no choice, or `after` is below 1 or given with `"replay"`.
        """
        chosen = choice(CatchUp, "with_catch_up", mode)
        if after is not None:
            at_least(1, "with_catch_up: after", after)
            if chosen is CatchUp.REPLAY:
                raise StreamConfigError("with_catch_up('replay', after=...): a replay never catches up at once")
        self._given = replace(self._given, catch_up=chosen, catch_up_after=after)
        return self

    def with_follow_up_scanner(self: B, scanner: PaimonFollowUpScanner | None) -> B:
        """Which snapshots are read after the start, and which files of them, by a rule of your own.

        Several snapshots never come as one plan then. Where a stream begins is not changed, nor what
        `with_on_overwrite` says.

        Args:
            scanner: See `FollowUpScanner`; one of pypaimon's works too. None: the table's own rule.

        Raises:
            StreamConfigError: It has no method `should_scan`.
        """
        if isinstance(scanner, type) or (scanner is not None and not hasattr(scanner, "should_scan")):
            raise StreamConfigError(f"with_follow_up_scanner({scanner!r}): give an object with should_scan(snapshot)")
        self._given = replace(self._given, follow_up_scanner=scanner)
        return self

    def with_prefetch(self: B, plans: int) -> B:
        """Plans made ahead of the caller, 16 by default; 0 is off.

        Metadata only, until a plan is read: then data files of the plans behind it are fetched as well, in a store.
        """
        self._given = replace(self._given, prefetch=at_least(0, "with_prefetch", plans))
        return self

    def with_io_timeout(self: B, seconds: float) -> B:
        """Seconds that one request may take; a longer one becomes a retriable `IOTimeoutError`.

        Waiting for a turn, pauses before a request is repeated, decoding and merging do not count. Files on a disk are
        limited where batches are read on a thread of ours (`open`, `open_sync`, `to_arrow_async`).
        """
        timeout = finite_seconds("with_io_timeout", seconds, above_zero=True)
        self._given = replace(self._given, io_timeout=timeout)
        return self

    def with_on_expired(self: B, policy: Literal["fail", "earliest", "latest", "full"]) -> B:
        """Where to go on when a saved position has expired: `"fail"`, `"earliest"`, `"latest"` or `"full"`.

        With `open()` also when data files of a plan expire before they are read. Rows that were given of that plan stay
        given; with `"full"` the next batch says by `begins_state` that they are void.
        """
        self._given = replace(self._given, on_expired=choice(OnExpired, "with_on_expired", policy))
        return self

    def with_on_schema_change(self: B, policy: Literal["fail", "follow", "ignore"]) -> B:
        """What to do where columns that are read change: `"fail"`, `"follow"` or `"ignore"`."""
        self._given = replace(self._given, on_schema_change=choice(OnSchemaChange, "with_on_schema_change", policy))
        return self

    def with_on_overwrite(self: B, policy: Literal["skip", "read", "fail"] | None) -> B:
        """What to do with OVERWRITE snapshots: `"skip"`, `"read"`, `"fail"`, or None for the table's options."""
        chosen = None if policy is None else choice(OnOverwrite, "with_on_overwrite", policy)
        self._given = replace(self._given, on_overwrite=chosen)
        return self
