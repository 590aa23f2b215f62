"""The plans of one stream's snapshots, by the schema that each is read with."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.filtering.field_paths import rebound_filter
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.planning.planner_log import PlannerLog
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.planning.prepared import LastPrepared
from pypaimon.streaming.planning.schema_change import SchemaPolicy
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans


class PlansBySchema:
    """Makes and keeps `SnapshotPlans`: one for each schema that is read with, its filter under that schema's names.

    Args:
        directory: The table.
        schemas: Which schema a snapshot is read with.
        options: The stream's settings; its filter is under the names of the stream's first schema.
        last_prepared: What was prepared last, where planners with other limits go on with it.
        log: Told when another schema is followed to.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schemas: SchemaPolicy,
        options: StreamOptions,
        last_prepared: LastPrepared | None,
        log: PlannerLog,
    ) -> None:
        self._directory = directory
        self._schemas = schemas
        self._options = options
        self._last_prepared = last_prepared or LastPrepared()
        self._log = log
        self._plans: dict[tuple[int, int | None], SnapshotPlans] = {}

    def forget(self) -> None:
        """Make them anew: a rollback may have changed the schemas."""
        self._plans.clear()
        self._last_prepared.held = None

    def of(self, schema_id: int | None = None, created_after: int | None = None) -> SnapshotPlans:
        """Plans under a schema.

        Args:
            schema_id: The schema; None: the stream's first one.
            created_after: Only files created at this time or later, epoch milliseconds; None: all.

        Raises:
            SchemaChangedError: A field that the filter looks at was dropped.
        """
        schema = self._schemas.of(schema_id)
        key = schema.id, created_after
        if key not in self._plans:
            predicate = rebound_filter(self._options.predicate, self._schemas.first, schema)
            options = replace(self._options, predicate=predicate)
            self._plans[key] = SnapshotPlans(self._directory, schema, options, created_after, self._last_prepared)
        return self._plans[key]

    def reading(self, state: PlannerState, snapshot: Snapshot) -> tuple[SnapshotPlans, PlannerState]:
        """Plans under the schema to read a snapshot with, and the state, which has followed to that schema.

        Raises:
            SchemaChangedError: What is read has changed and the policy is to fail; or a read column was dropped.
            TableChangedError: The first schema was rolled back, and another one has its id.
        """
        schema_id = self._schemas.for_snapshot(state.schema_id, snapshot.schema_id)
        if schema_id is not None and schema_id != state.schema_id:
            self._log.schema_followed(self._schemas.of(state.schema_id).id, schema_id, snapshot)
            state = replace(state, schema_id=schema_id)
        return self.of(state.schema_id, state.created_after), state

    def plan(
        self,
        splits: list[StreamSplit],
        kind: PlanKind,
        snapshot: Snapshot,
        position: Position,
        schema_id: int | None,
    ) -> Plan:
        """A plan to hand out.

        Args:
            splits: What it holds; each gets the snapshot, filter and columns, and the schema if that was followed to.
            kind: How it came about.
            snapshot: Its last snapshot.
            position: Behind it.
            schema_id: The schema that it is read with; None: the stream's first one.
        """
        schema = self._schemas.of(schema_id)
        for split in splits:
            split.fingerprint = snapshot.fingerprint
            split.planned_for = self._options.planned_for
            split.schema = split.schema if schema_id is None else schema
        return Plan(
            splits,
            kind=kind,
            snapshot_id=snapshot.id,
            position=position,
            schema=schema,
            watermark=snapshot.watermark,
            planned_for=self._options.planned_for,
            commit_time_millis=snapshot.time_millis,
        )
