"""The snapshots of the first plan of a chain table: one of its snapshot branch and one of its delta branch.

Java's rules: docs/java-semantics.md#chain-tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pypaimon.streaming.errors import StoreError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.table_traits import ChainBranches
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.planning.planner_state import ChainStart
from pypaimon.streaming.planning.start import ResolvedStart

_LOOKS = 8


class ChainStarts:
    """Finds the two snapshots, and finds them again at a position inside the first plan.

    Args:
        directory: The delta branch.
        schema: The schema to read with: that of the delta branch.

    Attributes:
        chain: The branches.
        directory: The snapshot branch.
        checks: Checks of its snapshots.
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

    def find(self) -> ResolvedStart:
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
            if _fingerprint(before) == _fingerprint(after):
                return self._start(after, delta, merged)
            before = after
        raise StoreError(f"Branch '{self.chain.snapshot}' changed during each of {_LOOKS} reads; retry.")

    def _start(self, snapshot: Snapshot | None, delta: Snapshot | None, merged: bool) -> ResolvedStart:
        first = self._first(snapshot, delta)
        if first is None:
            return ResolvedStart(1)
        return ResolvedStart(first.id + 1, first, chain=ChainStart(snapshot, merged))

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
        """The snapshot of the delta branch; if that is empty, a snapshot 0 without files; None if both are empty.

        It has no watermark, as in Java, because it stands for both branches.
        """
        if delta is not None:
            return replace(delta, watermark=None, total_record_count=None)
        if snapshot is None:
            return None
        return replace(snapshot, id=0, schema_id=self._schema.id, watermark=None, total_record_count=None)


def _fingerprint(snapshot: Snapshot | None) -> tuple[int, str] | None:
    return None if snapshot is None else (snapshot.id, snapshot.fingerprint)
