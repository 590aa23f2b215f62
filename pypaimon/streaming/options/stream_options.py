"""`StreamOptions`: every validated setting of one stream, from the builder and the table's options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.position import POSTPONE_BUCKET, ReadUnit
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.between import Between, End, Ends
from pypaimon.streaming.options.known_options import refuse_unknown_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.slot_rule import SlotSet
from pypaimon.streaming.options.start import Start, start_of_options
from pypaimon.streaming.options.table_kinds import BetweenMode, ChangelogProducer
from pypaimon.streaming.options.table_traits import ChainBranches, TableTraits
from pypaimon.streaming.paimon.internals import PaimonFollowUpScanner, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

DEFAULT_POLL_INTERVAL_MS = option_keys.CONTINUOUS_DISCOVERY_INTERVAL.default
DEFAULT_IO_TIMEOUT = 60.0
DEFAULT_BATCH_SIZE = 524_288
"""Rows that are read at once, at most. A smaller batch costs more to pass between threads than to read."""
DEFAULT_READ_AHEAD_BYTES = 64 << 20
DEFAULT_BATCH_BYTES = 16 << 20
DEFAULT_LIVE_BYTES = 2 << 30


class OnExpired(str, Enum):
    """Where to start again when a saved position has expired."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"
    FULL = "full"


class OnSchemaChange(str, Enum):
    """What to do at a snapshot whose read fields differ from the stream's."""

    FAIL = "fail"
    FOLLOW = "follow"
    IGNORE = "ignore"


class OnOverwrite(str, Enum):
    """What to do with OVERWRITE snapshots."""

    SKIP = "skip"
    READ = "read"
    FAIL = "fail"


class CatchUp(str, Enum):
    """How a stream that is far behind catches up."""

    AUTO = "auto"
    REPLAY = "replay"
    NET = "net"


class Unmatched(str, Enum):
    """What a record becomes that fails the filter of a stream without complete before images."""

    DELETE = "delete"
    DROP = "drop"


class CommitMode(str, Enum):
    """Who confirms plans under a consumer id."""

    AUTO = "auto"
    """A request for the next plan, and a clean end, confirm the plan before."""
    MANUAL = "manual"
    """Only `commit`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Soft bounds of one plan: at least one unit is always handed out.

    Attributes:
        max_rows: Physical records.
        max_bytes: Bytes of files.
        max_splits: Units.
        until: The last unit to hand out of the snapshot: a hard bound, to plan again what was planned before.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    max_splits: int | None = None
    until: ReadUnit | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.max_rows, self.max_bytes, self.max_splits, self.until))


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Under which consumer id progress is saved, and how."""

    consumer_id: str
    commit: CommitMode = CommitMode.AUTO
    member: str | None = None
    ignore_progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerOptions:
    """The settings that only callers make: no option of a table sets them. Common to `StreamSpec` and `StreamOptions`.

    Attributes:
        end: Where the stream ends, or None.
        between: The range that is read instead of a start and an end, or None.
        shard: (index, count), or None.
        slots: Which slots are read, as a member of a group; or None for all.
        unmatched: See `Unmatched`.
        limits: Bounds of one plan.
        catch_up: See `CatchUp`.
        catch_up_after: Snapshots from which on a stream catches up; None: a default for the mode.
        follow_up_scanner: The user's own rule for what is read after the start, or None.
        prefetch: Plans made before the caller asks for them; 0 is off.
        io_timeout: Seconds that one request may take.
        raw: Nothing is refused for its merge engine; follow-ups are the records as written.
        on_overwrite: The explicit policy, or None: the table's options, with one warning.
        keeps_state: A copy of the table is kept: if the changes do not name the rows that a snapshot removes, the full
            state is read again.
    """

    end: End | None = None
    between: Between | None = None
    shard: tuple[int, int] | None = None
    slots: SlotSet | None = None
    unmatched: Unmatched = Unmatched.DELETE
    limits: Limits = field(default_factory=Limits)
    catch_up: CatchUp = CatchUp.AUTO
    catch_up_after: int | None = None
    follow_up_scanner: PaimonFollowUpScanner | None = None
    prefetch: int = 32
    io_timeout: float = DEFAULT_IO_TIMEOUT
    raw: bool = False
    on_expired: OnExpired = OnExpired.FAIL
    on_schema_change: OnSchemaChange = OnSchemaChange.FAIL
    on_overwrite: OnOverwrite | None = None
    keeps_state: bool = False


@dataclass(frozen=True, slots=True)
class StreamOptions(CallerOptions):
    """The settings of one stream; never changed afterwards. Those not named here are options: `option_keys`.

    Attributes:
        start: Where the stream begins when no consumer says otherwise.
        consumer: Saved progress, or None.
        bucket_filter: Which buckets are read, or None for all.
        planned_for: The filter and columns of the caller, which plans name; None: neither.
        read_overwrite: Whether OVERWRITE snapshots are read.
        chain: The branches of a chain table, whose delta branch is followed; None for other tables.
    """

    start: Start
    end_watermark: int | None = None
    poll_interval_ms: int = DEFAULT_POLL_INTERVAL_MS
    consumer: ConsumerOptions | None = None
    bucket_filter: Callable[[int], bool] | None = None
    predicate: Predicate | None = None
    planned_for: RowSelection | None = None
    max_unconfirmed: int | None = None
    read_overwrite: bool = False
    delay_ms: int = 0
    sort_partitions: bool = False
    split_target_bytes: int = option_keys.SOURCE_SPLIT_TARGET_SIZE.default
    split_open_bytes: int = option_keys.SOURCE_SPLIT_OPEN_FILE_COST.default
    chain: ChainBranches | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the stream has an end."""
        return not (self.end is None and self.between is None and self.end_watermark is None)

    @property
    def compares_states(self) -> bool:
        """Whether two states are compared, so that a row replaces another only by its kind."""
        return self.between is not None and self.between.mode is BetweenMode.DIFF


def overwrite_policy(traits: TableTraits, options: TableOptions, chosen: OnOverwrite | None) -> bool:
    """Whether OVERWRITE snapshots are read, with Java's checks.

    Raises:
        StreamConfigError: The table kind cannot stream overwrites, or the option is that of the other table kind.
    """
    # The texts are Java's, so that a search for them finds the rule.
    read_primary = option_keys.STREAMING_READ_OVERWRITE.of(options)
    read_append = option_keys.STREAMING_READ_APPEND_OVERWRITE.of(options)
    if read_primary and not traits.primary_key:
        raise StreamConfigError(
            "Doesn't support streaming read the changes from overwrite when the primary keys are not defined. "
            "Please use streaming-read-append-overwrite to enable the streaming read overwrite commit for append table."
        )
    wanted = (read_primary if traits.primary_key else read_append) if chosen is None else chosen is OnOverwrite.READ
    if (wanted or read_primary) and traits.producer.complete:
        raise StreamConfigError(
            "Cannot set streaming-read-overwrite to true when changelog producer is full-compaction or lookup "
            "because it will read duplicated changes."
        )
    return wanted


def refuse_unmergeable(traits: TableTraits, raw: bool) -> None:
    """Refuse streams whose follow-ups would be partial records, as Flink does.

    Raises:
        UnsupportedTableError: Merge engine partial-update, aggregation or first-row with changelog producer none.
    """
    if (
        traits.producer is ChangelogProducer.NONE
        and not traits.merge_engine.keeps_newest
        and traits.primary_key
        and not raw
    ):
        raise UnsupportedTableError(
            f"{traits.merge_engine.value} streaming reading is not supported. You can use 'lookup' or "
            "'full-compaction' changelog producer to support streaming reading.",
            advice="with_raw(True) reads the records as they were written.",
            option="with_raw",
        )


def refuse_hidden_deletes(
    schema: TableSchema, filtered: Collection[str], unmatched: Unmatched, *, raw: bool, hides_kinds: bool
) -> None:
    """Refuse a filter that turns records into deletes if the rows do not show that they are deletes.

    Args:
        schema: The table. Without complete before images a record that does not match may replace one that did.
        filtered: The columns of the filter. A filter on keys is allowed, because a record with another key replaces
            nothing.
        unmatched: What records become that do not match.
        raw: Whether records come as they were written.
        hides_kinds: Whether `with_include_row_kind(False)` was called.

    Raises:
        StreamConfigError: The filter turns records into deletes.
    """
    traits = TableTraits.of(schema)
    upserts = traits.primary_key and not traits.producer.complete
    on_values = not set(filtered) <= {*schema.primary_keys, *schema.partition_keys}
    if not (upserts and on_values and unmatched is Unmatched.DELETE):
        return
    if raw:
        raise StreamConfigError("with_raw(True) and a filter on other columns than keys: give unmatched='drop'")
    if hides_kinds:
        raise StreamConfigError(
            "with_include_row_kind(False) would hide that rows are deletes: give unmatched='drop', "
            "or include the row kind"
        )


def needs_fixed_start(traits: TableTraits, options: StreamOptions) -> bool:
    """Whether shards must name the snapshot they start at: rows move between them, and no consumer id joins them."""
    return options.shard is not None and options.shard[1] > 1 and options.consumer is None and traits.rows_move


def refuse_unshared_start(traits: TableTraits, options: StreamOptions) -> None:
    """Refuse shards that may start at different snapshots, and so would lose and repeat rows.

    Raises:
        StreamConfigError: The shards have no common start.
    """
    if not needs_fixed_start(traits, options):
        return
    why = (
        "with_shard on a table without fixed buckets: compaction moves rows between its shards, so that all of them "
        "have to begin at the same snapshot. "
    )
    if options.between is not None and options.between.ends is Ends.TIMES:
        raise StreamConfigError(
            why + f"Which snapshots {options.between.given} stands for may change between them. Give two snapshot ids "
            "or two tags."
        )
    if not options.start.is_fixed:
        raise StreamConfigError(
            why + f"The start {options.start.mode.value!r} depends on when each one comes. Give all shards one "
            "consumer id, with_consumer_id(...), or a start that stays: with_start(snapshot_id=...), tag= or position=."
        )
    if options.on_expired is not OnExpired.FAIL:
        raise StreamConfigError(
            why + f"with_on_expired({options.on_expired.value!r}) would move one of them. Give all shards one consumer "
            "id, with_consumer_id(...), or leave the policy out."
        )


def options_of_table(schema: TableSchema) -> StreamOptions:
    """The settings of a stream from its table's options alone.

    Raises:
        StreamConfigError: An option cannot be parsed, is unknown, or contradicts another.
    """
    refuse_unknown_keys(schema)
    zone_of(schema.options)
    options = schema.options
    max_unconfirmed = option_keys.SCAN_MAX_SNAPSHOT_COUNT.of(options)
    return StreamOptions(
        start=start_of_options(options),
        end_watermark=option_keys.SCAN_BOUNDED_WATERMARK.of(options),
        poll_interval_ms=option_keys.CONTINUOUS_DISCOVERY_INTERVAL.of(options),
        consumer=_consumer_of(options),
        bucket_filter=_bucket_filter_of(options),
        # Java's default is -1: no bound.
        max_unconfirmed=None if max_unconfirmed is None or max_unconfirmed <= 0 else max_unconfirmed,
        delay_ms=option_keys.STREAMING_READ_SNAPSHOT_DELAY.of(options),
        sort_partitions=option_keys.SCAN_PLAN_SORT_PARTITION.of(options),
        split_target_bytes=option_keys.SOURCE_SPLIT_TARGET_SIZE.of(options),
        split_open_bytes=option_keys.SOURCE_SPLIT_OPEN_FILE_COST.of(options),
    )


def _consumer_of(options: TableOptions) -> ConsumerOptions | None:
    consumer_id = option_keys.CONSUMER_ID.of(options)
    if consumer_id is None:
        return None
    return ConsumerOptions(consumer_id, ignore_progress=option_keys.CONSUMER_IGNORE_PROGRESS.of(options))


def _bucket_filter_of(options: TableOptions) -> Callable[[int], bool] | None:
    bucket = option_keys.SCAN_BUCKET.of(options)
    return None if bucket is None else only_buckets(option_keys.SCAN_BUCKET.name, (bucket,))


def only_buckets(what: str, buckets: Iterable[int]) -> Callable[[int], bool]:
    """A filter of some buckets. Raises StreamConfigError if a number is one that no bucket has."""
    chosen = frozenset(buckets)
    for bucket in chosen:
        if bucket < 0 and bucket != POSTPONE_BUCKET:
            raise StreamConfigError(
                f"{what}: there is no bucket {bucket}: give numbers from 0, or {POSTPONE_BUCKET} for postponed rows."
            )
    # A bound method of a set can be pickled, which a lambda cannot.
    return chosen.__contains__
