"""Several snapshots that lie ahead, prepared together: columns of many files take hardly longer than those of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.planning.prepared import Prepared, without_statistics
from pypaimon.streaming.planning.selection import EntrySelection, filtered
from pypaimon.streaming.planning.splits import SplitFactory
from pypaimon.streaming.planning.units import Units, column

_Key = tuple[str, str]
_Numbers = npt.NDArray[np.int64]
_MOST_WINDOWS = 3
_MOST_BYTES = 4 << 20
"""Of manifests that are read ahead at once."""
_MOST_ENTRIES = 1 << 12
"""Of snapshots that are prepared together."""


class PreparedAhead:
    """What was prepared of snapshots, by the manifest list and what is read of it, until their turn comes.

    It holds the last few windows; whose is gone by then is prepared alone. Thread-safe.

    Args:
        manifests: The table's manifests.
        selection: Which entries are read.
        factory: Makes files of them.
        ordered: Puts entries of several snapshots in canonical order; told of which of them each is, by ascending
            numbers.
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
        self._windows: deque[dict[_Key, Prepared]] = deque(maxlen=_MOST_WINDOWS)

    def fetch(self, lists: Sequence[str], scan: Scan, schema: pa.Schema) -> None:
        """Read manifest lists and the manifests they name ahead of time, and prepare what is read of small ones.

        Args:
            lists: Names of manifest lists.
            scan: Whether they are of a `delta` or a `changelog`.
            schema: The columns of entries that are wanted.

        Raises:
            FileNotFoundError: One is missing.
            CorruptTableError: One cannot be decoded.
        """
        lists = [each for each in lists if (each, scan) not in self]
        if not lists:
            return
        found = self._manifests.manifest_lists(lists)
        manifests = pa.concat_tables(found)
        of_list = np.repeat(np.arange(len(lists)), [table.num_rows for table in found])
        kept = self._selection.manifests(manifests).to_numpy(zero_copy_only=False)
        manifests, of_list = filtered(manifests, kept), of_list[kept]
        # The longest prefix whose sizes add up to no more than the bound.
        fitting = _fitting(column(manifests, "file_size"), _MOST_BYTES)
        counts = column(manifests, "num_added_files") + column(manifests, "num_deleted_files")
        first = min(fitting, _fitting(counts, _MOST_ENTRIES))
        entries = self._manifests.read_ahead(manifests.slice(0, fitting), schema, first)
        # What is wrong with one of them is told in its turn. Of columns that are joined all that is read counts.
        named_once = len(manifests["file_name"].unique()) == manifests.num_rows
        if entries and named_once and not self._factory.traits.data_evolution:
            with suppress(Exception):
                whole = len(lists) if first == len(of_list) else int(of_list[first])
                window = self._prepared(entries, of_list[:first], whole, scan)
                self._put({(name, scan): each for name, each in zip(lists, window, strict=False)})

    def _prepared(self, entries: list[pa.Table], of_list: _Numbers, count: int, scan: Scan) -> list[Prepared]:
        """What is read of the first lists, whose manifests are all there.

        Args:
            entries: Of each manifest.
            of_list: Number of the list that names it.
            count: How many of the lists.
            scan: What of them is read.
        """
        group = np.repeat(of_list, [table.num_rows for table in entries])
        table = pa.concat_tables(entries)
        added = (column(table, "kind") == EntryKind.ADD) & (group < count)
        table, group = filtered(table, added), group[added]
        units = self._ordered(table, group)
        kept = self._selection.kept(units.entries, scan)
        ends = np.searchsorted(group, np.arange(count), side="right").tolist()
        return _cut(without_statistics(units, self._selection.needs_bounds), kept, ends, self._factory)

    def _put(self, window: Mapping[_Key, Prepared]) -> None:
        with self._lock.held:
            self._windows.append(dict(window))

    def take(self, key: _Key) -> Prepared | None:
        """What was prepared, which is not held any longer; None: prepare it now."""
        with self._lock.held:
            found = [window.pop(key) for window in self._windows if key in window]
        return found[0] if found else None

    def __contains__(self, key: _Key) -> bool:
        with self._lock.held:
            return any(key in window for window in self._windows)


def _cut(units: Units, kept: npt.NDArray[np.bool_], ends: Sequence[int], factory: SplitFactory) -> list[Prepared]:
    """What was prepared together, one by one.

    Args:
        units: Units of several snapshots, one after the other, without statistics.
        kept: Which of their entries are read.
        ends: Up to where the entries of each snapshot go.
        factory: Makes their splits.
    """
    files = factory.files(units.entries.filter(pa.array(kept)))
    result = []
    start = first = 0
    for end in ends:
        of_one = Prepared(units.part(start, end), kept[start:end])
        stop = first + int(np.count_nonzero(of_one.kept))
        result.append(replace(of_one, files=files.part(first, stop)))
        start, first = end, stop
    return result


def _fitting(sizes: _Numbers, most: int) -> int:
    """How many of the first ones hold no more than that together."""
    return int(np.searchsorted(np.cumsum(sizes), most, side="right"))
