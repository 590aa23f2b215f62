"""`paimon-stream branch`: create, list, rename, delete the branches of a table, and fast-forward it to one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone

import click

from pypaimon.streaming.cli.confirmation import confirm, yes_option
from pypaimon.streaming.cli.options import catalog_options, log_options
from pypaimon.streaming.cli.output import Record, format_option, print_result, show, with_blanks
from pypaimon.streaming.cli.rollback import overtaken_lines
from pypaimon.streaming.cli.tables import TableSource, on_table, retry_option
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.maintenance.branch_fast_forward import FastForwardReport
from pypaimon.streaming.maintenance.branch_fast_forward import fast_forward as forward
from pypaimon.streaming.maintenance.branch_merge import merge_branch
from pypaimon.streaming.maintenance.branches import create_branch, delete_branch, rename_branch
from pypaimon.streaming.metadata.table_directory import TableDirectory

_COLUMNS = ("branch", "earliest_snapshot", "latest_snapshot", "latest_commit")
_name = click.argument("name", metavar="NAME")
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


@click.group(
    epilog="""\b
Examples:
  paimon-stream branch list db.orders
  paimon-stream branch create db.orders test --tag v1
  paimon-stream branch fast-forward db.orders test --dry-run
"""
)
@log_options
@catalog_options
def branch() -> None:
    """Create, list, rename, merge and delete the branches of a table, and fast-forward it to one."""


@branch.command(
    "list",
    epilog="""\b
Example:
  paimon-stream branch list db.orders --format json
""",
)
@on_table
@format_option
@retry_option
def list_command(source: TableSource, form: str) -> None:
    """List the branches of TABLE, with their snapshots."""
    directory = TableDirectory.of(source.load())
    names = [name for name in directory.branch_names() if name != directory.branch]
    records = [_record(name, directory.of_branch(name)) for name in names]
    show(records if form == "json" else with_blanks(records), _COLUMNS, form, f"{source.name} has no branches")


@branch.command(
    epilog="""\b
Examples:
  paimon-stream branch create db.orders test
  paimon-stream branch create db.orders test --tag v1
"""
)
@on_table
@_name
@click.option("--tag", metavar="TAG", help="Begin with the snapshot of this tag. [default: an empty branch]")
@_json
def create(source: TableSource, name: str, tag: str | None, as_json: bool) -> None:
    """Create branch NAME of TABLE: empty, or of a tag."""
    create_branch(source.load(), name, tag=tag)
    _print({"branch": name, "tag": tag}, f"Branch {name} of {source.name} is created.", as_json)


@branch.command(
    epilog="""\b
Example:
  paimon-stream branch delete db.orders test --yes
"""
)
@on_table
@_name
@yes_option
@_json
def delete(source: TableSource, name: str, yes: bool, as_json: bool) -> None:
    """Delete branch NAME of TABLE, with its snapshots, tags and consumers. `maintain` deletes its data files."""
    table = source.load()
    confirm(yes, f"Delete branch {name} of {source.name}?")
    left = delete_branch(table, name)
    text = f"Branch {name} of {source.name} is deleted; {count(left, 'file')} of it are left for maintain."
    _print({"branch": name, "files_for_maintain": left}, text, as_json)


@branch.command(
    epilog="""\b
Example:
  paimon-stream branch rename db.orders test accepted
"""
)
@on_table
@_name
@click.argument("new_name", metavar="NEW")
@_json
def rename(source: TableSource, name: str, new_name: str, as_json: bool) -> None:
    """Rename branch NAME of TABLE to NEW."""
    rename_branch(source.load(), name, new_name)
    _print({"branch": new_name, "former": name}, f"Branch {name} of {source.name} is {new_name} now.", as_json)


@branch.command(
    "fast-forward",
    epilog="""\b
Examples:
  paimon-stream branch fast-forward db.orders test --dry-run
  paimon-stream branch fast-forward db.orders test
  paimon-stream branch fast-forward db.orders test --discard-own-commits --yes
""",
)
@on_table
@_name
@click.option("--discard-own-commits", is_flag=True, help="Delete what TABLE has got since the fork.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@yes_option
@_json
def fast_forward(
    source: TableSource, name: str, discard_own_commits: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Give TABLE the snapshots, tags and schemas of its branch NAME, which stays.

    Commits of TABLE since the fork are refused without --discard-own-commits, and named.
    """
    table = source.load()
    if discard_own_commits and not (dry_run or yes):
        planned = forward(table, name, discard_own_commits=True, dry_run=True)
        click.echo("\n".join(_lines(source.name, planned)), err=True)
        confirm(yes, f"Fast-forward {source.name} to branch {name}?")
    report = forward(table, name, discard_own_commits=discard_own_commits, dry_run=dry_run)
    _print(asdict(report), "\n".join(_lines(source.name, report)), as_json)


@branch.command(
    epilog="""\b
Examples:
  paimon-stream branch merge db.events backfill --dry-run
  paimon-stream branch merge db.events backfill
"""
)
@on_table
@_name
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be added.")
@_json
def merge(source: TableSource, name: str, dry_run: bool, as_json: bool) -> None:
    """Add the rows that branch NAME has got since the fork to TABLE, which has no primary key, in one commit.

    Both may only have appended since then. Rows that were merged before are not added again.
    """
    report = merge_branch(source.load(), name, dry_run=dry_run)
    verb = "would get" if dry_run else "has got"
    text = f"{source.name} {verb} {count(report.rows, 'row')} in {count(report.files, 'file')} of branch {name}"
    _print(asdict(report), text, as_json)


def _lines(name: str, report: FastForwardReport) -> Iterator[str]:
    copied = count(len(report.copied_snapshots), "snapshot")
    verb = "would get" if report.dry_run else "has got"
    fork = "nothing in common" if report.fork_id is None else f"the fork is snapshot {report.fork_id}"
    yield f"{name} {verb} {copied} of branch {report.branch} ({fork})"
    lost = (
        ("snapshot", report.lost_snapshots),
        ("changelog", report.lost_changelogs),
        ("tag", report.lost_tags),
        ("schema", report.lost_schemas),
    )
    for what, found in lost:
        if found:
            names = f"{what}{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
            yield f"  {'would lose' if report.dry_run else 'lost'} {names}"
    yield from overtaken_lines(report.overtaken)


def _record(name: str, directory: TableDirectory) -> Record:
    latest = directory.snapshots.get_latest_snapshot()
    return {
        "branch": name,
        "earliest_snapshot": directory.snapshots.earliest_id(),
        "latest_snapshot": None if latest is None else latest.id,
        "latest_commit": None if latest is None else datetime.fromtimestamp(latest.time_millis / 1000, timezone.utc),
    }


def _print(record: Record, text: str, as_json: bool) -> None:
    print_result(record, text, "json" if as_json else "text")
