"""What a plan reads, and what pruning drops: manifests, then files, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.pruning import KNOWLEDGE, Pruner, Scan
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.paimon.handles import ReadableTable

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

_SCANS: dict[PlanKind, Scan] = {PlanKind.FULL: "full", PlanKind.CHANGELOG: "changelog"}
_STEPS = {
    "partition": "by partition",
    "bucket": "by bucket",
    "key": "by statistics of keys",
    "value": "by statistics of other columns",
    "index": "by embedded indexes",
}


@dataclass(frozen=True, slots=True)
class Stage:
    what: str
    dropped: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    manifests: int
    manifests_read: int
    stages: Sequence[Stage]
    without_statistics: int


def pruned(table: ReadableTable, plan: Plan, predicate: Predicate | None) -> Pruned:
    """Account for a plan, step by step.

    Args:
        predicate: The filter; None drops nothing.
    """
    directory = TableDirectory.of(table)
    scan = _SCANS.get(plan.kind, "delta")
    manifests = pa.concat_tables(directory.manifests.manifest_lists(_lists(directory, plan)))
    needed = Pruner(plan.schema, directory.schema, predicate).manifests(manifests)
    entries = directory.manifests.entries(manifests)
    if plan.kind is PlanKind.FULL:
        entries = live(entries)
    elif plan.kind is not PlanKind.OVERWRITE:
        entries = entries.filter(pc.equal(entries["kind"], 0))
    stages = [_stage("in the snapshot", entries, entries.num_rows)]
    planned = entries.filter(pc.is_in(entries["file_name"], value_set=pa.array(_files(plan), pa.string())))
    if planned.num_rows < entries.num_rows:
        stages.append(_stage("by level, or pending", planned, entries.num_rows))
    indexed = planned["embedded_index"].null_count < planned.num_rows
    steps = KNOWLEDGE if indexed else KNOWLEDGE[:-1]
    for count, known in enumerate(steps if predicate is not None else (), 1):
        kept = Pruner(plan.schema, directory.schema, predicate, KNOWLEDGE[:count]).entries(planned, scan)
        stages.append(_stage(_STEPS[known], planned.filter(kept), stages[-1].files))
    columns = pc.fill_null(pc.list_value_length(planned["value_stats_cols"]), 1)
    return Pruned(
        manifests.num_rows,
        int(np.count_nonzero(needed.to_numpy(zero_copy_only=False))),
        stages,
        pc.sum(pc.equal(columns, 0)).as_py() or 0,
    )


def _stage(what: str, left: pa.Table, before: int) -> Stage:
    rows, size = (pc.sum(left[name]).as_py() or 0 for name in ("row_count", "file_size"))
    return Stage(what, before - left.num_rows, left.num_rows, rows, size)


def _lists(directory: TableDirectory, plan: Plan) -> list[str]:
    snapshot = _snapshot(directory, plan.snapshot_id)
    names: tuple[str | None, ...]
    if plan.kind is PlanKind.FULL:
        names = snapshot.state_lists
    elif plan.kind is PlanKind.CHANGELOG:
        names = (snapshot.changelog_manifest_list,)
    else:
        names = (snapshot.delta_manifest_list,)
    return [name for name in names if name]


def _snapshot(directory: TableDirectory, snapshot_id: int) -> Snapshot:
    found = directory.snapshots.try_get(snapshot_id) or directory.snapshots.try_get_changelog(snapshot_id)
    if found is None:
        raise FileNotFoundError(f"snapshot {snapshot_id} expired meanwhile")
    return found


def _files(plan: Plan) -> list[str]:
    return [file.file_name for split in plan.splits() for file in (*split.files, *split.before_files)]
