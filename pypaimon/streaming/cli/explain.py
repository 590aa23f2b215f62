"""`paimon-stream explain`: the plan of the next snapshot: manifests, files, pruning, requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from pypaimon.streaming.cli.options import grouped
from pypaimon.streaming.cli.output import Record, cell, console, format_option, table_of, to_json
from pypaimon.streaming.cli.tables import (
    ReadSettings,
    TableSource,
    configure,
    filter_of,
    on_view,
    retry_option,
    save_progress,
)
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.errors import EndOfScan, UnsupportedTableError
from pypaimon.streaming.filtering.pruning import KNOWLEDGE, Pruner, Scan
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.start import StartMode
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.spec.streamed_table import followed_table, without_consumer

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
    planned = entries.filter(pc.is_in(entries["file_name"], value_set=pa.array(_file_names(plan), pa.string())))
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
    snapshots = directory.snapshots
    found = snapshots.try_get(snapshot_id) or snapshots.try_get_changelog(snapshot_id) or directory.tagged(snapshot_id)
    if found is None:
        raise FileNotFoundError(f"snapshot {snapshot_id} expired meanwhile")
    return found


def _file_names(plan: Plan) -> list[str]:
    return [file.file_name for split in plan.splits() for file in (*split.files, *split.before_files)]


_FILE_COLUMNS = ("file", "partition", "bucket", "level", "rows", "bytes", "how")
_STAGE_COLUMNS = ("what", "dropped", "files", "rows", "bytes")
_SHOWN_FILES = 30


@click.command(
    epilog="""\b
Examples:
  paimon-stream explain db.orders
  paimon-stream explain db.orders --start 42 --filter "day = '2026-11-21' AND amount > 100"
  paimon-stream explain db.orders --consumer-id etl --format json
"""
)
@on_view
@grouped("reading", ReadSettings)
@format_option
@retry_option
def explain(source: TableSource, reading: ReadSettings, form: str) -> None:
    """Show what a stream of TABLE would read next, without reading it or moving the consumer."""
    explained = Explainer(source, reading).explain()
    if explained is None:
        click.echo(f"{source.name}: nothing new after the start; a stream would wait", err=True)
    elif form == "json":
        click.echo(to_json(explained.record()))
    else:
        explained.show(console())


@dataclass(frozen=True, slots=True)
class Explained:
    """The plan of a snapshot.

    Attributes:
        left: The plan with the filter; None if nothing is left.
    """

    table: str
    plan: Plan
    left: Plan | None
    passed_over: int
    pruned: Pruned
    filtered: bool
    requests: dict[str, int]

    def record(self) -> Record:
        return {
            "table": self.table,
            "snapshot": self.plan.snapshot_id,
            "kind": self.plan.kind.value,
            "commit_time": self.plan.commit_time,
            "watermark": self.plan.watermark,
            "schema": self.plan.schema.id,
            "passed_over": self.passed_over,
            "splits": 0 if self.left is None else len(self.left.splits()),
            "manifests": {
                "listed": self.pruned.manifests,
                "read": self.pruned.manifests_read,
                "skipped": self.pruned.manifests - self.pruned.manifests_read,
            },
            "stages": [asdict(each) for each in self.pruned.stages],
            "files_without_statistics": self.pruned.without_statistics,
            "requests": self.requests,
            "files": list(self.files()),
        }

    def files(self) -> Iterator[Record]:
        for split in self.left.splits() if self.left is not None else ():
            values = split.partition.to_dict().items()
            partition = {name: None if value is None else str(value) for name, value in values}
            for how, files in (("retracted", split.before_files), (split.mode.value, split.files)):
                for file in files:
                    yield {
                        "file": file.file_name,
                        "partition": partition,
                        "bucket": split.bucket,
                        "level": file.level,
                        "rows": file.row_count,
                        "bytes": file.file_size,
                        "how": how,
                    }

    def show(self, out: Console) -> None:
        plan = self.plan
        what = f"of {self.table}: {plan.kind.value}, committed {cell(plan.commit_time)}"
        out.print(f"snapshot {plan.snapshot_id} {what}", style="bold")
        if self.passed_over:
            out.print(f"{self.passed_over} snapshots before it hold nothing for a stream")
        read, listed = self.pruned.manifests_read, self.pruned.manifests
        out.print(f"manifests: {read} read, {listed - read} skipped by partition")
        out.print(table_of([asdict(each) for each in self.pruned.stages], _STAGE_COLUMNS))
        if self.filtered and self.pruned.without_statistics:
            what = f"{self.pruned.without_statistics} files lack statistics of columns other than keys"
            out.print(f"{what}; writers create them as the table's metadata.stats-mode says")
        asked = ", ".join(f"{count} {kind}" for kind, count in self.requests.items() if count)
        out.print(f"requests from a cold start: {asked}")
        files = list(self.files())
        if files:
            shown: list[Record] = [{**each, "partition": _path(each["partition"])} for each in files[:_SHOWN_FILES]]
            out.print(table_of(shown, _FILE_COLUMNS))
        if len(files) > _SHOWN_FILES:
            out.print(f"and {len(files) - _SHOWN_FILES} more files; --format json shows all")


class Explainer:
    def __init__(self, source: TableSource, reading: ReadSettings) -> None:
        self._source = source
        self._reading = reading
        table = source.load()
        _, chain = followed_table(table)
        if chain is not None:
            raise UnsupportedTableError(
                f"The chain table {source.name} begins with snapshots of two branches; explain plans one of a branch: "
                f"{source.name}$branch_{chain.delta}, which a stream follows, or {source.name}$branch_{chain.snapshot}."
            )
        saved = self._saved_position(source.builder(table))
        self._start = reading.start
        if saved is not None and not saved.snapshot:
            # It has read nothing, and begins at the earliest snapshot.
            self._start, saved = StartMode.EARLIEST.value, None
        self._saved = saved
        self._table = without_consumer(table)
        self._filter = filter_of(source.builder(self._table), reading.filter_text)

    def explain(self) -> Explained | None:
        with self._builder().new_streaming_scan() as scan:
            if self._saved is not None:
                scan.restore(self._saved)
            plan = scan.plan()
            if plan is None:
                return None
        left = plan if self._filter is None else self._filtered(plan)
        cold = self._builder(without_consumer(self._source.load()))
        requests = self._requests(cold, plan)
        first = plan.snapshot_id if self._saved is None else self._saved.snapshot
        passed_over, has_filter = plan.snapshot_id - first, self._filter is not None
        accounts = pruned(self._table, plan, self._filter)
        return Explained(self._source.name, plan, left, passed_over, accounts, has_filter, requests)

    def _builder(self, table: ReadableTable | None = None) -> StreamReadBuilder:
        builder = self._source.builder(self._table if table is None else table)
        configure(builder, self._start, None, self._reading.columns)
        return builder.with_prefetch(0).with_catch_up("replay")

    def _saved_position(self, builder: StreamReadBuilder) -> Position | None:
        """Where the consumer continues that is given, or that an option of the table names."""
        consumer = resolved(save_progress(builder, self._reading.consumer_id).with_raw(True)).options.consumer
        if consumer is None or consumer.ignore_progress:
            return None
        saved = consumers_of(TableDirectory.of(builder.table)).consumer(consumer.consumer_id)
        return None if saved is None else saved.position

    def _filtered(self, plan: Plan) -> Plan | None:
        with self._at(self._builder(), plan).new_streaming_scan() as scan:
            try:
                return scan.plan()
            except EndOfScan:
                return None

    def _requests(self, builder: StreamReadBuilder, plan: Plan) -> dict[str, int]:
        with self._at(builder, plan).new_streaming_scan() as scan:
            before = scan.metrics.requests
            with suppress(EndOfScan):
                scan.plan()
            return {kind: count - before.get(kind, 0) for kind, count in scan.metrics.requests.items()}

    def _at(self, builder: StreamReadBuilder, plan: Plan) -> StreamReadBuilder:
        builder.with_filter(self._filter).with_end(snapshot_id=plan.snapshot_id)
        if plan.kind is PlanKind.FULL and resolved(builder).options.start.tag is not None:
            # Its snapshot may have expired.
            return builder
        return builder.with_start(snapshot_id=plan.snapshot_id, full=plan.kind is PlanKind.FULL)


def _path(partition: Any) -> str:
    return "/".join(f"{name}={value}" for name, value in partition.items()) or "-"
