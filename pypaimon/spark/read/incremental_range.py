"""`incremental-between` and its relatives: which snapshots a batch range holds, and what is read of them.

Java's rules: docs/java-semantics.md#batch-ranges. Two ids `a,b` are what happened after a, up to
b; a may be the snapshot just before the earliest. Two tags are the difference of their states, whatever the mode, and
live without their snapshots; with `incremental-between-tag-to-snapshot` they stand for their ids. A time stands for the
newest snapshot that is not younger; before the earliest, for the snapshot just before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from pypaimon.spark.read.engine_builder import EngineReadBuilder
from pypaimon.spark.read.time_travel import snapshot_with_id
from pypaimon.streaming.errors import (
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    UnsupportedTableError,
)
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.table_traits import ChangelogProducer
from pypaimon.streaming.planning.follow_up import CommitKind
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans

BETWEEN, BETWEEN_TIMES = "incremental-between", "incremental-between-timestamp"
MODE, TAG_TO_SNAPSHOT = "incremental-between-scan-mode", "incremental-between-tag-to-snapshot"
_FIRST_SNAPSHOT = 1


@contextmanager
def still_there(builder: EngineReadBuilder, snapshot: Snapshot) -> Iterator[None]:
    """Tell a manifest that expired with its snapshot from one that is missing in a damaged table."""
    try:
        yield
    except FileNotFoundError as error:
        checks = RangeCheck(builder.directory, False)
        raise checks.missing_file(snapshot.id, error, snapshot.fingerprint) from error


class IncrementalRange:
    """Plans what happened between two ends of a table's history.

    Args:
        builder: The read.
        values: The options as they were given.
        state: Plans the state at a snapshot.
    """

    def __init__(
        self, builder: EngineReadBuilder, values: OptionValues, state: Callable[[Snapshot], list[StreamSplit]]
    ) -> None:
        self._builder = builder
        self._snapshots = builder.directory.snapshots
        self._plans = SnapshotPlans(builder.directory, builder.schema, builder.options)
        self._values = values
        self._state = state
        self._mode = values.one_of(MODE, ("auto", "delta", "changelog", "diff"), "auto")
        if self._mode == "auto":
            self._mode = "delta" if builder.traits.producer is ChangelogProducer.NONE else "changelog"

    def splits(self, key: str) -> list[StreamSplit]:
        """The splits of the range that option `key` names.

        Raises:
            StreamConfigError: The option does not name a range.
            PositionExpiredError: A snapshot of it has expired.
            PositionBeyondLatestError: It ends behind the latest snapshot.
            UnsupportedTableError: The states of such a table cannot be compared.
        """
        text = self._values.text(key) or ""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 2 or not all(parts):
            what = "times" if key == BETWEEN_TIMES else "snapshots or tags"
            raise StreamConfigError(f"Option '{key}' = '{text}': give two {what}, 'start,end'.")
        if key == BETWEEN_TIMES:
            return self._between_times(*(self._millis(key, part) for part in parts))
        ids = [_id(part) for part in parts]
        start, end = ids
        if start is None or end is None:
            return self._between_tags(*parts)
        if end < start:
            raise StreamConfigError(f"Option '{key}' = '{text}': the start lies after the end; swap them.")
        if start == end or self._snapshots.latest_id() is None:
            return []
        return self._diff_of_ids(start, end) if self._mode == "diff" else self._changes(start, end)

    def _between_tags(self, start_name: str, end_name: str) -> list[StreamSplit]:
        directory = self._builder.directory
        start, end = directory.tag(start_name), directory.tag(end_name)
        if start is None or end is None:
            known = ", ".join(directory.tag_names()) or "none"
            raise StreamConfigError(
                f"Option '{BETWEEN}' = '{start_name},{end_name}': these are neither two tags nor two snapshot ids; "
                f"tags are: {known}."
            )
        if self._values.boolean(TAG_TO_SNAPSHOT, False):
            if self._mode == "diff":
                raise StreamConfigError(
                    f"Options '{MODE}' = 'diff' and '{TAG_TO_SNAPSHOT}' contradict each other: two tags are a "
                    "difference of states without the second."
                )
            return self._changes(start.id, end.id)
        if end.id < start.id:
            raise StreamConfigError(
                f"Option '{BETWEEN}': tag '{start_name}' (snapshot {start.id}) lies after tag '{end_name}' "
                f"(snapshot {end.id}); swap them."
            )
        return [] if start.id == end.id else self._diff(start, end)

    def _between_times(self, start: int, end: int) -> list[StreamSplit]:
        if end < start:
            raise StreamConfigError(f"Option '{BETWEEN_TIMES}': the start lies after the end; swap them.")
        latest, earliest = self._snapshots.get_latest_snapshot(), self._snapshots.try_get_earliest_snapshot()
        if latest is None or earliest is None:
            return []
        if start == end or start > latest.time_millis or end < earliest.time_millis:
            return []
        first = self._snapshots.earlier_or_equal_time_mills(start)
        last = self._snapshots.earlier_or_equal_time_mills(end) or latest
        if self._mode != "diff":
            return self._changes(earliest.id - 1 if first is None else first.id, last.id)
        if first is None and earliest.id == _FIRST_SNAPSHOT:
            return self._state(last)
        return self._diff(earliest if first is None else first, last)

    def _millis(self, key: str, part: str) -> int:
        """Epoch milliseconds, or a local time as text."""
        if part.isdecimal():
            return int(part)
        millis = OptionValues({key: part}).local_timestamp_millis(key)
        assert millis is not None
        return millis

    def _changes(self, start: int, end: int) -> list[StreamSplit]:
        """What the snapshots after `start`, up to `end`, hold, as each was committed."""
        earliest, latest = self._snapshots.earliest_id(), self._snapshots.latest_id()
        if earliest is None or start < earliest - 1:
            raise PositionExpiredError(start + 1, earliest, latest)
        if latest is None or end > latest:
            raise PositionBeyondLatestError(end, latest)
        wanted = [snapshot for snapshot in self._between(start, end) if self._is_read(snapshot)]
        if not wanted:
            return []
        changelog = self._mode == "changelog"
        lists = [each.changelog_manifest_list if changelog else each.delta_manifest_list for each in wanted]
        # A missing manifest is told with the snapshot that needs it.
        with suppress(FileNotFoundError):
            self._plans.prefetch([each for each in lists if each])
        if not changelog and self._builder.traits.data_evolution:
            return self._joined(wanted)
        return [split for snapshot in wanted for split in self._planned(snapshot).splits]

    def _between(self, start: int, end: int) -> Iterator[Snapshot]:
        """The snapshots after `start`, up to `end`, asked for at the same time."""
        found = self._snapshots.get_snapshots_batch(range(start + 1, end + 1))
        for snapshot_id, snapshot in found.items():
            yield snapshot if snapshot is not None else snapshot_with_id(self._builder.directory, snapshot_id)

    def _is_read(self, snapshot: Snapshot) -> bool:
        if self._mode == "delta":
            return bool(snapshot.commit_kind == CommitKind.APPEND)
        return snapshot.commit_kind != CommitKind.OVERWRITE and snapshot.changelog_manifest_list is not None

    def _planned(self, snapshot: Snapshot) -> PlannedSplits:
        with still_there(self._builder, snapshot):
            return self._plans.changelog(snapshot) if self._mode == "changelog" else self._plans.delta(snapshot)

    def _joined(self, snapshots: list[Snapshot]) -> list[StreamSplit]:
        """The files of all snapshots as one plan: columns that were written later go to the rows appended before."""
        entries = []
        for snapshot in snapshots:
            with still_there(self._builder, snapshot):
                entries.append(self._plans.entries_added(snapshot))
        return self._plans.added_files(pa.concat_tables(entries), snapshots[-1]).splits

    def _diff_of_ids(self, start: int, end: int) -> list[StreamSplit]:
        directory = self._builder.directory
        return self._diff(snapshot_with_id(directory, start), snapshot_with_id(directory, end))

    def _diff(self, start: Snapshot, end: Snapshot) -> list[StreamSplit]:
        if self._builder.traits.data_evolution:
            raise UnsupportedTableError(
                "Two states of a table with data evolution cannot be compared: its files hold columns of rows. Set "
                f"'{MODE}' to 'delta' and name two snapshots, or compare two reads with 'scan.snapshot-id'."
            )
        # Its files are on both sides, so the earlier one is the first to expire.
        with still_there(self._builder, start):
            return self._plans.diff(start, end).splits


def _id(part: str) -> int | None:
    return int(part) if part.removeprefix("-").isdecimal() else None
