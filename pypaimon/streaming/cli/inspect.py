"""`paimon-stream snapshots` and `paimon-stream doctor`: what a stream of a table reads, skips and risks."""

from __future__ import annotations

import textwrap
from datetime import datetime, timezone

import click
from rich.console import Console

from pypaimon.streaming.cli.messages import shown
from pypaimon.streaming.cli.options import catalog_options, log_options
from pypaimon.streaming.cli.output import Record, console, format_option, printable, show, to_json
from pypaimon.streaming.cli.tables import TableSource, names_of_tables, on_view, retry_option
from pypaimon.streaming.doctor.checks import diagnose
from pypaimon.streaming.doctor.findings import Diagnosis, Finding, Level, count
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.stream_options import overwrite_policy
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.follow_up import CommitKind, FollowUpScanner, follow_up_scanner
from pypaimon.streaming.spec.streamed_table import followed_table

_COLUMNS = ("snapshot", "time", "commit", "rows_added", "changelog_rows", "total_rows", "stream", "why")
_DEFAULT_LAST = 20


@click.command(
    epilog="""\b
Examples:
  paimon-stream tables
  paimon-stream tables db --format json
"""
)
@log_options
@catalog_options
@click.argument("database", required=False)
@format_option
def tables(database: str | None, form: str) -> None:
    """List the tables of DATABASE, or of all databases."""
    names = names_of_tables(database)
    where = "the catalog" if database is None else database
    show([{"table": name} for name in names], ("table",), form, f"{where} has no tables")


@click.command(
    epilog="""\b
Examples:
  paimon-stream snapshots db.orders
  paimon-stream snapshots db.orders --from 10 --to 30 --format json
"""
)
@on_view
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"Only the last N. [default: {_DEFAULT_LAST}]")
@click.option("--from", "first", type=click.IntRange(min=1), metavar="ID", help="From this snapshot.")
@click.option("--to", "until", type=click.IntRange(min=1), metavar="ID", help="Up to this snapshot.")
@format_option
@retry_option
def snapshots(source: TableSource, last: int | None, first: int | None, until: int | None, form: str) -> None:
    """Show the snapshots of TABLE, and whether a stream scans each of them or passes it over, and why.

    For a chain table, these are the snapshots of the delta branch, which a stream follows.
    """
    directory = TableDirectory.of(followed_table(source.load())[0])
    manager = directory.snapshots
    earliest, latest = manager.earliest_id(), manager.latest_id()
    records: list[Record] = []
    if earliest is not None and latest is not None:
        high = latest if until is None else min(latest, until)
        low = earliest if first is None else max(earliest, first)
        if first is None or last is not None:
            low = max(low, high - (last or _DEFAULT_LAST) + 1)
        schema = directory.reading_schema(directory.latest_schema().id)
        verdict = Verdict(TableTraits.of(schema), schema.options)
        found = manager.get_snapshots_batch(range(low, high + 1))
        records = [_record(snapshot, verdict) for snapshot in found.values() if snapshot is not None]
    show(records, _COLUMNS, form, f"{source.name} has no such snapshots")


class Verdict:
    def __init__(self, traits: TableTraits, options: TableOptions) -> None:
        self._traits = traits
        self._scanner: FollowUpScanner = follow_up_scanner(traits)
        self._reads_overwrites = overwrite_policy(traits, options, None)

    def of(self, snapshot: Snapshot) -> tuple[str, str]:
        kind = snapshot.commit_kind
        if kind == CommitKind.OVERWRITE and self._reads_overwrites:
            return "overwrite", "overwrites are read: an option of the table asks for it"
        if self._scanner.should_scan(snapshot):
            if self._scanner.kind is PlanKind.CHANGELOG:
                return "changelog", "it has changelog files"
            return "delta", "it added files"
        return "passed over", self._why_not(snapshot)

    def _why_not(self, snapshot: Snapshot) -> str:
        kind = snapshot.commit_kind
        if kind == CommitKind.ANALYZE:
            return "statistics only"
        if self._scanner.kind is PlanKind.CHANGELOG:
            later = "a later compaction writes the changelog" if kind != CommitKind.COMPACT else "it changed no row"
            complete = self._traits.producer.complete
            return f"no changelog files: {later if complete else 'the commit has data files only'}"
        if kind == CommitKind.COMPACT:
            return "a compaction changes no row"
        if not snapshot.overwrites_rows:
            return "it divides the same rows into other buckets"
        append, keyed = option_keys.STREAMING_READ_APPEND_OVERWRITE, option_keys.STREAMING_READ_OVERWRITE
        option = keyed if self._traits.primary_key else append
        return f"overwrites are not read; {option} = true reads them"


def _record(snapshot: Snapshot, verdict: Verdict) -> Record:
    stream, why = verdict.of(snapshot)
    return {
        "snapshot": snapshot.id,
        "time": datetime.fromtimestamp(snapshot.time_millis / 1000, tz=timezone.utc),
        "commit": str(snapshot.commit_kind),
        "schema": snapshot.schema_id,
        "rows_added": snapshot.delta_record_count,
        "changelog_rows": snapshot.changelog_record_count,
        "total_rows": snapshot.total_record_count,
        "watermark": snapshot.watermark,
        "stream": stream,
        "why": why,
    }


_STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}

_HEAD = 2 + max(len(level.value) for level in Level)
_LEAST_WIDTH = 40


@click.command(
    epilog="""\b
Examples:
  paimon-stream doctor db.orders
  paimon-stream doctor db.orders --json | jq '.findings[] | select(.level != "ok")'
  paimon-stream doctor db.orders || page-someone

\b
Exit codes: 1 if there is a problem; warnings do not count.
"""
)
@on_view
@click.option(
    "--orphans",
    is_flag=True,
    help="Also count the files that paimon-stream maintain --orphans 1d would delete. Lists all directories.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@format_option
@retry_option
def doctor(source: TableSource, form: str, as_json: bool, orphans: bool) -> int:
    """Examine TABLE once, and report what a stream of it yields, what it costs, and which risks it has.

    Covers its kind and changelog, expiry compared with the consumers' progress, files that a first plan opens and
    merges, files that are due for compaction, and snapshots that streams skip. Each finding is ok, a note, a warning or
    a problem. Nothing is written. JSON is one object.
    """
    diagnosis = diagnose(source.load(), orphans=orphans)
    if as_json or form == "json":
        click.echo(to_json(_diagnosis_record(diagnosis)))
    else:
        _show(diagnosis, console())
    return 0 if diagnosis.is_healthy else 1


def _diagnosis_record(diagnosis: Diagnosis) -> Record:
    return {
        "table": diagnosis.table,
        "healthy": diagnosis.is_healthy,
        "findings": [_finding(each) for each in diagnosis.findings],
        "requests": diagnosis.requests,
    }


def _finding(finding: Finding) -> Record:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "text": finding.text,
        "advice": finding.advice or None,
        "facts": finding.facts,
    }


def _show(diagnosis: Diagnosis, out: Console) -> None:
    for finding in diagnosis.findings:
        _print(out, finding.level.value, finding.text, _STYLES[finding.level])
        if finding.advice:
            _print(out, "", f"-> {finding.advice}", "")
    asked = ", ".join(f"{number} {kind}" for kind, number in diagnosis.requests.items())
    out.print(f"{diagnosis.table}: {_summary(diagnosis)}; requests: {asked}", style="bold", markup=False)


def _print(out: Console, head: str, text: str, style: str) -> None:
    for line in textwrap.wrap(printable(shown(text)), max(_LEAST_WIDTH, out.width - _HEAD - 1)):
        out.print(f"{head:{_HEAD}}{line}", style=style, markup=False, soft_wrap=True)
        head = ""


def _summary(diagnosis: Diagnosis) -> str:
    levels = [finding.level for finding in diagnosis.findings]
    problems, warnings = levels.count(Level.PROBLEM), levels.count(Level.WARNING)
    return f"{count(problems, 'problem')}, {count(warnings, 'warning')}"
