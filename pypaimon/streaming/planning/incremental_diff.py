"""`IncrementalDiffScanner`: what differs between two snapshots, without reading those in between."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import ManifestEntry
from pypaimon.streaming.metadata.data_file_meta import manifest_entries
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifests import live, without
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import options_of_table
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans

_FROM_APPEND = 0


class IncrementalDiffScanner:
    """Plans what two snapshots differ in. Manifests that both share are not read for append tables.

    Usable alone: `IncrementalDiffScanner(table).scan(5, 20)`. For a table without primary key the plan holds the data
    files that are there at the end and were not at the start, also those that a compaction or an overwrite wrote (a
    stream collapses a range only where there are none). For a primary-key table it gives one change per key, between
    all that was committed at both ends, also what no compaction has made changelog of yet. Snapshots are given as ids,
    or as they are, ours or pypaimon's.

    Args:
        table: pypaimon's table.
        plans: Plans of single snapshots for a stream's filter and shard; default: the whole table.
    """

    def __init__(self, table: Any, plans: SnapshotPlans | None = None) -> None:
        if plans is None:
            directory = TableDirectory.of(table)
            schema = directory.reading_schema(directory.latest_schema().id)
            options = options_of_table(schema)
            plans = SnapshotPlans(directory, schema, options)
        self._plans, self._directory = plans, plans.directory

    def scan(self, start_snapshot: Snapshot | int, end_snapshot: Snapshot | int) -> Plan:
        """Plan the changes after `start_snapshot` up to and with `end_snapshot`.

        Raises:
            StreamConfigError: The start does not lie before the end.
            UnsupportedTableError: The table has data evolution: files in between hold columns of earlier rows. Or
                buckets of a primary-key table were rescaled in between.
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        if self._plans.traits.data_evolution:
            raise UnsupportedTableError(
                "Two snapshots of a table with data evolution cannot be compared: files that were added in between "
                "hold columns of rows that were there before. Follow the table with a stream instead."
            )
        start, end = self._snapshot(start_snapshot), self._snapshot(end_snapshot)
        if start.id >= end.id:
            raise StreamConfigError(f"start snapshot {start.id} must lie before end snapshot {end.id}")
        if self._plans.traits.primary_key:
            kind, planned = PlanKind.NET, self._plans.diff(start, end, kinds=True)
        else:
            kind, planned = PlanKind.COLLAPSED, self._plans.added_files(lambda: self.added(start, end), end)
        return Plan(
            planned.splits,
            kind=kind,
            snapshot_id=end.id,
            position=Position(self._directory.identity, end.id + 1, end.fingerprint),
            schema=self._plans.schema,
            watermark=end.watermark,
            commit_time_millis=end.time_millis,
        )

    def compute_diff(self, start_snapshot: Snapshot | int, end_snapshot: Snapshot | int) -> list[ManifestEntry]:
        """The data files that are there at the end and were not at the start, as pypaimon's entries.

        Of any table; in no order, and without statistics.

        Raises:
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        entries = self.added(self._snapshot(start_snapshot), self._snapshot(end_snapshot))
        paths = FilePaths.of(self._directory.table.table_path, self._plans.schema)
        return manifest_entries(entries, paths, self._plans.schema)

    def added(self, start: Snapshot | None, end: Snapshot) -> pa.Table:
        """Entries of the data files that are there at the end and were not at the start (None: an empty table)."""
        reader = self._directory.manifests
        after = pa.concat_tables(reader.manifest_lists([end.base_manifest_list, end.delta_manifest_list]))
        if start is None:
            return live(reader.entries(after))
        before = pa.concat_tables(reader.manifest_lists([start.base_manifest_list, start.delta_manifest_list]))
        entries_after = live(reader.entries(without(after, before)))
        entries_before = reader.entries(without(before, after))
        known = entries_before.filter(pc.equal(entries_before["kind"], EntryKind.ADD))
        return without(entries_after, known)

    def rows_appended(self, start: Snapshot | None, end: Snapshot) -> int:
        """Rows of those files that came from appending: neither from a compaction nor of unknown source."""
        added = self.added(start, end)
        appended = added.filter(pc.equal(added["file_source"], _FROM_APPEND))
        return int(pc.sum(appended["row_count"]).as_py() or 0)

    def _snapshot(self, snapshot: Any) -> Snapshot:
        """Ours of an id, or of pypaimon's own."""
        if isinstance(snapshot, Snapshot):
            return snapshot
        return self._directory.snapshots.get(snapshot if isinstance(snapshot, int) else snapshot.id)
