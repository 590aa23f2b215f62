"""`paimon-stream compact`: small files into large ones, sorted runs into fewer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pypaimon.streaming.cli.option_groups import Retrying, grouped, option
from pypaimon.streaming.cli.output import Record, console, print_result, table_of
from pypaimon.streaming.cli.partitions import (
    Chosen,
    counted,
    files_text,
    partition_options,
    partition_record,
    partition_text,
)
from pypaimon.streaming.cli.tables import TableSource, on_table, patiently
from pypaimon.streaming.compaction.background import Compactor
from pypaimon.streaming.compaction.compactor import Progress
from pypaimon.streaming.compaction.compactor import compact as compact_table
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.doctor.findings import count

_COLUMNS = ("partition", "bucket", "files", "size", "records", "files_after", "size_after")


@dataclass(frozen=True)
class Running:
    """How often the table is compacted, and how."""

    follow: bool = option("--follow", is_flag=True, help="Compact again and again. [default: once]")
    every: float = option(
        "--every",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        help="With --follow: seconds between compactions.",
    )
    threads: int = option(
        "--threads", type=click.IntRange(1), default=1, show_default=True, help="Buckets at the same time."
    )
    dry_run: bool = option("--dry-run", is_flag=True, help="Write nothing; print what would be compacted.")


@click.command(
    epilog="""\b
Examples:
  paimon-stream compact db.orders
  paimon-stream compact db.orders --dry-run
  paimon-stream compact db.orders --full --partition day=2026-11-21
  paimon-stream compact db.orders --full --where "day < '2026-11-01'" --idle 1d
  paimon-stream compact db.orders --follow --every 300
"""
)
@on_table
@click.option("--full", is_flag=True, help="All of each bucket, and few small files too. [default: what is due]")
@partition_options
@grouped("running", Running)
@grouped("retrying", Retrying)
@click.option("--json", "as_json", is_flag=True, help="Print what was compacted as JSON, one element per bucket.")
def compact(
    source: TableSource,
    full: bool,
    chosen: Chosen,
    running: Running,
    retrying: Retrying,
    as_json: bool,
) -> None:
    """Compact what is due in TABLE, as its options say: small files into large ones, sorted runs into fewer.

    Rows and streams do not change. Writers are never blocked; buckets that they change meanwhile are left for the next
    run. Run it from time to time, or with --follow, next to writers with the table option write-only = true.
    """
    if running.follow:
        if running.dry_run:
            raise click.UsageError("--follow and --dry-run contradict each other")
        _follow(
            source,
            partial(Compactor, full=full, threads=running.threads, interval=running.every, **chosen),
            as_json,
        )
        return

    def run() -> CompactionReport:
        with _bar() as progress:
            return compact_table(
                source.load(),
                full=full,
                threads=running.threads,
                dry_run=running.dry_run,
                on_progress=progress,
                **chosen,
            )

    report = patiently(run) if retrying.retry else run()
    if not as_json and report.compacted:
        console().print(table_of(map(_row, report.compacted), _COLUMNS[:5] if running.dry_run else _COLUMNS))
    _print_report(source.name, report, running.dry_run, as_json)


def _follow(source: TableSource, opened: Callable[..., Compactor], as_json: bool) -> None:
    """Compact until SIGTERM or Ctrl-C, and print a report of each compaction that changed something."""

    def show(report: CompactionReport) -> None:
        _print_report(source.name, report, False, as_json)
        sys.stdout.flush()

    with opened(source.load(retry=True), on_report=show) as running, on_sigterm(running.stop):
        running.wait()


def _print_report(name: str, report: CompactionReport, dry_run: bool, as_json: bool) -> None:
    print_result(_record(name, report, dry_run), _summary(name, report, dry_run), "json" if as_json else "text")


def _summary(name: str, report: CompactionReport, dry_run: bool) -> str:
    if not report.compacted and not report.conflicts:
        return f"{name}: nothing is due"
    before = files_text(report.before)
    text = f"{name}: {before} would be compacted" if dry_run else f"{name}: {before} became {files_text(report.after)}"
    if report.conflicts:
        text += f"; {count(len(report.conflicts), 'part')} left, because another job has changed them meanwhile"
    return text


def _row(each: CompactedBucket) -> Record:
    values = (
        partition_text(each.partition),
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
    """Bytes that are done of all, on a terminal."""
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
