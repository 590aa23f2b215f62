"""The units of a snapshot that a stream reads, how limits cut them into plans, and what is prefetched of them.

`PlannedUnits` holds the units of one snapshot. `KeptUnits` keeps them while limits cut the snapshot into several plans,
because planning it again for each plan would read all its manifests again. `UnitPrefetcher` reads the manifests of
several snapshots together: decoding the columns of many files takes hardly longer than decoding those of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifest_tables import BOUNDS, STATISTICS
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.selection import EntrySelection, filtered
from pypaimon.streaming.planning.splits import Files, SplitFactory
from pypaimon.streaming.planning.units import DeletionFiles, Units, column

_Key = tuple[str, str]
_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]
_MOST_WINDOWS = 3
_MOST_BYTES = 4 << 20
"""Of manifests that are prefetched at once."""
_MOST_ENTRIES = 1 << 12
"""Of snapshots whose units are planned together."""


@dataclass(frozen=True)
class PlannedUnits:
    """The entries of a snapshot in canonical order, and which of them are read.

    Each plan is found by binary search, so its cost does not grow with the snapshot.

    Attributes:
        units: All entries without statistics; an entry that is not read counts for places in a bucket.
        kept: Which entries are read.
        deletions: Where the deletion vectors of the snapshot are; None if they do not count.
        deletions_before: Those of the snapshot before, where files of it are read too.
        of_range: The entries are of a range, which other settings may order differently.
        files: The entries that are read, as files, where they were planned together with others; else None.
    """

    units: Units
    kept: _Mask
    deletions: DeletionFiles | None = None
    deletions_before: DeletionFiles | None = None
    of_range: bool = False
    files: Files | None = None

    def part(self, after: ReadUnit | None, limits: Limits) -> tuple[_Numbers, ReadUnit | None]:
        """Whole units until a limit would be passed, but at least one, and none after `limits.until`.

        Returns:
            Positions of the entries of the plan, and its last unit if units are left, else None.

        Raises:
            TableChangedError: Another file is in the place of the last unit.
        """
        if after is not None:
            (self.units.check_in_place if self.of_range else self.units.check_holds)(after, self.kept)
        first = 0 if after is None else self._first_after(after)
        if limits.until is not None:
            return self._entries[first : self._first_after(limits.until)], limits.until
        ends = self._ends[np.searchsorted(self._ends, first, side="right") :]
        count = len(ends) if limits.max_splits is None else limits.max_splits
        if limits.max_rows is not None:
            count = min(count, _within(self._row_sums, first, ends, limits.max_rows))
        if limits.max_bytes is not None:
            count = min(count, _within(self._byte_sums, first, ends, limits.max_bytes))
        count = max(count, 1)
        if count >= len(ends):
            return self._entries[first:], None
        chosen = self._entries[first : ends[count - 1]]
        number = self.units.of_entry[chosen[-1]]
        return chosen, self.units.unit_at(int(np.searchsorted(self.units.of_entry, number, side="right")) - 1)

    def files_of(self, chosen: _Numbers) -> Files | None:
        """The files of a part; None if they are not made yet."""
        if self.files is None or not len(chosen):
            return None
        first = int(np.count_nonzero(self.kept[: chosen[0]]))
        return self.files.part(first, first + len(chosen))

    @cached_property
    def _entries(self) -> _Numbers:
        """Positions of the entries that are read."""
        return np.flatnonzero(self.kept)

    @cached_property
    def _ends(self) -> _Numbers:
        """Where each unit ends among `_entries`."""
        numbers = self.units.of_entry[self._entries]
        is_last = np.ones(len(numbers), dtype=bool)
        is_last[:-1] = numbers[1:] != numbers[:-1]
        return np.flatnonzero(is_last) + 1

    @cached_property
    def _row_sums(self) -> _Numbers:
        return self._sums("row_count")

    @cached_property
    def _byte_sums(self) -> _Numbers:
        return self._sums("file_size")

    def _sums(self, name: str) -> _Numbers:
        return np.concatenate([[0], np.cumsum(column(self.units.entries, name)[self._entries])])

    def _first_after(self, last: ReadUnit) -> int:
        return int(np.searchsorted(self._entries, self.units.first_after(last)))


def _within(sums: _Numbers, first: int, ends: _Numbers, most: int) -> int:
    """How many units from the first entry on add up to no more than `most`."""
    return int(np.searchsorted(sums[ends], sums[first] + most, side="right"))


@dataclass(slots=True)
class KeptUnits:
    """The units of the one snapshot that is being handed out in several plans, until its last plan.

    Planners of one stream with different limits may share it.
    """

    _held: tuple[object, PlannedUnits] | None = None

    def part(
        self, key: object, after: ReadUnit | None, limits: Limits, plan: Callable[[], PlannedUnits]
    ) -> tuple[PlannedUnits, _Numbers, ReadUnit | None]:
        """The next part of a snapshot: its units, the chosen entries, and the last unit if more are left.

        Args:
            key: The snapshot and how it is read; equal keys have equal units.
            plan: Plans the units if they are not kept.
        """
        held = self._held
        planned = held[1] if held is not None and held[0] == key else plan()
        chosen, last = planned.part(after, limits)
        self._held = (key, planned) if last is not None and limits.until is None else None
        return planned, chosen, last

    def clear(self) -> None:
        """Keep nothing."""
        self._held = None


def without_statistics(units: Units, needs_bounds: bool) -> Units:
    """The same units without the statistics that they have been pruned by; see `EntrySelection.needs_bounds`."""
    left_out = {*STATISTICS} - ({*BOUNDS} if needs_bounds else set())
    return units.of(units.entries.select([name for name in units.entries.schema.names if name not in left_out]))


class UnitPrefetcher:
    """Plans the units of the next snapshots together, and holds them until each snapshot is reached. Thread-safe.

    It holds the last few windows of snapshots. A snapshot whose window was dropped is planned alone.

    Args:
        ordered: Puts entries of several snapshots in canonical order, given the number of the snapshot of each entry.
    """

    def __init__(
        self,
        manifests: ManifestReader,
        selection: EntrySelection,
        factory: SplitFactory,
        ordered: Callable[[pa.Table, _Numbers], Units],
    ) -> None:
        self._manifests = manifests
        self._selection = selection
        self._factory = factory
        self._ordered = ordered
        self._lock = ForkSafeLock()
        self._windows: deque[dict[_Key, PlannedUnits]] = deque(maxlen=_MOST_WINDOWS)

    def fetch(self, lists: Sequence[str], scan: Scan, schema: pa.Schema) -> None:
        """Read manifest lists and the manifests they name, and plan the units of small ones.

        Args:
            scan: Whether they are of a `delta` or a `changelog`.

        Raises:
            FileNotFoundError: A list or a manifest is missing.
            CorruptTableError: A list or a manifest cannot be decoded.
        """
        lists = [each for each in lists if (each, scan) not in self]
        if not lists:
            return
        found = self._manifests.manifest_lists(lists)
        manifests = pa.concat_tables(found)
        of_list = np.repeat(np.arange(len(lists)), [table.num_rows for table in found])
        kept = self._selection.manifests(manifests).to_numpy(zero_copy_only=False)
        manifests, of_list = filtered(manifests, kept), of_list[kept]
        # Prefetch no more than the cache keeps until it is needed. Otherwise it would be requested twice.
        fitting = _fitting(column(manifests, "file_size"), _MOST_BYTES)
        counts = column(manifests, "num_added_files") + column(manifests, "num_deleted_files")
        first = min(fitting, _fitting(counts, _MOST_ENTRIES))
        entries = self._manifests.prefetch(manifests.slice(0, fitting), schema, first)
        named_once = len(manifests["file_name"].unique()) == manifests.num_rows
        # With data evolution files are joined by row id, so each snapshot has to be planned as a whole.
        if entries and named_once and not self._factory.traits.data_evolution:
            # An error is raised again when its snapshot is reached, after the rows before it were handed out.
            with suppress(Exception):
                whole = len(lists) if first == len(of_list) else int(of_list[first])
                window = self._planned(entries, of_list[:first], whole, scan)
                self._put({(name, scan): each for name, each in zip(lists, window, strict=False)})

    def _planned(self, entries: list[pa.Table], of_list: _Numbers, count: int, scan: Scan) -> list[PlannedUnits]:
        """The units of the first `count` manifest lists, all of whose manifests are there."""
        group = np.repeat(of_list, [table.num_rows for table in entries])
        table = pa.concat_tables(entries)
        added = (column(table, "kind") == EntryKind.ADD) & (group < count)
        table, group = filtered(table, added), group[added]
        units = self._ordered(table, group)
        kept = self._selection.kept(units.entries, scan)
        ends = np.searchsorted(group, np.arange(count), side="right").tolist()
        return _cut(without_statistics(units, self._selection.needs_bounds), kept, ends, self._factory)

    def _put(self, window: Mapping[_Key, PlannedUnits]) -> None:
        with self._lock.held:
            self._windows.append(dict(window))

    def take(self, key: _Key) -> PlannedUnits | None:
        """Remove and return the units of a manifest list; None if they are not held."""
        with self._lock.held:
            found = [window.pop(key) for window in self._windows if key in window]
        return found[0] if found else None

    def __contains__(self, key: _Key) -> bool:
        with self._lock.held:
            return any(key in window for window in self._windows)


def _cut(units: Units, kept: _Mask, ends: Sequence[int], factory: SplitFactory) -> list[PlannedUnits]:
    """Cut units that were planned together into those of each snapshot, whose entries end at `ends`."""
    files = factory.files(units.entries.filter(pa.array(kept)))
    result = []
    start = first = 0
    for end in ends:
        of_one = PlannedUnits(units.part(start, end), kept[start:end])
        stop = first + int(np.count_nonzero(of_one.kept))
        result.append(replace(of_one, files=files.part(first, stop)))
        start, first = end, stop
    return result


def _fitting(sizes: _Numbers, most: int) -> int:
    """How many of the first sizes add up to no more than `most`."""
    return int(np.searchsorted(np.cumsum(sizes), most, side="right"))
