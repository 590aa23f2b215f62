"""`paimon-stream rollback`: make an earlier snapshot of a table the latest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from pypaimon.streaming.cli.confirmation import confirm, yes_option
from pypaimon.streaming.cli.options import grouped, option
from pypaimon.streaming.cli.output import print_result
from pypaimon.streaming.cli.tables import TableSource, on_table, start_of
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.maintenance.overtaken import Overtaken
from pypaimon.streaming.maintenance.table_rollback import RollbackReport
from pypaimon.streaming.maintenance.table_rollback import rollback as roll_back
from pypaimon.streaming.model.time_zone import zone_of_table
from pypaimon.streaming.paimon.handles import ReadableTable


@dataclass(frozen=True)
class RollbackChoice:
    """Where to."""

    to_snapshot: int | None = option("--to-snapshot", type=click.IntRange(1), metavar="ID", help="To this snapshot.")
    to_tag: str | None = option("--to-tag", metavar="NAME", help="To the snapshot of this tag, also if it has expired.")
    to_time: str | None = option(
        "--to-time",
        metavar="TIME",
        help="To the last snapshot until then: a time as 2026-11-21T10:00, or how long ago as 10m.",
    )
    to_watermark: int | None = option(
        "--to-watermark", type=int, metavar="MILLIS", help="To the last snapshot with this watermark, or a smaller one."
    )

    def arguments(self, table: ReadableTable) -> dict[str, Any]:
        """The choice as arguments of `rollback`."""
        found: dict[str, Any] = {"snapshot_id": self.to_snapshot, "tag": self.to_tag, "watermark": self.to_watermark}
        if self.to_time is not None:
            started = {} if self.to_time.isdecimal() else start_of(self.to_time, zone_of_table(table))
            if "timestamp" not in started:
                raise click.UsageError(f"--to-time {self.to_time!r}: give a time as 2026-11-21T10:00, or as 10m")
            found |= started
        return {name: value for name, value in found.items() if value is not None}


@click.command(
    epilog="""\b
Examples:
  paimon-stream rollback db.orders --to-snapshot 42 --dry-run
  paimon-stream rollback db.orders --to-tag before-import --yes
  paimon-stream rollback db.orders --to-time 2h --as-latest
"""
)
@on_table
@grouped("choice", RollbackChoice)
@click.option("--as-latest", is_flag=True, help="Delete nothing; commit that state as a new snapshot.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def rollback(
    source: TableSource, choice: RollbackChoice, as_latest: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Make an earlier snapshot of TABLE the latest one: delete the later ones, with their tags and changelogs.

    Consumers and writers whose progress is beyond it are named; their files stay as they are.
    """
    table = source.load()
    arguments = choice.arguments(table)
    if len(arguments) != 1:
        raise click.UsageError("give one of --to-snapshot, --to-tag, --to-time and --to-watermark")
    if not (dry_run or yes or as_latest):
        planned = roll_back(table, **arguments, dry_run=True)
        click.echo("\n".join(_lines(source.name, planned)), err=True)
        confirm(yes, f"Roll {source.name} back to snapshot {planned.target_id}?")
    report = roll_back(table, **arguments, as_latest=as_latest, dry_run=dry_run)
    print_result(asdict(report), "\n".join(_lines(source.name, report)), "json" if as_json else "text")


def _lines(name: str, report: RollbackReport) -> Iterator[str]:
    would = "would be " if report.dry_run else ""
    if report.latest_id == report.target_id:
        yield f"{name}: {would}rolled back to snapshot {report.target_id}; deleted: {_deleted(report)}"
    else:
        latest = "a new snapshot" if report.latest_id is None else f"snapshot {report.latest_id}"
        yield f"{name}: {latest} {'would have' if report.dry_run else 'has'} the state of snapshot {report.target_id}"
    if report.restored:
        yield f"  snapshot {report.target_id} had expired, and is restored from its tag"
    if report.holding_tag is not None:
        yield f"  tag {report.holding_tag} keeps its files from Java's expiry"
    yield from overtaken_lines(report.overtaken)


def _deleted(report: RollbackReport) -> str:
    ids = report.deleted_snapshots
    parts = [f"{count(len(ids), 'snapshot')} ({ids[0]} to {ids[-1]})"] if ids else []
    for what, found in (("changelog", report.deleted_changelogs), ("tag", report.deleted_tags)):
        if found:
            parts.append(f"{count(len(found), what)} ({', '.join(map(str, found[:3]))}{', ...' if found[3:] else ''})")
    return "; ".join(parts) or "nothing"


def overtaken_lines(overtaken: Iterable[Overtaken]) -> Iterator[str]:
    """A line for each of those whose progress is beyond the latest snapshot."""
    for each in overtaken:
        what = "has a commit in" if each.kind == "writer" else "continues at"
        yield f"  {each.kind} {each.name} {what} snapshot {each.next_snapshot}, which is taken back"
