"""The first plan of a chain table: the newest whole partition of each chain, and the changes after it. Also what batch
reads of Java merge for one partition (`ChainPartition`).

Both read one snapshot of the snapshot branch and one of the delta branch. Java's rules:
docs/java-semantics.md#chain-tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import StoreError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.formats.binary_row import decode_columns
from pypaimon.streaming.metadata.data_file_meta import OWN_PARTITION
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import BranchFiles, SplitMode, StreamSplit
from pypaimon.streaming.model.position import Position, ReadUnit
from pypaimon.streaming.options.table_traits import ChainBranches
from pypaimon.streaming.paimon.internals import DataField, DeletionFile, TableSchema
from pypaimon.streaming.planning.planned_units import PlannedUnits, without_statistics
from pypaimon.streaming.planning.planner_state import ChainStart, Following, ReadingFull
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans
from pypaimon.streaming.planning.splits import OF_BRANCH
from pypaimon.streaming.planning.units import DeletionFiles, column, whole_buckets

# Java gives up after three.
_LOOKS = 8


class ChainStarts:
    """Finds the two snapshots, and finds them again at a position inside the first plan.

    Args:
        directory: The delta branch.
        schema: The schema to read with: that of the delta branch.

    Attributes:
        directory: The snapshot branch.
    """

    def __init__(self, directory: TableDirectory, chain: ChainBranches, schema: TableSchema) -> None:
        self.chain = chain
        self.directory = directory.of_branch(chain.snapshot)
        self.checks = SnapshotRangeValidator(self.directory, with_changelogs=False)
        self._delta = directory.snapshots
        self._schema = schema

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Options of the snapshot branch, as they were at the first access, which sends two requests.

        Raises:
            UnsupportedTableError: There is no such branch.
        """
        try:
            newest = self.directory.latest_schema()
        except FileNotFoundError as error:
            raise UnsupportedTableError(
                f"The chain table has no branch '{self.chain.snapshot}', which 'scan.fallback-snapshot-branch' names. "
                f"Create it, or load the branch '{self.chain.delta}' as a table of its own."
            ) from error
        options: Mapping[str, Any] = self.directory.reading_schema(newest.id).options
        return options

    @property
    def _merged(self) -> bool:
        return self.chain.is_merged(self.options)

    def chain_keys(self, schema: TableSchema) -> int:
        """How many of the last partition columns order the partitions of a chain.

        Raises:
            UnsupportedTableError: The options name other columns than the last ones.
        """
        try:
            return len(self.chain.chain_keys(schema.partition_keys, self.options))
        except ValueError as error:
            raise UnsupportedTableError(f"The chain table cannot be streamed: {error}.") from error

    def find(self) -> ReadingFull | Following:
        """The latest snapshots of both branches.

        A partition that is moved from one branch to the other between the two requests would be read twice or not at
        all. So both branches are read until the first has not changed while the other was read.

        Raises:
            StoreError: The snapshot branch changed each time (retriable).
        """
        merged = self._merged
        before = self.directory.snapshots.get_latest_snapshot()
        for _ in range(_LOOKS):
            delta = self._delta.get_latest_snapshot()
            after = self.directory.snapshots.get_latest_snapshot()
            if before == after or (before and after and before.is_same_commit(after)):
                return self._start(after, delta, merged)
            before = after
        raise StoreError(f"Branch '{self.chain.snapshot}' changed during each of {_LOOKS} reads; retry.")

    def _start(self, snapshot: Snapshot | None, delta: Snapshot | None, merged: bool) -> ReadingFull | Following:
        first = self._first(snapshot, delta)
        if first is None:
            return Following(1)
        return ReadingFull(first, chain=ChainStart(snapshot, merged))

    def again(self, position: Position, delta: Snapshot | None) -> tuple[Snapshot, ChainStart]:
        """The snapshots of the first plan at a position inside of it.

        Args:
            delta: The snapshot of the delta branch; None: the branch was empty.

        Raises:
            StreamConfigError: The position is not inside the first plan of a chain table, or that plan was merged in
                another way.
            PositionExpiredError: The snapshot of the snapshot branch is gone.
            TableChangedError: The snapshot branch was rolled back.
        """
        base = position.base
        if base is None:
            raise StreamConfigError(
                f"The position is inside the first plan of branch '{self.chain.delta}'. Load that branch to resume."
            )
        if base.merged is not self._merged:
            raise StreamConfigError(
                "The position is inside the first plan of a chain table that was read with "
                f"'chain-table.streaming.merge-snapshot' = '{str(base.merged).lower()}'. Set the option so, "
                "or start again with with_start(...)."
            )
        snapshot = None
        if base.snapshot:
            snapshot = self.checks.check_before(base.snapshot, base.fingerprint)
            if snapshot is None:
                detail = f"It is a snapshot of branch '{self.chain.snapshot}', of which the first plan is made. "
                raise self.checks.expired(base.snapshot, detail)
        first = self._first(snapshot, delta)
        if first is None:
            raise StreamConfigError(f"not a position: {position.to_json()}. Give what Position.to_json() wrote.")
        return first, ChainStart(snapshot, base.merged)

    def _first(self, snapshot: Snapshot | None, delta: Snapshot | None) -> Snapshot | None:
        """The snapshot of the delta branch; if that is empty, a snapshot 0 without files; None if both are empty."""
        if delta is not None:
            # It stands for both branches, so it has no watermark, as in Java.
            return replace(delta, watermark=None, total_record_count=None)
        if snapshot is None:
            return None
        return replace(snapshot, id=0, schema_id=self._schema.id, watermark=None, total_record_count=None)


_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_KEPT = "kept"


def first_plan(
    starts: ChainStarts, plans: SnapshotPlans, snapshot: Snapshot, chain: ChainStart, after: ReadUnit | None
) -> PlannedSplits:
    """The next part of the first plan of a chain table.

    Args:
        starts: The snapshot branch.
        snapshot: The snapshot of the delta branch; id 0: the branch was empty.
        chain: What is read of the snapshot branch.

    Raises:
        FileNotFoundError: A manifest of the delta branch is gone.
        PositionExpiredError: The snapshot of the snapshot branch is gone.
        CorruptTableError: A manifest is damaged, or one of the snapshot branch is missing.
        UnsupportedTableError: Partitions that are merged differ in their numbers of buckets; or the options that say
            which partitions are a chain do not name the last partition columns.
    """
    return _splits(
        starts, plans, snapshot, chain, after, lambda: _Branches.at(starts, plans, snapshot, chain).planned()
    )


def _splits(
    starts: ChainStarts,
    plans: SnapshotPlans,
    snapshot: Snapshot,
    chain: ChainStart,
    after: ReadUnit | None,
    planned_units: Callable[[], PlannedUnits],
    of: str = "",
) -> PlannedSplits:
    whole, branch = chain.snapshot, None
    if whole is not None:
        branch = BranchFiles(starts.chain.snapshot, frozenset(), whole.id, whole.fingerprint)
    made_of = f"chain{of} {None if whole is None else whole.fingerprint} {chain.merged}"
    planned, chosen, last = plans.next_part(snapshot, made_of, after, planned_units)
    if not len(chosen):
        return PlannedSplits([])
    splits = plans.factory.splits(planned.units, chosen, SplitMode.CHAIN, snapshot.id, planned.deletions, branch)
    return PlannedSplits(plans.sorted_by_partition(splits), last)


@dataclass(frozen=True, slots=True)
class _Branches:
    """The files of both branches, each at one snapshot."""

    starts: ChainStarts
    plans: SnapshotPlans
    of_base: SnapshotPlans
    whole: pa.Table
    changes: pa.Table
    deletions: dict[tuple[bytes, int, str], DeletionFile]
    merged: bool

    @staticmethod
    def at(starts: ChainStarts, plans: SnapshotPlans, snapshot: Snapshot, chain: ChainStart) -> _Branches:
        of_base = plans.of_branch(starts.directory, starts.options)
        whole, changes = plans.entry_schema.empty_table(), plans.entry_schema.empty_table()
        deletions: dict[tuple[bytes, int, str], DeletionFile] = {}
        if chain.snapshot is not None:
            with starts.checks.reading(chain.snapshot):
                whole = of_base.state(chain.snapshot)
                deletions.update(of_base.deletions(chain.snapshot) or {})
        if snapshot.id:
            changes = plans.state(snapshot)
            deletions.update(plans.deletions(snapshot) or {})
        return _Branches(starts, plans, of_base, whole, changes, deletions, chain.merged)

    def chains(self) -> _Chains:
        plans = self.plans
        return _Chains.of(self.whole, self.changes, plans.partition_fields, self.starts.chain_keys(plans.schema))

    def planned(self) -> PlannedUnits:
        starts, plans, chains = self.starts, self.plans, self.chains()
        # A merged partition holds several versions of a key, so statistics of values may drop none of its files.
        scan: Scan = "delta" if self.merged else "full"
        parts = []
        for side, entries in ((self.of_base, self.whole), (plans, self.changes)):
            is_base = side is self.of_base
            entries = chains.chosen(entries, is_base)
            entries = entries.append_column(_KEPT, pa.array(side.selection.kept(entries, scan)))
            parts.append(entries.append_column(OF_BRANCH, pa.array(np.full(entries.num_rows, is_base))))
        both = pa.concat_tables(parts)
        found: DeletionFiles = self.deletions
        if self.merged:
            both = chains.merged(both)
            _check_same_buckets(both, starts.chain.snapshot, starts.chain.delta)
            found = {(chains.last.get(key[0], key[0]), *key[1:]): file for key, file in self.deletions.items()}
        units = plans.ordered(both, whole_buckets)
        kept: _Mask = units.entries[_KEPT].to_numpy().astype(bool)
        return PlannedUnits(without_statistics(units, plans.selection.needs_bounds), kept, found)


Place = Literal[-1, 0, 1] | None
"""Of a partition: before another one in the same chain, that one, or after it; None: in another chain."""


@dataclass(frozen=True, slots=True)
class ChainPartition:
    """One partition of the delta branch, with those that batch reads of Java merge into it.

    Attributes:
        row: Its serialised row.
        exists: Whether the snapshot branch has it, so that batch reads merge nothing.
        base: The newest earlier partition of the snapshot branch; None: the chain has none.
        merged: The partitions of the delta branch after `base`, up to this one.
        chain: All partitions of the delta branch in its chain.
        splits: The files of all of these.
        later_buckets: The numbers of buckets of later partitions of the delta branch.
    """

    row: bytes
    exists: bool
    base: bytes | None
    merged: frozenset[bytes]
    chain: frozenset[bytes]
    splits: Sequence[StreamSplit]
    later_buckets: frozenset[int]

    @staticmethod
    def of(
        starts: ChainStarts, plans: SnapshotPlans, snapshot: Snapshot, whole: Snapshot | None, row: bytes
    ) -> ChainPartition | None:
        """The partition at one snapshot of each branch; None: the delta branch does not have it.

        Raises:
            FileNotFoundError: A manifest of the delta branch is gone.
            PositionExpiredError: The snapshot of the snapshot branch is gone.
            UnsupportedTableError: As `first_plan`; or the times of partitions are not in the order of their values, so
                that Java merges others.
        """
        chain = ChainStart(whole, merged=True)
        all_files = _Branches.at(starts, plans, snapshot, chain)
        key_count = starts.chain_keys(plans.schema)

        def places(entries: pa.Table) -> list[Place]:
            encoded = entries["partition"].combine_chunks().dictionary_encode()
            found = places_in_chain(row, encoded.dictionary.to_pylist(), plans.partition_fields, key_count)
            return [found[index] for index in encoded.indices.to_pylist()]

        of_whole, of_changes = places(all_files.whole), places(all_files.changes)
        if 0 not in of_changes:
            return None
        earlier, until, later, of_chain = (
            entries.filter(pa.array([place in wanted for place in found], pa.bool_()))
            for entries, found, wanted in (
                (all_files.whole, of_whole, (-1,)),
                (all_files.changes, of_changes, (-1, 0)),
                (all_files.changes, of_changes, (1,)),
                (all_files.changes, of_changes, (-1, 0, 1)),
            )
        )
        branches = replace(all_files, whole=earlier, changes=until)
        chains = branches.chains()
        read = [partition for partition, kept in zip(chains.partitions, chains.kept, strict=True) if kept]
        bases = int(chains.kept[: chains.bases].sum())
        merged = frozenset(read[bases:])
        planned = _splits(starts, plans, snapshot, chain, None, branches.planned, f" of {row.hex()}")
        assert planned.last is None, "a merge of partitions has no limits"
        in_later = frozenset(map(int, column(later, "total_buckets")))
        base, in_chain = next(iter(read[:bases]), None), frozenset(of_chain["partition"].to_pylist())
        return ChainPartition(row, 0 in of_whole, base, merged, in_chain, planned.splits, in_later)


def places_in_chain(row: bytes, others: Sequence[bytes], fields: Sequence[DataField], key_count: int) -> list[Place]:
    """Where partitions are next to one partition of a chain, whose last `key_count` columns order it."""
    columns = decode_columns(pa.array([row, *others], pa.binary()), fields)
    chain, place = (_ranks(each, 1 + len(others)) for each in (columns[:-key_count], columns[-key_count:]))
    order: list[Any] = np.sign(place - place[0])[1:].tolist()
    return [each if same else None for each, same in zip(order, chain[1:] == chain[0], strict=True)]


@dataclass(frozen=True, slots=True)
class _Chains:
    """Partitions of both branches: which of them are read, and which is the last of each chain.

    Attributes:
        partitions: The distinct partitions, serialised: those of the snapshot branch, then those of the delta branch.
        bases: How many of them are of the snapshot branch.
        place: The place of each partition in its chain; the same for equal values.
        kept: Which are read: of the snapshot branch the newest one of each chain, of the delta branch those after it.
        last: For each partition the newest one of its chain that is read.
    """

    partitions: list[bytes]
    bases: int
    place: _Numbers
    kept: _Mask
    last: dict[bytes, bytes]

    @staticmethod
    def of(whole: pa.Table, changes: pa.Table, fields: Sequence[DataField], key_count: int) -> _Chains:
        """The chains of both branches. The last `key_count` partition columns order one, the others identify it."""
        distinct = [table["partition"].combine_chunks().unique() for table in (whole, changes)]
        partitions, bases = pa.concat_arrays(distinct), len(distinct[0])
        columns = decode_columns(partitions, fields)
        chain, place = _ranks(columns[:-key_count], len(partitions)), _ranks(columns[-key_count:], len(partitions))
        newest = np.full(len(partitions), -1, dtype=np.int64)
        np.maximum.at(newest, chain[:bases], place[:bases])
        kept = place > newest[chain]
        kept[:bases] = place[:bases] == newest[chain[:bases]]
        values = partitions.to_pylist()
        # In the order of their places, so that the newest partition of a chain is put there last.
        newest_of = {int(chain[index]): values[index] for index in np.argsort(place, kind="stable") if kept[index]}
        last = {value: newest_of[int(number)] for value, number in zip(values, chain, strict=True)}
        return _Chains(values, bases, place, kept, last)

    def chosen(self, entries: pa.Table, is_base: bool) -> pa.Table:
        """The entries of one branch that are read, older partitions first."""
        index = self._index(entries, is_base)
        kept = np.flatnonzero(self.kept[index])
        return entries.take(pa.array(kept[np.argsort(self.place[index[kept]], kind="stable")]))

    def merged(self, entries: pa.Table) -> pa.Table:
        """The entries that are read, as if all of them were in the newest partition of their chain."""
        own = entries["partition"].combine_chunks()
        encoded = own.dictionary_encode()
        last = pa.array([self.last[each] for each in encoded.dictionary.to_pylist()], pa.binary())
        place = entries.schema.get_field_index("partition")
        entries = entries.set_column(place, "partition", last.take(encoded.indices).cast(own.type))
        return entries.append_column(OWN_PARTITION, own)

    def _index(self, entries: pa.Table, is_base: bool) -> _Numbers:
        first, end = (0, self.bases) if is_base else (self.bases, len(self.partitions))
        numbers = {partition: first + number for number, partition in enumerate(self.partitions[first:end])}
        encoded = entries["partition"].combine_chunks().dictionary_encode()
        known = np.array([numbers[each] for each in encoded.dictionary.to_pylist()], dtype=np.int64)
        return known[encoded.indices.to_numpy(zero_copy_only=False)] if len(known) else known


def in_chain_order(rows: Sequence[bytes], fields: Sequence[DataField], key_count: int) -> list[bytes]:
    """Partitions, those of each chain in its order."""
    columns = decode_columns(pa.array(rows, pa.binary()), fields)
    return [rows[index] for index in np.argsort(_ranks(columns[-key_count:], len(rows)), kind="stable")]


def _ranks(columns: Sequence[pa.Array], count: int) -> _Numbers:
    """Numbers in Java's order of these values, the same for equal ones."""
    if not columns or not count:
        return np.zeros(count, dtype=np.int64)
    # Imported here because it loads everything that merges rows.
    from pypaimon.streaming.merge.ordering import KeyCodec

    codec = KeyCodec(len(columns))
    codec.fit(columns)
    return np.unique(codec.encode(columns), return_inverse=True)[1].astype(np.int64)


def _check_same_buckets(entries: pa.Table, snapshot_branch: str, delta_branch: str) -> None:
    # Partitions are merged bucket by bucket, so a key must be in the same bucket of all of them.
    buckets: dict[bytes, int] = {}
    for partition, count in zip(entries["partition"].to_pylist(), column(entries, "total_buckets"), strict=True):
        if buckets.setdefault(partition, int(count)) != count:
            raise UnsupportedTableError(
                f"Inconsistent bucket num: partitions of branches '{snapshot_branch}' and '{delta_branch}' that are to "
                f"be merged have {buckets[partition]} and {count} buckets. Write them with one number of buckets, or "
                "set 'chain-table.streaming.merge-snapshot' to false."
            )
