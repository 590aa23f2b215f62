"""`paimon-stream explain`: the plan of the next snapshot: files, what each part of the filter drops, requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from pypaimon.streaming.builder import StreamReadBuilder
from pypaimon.streaming.cli.output import Record, cell, console, format_option, table_of, to_json
from pypaimon.streaming.cli.settings import configure, filter_of, stream_options
from pypaimon.streaming.cli.tables import TableSource, on_table
from pypaimon.streaming.consumers.consumer import ConsumerManager
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.filtering.filters import columns_of, split_and
from pypaimon.streaming.internals import Predicate
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.plan import Plan, PlanKind

_FILE_COLUMNS = ("file", "partition", "bucket", "level", "rows", "bytes", "how")
_SHOWN_FILES = 30


@click.command(
    epilog="""\b
Examples:
  paimon-stream explain db.orders
  paimon-stream explain db.orders --start 42 --filter "day = '2026-11-21' AND amount > 100"
  paimon-stream explain db.orders --consumer-id etl --format json
"""
)
@on_table
@stream_options
@format_option
def explain(
    source: TableSource,
    start: str | None,
    filter_text: str | None,
    columns: str | None,
    consumer_id: str | None,
    form: str,
) -> None:
    """Show what a stream of TABLE would read next, without reading it, and without moving the consumer."""
    explained = Explainer(source, start, filter_text, columns, consumer_id).explain()
    if explained is None:
        click.echo(f"{source.name}: nothing new after the start; a stream would wait", err=True)
    elif form == "json":
        click.echo(to_json(explained.record()))
    else:
        explained.show(console())


@dataclass(frozen=True, slots=True)
class Stage:
    """What is left of a snapshot's files after one part of the filter."""

    what: str
    files: int
    rows: int
    bytes: int

    @staticmethod
    def of(what: str, plan: Plan | None) -> Stage:
        """Count the files of a plan; None is a plan of which nothing is left."""
        splits = [] if plan is None else plan.splits()
        files = [file for split in splits for file in (*split.files, *split.before_files)]
        return Stage(what, len(files), sum(file.row_count for file in files), sum(file.file_size for file in files))


@dataclass(frozen=True, slots=True)
class Explained:
    """The plan of a snapshot.

    Attributes:
        table: Name of the table.
        plan: The plan without the filter.
        left: The plan with it; None if nothing is left.
        passed_over: Snapshots between the start and this one that hold nothing for a stream.
        stages: Files that are left after each part of the filter.
        requests: What a stream asks the store for, from nothing known to this plan, by kind.
    """

    table: str
    plan: Plan
    left: Plan | None
    passed_over: int
    stages: Sequence[Stage]
    requests: dict[str, int]

    def record(self) -> Record:
        """Everything, for JSON."""
        return {
            "table": self.table,
            "snapshot": self.plan.snapshot_id,
            "kind": self.plan.kind.value,
            "commit_time": self.plan.commit_time,
            "watermark": self.plan.watermark,
            "schema": self.plan.schema.id,
            "passed_over": self.passed_over,
            "splits": 0 if self.left is None else len(self.left.splits()),
            "stages": [asdict(each) for each in self.stages],
            "requests": self.requests,
            "files": list(self.files()),
        }

    def files(self) -> Iterator[Record]:
        """The files that would be read, in order."""
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
        """Print it for people."""
        plan = self.plan
        what = f"of {self.table}: {plan.kind.value}, committed {cell(plan.commit_time)}"
        out.print(f"snapshot {plan.snapshot_id} {what}", style="bold")
        if self.passed_over:
            out.print(f"{self.passed_over} snapshots before it hold nothing for a stream")
        out.print(table_of([asdict(each) for each in self.stages], ("what", "files", "rows", "bytes")))
        asked = ", ".join(f"{count} {kind}" for kind, count in self.requests.items() if count)
        out.print(f"requests from a cold start: {asked}")
        files = list(self.files())
        if files:
            shown: list[Record] = [{**each, "partition": _path(each["partition"])} for each in files[:_SHOWN_FILES]]
            out.print(table_of(shown, _FILE_COLUMNS))
        if len(files) > _SHOWN_FILES:
            out.print(f"and {len(files) - _SHOWN_FILES} files more; --format json has all")


class Explainer:
    """Plans one snapshot several times, each time with more of the filter."""

    def __init__(
        self,
        source: TableSource,
        start: str | None,
        filter_text: str | None,
        columns: str | None,
        consumer_id: str | None,
    ) -> None:
        self._source = source
        self._start = start
        self._columns = columns
        self._table = source.load()
        self._filter = filter_of(source.builder(self._table), filter_text)
        self._saved = None if consumer_id is None else self._saved_position(consumer_id)

    def explain(self) -> Explained | None:
        """Explain the next snapshot with rows; None if there is none yet."""
        with self._builder().new_streaming_scan() as scan:
            if self._saved is not None:
                scan.restore(self._saved)
            plan = scan.plan()
            if plan is None:
                return None
        stages = [Stage.of("in the snapshot", plan)]
        left: Plan | None = plan
        for what, part in self._parts():
            left = self._again(self._builder(), plan, part)
            stages.append(Stage.of(what, left))
        cold = self._builder(self._source.load())
        requests = self._requests(cold, plan)
        first = plan.snapshot_id if self._saved is None else self._saved
        return Explained(self._source.name, plan, left, plan.snapshot_id - first, stages, requests)

    def _builder(self, table: Any | None = None) -> StreamReadBuilder:
        builder = self._source.builder(self._table if table is None else table)
        return configure(builder, self._start, None, self._columns).with_prefetch(0).with_catch_up("replay")

    def _saved_position(self, consumer_id: str) -> int | None:
        directory = TableDirectory.of(self._table)
        manager = ConsumerManager(self._table.file_io, self._table.table_path, directory.branch, store=directory.store)
        saved = manager.consumer(consumer_id)
        return None if saved is None else saved.next_snapshot

    def _parts(self) -> Iterator[tuple[str, Predicate]]:
        """The filter, growing: on partition columns, on keys too, as a whole."""
        if self._filter is None:
            return
        schema, known = self._table.table_schema, None
        for what, columns in (
            ("after the filter on partition columns", schema.partition_keys),
            ("after the filter on keys", [*schema.partition_keys, *schema.primary_keys]),
            ("after the filter on all columns", list(columns_of(self._filter))),
        ):
            part, _ = split_and(self._filter, columns)
            if part is not None and part != known:
                known = part
                yield f"{what}: {', '.join(sorted(columns_of(part)))}", part

    def _again(self, builder: StreamReadBuilder, plan: Plan, part: Predicate | None) -> Plan | None:
        """The same snapshot with a filter; None if nothing is left of it."""
        with self._at(builder, plan, part).new_streaming_scan() as scan:
            try:
                return scan.plan()
            except EndOfScan:
                return None

    def _requests(self, builder: StreamReadBuilder, plan: Plan) -> dict[str, int]:
        with self._at(builder, plan, self._filter).new_streaming_scan() as scan:
            before = scan.metrics.requests
            with suppress(EndOfScan):
                scan.plan()
            return {kind: count - before.get(kind, 0) for kind, count in scan.metrics.requests.items()}

    @staticmethod
    def _at(builder: StreamReadBuilder, plan: Plan, part: Predicate | None) -> StreamReadBuilder:
        builder.with_filter(part).with_end(snapshot_id=plan.snapshot_id)
        return builder.with_start(snapshot_id=plan.snapshot_id, full=plan.kind is PlanKind.FULL)


def _path(partition: Any) -> str:
    return "/".join(f"{name}={value}" for name, value in partition.items()) or "-"
