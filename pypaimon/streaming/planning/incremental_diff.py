"""`IncrementalDiffScanner`: the difference of two snapshots, without reading those in between."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.data_file_meta import manifest_entries
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifests import live, without
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import options_of_table
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import ManifestEntry
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans

_FROM_APPEND = 0


class IncrementalDiffScanner:
    """Plans the difference of two snapshots. For append tables, manifests that both share are not read.

    Usable alone: `IncrementalDiffScanner(table).scan(5, 20)`. For a table without primary key the plan holds the data
    files that exist at the end and not at the start, also those that a compaction or an overwrite wrote (a stream
    collapses a range only if there are none). For a primary-key table it holds one change per key between the committed
    rows at both ends, also of those that no compaction has made changelog of yet. Snapshots are given as ids or as
    snapshot objects, ours or pypaimon's.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: ReadableTable, plans: SnapshotPlans | None = None) -> None:
        if plans is None:
            directory = TableDirectory.of(table)
            schema = directory.reading_schema(directory.latest_schema().id)
            options = options_of_table(schema)
            plans = SnapshotPlans(directory, schema, options)
        self._plans, self._directory = plans, plans.directory

    def scan(self, start_snapshot: Snapshot | int, end_snapshot: Snapshot | int) -> Plan:
        """Plan the changes after `start_snapshot` up to and with `end_snapshot`.

        Raises:
            StreamConfigError: The start is not before the end.
            UnsupportedTableError: The table has data evolution, so files in between hold columns of earlier rows. Or
                buckets of a primary-key table were rescaled in between.
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        if self._plans.traits.data_evolution:
            raise UnsupportedTableError(
                "Two snapshots of a table with data evolution cannot be compared: files in between hold "
                "columns of earlier rows. Follow the table with a stream instead."
            )
        start, end = self._snapshot(start_snapshot), self._snapshot(end_snapshot)
        if start.id >= end.id:
            raise StreamConfigError(f"start snapshot {start.id} must be before end snapshot {end.id}")
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
        """The data files that exist at the end and not at the start, as pypaimon's entries.

        Works for any table. The entries are in no order and without statistics.

        Raises:
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        entries = self.added(self._snapshot(start_snapshot), self._snapshot(end_snapshot))
        paths = FilePaths.of(self._directory.table.table_path, self._plans.schema)
        return manifest_entries(entries, paths, self._plans.schema)

    def added(self, start: Snapshot | None, end: Snapshot) -> pa.Table:
        """Entries of the data files that exist at the end and not at the start (None: an empty table)."""
        reader = self._directory.manifests
        after = pa.concat_tables(reader.manifest_lists(end.state_lists))
        if start is None:
            return live(reader.entries(after))
        before = pa.concat_tables(reader.manifest_lists(start.state_lists))
        entries_after = live(reader.entries(without(after, before)))
        entries_before = reader.entries(without(before, after))
        known = entries_before.filter(pc.equal(entries_before["kind"], EntryKind.ADD))
        return without(entries_after, known)

    def rows_appended(self, start: Snapshot | None, end: Snapshot) -> int:
        """Rows of the files that `added` finds and an append wrote, not a compaction or an unknown source."""
        added = self.added(start, end)
        appended = added.filter(pc.equal(added["file_source"], _FROM_APPEND))
        return int(pc.sum(appended["row_count"]).as_py() or 0)

    def _snapshot(self, snapshot: Any) -> Snapshot:
        """Our snapshot object for an id or a snapshot of pypaimon."""
        if isinstance(snapshot, Snapshot):
            return snapshot
        return self._directory.snapshots.get(snapshot if isinstance(snapshot, int) else snapshot.id)
