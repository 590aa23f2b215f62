"""`Layout`: how the files of a snapshot lie in their buckets, as far as that decides what a first plan costs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.metadata.manifest_tables import FILE_SCHEMA
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.table_traits import TableTraits

SMALL_SHARE = 10
"""A file is small below this part of the size that writers aim at."""

# What is counted, and what tells files apart; the rest would take most of the memory.
_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "file_size", "row_count", "extra_files"]
_COLUMNS += ["embedded_index", "external_path"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one snapshot.

    Attributes:
        files: Data files.
        bytes: Their size.
        records: Records in them; of a primary-key table there may be several to a row.
        small_files: Files smaller than a tenth of the target.
        most_small_files: Those of the bucket that has most.
        buckets: Pairs of partition and bucket.
        merged_buckets: Those whose files overlap by key, so that they are merged when they are read.
        most_runs: Sorted runs of the bucket that has most: each file of level 0, each other level.
        later_files: Files that a first plan leaves out, since they come as changelog once they are compacted.
        postponed_files: Files that wait in bucket -2 for a compaction to distribute them.
    """

    files: int
    bytes: int
    records: int
    small_files: int
    most_small_files: int
    buckets: int
    merged_buckets: int
    most_runs: int
    later_files: int
    postponed_files: int

    @staticmethod
    def read(directory: TableDirectory, snapshot: Snapshot, traits: TableTraits, target_bytes: int) -> Layout:
        """Read the manifests of a snapshot, each of them once.

        Args:
            directory: The table.
            snapshot: Of that table.
            traits: Of that table.
            target_bytes: The size that its writers aim at.

        Raises:
            FileNotFoundError: A manifest is gone.
            CorruptTableError: One cannot be decoded.
        """
        names = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        manifests = pa.concat_tables(directory.manifests.manifest_lists(names))
        entries = directory.manifests.entries(manifests, FILE_SCHEMA, lambda found: found.select(_COLUMNS))
        return Layout.of(live(entries), traits, target_bytes)

    @staticmethod
    def of(entries: pa.Table, traits: TableTraits, target_bytes: int) -> Layout:
        """Of live entries."""
        is_small = pc.less(entries["file_size"], target_bytes // SMALL_SHARE)
        level = entries["level"]
        # Each file of level 0 is a run; those of another level are one.
        run = pc.if_else(pc.equal(level, 0), entries["file_name"], level.cast(pa.string()))
        columns = [entries["partition"], entries["bucket"], is_small.cast(pa.int64()), run]
        per_bucket = (
            pa.table(columns, names=["partition", "bucket", "small", "run"])
            .group_by(["partition", "bucket"])
            .aggregate([("small", "sum"), ("run", "count_distinct")])
        )
        runs = per_bucket["run_count_distinct"]
        is_merged = pc.and_(pc.greater(runs, 1), pc.not_equal(per_bucket["bucket"], POSTPONE_BUCKET))
        is_postponed = pc.equal(entries["bucket"], POSTPONE_BUCKET)
        is_later = pc.and_(pc.less(level, traits.lowest_state_level), pc.invert(is_postponed))
        return Layout(
            files=entries.num_rows,
            bytes=_sum(entries["file_size"]),
            records=_sum(entries["row_count"]),
            small_files=_sum(is_small),
            most_small_files=pc.max(per_bucket["small_sum"]).as_py() or 0,
            buckets=per_bucket.num_rows,
            merged_buckets=_sum(is_merged) if traits.primary_key else 0,
            most_runs=(pc.max(runs).as_py() or 0) if traits.primary_key else 0,
            later_files=_sum(is_later),
            postponed_files=_sum(is_postponed),
        )


def _sum(values: pa.ChunkedArray) -> int:
    return pc.sum(values).as_py() or 0
