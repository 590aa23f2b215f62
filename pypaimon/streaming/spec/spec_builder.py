"""`SpecBuilder`: the setters that make the `StreamSpec` of a stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow.compute as pc

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.time_zone import option_zone
from pypaimon.streaming.options.arguments import (
    a_function,
    at_least,
    choice,
    finite_seconds,
    list_of,
    needed,
    places_of_arguments,
    typed,
)
from pypaimon.streaming.options.between import between_of_arguments, end_of_arguments
from pypaimon.streaming.options.read_scope import VIEWS, View
from pypaimon.streaming.options.start import start_of_arguments
from pypaimon.streaming.options.stream_options import (
    CatchUp,
    CommitMode,
    ConsumerOptions,
    Limits,
    OnExpired,
    OnOverwrite,
    OnSchemaChange,
    Unmatched,
    only_buckets,
)
from pypaimon.streaming.paimon.internals import DataField, PaimonFollowUpScanner
from pypaimon.streaming.spec.resolve import ResolvedStream, resolve
from pypaimon.streaming.spec.stream_spec import StreamSpec, projected_columns, read_type_paths
from pypaimon.streaming.spec.streamed_table import StreamedTable

if TYPE_CHECKING:
    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")

B = TypeVar("B", bound="SpecBuilder")


class SpecBuilder:
    """The setters of `StreamReadBuilder`: each checks its arguments, replaces the spec and returns the builder.

    An argument of a wrong type or value is a `StreamConfigError` of the setter. Names of columns are checked at once if
    the table is known, else by the first step.

    Args:
        table: The table.
        view: See `StreamReadBuilder`.
    """

    def __init__(self, table: StreamedTable, view: View | None = None) -> None:
        if view is not None and view not in VIEWS:
            raise StreamConfigError(f"view={view!r}: choose one of {', '.join(VIEWS)}")
        self._table = table
        self._spec = StreamSpec(view=view)
        self._clock = Clock()

    @property
    def table(self) -> Any:
        """pypaimon's table."""
        return self._table.handle

    def copy(self: B) -> B:
        """An independent builder with the same settings."""
        return copy.copy(self)

    # ---- rows and columns ----

    def with_filter(
        self: B,
        predicate: filter_internals.Predicate | pc.Expression | str | None,
        unmatched: Literal["delete", "drop"] = "delete",
    ) -> B:
        """Read only rows that match.

        Args:
            predicate: A text such as `"status = 'paid' and amount > 1"`, an expression of pyarrow such as
                `pc.field("amount") > 1`, or made with `new_predicate_builder()`.
            unmatched: What to do with a record of a primary-key stream with changelog producer `none` or `input` that
                does not match: `"delete"`: give it as -D, so that nothing stale stays downstream; `"drop"`: drop it.

        Raises:
            StreamConfigError: A column does not exist, the text or the expression is not a filter, or `unmatched` is
                unknown.
        """
        chosen = choice(Unmatched, "with_filter: unmatched", unmatched)
        if predicate is not None and not isinstance(predicate, (str, pc.Expression)):
            typed(filter_internals.Predicate, "with_filter", predicate)
        return self._with_columns(replace(self._spec, filter=predicate, unmatched=chosen))

    def with_projection(self: B, projection: Iterable[str] | Mapping[str, str] | None) -> B:
        """Read only these columns, in this order; fields of rows as `row.field`. None: all.

        Args:
            projection: Names of columns, or a mapping from output names to columns.

        Raises:
            StreamConfigError: A column does not exist, or is named twice.
        """
        names, columns = (None, None) if projection is None else projected_columns(projection)
        return self._with_columns(replace(self._spec, projection=columns, output_names=names, read_type=None))

    def with_read_type(self: B, read_type: Iterable[DataField]) -> B:
        """Read only these columns, in this order, and of a row only the fields of its type. Like `with_projection`.

        Args:
            read_type: pypaimon's fields, as `table.fields` or `read_type()` has them.

        Raises:
            StreamConfigError: A column does not exist, has another type, or is named twice.
        """
        given = list_of(DataField, "with_read_type", read_type, "pypaimon's DataField")
        paths = read_type_paths(given)
        return self._with_columns(replace(self._spec, projection=paths, output_names=None, read_type=given))

    def with_include_row_kind(self: B, include: bool = True) -> B:
        """Choose whether `_row_kind` (`+I -U +U -D`) is the first column; default: if the stream can give -U or -D."""
        return set_spec(self, replace(self._spec, include_row_kind=typed(bool, "with_include_row_kind", include)))

    def with_blob_descriptors(self: B, descriptors: bool = True) -> B:
        """Give pypaimon's serialised descriptors of blobs instead of their bytes, and fetch none.

        `StreamTableRead.blobs` makes objects of them that read on demand. By default the table's option
        `blob-as-descriptor` decides.
        """
        return set_spec(self, replace(self._spec, blob_descriptors=typed(bool, "with_blob_descriptors", descriptors)))

    def with_blob_places(self: B, places: Iterable[str] | None) -> B:
        """Set where descriptors in the table may point; a descriptor that points elsewhere is an error.

        Args:
            places: Directories, as paths or URIs, in addition to that of the table. None: the whole file system or
                bucket of the table.

        Raises:
            StreamConfigError: The table's FileIO cannot read such a directory.
        """
        found = None if places is None else places_of_arguments("with_blob_places", places)
        return set_spec(self, replace(self._spec, blob_places=found))

    def with_raw(self: B, raw: bool = True) -> B:
        """Accept every merge engine: follow-ups are the records as written, first plans are merged as always."""
        return set_spec(self, replace(self._spec, raw=typed(bool, "with_raw", raw)))

    def with_time_zone(self: B, name: str) -> B:
        """Set the time zone of the table's readers and writers; default: its option `time-zone`, else the process's.

        Java uses the zone of its JVM: give that to get the same rows. In this zone a TIMESTAMP WITH LOCAL TIME ZONE
        becomes text, a date or a timestamp without zone when the type of a column changes, and names a partition. Times
        without a zone are in it, and so are timestamps in Java's ORC files that name no zone.

        Args:
            name: Such as `"Asia/Shanghai"`, `"UTC"` or `"+08:00"`.

        Raises:
            StreamConfigError: The zone does not exist.
        """
        option_zone(typed(str, "with_time_zone", name))
        self._table = self._table.with_time_zone(name)
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
        return set_spec(self, replace(self._spec, start=start_of_arguments(given, full)))

    def with_end(
        self: B,
        mode: Literal["latest"] | None = None,
        *,
        latest: bool = False,
        snapshot_id: int | None = None,
        timestamp: datetime | str | int | None = None,
        watermark: int | None = None,
    ) -> B:
        """Set the end of the stream; give exactly one.

        Args:
            mode: `"latest"`, as `latest=True`.
            latest: At the snapshot that is the latest when the stream starts; at once on an empty table.
            snapshot_id: After this snapshot.
            timestamp: Before the first snapshot committed later than this; once that is past, when caught up, too.
            watermark: Before the first snapshot with a greater watermark (epoch milliseconds).
        """
        if mode not in (None, "latest"):
            raise StreamConfigError(f"with_end({mode!r}): give 'latest', or one of snapshot_id, timestamp, watermark")
        is_latest = latest or mode is not None
        bound, greatest_watermark = end_of_arguments(is_latest, snapshot_id, timestamp, watermark)
        return set_spec(self, replace(self._spec, end=bound, end_watermark=greatest_watermark))

    def with_range(
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
        return set_spec(self, replace(self._spec, between=between_of_arguments(start, end, mode, tag_to_snapshot)))

    # ---- running ----

    def with_poll_interval_ms(self: B, poll_interval_ms: int) -> B:
        """Set the pause after a poll that found nothing, in milliseconds (default 1000)."""
        interval = at_least(1, "with_poll_interval_ms", poll_interval_ms)
        return set_spec(self, replace(self._spec, poll_interval_ms=interval))

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
        return set_spec(self, replace(self._spec, consumer=ConsumerOptions(consumer_id, mode, member, ignore)))

    def with_shard(self: B, index: int, count: int) -> B:
        """Read shard `index` of `count`: the shards of a table are disjoint and together complete."""
        at_least(1, "with_shard: count", count)
        if at_least(0, "with_shard: index", index) >= count:
            raise StreamConfigError(f"with_shard({index}, {count}): index must be from 0 to {count - 1}")
        return set_spec(self, replace(self._spec, shard=(index, count)))

    def with_buckets(self: B, bucket_ids: Iterable[int]) -> B:
        """Read only these buckets."""
        buckets = list_of(int, "with_buckets", bucket_ids, "bucket numbers")
        if not buckets:
            raise StreamConfigError("with_buckets: the list is empty, so the stream would never read a row")
        return self.with_bucket_filter(only_buckets("with_buckets", buckets))

    def with_bucket_filter(self: B, bucket_filter: Callable[[int], bool]) -> B:
        """Read only buckets for which this is true."""
        return set_spec(self, replace(self._spec, bucket_filter=a_function("with_bucket_filter", bucket_filter)))

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
        return set_spec(self, replace(self._spec, limits=Limits(max_rows, max_bytes, max_splits)))

    def with_catch_up(self: B, mode: Literal["auto", "replay", "net"], after: int | None = None) -> B:
        """Choose how to catch up with many unread snapshots.

        Args:
            mode: `"auto"`: read several snapshots of an append table as one plan if that gives the same rows;
                `"replay"`: never; `"net"`: read one change per key of primary-key tables.
            after: Number of unread snapshots (`"auto"`: that append) from which on they become one plan; default 8, for
                `"net"` 2. At most 256 are read together: a greater number replays. In mode `"auto"` rows do not depend
                on it; with `"replay"` it is refused.
        """
        chosen = choice(CatchUp, "with_catch_up", mode)
        if after is not None:
            at_least(1, "with_catch_up: after", after)
            if chosen is CatchUp.REPLAY:
                raise StreamConfigError("with_catch_up('replay', after=...): a replay never catches up at once")
        return set_spec(self, replace(self._spec, catch_up=chosen, catch_up_after=after))

    def with_follow_up_scanner(self: B, scanner: PaimonFollowUpScanner | None) -> B:
        """Choose the snapshots to read after the start, and their files, by your own rule.

        Several snapshots then never become one plan. The start and `with_on_overwrite` do not change.

        Args:
            scanner: See `FollowUpScanner`; pypaimon's work, too. None: the table's own rule.

        Raises:
            StreamConfigError: The scanner has no method `should_scan`.
        """
        if scanner is not None:
            needed("with_follow_up_scanner", scanner, "an object with should_scan(snapshot)", "should_scan")
        return set_spec(self, replace(self._spec, follow_up_scanner=scanner))

    def with_prefetch(self: B, plans: int) -> B:
        """Set how many plans are prefetched, 32 by default; 0 turns it off. Large plans are fewer.

        Only metadata, until a plan is read: then the data files of the next plans are fetched as well, in a store.
        """
        return set_spec(self, replace(self._spec, prefetch=at_least(0, "with_prefetch", plans)))

    def with_io_timeout(self: B, seconds: float | timedelta) -> B:
        """Set the time limit of one request; a longer one becomes a retriable `IOTimeoutError`.

        Waiting for a turn, pauses between retries, decoding and merging do not count. For files on a disk it applies to
        `open`, `open_sync` and `to_arrow_async`, which read on a thread.
        """
        timeout = finite_seconds("with_io_timeout", seconds, above_zero=True)
        return set_spec(self, replace(self._spec, io_timeout=timeout))

    def with_on_expired(self: B, policy: Literal["fail", "earliest", "latest", "full"]) -> B:
        """Choose how to continue if a saved position has expired: `"fail"`, `"earliest"`, `"latest"` or `"full"`.

        With `open()` this also applies if data files of a plan expire before they are read. Rows of that plan that were
        given stay given; with `"full"` the next batch says by `begins_state` that they are void.
        """
        return set_spec(self, replace(self._spec, on_expired=choice(OnExpired, "with_on_expired", policy)))

    def with_on_schema_change(self: B, policy: Literal["fail", "follow", "ignore"]) -> B:
        """Choose what to do if columns that are read change: `"fail"`, `"follow"` or `"ignore"`."""
        chosen = choice(OnSchemaChange, "with_on_schema_change", policy)
        return set_spec(self, replace(self._spec, on_schema_change=chosen))

    def with_on_overwrite(self: B, policy: Literal["skip", "read", "fail"] | None) -> B:
        """Choose what to do with OVERWRITE snapshots: `"skip"`, `"read"`, `"fail"`, or None for the table's options."""
        chosen = None if policy is None else choice(OnOverwrite, "with_on_overwrite", policy)
        return set_spec(self, replace(self._spec, on_overwrite=chosen))

    def _with_columns(self: B, spec: StreamSpec) -> B:
        if self._table.facts.known is not None:
            resolve(self._table, spec).check_columns()
        return set_spec(self, spec)


def resolved(builder: SpecBuilder) -> ResolvedStream:
    """The stream that a builder describes now; later calls of setters do not change it."""
    return resolve(builder._table, builder._spec, builder._clock)


def set_spec(builder: B, spec: StreamSpec) -> B:
    """Replace all settings of a builder, as a setter does."""
    builder._spec = spec
    return builder
