"""`Examination`: the metadata of a table, read once for all checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo, consumers_of
from pypaimon.streaming.doctor.due import due_plans
from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, TableChangedError
from pypaimon.streaming.maintenance.maintain import run_once
from pypaimon.streaming.maintenance.plan import PLAN_PREFIX, MaintenancePlan
from pypaimon.streaming.maintenance.policy import MaintenancePolicy
from pypaimon.streaming.maintenance.tags import Tag, tags_of
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.manifest_tables import FILE_SCHEMA
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import Retention, TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable, WritableTable
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.planning.planner_state import Following, ReadingFull
from pypaimon.streaming.planning.start import StartingScanner
from pypaimon.streaming.spec.resolve import resolve
from pypaimon.streaming.spec.stream_spec import StreamSpec
from pypaimon.streaming.spec.streamed_table import StreamedTable, TableFacts, followed_table, refuse_unstreamable

T = TypeVar("T")

MOST_RECENT = 16
_TARGET_BYTES = {True: 128 << 20, False: 256 << 20}
SMALL_SHARE = 10
"""A file is small if it is smaller than the target size divided by this number."""

# What is counted and what identifies a file. The other columns would take most of the memory.
_COLUMNS = ["kind", "partition", "bucket", "total_buckets", "level", "file_name", "file_size", "row_count"]
_COLUMNS += ["extra_files", "embedded_index", "external_path"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of a snapshot are spread over buckets, as far as it decides the cost of a first plan.

    Attributes:
        files: Number of data files.
        bytes: Size of all data files.
        records: Records in all data files. A row of a primary-key table may have several records.
        small_files: Files smaller than a tenth of the target size.
        most_small_files: Small files in the bucket that has most of them.
        buckets: Pairs of partition and bucket.
        merged_buckets: Buckets whose files overlap by key, so that they are merged when they are read.
        most_runs: Sorted runs in the bucket that has most of them: each file of level 0, and each other level.
        later_files: Files that a first plan leaves out, because their rows come as changelog after compaction.
        postponed_files: Files in bucket -2, which a compaction will distribute.
        other_counts: Numbers of buckets that some partitions are divided into, and the table's option does not name.
    """

    files: int
    bytes: int
    records: int
    small_files: int
    most_small_files: int
    buckets: int
    merged_buckets: int
    most_runs: int
    later_files: int
    postponed_files: int
    other_counts: tuple[int, ...]

    @staticmethod
    def read(directory: TableDirectory, snapshot: Snapshot, traits: TableTraits, target_bytes: int) -> Layout:
        """Read each manifest of a snapshot once.

        Args:
            directory: The table.
            snapshot: The snapshot.
            traits: The kind of the table.
            target_bytes: The target file size of the table.

        Raises:
            FileNotFoundError: A manifest is missing.
            CorruptTableError: A manifest cannot be decoded.
        """
        names = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        manifests = pa.concat_tables(directory.manifests.manifest_lists(names))
        entries = directory.manifests.entries(manifests, FILE_SCHEMA, lambda found: found.select(_COLUMNS))
        return Layout.of(live(entries), traits, target_bytes)

    @staticmethod
    def of(entries: pa.Table, traits: TableTraits, target_bytes: int) -> Layout:
        is_small = pc.less(entries["file_size"], target_bytes // SMALL_SHARE)
        level = entries["level"]
        # Each file of level 0 is a sorted run; the files of each other level are one run together.
        run = pc.if_else(pc.equal(level, 0), entries["file_name"], level.cast(pa.string()))
        columns = [entries["partition"], entries["bucket"], is_small.cast(pa.int64()), run]
        per_bucket = (
            pa.table(columns, names=["partition", "bucket", "small", "run"])
            .group_by(["partition", "bucket"])
            .aggregate([("small", "sum"), ("run", "count_distinct")])
        )
        runs = per_bucket["run_count_distinct"]
        is_merged = pc.and_(pc.greater(runs, 1), pc.not_equal(per_bucket["bucket"], POSTPONE_BUCKET))
        is_postponed = pc.equal(entries["bucket"], POSTPONE_BUCKET)
        counts = pc.unique(entries["total_buckets"]).to_pylist() if traits.bucket > 0 else []
        is_later = pc.and_(pc.less(level, traits.lowest_state_level), pc.invert(is_postponed))
        return Layout(
            files=entries.num_rows,
            bytes=_sum(entries["file_size"]),
            records=_sum(entries["row_count"]),
            small_files=_sum(is_small),
            most_small_files=pc.max(per_bucket["small_sum"]).as_py() or 0,
            buckets=per_bucket.num_rows,
            merged_buckets=_sum(is_merged) if traits.primary_key else 0,
            most_runs=(pc.max(runs).as_py() or 0) if traits.primary_key else 0,
            later_files=_sum(is_later),
            postponed_files=_sum(is_postponed),
            other_counts=tuple(sorted(each for each in counts if each > 0 and each != traits.bucket)),
        )


@dataclass(frozen=True, slots=True)
class Examination:
    """A table at one moment. What could not be read is None or empty, with its error in `failures`.

    Attributes:
        table: Name of the table. For a chain table, everything else describes the branch that streams follow.
        schema: The newest schema, with the options that the table handle adds.
        options: The options of that schema.
        traits: What the options mean for streams.
        retention: What the options mean for expiry.
        now_millis: The time of the examination, epoch milliseconds.
        ids: Ids of all snapshots, ascending.
        changelogs: Ids of changelogs that have outlived their snapshots, ascending.
        known: Snapshots that were read: the first, the last few, and the next ones of consumers.
        consumers: Consumer files.
        tags: The tags of the branch.
        branches: Names of branches, without main.
        layout: The files of the latest snapshot.
        stream: The settings of a stream with the table's options alone.
        start: Where a stream with these settings would begin; None also for a table without snapshots.
        plan: What a run of maintenance would expire, without its files; None also for a table without snapshots.
        unheld_plan: The same if no consumer kept anything.
        full_plan: The plan of a run that also deletes orphans older than a day, with all files; None unless asked for.
        unfinished_plans: Names of the plans that runs of maintenance have left.
        earliest_hint: The snapshot that the hint EARLIEST names.
        failures: Errors of what cannot be read or streamed, by name of the part.
        requests: The number of requests that were made, by kind.
    """

    table: str
    schema: TableSchema
    options: TableOptions
    traits: TableTraits
    retention: Retention
    now_millis: int
    ids: Sequence[int] = ()
    changelogs: Sequence[int] = ()
    known: Mapping[int, Snapshot] = field(default_factory=dict)
    consumers: Sequence[ConsumerInfo] = ()
    tags: Sequence[Tag] = ()
    branches: Sequence[str] = ()
    layout: Layout | None = None
    stream: StreamOptions | None = None
    start: ReadingFull | Following | None = None
    plan: MaintenancePlan | None = None
    unheld_plan: MaintenancePlan | None = None
    full_plan: MaintenancePlan | None = None
    unfinished_plans: Sequence[str] = ()
    earliest_hint: int | None = None
    failures: Mapping[str, PaimonStreamError] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def latest_id(self) -> int:
        return self.ids[-1] if self.ids else 0

    @property
    def first_id(self) -> int:
        """The first snapshot or changelog that a stream can follow, 1 without any."""
        return min((*self.ids[:1], *self.changelogs[:1]), default=1)

    @property
    def recent(self) -> list[Snapshot]:
        """The last few snapshots, newest first."""
        found = (self.known.get(number) for number in reversed(self.ids[-MOST_RECENT:]))
        return [snapshot for snapshot in found if snapshot is not None]


def examine(table: ReadableTable, clock: Clock | None = None, *, orphans: bool = False) -> Examination:
    """Read a table's metadata: a few listings, the last snapshots, the consumers, the latest snapshot's manifests.

    Args:
        table: pypaimon's table.
        clock: Where the time comes from.
        orphans: Also plan a run of maintenance with all files: reads what keeps files, and lists all directories.

    Raises:
        UnsupportedTableError: The table cannot be streamed.
        StreamConfigError: An option of the table that decides its kind, or expiry, is invalid.
        StoreError: The store kept failing (retriable).
    """
    refuse_unstreamable(table)
    return _Examiner(table, clock or Clock()).examination(orphans)


class _Examiner:
    def __init__(self, table: ReadableTable, clock: Clock) -> None:
        self._table = table
        self._followed, self._chain = followed_table(table)
        self._directory = TableDirectory.of(self._followed)
        self._before = self._directory.store.requests
        self._clock = clock
        self._failures: dict[str, PaimonStreamError] = {}

    def examination(self, orphans: bool) -> Examination:
        directory = self._directory
        try:
            schema = directory.reading_schema(directory.latest_schema().id)
        except FileNotFoundError as error:
            raise TableChangedError(f"The table was dropped: {error} is not there.") from error
        options = schema.options
        traits, retention = TableTraits.of(schema), Retention.of(options)
        ids = directory.snapshots.list_ids()
        manager = consumers_of(directory)
        listed = directory.store.list_written(manager.directory)
        consumers = self._tried("consumers", lambda: manager.infos(max(ids, default=0), listed)) or []
        if any(each.position.last_read > max(ids, default=0) for each in consumers):
            # A running reader may be past the snapshot that was the latest before its file was read.
            ids = directory.snapshots.list_ids()
        tags = self._tried("tags", lambda: tags_of(directory)) or ()
        known = self._snapshots(ids, consumers)
        latest = known.get(max(ids, default=0))
        # Also without a snapshot, because the options for the start may be invalid.
        stream = self._tried("stream", lambda: self._stream_options(schema, traits))
        layout, start, plans = None, None, None
        changelogs = directory.snapshots.list_changelog_ids() if traits.decoupled_changelog else []
        now = self._clock.time_millis()
        if latest is not None:
            # Without a tag or a consumer that cannot be read, it is not known what stays, and a run deletes nothing.
            if not {"tags", "consumers"} & {*self._failures}:
                table, snapshots = PaimonTable(cast(WritableTable, self._followed)), directory.snapshots
                plans = self._tried(
                    "maintenance",
                    lambda: due_plans(table, snapshots, latest, ids, changelogs, tags, consumers, listed, now),
                )
            layout = self._tried("manifests", lambda: self._layout(latest, traits, options))
            if stream is not None:
                finder = StartingScanner(directory, traits, stream.start)
                start = self._tried("start", lambda: finder.find_at(latest))
        return Examination(
            table=self._table.identifier.get_full_name(),
            schema=schema,
            options=options,
            traits=traits,
            retention=retention,
            now_millis=now,
            ids=ids,
            changelogs=changelogs,
            known=known,
            consumers=consumers,
            tags=tags,
            branches=directory.branch_names(),
            layout=layout,
            stream=stream,
            start=start,
            plan=plans and plans[0],
            unheld_plan=plans and plans[1],
            full_plan=self._tried("orphans", self._full_plan) if orphans else None,
            unfinished_plans=sorted(name for name in listed if name.startswith(PLAN_PREFIX)),
            earliest_hint=directory.snapshots.hinted_earliest_id() if ids else None,
            failures=self._failures,
            requests=self._requests(),
        )

    def _full_plan(self) -> MaintenancePlan:
        policy = MaintenancePolicy(orphan_age=timedelta(days=1))
        return run_once(PaimonTable(cast(WritableTable, self._followed)), policy, dry_run=True).plan

    def _tried(self, what: str, call: Callable[[], T]) -> T | None:
        """The result of a call, None after a permanent error, which is recorded as a failure."""
        try:
            return call()
        except PaimonStreamError as error:
            if error.retriable:
                raise
            self._failures[what] = error
            return None

    def _snapshots(self, ids: Sequence[int], consumers: Sequence[ConsumerInfo]) -> dict[int, Snapshot]:
        there = set(ids)
        positions = (each.position for each in consumers)
        read = {each.last_read for each in positions if each.fingerprint is not None}
        wanted = {*ids[:1], *ids[-MOST_RECENT:], *(each.next_snapshot for each in consumers), *read} & there
        snapshots = self._directory.snapshots
        with suppress(CorruptTableError):
            snapshots.get_snapshots_batch(sorted(wanted))
        # One by one, from the cache, so that a damaged snapshot does not hide the others.
        found = {number: self._tried("snapshot", partial(snapshots.try_get, number)) for number in sorted(wanted)}
        return {number: snapshot for number, snapshot in found.items() if snapshot is not None}

    def _layout(self, latest: Snapshot, traits: TableTraits, options: TableOptions) -> Layout:
        target = option_keys.TARGET_FILE_SIZE.of(options) or _TARGET_BYTES[traits.primary_key]
        with SnapshotRangeValidator(self._directory, with_changelogs=False).reading(latest):
            return Layout.read(self._directory, latest, traits, target)

    def _stream_options(self, schema: TableSchema, traits: TableTraits) -> StreamOptions:
        # The identity is needed for positions only.
        facts = Lazy.of(TableFacts(schema, schema, traits, ""))
        return resolve(StreamedTable(self._table, self._followed, self._chain, facts), StreamSpec()).options

    def _requests(self) -> dict[str, int]:
        after = self._directory.store.requests
        counts = {kind: number - self._before.get(kind, 0) for kind, number in after.items()}
        return {kind: number for kind, number in counts.items() if number}


def _sum(values: pa.ChunkedArray) -> int:
    return pc.sum(values).as_py() or 0
