"""`paimon-stream compact`, and the commands that rewrite files like it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypedDict, TypeVar, cast

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.cli.options import Retrying, grouped, option
from pypaimon.streaming.cli.output import Record, console, print_result, table_of
from pypaimon.streaming.cli.tables import (
    TableSource,
    duration,
    null_text,
    on_table,
    pairs,
    patiently,
    refuse_without,
)
from pypaimon.streaming.compaction.background import Compactor
from pypaimon.streaming.compaction.chain_merge import compact_chain_table as merge_chain
from pypaimon.streaming.compaction.compaction_run import Progress
from pypaimon.streaming.compaction.compactor import compact as compact_table
from pypaimon.streaming.compaction.index_rewrite import rewrite_file_index as rewrite_index
from pypaimon.streaming.compaction.materialization import materialize_deletion_vectors as materialize
from pypaimon.streaming.compaction.partition_rescale import rescale as rescale_table
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, FileCount, SkippedPartition
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.filtering.partition_texts import partition_text
from pypaimon.streaming.maintenance.commit_maintenance import When
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.table_kinds import SortStrategy
from pypaimon.streaming.paimon.handles import WritableTable

F = TypeVar("F", bound=Callable[..., Any])


class Chosen(TypedDict):
    partition: Mapping[str, str] | None
    where: str | None
    partition_idle_time: timedelta | None


def partition_options(command: F) -> F:
    """Give a command `--partition`, `--where` and `--idle`; the function is called with `chosen`."""

    @functools.wraps(command)
    def with_chosen(*args: Any, partition: tuple[str, ...], where: str | None, idle: str | None, **kwargs: Any) -> Any:
        age = None if idle is None else duration(idle)
        if idle is not None and age is None:
            raise click.UsageError(f"--idle {idle!r}: give a time as 90s, 5m, 2h, 1d")
        chosen = Chosen(partition=pairs(partition, "--partition") or None, where=where, partition_idle_time=age)
        return command(*args, chosen=chosen, **kwargs)

    wrapped: Any = with_chosen
    for declared in (
        click.option("--idle", metavar="TIME", help="Only partitions without files younger than this (90s, 5m, 1d)."),
        click.option("--where", metavar="CONDITION", help="Only partitions with this: \"day < '2026-11-01'\"."),
        click.option("--partition", metavar="COLUMN=VALUE", multiple=True, help="Only partitions with this value."),
    ):
        wrapped = declared(wrapped)
    return cast(F, wrapped)


def partition_record(partition: Mapping[str, Any]) -> Record:
    plain = (bool, int, float, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in partition.items()}


def files_text(files: FileCount) -> str:
    return f"{count(files.files, 'file')} ({decimal(files.bytes)})"


def counted(files: FileCount) -> Record:
    return {"files": files.files, "bytes": files.bytes, "records": files.rows}


_COLUMNS = ("partition", "bucket", "files", "size", "records", "files_after", "size_after")
_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Running:
    follow: bool = option("--follow", is_flag=True, help="Compact again and again. [default: once]")
    every: float | None = option(
        "--every",
        type=click.FloatRange(0),
        help="With --follow: seconds between compactions. [default: 60]",
    )
    threads: int = option(
        "--threads", type=click.IntRange(1), default=1, show_default=True, help="Buckets at the same time."
    )
    dry_run: bool = option("--dry-run", is_flag=True, help="Write nothing; print what would be compacted.")
    maintain: bool = option("--maintain", is_flag=True, help="Also do what is due of paimon-stream maintain.")

    @property
    def when_maintained(self) -> When:
        return "auto" if self.maintain else "off"


@click.command(
    epilog="""\b
Examples:
  paimon-stream compact db.orders
  paimon-stream compact db.orders --dry-run
  paimon-stream compact db.orders --full --partition day=2026-11-21
  paimon-stream compact db.orders --full --where "day < '2026-11-01'" --idle 1d
  paimon-stream compact db.orders --follow --every 300
  paimon-stream compact db.visits --order-by country,visited --strategy zorder
"""
)
@on_table
@click.option("--full", is_flag=True, help="All of each bucket, and few small files too. [default: what is due]")
@click.option("--order-by", metavar="COLUMNS", help="Sort all rows of each partition by these, separated by commas.")
@click.option(
    "--strategy",
    type=click.Choice([each.value for each in SortStrategy]),
    default=SortStrategy.AUTO.value,
    show_default=True,
    help="How several columns sort them.",
)
@partition_options
@grouped("running", Running)
@grouped("retrying", Retrying)
@click.option("--json", "as_json", is_flag=True, help="Print what was compacted as JSON, one element per bucket.")
def compact(
    source: TableSource,
    full: bool,
    order_by: str | None,
    strategy: str,
    chosen: Chosen,
    running: Running,
    retrying: Retrying,
    as_json: bool,
) -> None:
    """Compact what is due in TABLE, as its options say: small files into large ones, sorted runs into fewer.

    Rows and streams do not change, but for postponed rows, which batch readers get from then on. Writers are never
    blocked; buckets that they change meanwhile are left for the next run. Run it from time to time, or with --follow,
    next to writers with the table option write-only = true.
    """
    if running.follow:
        if running.dry_run:
            raise click.UsageError("--follow and --dry-run contradict each other")
        if order_by is not None:
            raise click.UsageError("--follow and --order-by contradict each other: each run would sort all rows")
        every = _EVERY_SECONDS if running.every is None else running.every
        when = running.when_maintained
        opened = partial(Compactor, full=full, threads=running.threads, interval=every, maintain=when, **chosen)
        _follow(source, opened, as_json)
        return
    refuse_without("--follow", {"--every": running.every})

    def run() -> tuple[WritableTable, CompactionReport]:
        table = source.load()
        with _bar() as progress:
            return table, compact_table(
                table,
                full=full,
                order_by=None if order_by is None else [name.strip() for name in order_by.split(",")],
                strategy=strategy,
                threads=running.threads,
                dry_run=running.dry_run,
                on_progress=progress,
                maintain=running.when_maintained,
                **chosen,
            )

    table, report = patiently(run) if retrying.retry else run()
    _print_buckets(table, report, running.dry_run, as_json)
    _print_report(source.name, report, running.dry_run, as_json)


@click.command(
    epilog="""\b
Examples:
  paimon-stream rescale db.orders 8 --dry-run
  paimon-stream rescale db.orders 8
  paimon-stream rescale db.orders 8 --where "day >= '2026-11-01'"
"""
)
@on_table
@click.argument("buckets", type=click.IntRange(1))
@partition_options
@click.option("--dry-run", is_flag=True, help="Write nothing; print which buckets would be replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print what was replaced as JSON, one element per bucket.")
def rescale(source: TableSource, buckets: int, chosen: Chosen, dry_run: bool, as_json: bool) -> None:
    """Divide the rows of TABLE into another number of BUCKETS, partition by partition.

    Set the table option bucket first, and stop writers meanwhile: they refuse partitions with another number. Rows and
    streams do not change. Partitions that others change meanwhile stay as they are.
    """
    table = source.load()
    report = rescale_table(table, buckets, dry_run=dry_run, **chosen)
    _print_buckets(table, report, dry_run, as_json)
    _print_report(source.name, report, dry_run, as_json, "replaced")
    number = PaimonTable(table).total_buckets
    if report.compacted and number not in (buckets, POSTPONE_BUCKET):
        text = f"until the table's option 'bucket' is {buckets}, not {number}"
        say(f"{source.name}: writers refuse these partitions {text}")


@click.command(
    epilog="""\b
Examples:
  paimon-stream compact-chain-table db.accounts --partition day=20261121 --dry-run
  paimon-stream compact-chain-table db.accounts --partition region=eu --partition day=20261121
  paimon-stream compact-chain-table db.accounts --partition day=20261121 --overwrite
"""
)
@on_table
@click.option(
    "--partition", metavar="COLUMN=VALUE", multiple=True, required=True, help="The partitions with this value."
)
@click.option("--overwrite", is_flag=True, help="Also those that the snapshot branch has, which are replaced.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print which files would be merged.")
@click.option("--json", "as_json", is_flag=True, help="Print what was merged as JSON, one element per bucket.")
def compact_chain_table(
    source: TableSource, partition: tuple[str, ...], overwrite: bool, dry_run: bool, as_json: bool
) -> None:
    """Merge partitions of the delta branch of TABLE, a chain table, into its snapshot branch.

    Each gets the rows that batch readers of TABLE find in it, and is read from the snapshot branch from then on. What
    is written to its delta partitions later counts after another merge with --overwrite.
    """
    table = source.load()
    report = merge_chain(table, pairs(partition, "--partition"), overwrite=overwrite, dry_run=dry_run)
    _print_buckets(table, report, dry_run, as_json)
    _print_report(source.name, report, dry_run, as_json, "merged")


@click.command(
    epilog="""\b
Examples:
  paimon-stream materialize-deletion-vectors db.features --dry-run
  paimon-stream materialize-deletion-vectors db.features --where "day >= '2026-11-01'"
"""
)
@on_table
@partition_options
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Files at the same time.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print which files would be replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print what was replaced as JSON, one element per file.")
def materialize_deletion_vectors(
    source: TableSource, chosen: Chosen, threads: int, dry_run: bool, as_json: bool
) -> None:
    """Drop the deleted rows from the files of TABLE, which has data evolution: compactions keep them.

    Rows of files with deleted rows get new row ids, and global indexes of their partitions are dropped. Streams receive
    nothing. Partitions that others change meanwhile stay as they are.
    """
    table = source.load()
    report = materialize(table, threads=threads, dry_run=dry_run, **chosen)
    _print_buckets(table, report, dry_run, as_json)
    _print_report(source.name, report, dry_run, as_json, "replaced")


@click.command(
    epilog="""\b
Examples:
  paimon-stream rewrite-file-index db.orders --dry-run
  paimon-stream rewrite-file-index db.orders --where "day >= '2026-11-01'"
"""
)
@on_table
@partition_options
@click.option("--full", is_flag=True, help="Of all files. [default: of those that lack one or have one too many]")
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Groups of files at the same time."
)
@click.option("--dry-run", is_flag=True, help="Write nothing; print which files would get other indexes.")
@click.option("--json", "as_json", is_flag=True, help="Print which files have got other indexes as JSON.")
def rewrite_file_index(
    source: TableSource, chosen: Chosen, full: bool, threads: int, dry_run: bool, as_json: bool
) -> None:
    """Give data files of TABLE the file indexes that its options ask for. Data files are not written again.

    Rows and streams do not change. Files that others compact meanwhile are left for the next run.
    """
    table = source.load()
    report = rewrite_index(table, full=full, threads=threads, dry_run=dry_run, **chosen)
    _print_buckets(table, report, dry_run, as_json)
    _print_report(source.name, report, dry_run, as_json, "indexed")


def _follow(source: TableSource, opened: Callable[..., Compactor], as_json: bool) -> None:
    def show(report: CompactionReport) -> None:
        _print_report(source.name, report, False, as_json)
        sys.stdout.flush()

    with opened(source.load(retry=True), on_report=show) as running, on_sigterm(running.stop):
        running.wait()


def _print_report(name: str, report: CompactionReport, dry_run: bool, as_json: bool, done: str = "compacted") -> None:
    print_result(_record(name, report, dry_run), _summary(name, report, dry_run, done), "json" if as_json else "text")


def _summary(name: str, report: CompactionReport, dry_run: bool, done: str) -> str:
    skipped = skipped_text(report.skipped)
    if not report.compacted and not report.conflicts:
        return f"{name}: nothing is due{skipped}"
    before = files_text(report.before)
    text = f"{name}: {before} would be {done}" if dry_run else f"{name}: {before} became {files_text(report.after)}"
    if report.conflicts:
        text += f"; {count(len(report.conflicts), 'part')} left, because another job has changed them meanwhile"
    return text + skipped


def skipped_text(partitions: Iterable[SkippedPartition]) -> str:
    return "".join(f"; partition {partition_text(each.partition)}: {each.reason}" for each in partitions)


def _print_buckets(table: WritableTable, report: CompactionReport, dry_run: bool, as_json: bool) -> None:
    if not as_json and report.compacted:
        rows = (_row(each, null_text(table)) for each in report.compacted)
        console().print(table_of(rows, _COLUMNS[:5] if dry_run else _COLUMNS))


def _row(each: CompactedBucket, null: str) -> Record:
    values = (
        partition_text(each.partition, null),
        each.bucket,
        each.before.files,
        decimal(each.before.bytes),
        each.before.rows,
    )
    return dict(zip(_COLUMNS, (*values, each.after.files, decimal(each.after.bytes)), strict=True))


def _record(name: str, report: CompactionReport, dry_run: bool) -> Record:
    return {
        "table": name,
        "dry_run": dry_run,
        "planned_at": report.snapshot_id,
        "snapshots": report.new_snapshot_ids,
        "compacted": _records(report.compacted),
        "conflicts": _records(report.conflicts),
        "skipped": [{"partition": partition_record(each.partition), "reason": each.reason} for each in report.skipped],
    }


def _records(buckets: Iterable[CompactedBucket]) -> list[Record]:
    return [
        {
            "partition": partition_record(each.partition),
            "bucket": each.bucket,
            "before": counted(each.before),
            "after": counted(each.after),
        }
        for each in buckets
    ]


@contextmanager
def _bar() -> Iterator[Progress | None]:
    stderr = Console(stderr=True)
    if not stderr.is_terminal:
        yield None
        return
    columns = (TextColumn("compacting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=stderr, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task("")
        yield partial(_reached, bar, task)


def _reached(bar: Bar, task: Any, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)
