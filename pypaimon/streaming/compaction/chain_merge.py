"""`compact_chain_table`: merges partitions of a chain table's delta branch into its snapshot branch.

As Java's procedure `compact_chain_table` does. Java's rules: docs/java-semantics.md#chain-tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pypaimon.streaming.commit.changes import COMPACT, data_changes
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_planned
from pypaimon.streaming.commit.request import PartitionReplacement
from pypaimon.streaming.compaction.compaction_options import check_compactable, under_latest_schema, with_buckets
from pypaimon.streaming.compaction.distribution import Distributor
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult
from pypaimon.streaming.compaction.partition_rescale import WITHOUT_CHANGES
from pypaimon.streaming.compaction.reports import (
    CompactedBucket,
    CompactionReport,
    FileCount,
    SkippedPartition,
    counted,
)
from pypaimon.streaming.errors import (
    CommitConflictError,
    PaimonStreamError,
    PositionExpiredError,
    UnsupportedTableError,
)
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_encoding import StoredRow, all_forms
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.partition_times import PartitionTimes
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.row_kinds import INSERT
from pypaimon.streaming.model.system_columns import SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.paimon.handles import WritableTable, on_branch
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.planning.chain_plans import ChainPartition, ChainStarts, in_chain_order, places_in_chain
from pypaimon.streaming.planning.planner_state import Following, ReadingFull
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans
from pypaimon.streaming.spec.resolve import ResolvedStream, resolve
from pypaimon.streaming.spec.stream_spec import StreamSpec
from pypaimon.streaming.spec.streamed_table import StreamedTable, followed_table
from pypaimon.streaming.spec.table_read import StreamTableRead, new_read
from pypaimon.streaming.writing.blob_forms import blob_forms
from pypaimon.streaming.writing.writable_tables import warn_about_gaps

_ROUNDS = 5
"""How often a partition is merged before a delta branch that changes each time is a conflict."""
_IS_THERE = (
    "The snapshot branch has it already, and readers of the chain table read it from there. Merge it again "
    "(overwrite=True, or --overwrite) if rows of its delta partitions have changed since."
)
_IS_NOT_THERE = "The delta branch has no such partition."
_PRODUCERS = (ChangelogProducer.NONE, ChangelogProducer.INPUT)


def compact_chain_table(
    table: WritableTable, partition: Mapping[str, Any], *, overwrite: bool = False, dry_run: bool = False
) -> CompactionReport:
    """Merge partitions of a chain table's delta branch into its snapshot branch. Blocks.

    A partition gets the rows that batch readers of the chain table find in it: those of the newest earlier partition of
    the snapshot branch, with the changes of all later partitions of the delta branch up to it. Each one is committed to
    the snapshot branch as an overwrite of exactly this partition. From then on it is read from there: what is written
    to its delta partitions later counts only after another merge with `overwrite`. The delta branch stays as it is.

    Args:
        table: pypaimon's chain table, not one of its branches.
        partition: Values of partition columns, all or some, as `with_overwrite` of a writer takes them. All partitions
            of the delta branch with these values are merged, the oldest first.
        overwrite: Also merge partitions that the snapshot branch has, and replace them. What they are made of must
            still be in the branches.
        dry_run: Write nothing. The report says which files would be merged.

    Returns:
        What was merged, by bucket. Partitions that the snapshot branch has are skipped, unless `overwrite`, and so is
        one that the delta branch does not have.

    Raises:
        UnsupportedTableError: It is not such a table, or a partition cannot be merged exactly, and was not written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CommitConflictError: Others have changed the partition in the snapshot branch meanwhile, or keep changing what
            it is made of. Merges of other partitions stay. Call it again, with `overwrite` if the error says so.
        CorruptTableError: A file is damaged or missing. Merges of other partitions stay.
        CommitFailedError: A commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    chain = _ChainTable.of(PaimonTable(a_table("compact_chain_table: table", table)))
    spec = PartitionSpec.of(chain.delta.schema, partition, "compact_chain_table: partition")
    rows = chain.partitions(spec)
    if not rows:
        return CompactionReport(None, skipped=(SkippedPartition(dict(partition), _IS_NOT_THERE),))
    report = CompactionReport(None)
    if not dry_run:
        warn_about_gaps(chain.target)
    for row in rows:
        made = chain.merge(row, overwrite=overwrite, dry_run=dry_run)
        report = CompactionReport(
            made.snapshot_id,
            (*report.new_snapshot_ids, *made.new_snapshot_ids),
            (*report.compacted, *made.compacted),
            skipped=(*report.skipped, *made.skipped),
        )
    return report


@dataclass(frozen=True, slots=True)
class _ChainTable:
    """A chain table, as far as merges of its partitions need it.

    Attributes:
        delta: The delta branch, which is read.
        target: The snapshot branch, which is written.
    """

    name: str
    delta: PaimonTable
    target: PaimonTable
    stream: ResolvedStream
    starts: ChainStarts
    plans: SnapshotPlans
    read: StreamTableRead

    @staticmethod
    def of(given: PaimonTable) -> _ChainTable:
        """Raises UnsupportedTableError if partitions of a table cannot be merged exactly."""
        handle = given.handle
        _, chain = followed_table(handle)
        if chain is None:
            raise UnsupportedTableError(
                f"{given.name} is not a chain table: such a table has 'chain-table.enabled', "
                "'scan.fallback-snapshot-branch' and 'scan.fallback-delta-branch'.",
                advice="Load the chain table itself, not one of its two branches.",
            )
        stream = resolve(StreamedTable.of(handle), StreamSpec())
        starts = ChainStarts(stream.directory, chain, stream.schema)
        _ = starts.options  # Raises if there is no such branch.
        delta = PaimonTable(on_branch(handle, chain.delta)).with_schema(stream.schema)
        target = PaimonTable(on_branch(handle, chain.snapshot))
        target = under_latest_schema(target, target.new_directory())
        _check_mergeable(given.name, delta, target)
        # Not the settings of the stream, because options such as `scan.bucket` would leave out rows.
        everything = StreamOptions(start=Start(StartMode.LATEST_FULL))
        plans = SnapshotPlans(stream.directory, stream.schema, everything)
        return _ChainTable(given.name, delta, target, stream, starts, plans, new_read(stream))

    def partitions(self, spec: PartitionSpec) -> list[bytes]:
        """The partitions of the delta branch that match a spec, serialised, those of a chain in its order."""
        directory, key_count = self.stream.directory, self.starts.chain_keys(self.delta.schema)
        for _ in range(_ROUNDS):
            latest = directory.snapshots.get_latest_snapshot()
            if latest is None:
                return []
            with suppress(PositionExpiredError), self._reading(latest):
                rows = TableState(directory, latest).partitions(spec)
                return in_chain_order(sorted(rows), self.delta.partition_fields, key_count)
        raise CommitConflictError(f"Snapshots of {self.delta.name} expire before they are read.", advice="Keep more.")

    def merge(self, row: bytes, *, overwrite: bool, dry_run: bool) -> CompactionReport:
        """Merge one partition."""
        values = dict(zip(self.delta.partition_keys, decode(row, self.delta.partition_fields), strict=True))
        ids: list[int] = []
        try:
            return self._merged(row, values, ids, overwrite=overwrite, dry_run=dry_run)
        except PaimonStreamError as error:
            if not ids:
                raise
            # The same call would skip the partition, and the changes that were committed before would stay hidden.
            raise CommitConflictError(
                f"Snapshot {ids[-1]} of {self.target.name} has partition {values}, perhaps without the latest changes "
                f"of the delta branch: {error.message}",
                advice="Merge it again with overwrite=True.",
            ) from error

    def _merged(
        self, row: bytes, values: dict[str, Any], ids: list[int], *, overwrite: bool, dry_run: bool
    ) -> CompactionReport:
        """Merge one partition, until nothing changes meanwhile.

        Args:
            ids: Gets the snapshots that are committed.
        """
        for _ in range(_ROUNDS):
            try:
                merge = self._planned(row)
            except PositionExpiredError:
                # A snapshot has expired between two requests.
                continue
            if merge is None:
                return CompactionReport(None)
            planned_at = None if merge.whole is None else merge.whole.id
            if merge.partition.exists and not overwrite and not ids:
                return CompactionReport(planned_at, skipped=(SkippedPartition(values, _IS_THERE),))
            merge.check_times()
            merge.check_buckets()
            before = merge.read_by_bucket()
            if dry_run:
                compacted = (CompactedBucket(values, bucket, files) for bucket, files in before.items())
                return CompactionReport(planned_at, compacted=tuple(compacted))
            try:
                results = self._written(merge)
            except PositionExpiredError:
                # Files that were merged have been compacted, and their snapshot has expired.
                continue
            messages = [_added(each) for each in results]
            snapshot_id = merge.commit(messages)
            if snapshot_id is not None:
                ids.append(snapshot_id)
            # A commit to the delta branch between the last look at it and ours would be hidden by ours.
            if merge.changed_deltas() is None:
                after = {each.bucket.bucket: counted(each.after) for each in results}
                compacted = (
                    CompactedBucket(values, bucket, before.get(bucket, FileCount()), after.get(bucket, FileCount()))
                    for bucket in sorted(before.keys() | after.keys())
                )
                return CompactionReport(planned_at, tuple(ids), tuple(compacted))
        raise CommitConflictError(
            f"Others have changed partition {values} of the delta branch of {self.name}, or those before it, during "
            f"each of {_ROUNDS} merges.",
            advice="Merge it again.",
        )

    def _planned(self, row: bytes) -> _Merge | None:
        """Returns None if the delta branch does not have the partition."""
        found: ReadingFull | Following = self.starts.find()
        if isinstance(found, Following) or not found.snapshot.id:
            return None
        delta, whole = found.snapshot, None if found.chain is None else found.chain.snapshot
        with self._reading(delta):
            partition = ChainPartition.of(self.starts, self.plans, delta, whole, row)
        if partition is None:
            return None
        return _Merge(self, partition, delta, whole)

    def _reading(self, delta: Snapshot) -> AbstractContextManager[None]:
        return SnapshotRangeValidator(self.stream.directory, with_changelogs=False).reading(delta)

    def _written(self, merge: _Merge) -> list[CompactionResult]:
        """New files of the snapshot branch with the rows of a partition. If it fails, they are deleted."""
        target = with_buckets(self.target, self.target.total_buckets, WITHOUT_CHANGES)
        reader = FileReader(target, target.new_directory(), lambda: None)
        partition = StoredRow(decode(merge.partition.row, target.partition_fields), merge.partition.row)
        # They are compacted at once, because readers of tables with deletion vectors see compacted rows only.
        return Distributor(target, reader, target.zone.now).distribute(self._rows(merge), partition, (), full=True)

    def _rows(self, merge: _Merge) -> Iterator[pa.RecordBatch]:
        kind = pa.field(VALUE_KIND, SYSTEM_TYPES[VALUE_KIND], nullable=False)
        for batch in self.read.iter_batches(merge.partition.splits):
            kinds = pa.repeat(pa.scalar(INSERT, pa.int8()), batch.num_rows)
            yield batch.append_column(kind, kinds)


@dataclass(frozen=True, slots=True)
class _Merge:
    """The merge of one partition.

    Attributes:
        delta: The snapshot of the delta branch that is read.
        whole: The snapshot of the snapshot branch; None: that branch was empty.
    """

    table: _ChainTable
    partition: ChainPartition
    delta: Snapshot
    whole: Snapshot | None

    def read_by_bucket(self) -> dict[int, FileCount]:
        found: dict[int, FileCount] = {}
        for split in self.partition.splits:
            found[split.bucket] = found.get(split.bucket, FileCount()) + counted(split.files)
        return found

    def check_times(self) -> None:
        """Java counts the times from the first partition to the last one, and takes the partitions that have them.
        Raises UnsupportedTableError if these are others than those between the two by their values.
        """
        base, delta = self.partition.base, self.table.delta
        if base is None:
            return
        for key in (option_keys.PARTITION_TIMESTAMP_PATTERN, option_keys.PARTITION_TIMESTAMP_FORMATTER):
            if key.of(delta.options) is None:
                raise UnsupportedTableError(
                    f"{self.table.name} has no '{key}', without which Java merges no partitions of a chain table.",
                    advice="Set it.",
                )
        times = PartitionTimes(delta)
        first, last = times.exact_nanos(base), times.exact_nanos(self.partition.row)
        for row in sorted(self.partition.chain):
            time = times.exact_nanos(row)
            is_between = first is not None and last is not None and time is not None and first < time <= last
            if is_between is not (row in self.partition.merged):
                raise UnsupportedTableError(
                    f"Partition {self._values(row)} of the delta branch of {self.table.name} has the time "
                    f"'{times.text(row)}', by which Java {'merges' if is_between else 'does not merge'} it, and by its "
                    f"values it is {'not ' if is_between else ''}after {self._values(base)} and up to "
                    f"{self._values(self.partition.row)}.",
                    advice="Make the times of the partitions, which the options 'partition.timestamp-*' name, grow "
                    "with their values.",
                )

    def check_buckets(self) -> None:
        """Later partitions are merged with this one bucket by bucket. Raises UnsupportedTableError if they can be read
        now, and could not be read any more.
        """
        count = self.table.target.total_buckets
        merged = {int(split.total_buckets) for split in self.partition.splits}
        if count not in merged and self.partition.later_buckets & merged:
            raise UnsupportedTableError(
                f"Partition {self._values(self.partition.row)} would have {count} buckets, as the option 'bucket' of "
                f"{self.table.target.name} says, and partitions of the delta branch after it have {max(merged)}, so "
                "that they could not be merged with it any more.",
                advice="Set the option to their number, or merge the last partition with that number first.",
            )

    def commit(self, messages: Sequence[CommitMessage]) -> int | None:
        """Returns the snapshot; None: there was nothing to write or to replace."""
        target, name = self.table.target, self.table.target.name
        what = f"The merge of partition {self._values(self.partition.row)} of {self.table.name}"
        plan = PartitionReplacement(data_changes(target, messages), self._replaced, keep_empty=False)
        advice = f"Look at the latest snapshot of {name}, and merge it again with overwrite=True"
        return commit_planned(target, messages, plan, what, advice).snapshot_id

    def changed_deltas(self) -> int | None:
        """The first snapshot of the delta branch since the merge that changes what was merged; None: there is none."""
        directory = self.table.stream.new_directory()
        latest = directory.snapshots.get_latest_snapshot()
        return _first_change(directory, self.delta, latest, lambda row: self._is_inside(row, with_base=False))

    def _replaced(self, state: TableState) -> set[bytes]:
        """The partition in all its forms. Raises CommitConflictError if it, or what it is made of, has changed."""
        table, inside = self.table, self._is_inside
        for each in (table.delta, table.target):
            if int(each.new_directory().latest_schema().id) != int(each.schema.id):
                raise CommitConflictError(
                    f"{each.name} has got another schema meanwhile, so this merge was not committed.",
                    advice="Merge it again.",
                )
        others = _first_change(state.directory, self.whole, state.snapshot, lambda row: inside(row, with_base=True))
        deltas = self.changed_deltas() if others is None else None
        if others is not None or deltas is not None:
            branch, number = ("snapshot", others) if others is not None else ("delta", deltas)
            raise CommitConflictError(
                f"Snapshot {number} of the {branch} branch of {table.name} changes partition "
                f"{self._values(self.partition.row)}, or one that it is made of, so this merge was not committed.",
                advice="Merge it again.",
            )
        return all_forms({self.partition.row}, state.partition_fields)

    def _is_inside(self, row: bytes, *, with_base: bool) -> bool:
        """Whether a partition is this one, or may be part of it."""
        fields, keys = self.table.delta.partition_fields, self.table.starts.chain_keys(self.table.delta.schema)
        (place,) = places_in_chain(self.partition.row, [row], fields, keys)
        if place not in (-1, 0) or self.partition.base is None:
            return place in (-1, 0)
        (after_base,) = places_in_chain(self.partition.base, [row], fields, keys)
        return after_base in ((0, 1) if with_base else (1,))

    def _values(self, row: bytes) -> dict[str, Any]:
        table = self.table.delta
        return dict(zip(table.partition_keys, decode(row, table.partition_fields), strict=True))


def _first_change(
    directory: TableDirectory, since: Snapshot | None, latest: Snapshot | None, concerns: Callable[[bytes], bool]
) -> int | None:
    """The first later snapshot that changes rows of partitions, or that has expired; the earlier one if it was rolled
    back.
    """
    known = 0 if since is None else since.id
    last = 0 if latest is None else latest.id
    if last < known:
        return known
    # A table that was rolled back may have got later snapshots since.
    there = None if since is None else directory.snapshots.refreshed(known)
    if since is not None and there is not None and not there.is_same_commit(since):
        return known
    for number in range(known + 1, last + 1):
        found = directory.snapshots.try_get(number)
        if found is None:
            return number
        if found.commit_kind == COMPACT:
            continue
        try:
            entries = directory.manifests.entries(directory.manifests.manifest_list(found.delta_manifest_list))
        except FileNotFoundError:
            # It has expired meanwhile.
            return number
        if any(map(concerns, set(entries["partition"].to_pylist()))):
            return number
    return None


def _check_mergeable(name: str, delta: PaimonTable, target: PaimonTable) -> None:
    check_compactable(target)
    # Raises if a column holds blobs, whose rows can be compacted and not be written.
    blob_forms(target.schema)
    if target.bucket_mode != BucketMode.HASH_FIXED:
        raise UnsupportedTableError(f"{target.name} has no fixed number of buckets, as branches of chain tables have.")
    for each in (delta, target):
        traits = each.traits
        if not traits.merge_engine.keeps_newest:
            raise UnsupportedTableError(
                f"{each.name} has merge engine {traits.merge_engine.value}, whose partitions are not merged here: it "
                "must be deduplicate."
            )
        if traits.producer not in _PRODUCERS:
            raise UnsupportedTableError(
                f"{each.name} has 'changelog-producer' = '{traits.producer.value}', which chain tables do not have."
            )
        if traits.snapshot_ordering:
            raise UnsupportedTableError(
                f"{each.name} has '{option_keys.SEQUENCE_SNAPSHOT_ORDERING}', and snapshots of two branches have no "
                "order."
            )
        if option_keys.QUERY_AUTH_ENABLED.of(each.options):
            raise UnsupportedTableError(
                f"{each.name} has '{option_keys.QUERY_AUTH_ENABLED}': rows and values that its catalog hides would be "
                "lost."
            )
    if _columns(delta.fields) != _columns(target.fields) or delta.partition_keys != target.partition_keys:
        raise UnsupportedTableError(
            f"The branches of {name} have different columns: {', '.join(_columns(delta.fields))} and "
            f"{', '.join(_columns(target.fields))}.",
            advice="Give both the same columns, in the same order.",
        )


def _columns(fields: Sequence[DataField]) -> list[str]:
    return [f"{field.name} {str(field.type).removesuffix(' NOT NULL')}" for field in fields]


def _added(result: CompactionResult) -> CommitMessage:
    bucket = result.bucket
    return CommitMessage(bucket.partition, bucket.bucket, result.after, total_buckets=bucket.total_buckets)
