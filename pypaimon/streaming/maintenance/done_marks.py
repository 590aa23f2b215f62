"""`mark_partitions_done`: files `_SUCCESS` in partitions that are complete, as Java writes them.

Java's rules: docs/java-semantics.md#maintenance.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.partition_spec import partition_row
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.partition_files import PartitionFiles
from pypaimon.streaming.maintenance.partitions import GivenPartition
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.partition_times import PartitionTimes
from pypaimon.streaming.metadata.snapshots import SnapshotManager
from pypaimon.streaming.model.json_fields import parse_fields
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_LOG = StreamLog(__name__)
_NAME, _ACTION = "_SUCCESS", "success-file"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CREATED, _MODIFIED = "creationTime", "modificationTime"
_IDLE, _INTERVAL = option_keys.PARTITION_IDLE_TIME_TO_DONE, option_keys.PARTITION_TIME_INTERVAL


def mark_partitions_done(table: WritableTable, partitions: GivenPartition | Iterable[GivenPartition]) -> list[str]:
    """Mark partitions as done: write a file `_SUCCESS` into the directory of each. Blocks.

    A partition that was marked before keeps its first time. Other actions of `partition.mark-done-action` are not
    carried out; a warning names them.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        partitions: Values of all partition columns: of the column's type, None for null, or a text; of one partition
            or several, which need not have rows.

    Returns:
        The paths of the files.

    Raises:
        StreamConfigError: A column is missing or is not a partition column, or a value does not fit; nothing was
            written.
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("mark_partitions_done: table", table))
    listed = [partitions] if isinstance(partitions, Mapping) else list(partitions)
    if not listed:
        raise StreamConfigError("partitions: expected at least one, got none.")
    rows = [partition_row(given.schema, each, "partitions") for each in listed]
    _warn_of_other_actions(given)
    marks = DoneMarks(given)
    paths = marks.paths(rows)
    marks.write(paths)
    return paths


class DoneMarks:
    """The done marks of one table."""

    def __init__(self, table: PaimonTable) -> None:
        self._table = table
        self._store = table.new_directory().store
        # Java has the marks below the table's own directory, even if the data is elsewhere.
        self._paths = replace(table.paths, data_directory=None)

    def paths(self, rows: Sequence[bytes]) -> list[str]:
        """The paths of the marks of serialised partitions."""
        return [f"{home}/{_NAME}" for home in self._paths.partitions(pa.array(rows, pa.binary()))]

    def write(self, paths: Sequence[str]) -> None:
        """Write marks. Those that exist get a new time of modification.

        Raises:
            StoreError: The store failed; some may have been written (retriable).
        """
        now = time.time_ns() // 1_000_000
        for path, data in zip(paths, self._store.read_many(paths), strict=True):
            created, _ = _times(data)
            value = {_CREATED: now if created is None else created, _MODIFIED: now}
            self._store.write_atomic(path, json.dumps(value, indent=2, separators=(",", " : ")).encode())

    def due(self, partitions: Sequence[PartitionFiles], now: datetime) -> list[PartitionFiles]:
        """The partitions that are idle and not marked since their last write.

        A partition is idle if `partition.idle-time-to-done` has passed since its last write, and since it ended, that
        is `partition.time-interval` after it began. By watermark, that counts up to the watermark of the latest
        snapshot, with the begin in UTC and the watermark of the commit in place of the time of the last write.

        Raises:
            StreamConfigError: An option cannot be parsed.
            UnsupportedTableError: A part of the format of times is not supported.
        """
        options = self._table.options
        idle, interval = _IDLE.of(options), _INTERVAL.of(options)
        if idle is None or interval is None or not self._table.partition_keys or self._is_left_out():
            return []
        times = PartitionTimes(self._table)
        by_watermark = option_keys.PARTITION_MARK_DONE_ACTION_MODE.of(options) == "watermark"
        watermarks = _Watermarks(self._table.new_directory().snapshots) if by_watermark else None
        clock = (now - _EPOCH) // timedelta(milliseconds=1) if watermarks is None else watermarks.latest
        if clock is None:
            return []
        latest, found = clock - idle, []
        for each in partitions:
            begin = times.nanos(each.stored[0])
            last = each.last_write_millis
            if begin is None or last is None:
                continue
            local = begin // 1_000_000 + interval
            end = self._table.zone.millis(local) if watermarks is None else local
            if end < latest and (watermarks is not None or last < latest):
                found.append((each, last))
        marks = self._store.read_many(self.paths([each.stored[0] for each, _ in found]))
        modified = [_times(data)[1] for data in marks]
        unmarked = [(each, last) for (each, last), at in zip(found, modified, strict=True) if at is None or at < last]
        return [each for each, last in unmarked if watermarks is None or watermarks.at(last) < latest]

    def _is_left_out(self) -> bool:
        return _ACTION not in _warn_of_other_actions(self._table)


class _Watermarks:
    """The watermarks of a table's snapshots."""

    def __init__(self, snapshots: SnapshotManager) -> None:
        self._snapshots = snapshots
        latest = snapshots.get_latest_snapshot()
        self.latest: int | None = None if latest is None else latest.watermark

    def at(self, millis: int) -> int:
        """The watermark of the commit of a file that was written at a time.

        If its snapshot has expired, that of a later one, so that a partition is rather marked too late.
        """
        before = self._snapshots.earlier_than_time_millis(millis)
        later = (each for each in self._snapshots.list_ids() if before is None or each > before.id)
        snapshot = next((each for each in map(self._snapshots.try_get, later) if each is not None), None)
        if snapshot is None:
            return self.latest or 0
        # Before the first watermark nothing is late.
        return -(2**63) if snapshot.watermark is None else snapshot.watermark


def _warn_of_other_actions(table: PaimonTable) -> list[str]:
    """Log the actions that are not carried out here. Returns all."""
    key = option_keys.PARTITION_MARK_DONE_ACTION
    actions = [each.strip() for each in (key.of(table.options) or _ACTION).split(",")]
    others = ", ".join(each for each in actions if each != _ACTION)
    if others:
        text = "only the action 'success-file' of '%(option)s' is carried out; have Java do %(others)s"
        _LOG.warning("done_marks_left_out", text, table=table.name, option=str(key), others=others)
    return actions


def _times(data: bytes | None) -> tuple[int | None, int | None]:
    """When a mark was first and last written; None if there is none, or another program wrote something else."""
    if data is None:
        return None, None
    try:
        fields = parse_fields(data, "done mark")
        return fields.get(_CREATED, int), fields.get(_MODIFIED, int)
    except ValueError:
        return None, None
