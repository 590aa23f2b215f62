"""Two states of a table as manifest entries: which of them have to be read to find the difference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.planning.splits import DeletionFiles
from pypaimon.streaming.planning.units import Units, column

_Mask = npt.NDArray[np.bool_]


def check_same_buckets(entries: pa.Table, before: Snapshot, snapshot: Snapshot) -> None:
    """Check that no partition was rescaled between two states.

    Raises:
        UnsupportedTableError: A partition was rescaled, so its keys are in other buckets.
    """
    if is_rescaled(entries):
        raise rescaled("of a partition", before, snapshot)


def is_rescaled(entries: pa.Table) -> bool:
    """Whether files of one partition were written for different numbers of buckets; dynamic buckets record -1."""
    totals = entries.filter(pc.greater_equal(entries["total_buckets"], 0)).select(["partition", "total_buckets"])
    counts = totals.group_by("partition").aggregate([("total_buckets", "count_distinct")])
    return bool(pc.any(pc.greater(counts["total_buckets_count_distinct"], 1)).as_py())


def keys_move(entries: pa.Table) -> bool:
    """Whether an OVERWRITE may move a key to another bucket: by a rescale, or because buckets are not fixed."""
    return bool(pc.any(pc.less(entries["total_buckets"], 0)).as_py()) or is_rescaled(entries)


def rescaled(what: str, before: Snapshot, snapshot: Snapshot) -> UnsupportedTableError:
    """The error for two states whose buckets are not the same ones."""
    return UnsupportedTableError(
        f"The number of buckets {what} has changed between snapshots {before.id} and {snapshot.id}, so their states "
        "cannot be compared bucket by bucket. Compare snapshots on one side of that change, or read the changes "
        "between them."
    )


def lone_files(units: Units) -> _Mask:
    """Entries whose file is on one side only; a file that was moved to another level counts as another file."""
    # Each column of `pairs` is (code of the name, level). A pair that occurs once is on one side only.
    names = units.entries["file_name"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    pairs = np.stack([names, column(units.entries, "level")])
    _, inverse, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    lone: _Mask = counts[inverse.ravel()] == 1
    return lone


def differing_units(units: Units, deletions_before: DeletionFiles, deletions: DeletionFiles) -> _Mask:
    """Entries of units whose files, or the rows deleted from them, differ between the two sides."""
    names = units.entries["file_name"].combine_chunks()
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    # Pairs of (unit, code of the file name). A pair that occurs once is a file of one side. A unit with such a file, or
    # with a deletion vector that differs, is compared as a whole.
    pairs = np.unique(np.stack([units.of_entry, codes]), axis=1, return_counts=True)
    lone = np.unique(pairs[0][0][pairs[1] == 1])
    files = deletions_before.keys() | deletions.keys()
    changed = [file[2] for file in files if deletions_before.get(file) != deletions.get(file)]
    differing: _Mask = np.isin(units.of_entry, lone)
    touched = pc.is_in(names, value_set=pa.array(changed, pa.string())).to_numpy(zero_copy_only=False)
    return differing | np.isin(units.of_entry, units.of_entry[touched])
