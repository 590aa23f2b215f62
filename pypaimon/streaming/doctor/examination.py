"""`Examination`: what one look at a table's metadata has seen, for checks that ask for nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.builder.chain_tables import followed_table, options_of_chain
from pypaimon.streaming.builder.checks import refuse_unstreamable
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo, consumers_of
from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, TableChangedError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.manifest_tables import FILE_SCHEMA
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.retention import Retention
from pypaimon.streaming.options.stream_options import (
    GivenOptions,
    StreamOptions,
    options_of_table,
    overwrite_policy,
    refuse_unmergeable,
)
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.start import ResolvedStart, StartingScanner

T = TypeVar("T")

MOST_RECENT = 16
_TARGET_BYTES = {True: 128 << 20, False: 256 << 20}
SMALL_SHARE = 10
"""A file is small below this part of the size that writers aim at."""

# What is counted, and what tells files apart; the rest would take most of the memory.
_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "file_size", "row_count", "extra_files"]
_COLUMNS += ["embedded_index", "external_path"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one snapshot.

    Attributes:
        files: Data files.
        bytes: Their size.
        records: Records in them; of a primary-key table there may be several to a row.
        small_files: Files smaller than a tenth of the target.
        most_small_files: Those of the bucket that has most.
        buckets: Pairs of partition and bucket.
        merged_buckets: Those whose files overlap by key, so that they are merged when they are read.
        most_runs: Sorted runs of the bucket that has most: each file of level 0, each other level.
        later_files: Files that a first plan leaves out, since they come as changelog once they are compacted.
        postponed_files: Files that wait in bucket -2 for a compaction to distribute them.
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

    @staticmethod
    def read(directory: TableDirectory, snapshot: Snapshot, traits: TableTraits, target_bytes: int) -> Layout:
        """Read the manifests of a snapshot, each of them once.

        Args:
            directory: The table.
            snapshot: Of that table.
            traits: Of that table.
            target_bytes: The size that its writers aim at.

        Raises:
            FileNotFoundError: A manifest is gone.
            CorruptTableError: One cannot be decoded.
        """
        names = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        manifests = pa.concat_tables(directory.manifests.manifest_lists(names))
        entries = directory.manifests.entries(manifests, FILE_SCHEMA, lambda found: found.select(_COLUMNS))
        return Layout.of(live(entries), traits, target_bytes)

    @staticmethod
    def of(entries: pa.Table, traits: TableTraits, target_bytes: int) -> Layout:
        """Of live entries."""
        is_small = pc.less(entries["file_size"], target_bytes // SMALL_SHARE)
        level = entries["level"]
        # Each file of level 0 is a run; those of another level are one.
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
        )


@dataclass(frozen=True, slots=True)
class Examination:
    """A table as it was at one moment. What could not be read is None or empty, and stands in `failures`.

    Attributes:
        table: Its name; of a chain table that of the whole, though all else is of the branch that streams follow.
        schema: What it is read with: the newest schema, with the options that its handle adds.
        options: Those of that schema.
        traits: What they say about streams.
        retention: What they say about expiry.
        now_millis: When it was looked at, epoch milliseconds.
        ids: Snapshots that are there, ascending.
        changelogs: Changelogs that have outlived their snapshots, ascending.
        known: Snapshots that were read: the first, the last few, and the next ones of consumers.
        consumers: Consumer files.
        tags: Their names.
        branches: Their names, without main.
        layout: The files of the latest snapshot.
        stream: The settings of a stream that the table's options give.
        start: Where a stream would begin without further settings; None also for a table without snapshots.
        failures: Why something cannot be read, or not be streamed, by what that is.
        requests: What looking cost, by kind.
    """

    table: str
    schema: TableSchema
    options: OptionValues
    traits: TableTraits
    retention: Retention
    now_millis: int
    ids: Sequence[int] = ()
    changelogs: Sequence[int] = ()
    known: Mapping[int, Snapshot] = field(default_factory=dict)
    consumers: Sequence[ConsumerInfo] = ()
    tags: Sequence[str] = ()
    branches: Sequence[str] = ()
    layout: Layout | None = None
    stream: StreamOptions | None = None
    start: ResolvedStart | None = None
    failures: Mapping[str, PaimonStreamError] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def latest_id(self) -> int:
        """The latest snapshot; 0 before the first."""
        return self.ids[-1] if self.ids else 0

    @property
    def first_id(self) -> int:
        """The first snapshot, or changelog of one, that a stream can follow; 1 before there is any."""
        return min((*self.ids[:1], *self.changelogs[:1]), default=1)

    @property
    def recent(self) -> list[Snapshot]:
        """The last few snapshots, the newest first."""
        found = (self.known.get(number) for number in reversed(self.ids[-MOST_RECENT:]))
        return [snapshot for snapshot in found if snapshot is not None]


def examine(table: Any, clock: Clock | None = None) -> Examination:
    """Look at a table once: a few listings, the last snapshots, the consumers, the manifests of the latest snapshot.

    Args:
        table: pypaimon's table.
        clock: Where the time comes from.

    Raises:
        UnsupportedTableError: It cannot be streamed at all.
        StreamConfigError: What its options say of its kind, or of expiry, cannot be read.
        StoreError: The store kept failing (retriable).
    """
    refuse_unstreamable(table)
    look = _Look(table, clock or Clock())
    try:
        return look.examination()
    finally:
        look.end()


class _Look:
    """One look at a table."""

    def __init__(self, table: Any, clock: Clock) -> None:
        self._table = table
        followed, self._chain = followed_table(table)
        self._directory = TableDirectory.of(followed)
        self._before = self._directory.store.requests
        self._clock = clock
        self._failures: dict[str, PaimonStreamError] = {}

    def examination(self) -> Examination:
        """All of it."""
        directory = self._directory
        try:
            schema = directory.reading_schema(directory.latest_schema().id)
        except FileNotFoundError as error:
            raise TableChangedError(f"The table was dropped: {error} is not there.") from error
        options = OptionValues(schema.options)
        traits, retention = TableTraits.of(schema), Retention.of(options)
        ids = directory.snapshots.list_ids()
        consumers = self._tried("consumers", lambda: consumers_of(directory).infos(max(ids, default=0))) or []
        known = self._snapshots(ids, consumers)
        latest = known.get(max(ids, default=0))
        # What decides about the start may be wrong though there is no snapshot yet.
        stream = self._tried("stream", lambda: self._stream_options(schema, traits, options))
        layout, start = None, None
        if latest is not None:
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
            now_millis=self._clock.time_millis(),
            ids=ids,
            changelogs=directory.snapshots.list_changelog_ids() if traits.decoupled_changelog else (),
            known=known,
            consumers=consumers,
            tags=directory.tag_names(),
            branches=directory.branch_names(),
            layout=layout,
            stream=stream,
            start=start,
            failures=self._failures,
            requests=self._requests(),
        )

    def end(self) -> None:
        """Keep no thread."""
        self._directory.store.pool.release()

    def _tried(self, what: str, call: Callable[[], T]) -> T | None:
        """What a call gives; None if it is damaged or refused, which is a finding and no reason to stop."""
        try:
            return call()
        except PaimonStreamError as error:
            if error.retriable:
                raise
            self._failures[what] = error
            return None

    def _snapshots(self, ids: Sequence[int], consumers: Sequence[ConsumerInfo]) -> dict[int, Snapshot]:
        there = set(ids)
        read = {each.next_snapshot - 1 for each in consumers if each.fingerprint is not None}
        wanted = {*ids[:1], *ids[-MOST_RECENT:], *(each.next_snapshot for each in consumers), *read} & there
        snapshots = self._directory.snapshots
        with suppress(CorruptTableError):
            snapshots.get_snapshots_batch(sorted(wanted))
        # One by one, from the cache: one that is damaged says nothing of the others.
        found = {number: self._tried("snapshot", partial(snapshots.try_get, number)) for number in sorted(wanted)}
        return {number: snapshot for number, snapshot in found.items() if snapshot is not None}

    def _layout(self, latest: Snapshot, traits: TableTraits, options: OptionValues) -> Layout:
        target = options.size_bytes("target-file-size", _TARGET_BYTES[traits.primary_key])
        with RangeCheck(self._directory, with_changelogs=False).reading(latest):
            return Layout.read(self._directory, latest, traits, target)

    def _stream_options(self, schema: TableSchema, traits: TableTraits, options: OptionValues) -> StreamOptions:
        refuse_unmergeable(traits, raw=False)
        overwrite_policy(traits, options, None)
        found = options_of_table(schema)
        if self._chain is None:
            return found
        return options_of_chain(self._table, self._chain, schema, GivenOptions(), found)

    def _requests(self) -> dict[str, int]:
        after = self._directory.store.requests
        counts = {kind: number - self._before.get(kind, 0) for kind, number in after.items()}
        return {kind: number for kind, number in counts.items() if number}


def _sum(values: pa.ChunkedArray) -> int:
    return pc.sum(values).as_py() or 0
