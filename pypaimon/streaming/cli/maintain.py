"""`paimon-stream maintain`: expire what a table no longer keeps, and delete the files that nothing needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

import click
from rich.filesize import decimal

from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.cli.options import Retrying, grouped, option
from pypaimon.streaming.cli.output import Record, print_result
from pypaimon.streaming.cli.tables import TableSource, duration, on_table, patiently, refuse_without
from pypaimon.streaming.cli.tables_of_pattern import TableChoice, TablesOfPattern, say_failures
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.filtering.partition_texts import partition_text
from pypaimon.streaming.maintenance.plan import MaintenanceReport
from pypaimon.streaming.maintenance.policy import MaintenancePolicy
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.table_maintenance import maintain as maintain_table


@dataclass(frozen=True)
class Keeping:
    """What is kept, in place of what the options of the table say."""

    min_snapshots: int | None = option(
        "--min-snapshots", type=click.IntRange(1), metavar="N", help="Keep the last N snapshots at any age."
    )
    max_snapshots: int | None = option(
        "--max-snapshots", type=click.IntRange(1), metavar="N", help="Keep N snapshots at most."
    )
    snapshot_age: str | None = option("--snapshot-age", metavar="TIME", help="Keep other snapshots this long (2h, 7d).")
    min_changelogs: int | None = option(
        "--min-changelogs", type=click.IntRange(1), metavar="N", help="Keep the last N changelogs at any age."
    )
    max_changelogs: int | None = option(
        "--max-changelogs", type=click.IntRange(1), metavar="N", help="Keep N changelogs at most."
    )
    changelog_age: str | None = option(
        "--changelog-age", metavar="TIME", help="Keep other changelogs of expired snapshots this long."
    )
    keep_tags: bool = option("--keep-tags", is_flag=True, help="Keep tags whose own retention has passed.")
    partition_age: str | None = option(
        "--partition-age", metavar="TIME", help="Drop partitions that are this old (90d)."
    )
    keep_partitions: bool = option("--keep-partitions", is_flag=True, help="Drop no partition.")
    compact: bool = option("--compact", is_flag=True, help="First compact what is due, as paimon-stream compact does.")
    rewrite_manifests: bool = option(
        "--rewrite-manifests", is_flag=True, help="Merge all manifests that are small or hold deletes."
    )
    limit: int | None = option(
        "--limit", type=click.IntRange(0), metavar="N", help="Expire N snapshots at most in one run."
    )
    protect: tuple[int, ...] = option(
        "--protect", type=int, multiple=True, metavar="ID", help="Keep what a reader whose next snapshot is ID needs."
    )
    orphans: str | None = option(
        "--orphans", metavar="AGE", help="Also delete files that nothing names and that are this old (1d or more)."
    )
    young_orphans: bool = option(
        "--young-orphans", is_flag=True, help="Allow --orphans below a day, because no writer is running."
    )

    def policy(self) -> MaintenancePolicy:
        """The policy that these options describe."""
        if self.orphans is None:
            refuse_without("--orphans", {"--young-orphans": self.young_orphans})
        return MaintenancePolicy(
            min_snapshots=self.min_snapshots,
            max_snapshots=self.max_snapshots,
            snapshot_age=_age("--snapshot-age", self.snapshot_age),
            min_changelogs=self.min_changelogs,
            max_changelogs=self.max_changelogs,
            changelog_age=_age("--changelog-age", self.changelog_age),
            expire_tags=False if self.keep_tags else None,
            expire_limit=self.limit,
            expire_partitions=not self.keep_partitions,
            partition_age=_age("--partition-age", self.partition_age),
            rewrite_manifests=self.rewrite_manifests,
            compact=self.compact,
            protect=self.protect,
            orphan_age=_age("--orphans", self.orphans),
            young_orphans=self.young_orphans,
        )


@click.command(
    epilog="""\b
Examples:
  paimon-stream maintain db.orders --dry-run
  paimon-stream maintain db.orders
  paimon-stream maintain db.orders --snapshot-age 7d --orphans 3d
  paimon-stream maintain db.orders --partition-age 90d --rewrite-manifests
  paimon-stream maintain db.orders --compact
  paimon-stream maintain 'db.*' --every 1h
"""
)
@on_table
@grouped("choice", TableChoice)
@grouped("keeping", Keeping)
@click.option("--every", metavar="TIME", help="Run again after this time (10m, 1h), until Ctrl-C. [default: once]")
@click.option("--dry-run", is_flag=True, help="Delete nothing; print what would be deleted.")
@grouped("retrying", Retrying)
@click.option("--json", "as_json", is_flag=True, help="Print the plan of each table as one JSON object.")
def maintain(
    source: TableSource,
    choice: TableChoice,
    keeping: Keeping,
    every: str | None,
    dry_run: bool,
    retrying: Retrying,
    as_json: bool,
) -> int:
    """Expire partitions, snapshots, tags and the like of TABLE as its options say, and delete what nothing needs.

    Automatic tags that are due are created first. What consumers, tags and branches need stays, whatever the options
    say. Runs next to writers, compactions and readers; a run that is killed is finished by the next one. 'db.orders_*'
    stands for the tables that it matches.
    """
    policy, pause = keeping.policy(), _age("--every", every)
    if pause is not None and not pause:
        raise click.UsageError("--every: give a time above 0")
    pattern = TablesOfPattern.of(source, choice)
    form = "json" if as_json else "text"
    run: Callable[[], int]
    if pattern is None:
        run = partial(_maintain_one, source, policy, dry_run, retrying.retry or pause is not None, form)
    else:
        run = partial(_maintain_each, pattern, policy, dry_run, form)
    if pause is None:
        return run()
    stopped: SimpleQueue[None] = SimpleQueue()
    with on_sigterm(partial(stopped.put, None)):
        while True:
            run()
            with suppress(Empty):
                return stopped.get(timeout=pause.total_seconds()) or 0


def _maintain_one(source: TableSource, policy: MaintenancePolicy, dry_run: bool, retry: bool, form: str) -> int:
    def run() -> MaintenanceReport:
        return maintain_table(source.load(), policy, dry_run=dry_run)

    _show(source.name, patiently(run) if retry else run(), form)
    return 0


def _maintain_each(pattern: TablesOfPattern, policy: MaintenancePolicy, dry_run: bool, form: str) -> int:
    def run(_: TableSource, table: WritableTable) -> MaintenanceReport:
        return maintain_table(table, policy, dry_run=dry_run)

    answers = pattern.ask_each(run)
    if not answers:
        say(f"no table matches {pattern.text}")
    for name, answer in sorted(answers.items()):
        if isinstance(answer, MaintenanceReport):
            _show(f"{pattern.database}.{name}", answer, form)
    return say_failures({name: each for name, each in answers.items() if isinstance(each, Exception)})


def _show(name: str, report: MaintenanceReport, form: str) -> None:
    dropped = [dict(each) for each in report.dropped_partitions]
    record: Record = {
        **report.plan.to_value(), "dropped": dropped, "dry_run": report.dry_run, "resumed_files": report.resumed
    }  # fmt: skip
    print_result(record, "\n".join(report_lines(name, report)), form)


def report_lines(name: str, report: MaintenanceReport) -> Iterator[str]:
    """What a run did, for people.

    Args:
        name: The table.
        report: The report of the run.
    """
    plan = report.plan
    if report.is_empty:
        yield f"{name}: nothing is due"
    if plan.compaction is not None and plan.compaction.files:
        verb = "would compact" if report.dry_run else "compacted"
        yield f"{name}: {verb} {count(plan.compaction.files, 'file')} ({decimal(plan.compaction.bytes)})"
    if plan.created_tags:
        tags = ", ".join(f"{each.name} of snapshot {each.snapshot.id}" for each in plan.created_tags)
        verb = "would create" if report.dry_run else "created"
        yield f"{name}: {verb} {count(len(plan.created_tags), 'tag')} ({tags})"
    parts = [*_parts(report)]
    if parts:
        yield f"{name}: {'would delete' if report.dry_run else 'deleted'} {'; '.join(parts)}"
    if plan.done_partitions:
        done = _some([partition_text(each, plan.null_text) for each in plan.done_partitions], "partition")
        yield f"{name}: {'would mark' if report.dry_run else 'marked'} {done} as done"
    if plan.rewritten_manifests:
        merge = "would merge" if report.dry_run else "merged"
        yield f"{name}: {merge} {count(plan.rewritten_manifests, 'manifest')}"
    for each in plan.held_back:
        held = [number for number in plan.held_ids if number >= each.first_kept]
        if held:
            kept = f"{count(len(held), 'snapshot')} ({held[0]} to {held[-1]}) that would expire otherwise"
            yield f"  {each.kind} {each.name} keeps {kept}; it reads snapshot {each.next_snapshot} next"


def _parts(report: MaintenanceReport) -> Iterator[str]:
    plan = report.plan
    if partitions := plan.partitions if report.dry_run else report.dropped_partitions:
        yield _some([partition_text(each, plan.null_text) for each in partitions], "partition")
    if plan.snapshot_ids:
        yield f"{count(len(plan.snapshot_ids), 'snapshot')} ({plan.snapshot_ids[0]} to {plan.snapshot_ids[-1]})"
    for what, found in (("changelog", plan.changelog_ids), ("tag", plan.deleted_tags), ("consumer", plan.consumers)):
        if found:
            yield _some([*map(str, found)], what)
    if plan.files:
        kinds = ", ".join(f"{number} {kind}" for kind, number in plan.file_counts.items())
        # Manifest lists say no size.
        size = f"; {decimal(plan.bytes)}" if plan.bytes else ""
        yield f"{count(len(plan.files), 'file')} ({kinds}{size})"
    if report.resumed:
        yield f"{count(report.resumed, 'file')} of a run that did not end"


def _some(names: Sequence[str], what: str) -> str:
    return f"{count(len(names), what)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _age(name: str, text: str | None) -> timedelta | None:
    age = None if text is None else duration(text)
    if text is not None and age is None:
        raise click.UsageError(f"{name} {text!r}: give a time as 90s, 5m, 2h, 1d")
    return age
