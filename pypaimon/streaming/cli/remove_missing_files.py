"""`paimon-stream remove-missing-files`: forget data files that are gone from the store."""

from __future__ import annotations

import click

from pypaimon.streaming.cli.confirmation import confirm, yes_option
from pypaimon.streaming.cli.output import Record, print_result
from pypaimon.streaming.cli.tables import TableSource, on_table
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.maintenance.missing_files import MissingFiles
from pypaimon.streaming.maintenance.missing_files import remove_missing_files as remove_files

_MOST_PATHS = 10


@click.command(
    "remove-missing-files",
    epilog="""\b
Examples:
  paimon-stream remove-missing-files db.orders --dry-run
  paimon-stream remove-missing-files db.orders --yes
""",
)
@on_table
@click.option("--dry-run", is_flag=True, help="Change nothing; print which files are missing.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def remove_missing_files(source: TableSource, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Make TABLE readable again whose data files are gone from the store: a commit without them.

    Their rows are lost already. If the files can be restored, restore them instead. The missing files are printed
    first, and you are asked.
    """
    table = source.load()
    found = remove_files(table, dry_run=True)
    if found.paths and not dry_run:
        if not yes:
            click.echo(_text(source.name, found, dry_run=True), err=True)
            confirm(yes, f"Remove {count(len(found.paths), 'file')} from {source.name}?")
        found = remove_files(table)
    record: Record = {"files": list(found.paths), "rows": found.rows, "snapshot": found.snapshot_id, "dry_run": dry_run}
    print_result(record, _text(source.name, found, dry_run=dry_run), "json" if as_json else "text")


def _text(name: str, found: MissingFiles, *, dry_run: bool) -> str:
    if not found.paths:
        return f"{name}: no data file is missing"
    verb = "would remove" if dry_run else "removed"
    lines = [f"{name}: {verb} {count(len(found.paths), 'missing file')} with {count(found.rows, 'row')}"]
    lines += [f"  {path}" for path in found.paths[:_MOST_PATHS]]
    if len(found.paths) > _MOST_PATHS:
        lines.append(f"  and {len(found.paths) - _MOST_PATHS} more")
    return "\n".join(lines)
