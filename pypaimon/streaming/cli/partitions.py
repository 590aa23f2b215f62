"""`paimon-stream partitions`: list, drop, mark-done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.filesize import decimal

from pypaimon.streaming.cli.options import catalog_options, log_options
from pypaimon.streaming.cli.output import Record, format_option, print_result, show
from pypaimon.streaming.cli.tables import TableSource, null_text, on_table, retry_option
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.filtering.partition_texts import partition_text, partition_values
from pypaimon.streaming.maintenance.done_marks import mark_partitions_done
from pypaimon.streaming.maintenance.partition_files import PartitionFiles
from pypaimon.streaming.maintenance.partitions import drop_partitions, list_partitions
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.handles import WritableTable

_COLUMNS = ("partition", "files", "size", "records", "last_write")

_partitions: Callable[[Any], Any] = click.argument("partitions", metavar="PARTITION...", nargs=-1, required=True)


@click.group(
    epilog="""\b
Examples:
  paimon-stream partitions list db.orders
  paimon-stream partitions drop db.orders day=2026-11-21 day=2026-11-22/hour=8 --dry-run
  paimon-stream partitions mark-done db.orders day=2026-11-21/hour=7
"""
)
@log_options
@catalog_options
def partitions() -> None:
    """List and drop the partitions of a table, and mark them as done."""


@partitions.command(
    "list",
    epilog="""\b
Examples:
  paimon-stream partitions list db.orders
  paimon-stream partitions list db.orders --format json | jq .values
""",
)
@on_table
@format_option
@retry_option
def list_command(source: TableSource, form: str) -> None:
    """List the partitions of TABLE with their files and the time of their last write, compactions included."""
    found = list_partitions(source.load())
    show([_record(each, form) for each in found], _COLUMNS, form, f"{source.name} has no partitions")


@partitions.command(
    epilog="""\b
Examples:
  paimon-stream partitions drop db.orders day=2026-11-21 --dry-run
  paimon-stream partitions drop db.orders day=2026-11-21/hour=7 day=2026-11-21/hour=8 --yes
"""
)
@on_table
@_partitions
@click.option("--dry-run", is_flag=True, help="Delete nothing; print what would be dropped.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@format_option
def drop(source: TableSource, partitions: tuple[str, ...], dry_run: bool, yes: bool, form: str) -> None:
    """Delete all rows of each PARTITION of TABLE, in one commit.

    A PARTITION is COLUMN=VALUE/COLUMN=VALUE, as partitions list prints it, or a JSON object, as it is in `values`;
    values of some columns stand for all partitions that have them. The text of the table's option
    partition.default-name is null.
    """
    table = source.load()
    given, null = _values(table, partitions), null_text(table)
    found = drop_partitions(table, given, dry_run=True).partitions
    if found and not dry_run:
        if not yes:
            click.confirm(f"Drop {_texts(found, null)} of {source.name}?", abort=True, err=True)
        done = drop_partitions(table, given)
        found, snapshot = done.partitions, done.snapshot_id
    else:
        snapshot = None
    record: Record = {"partitions": [dict(each) for each in found], "snapshot": snapshot, "dry_run": dry_run}
    print_result(record, f"{source.name}: {'would drop' if dry_run else 'dropped'} {_texts(found, null)}", form)


@partitions.command(
    "mark-done",
    epilog="""\b
Example:
  paimon-stream partitions mark-done db.orders day=2026-11-21/hour=7
""",
)
@on_table
@_partitions
@format_option
def mark_done(source: TableSource, partitions: tuple[str, ...], form: str) -> None:
    """Mark each PARTITION of TABLE as done: write a file _SUCCESS into its directory, as Java does.

    A PARTITION is COLUMN=VALUE/COLUMN=VALUE, with all partition columns.
    """
    table = source.load()
    paths = mark_partitions_done(table, _values(table, partitions))
    print_result({"files": list(paths)}, f"{source.name}: marked {count(len(paths), 'partition')} as done", form)


def _values(table: WritableTable, texts: tuple[str, ...]) -> list[Mapping[str, Any]]:
    return [_named(text, PaimonTable(table).partition_keys) for text in texts]


def _named(text: str, columns: Sequence[str]) -> Mapping[str, Any]:
    try:
        return partition_values(text, columns)
    except ValueError as error:
        raise click.UsageError(f"PARTITION {text!r}: {error}") from error


def _texts(found: tuple[Mapping[str, str | None], ...], null: str) -> str:
    names = ", ".join(partition_text(each, null) for each in found[:5])
    return f"{count(len(found), 'partition')}{f' ({names})' if found else ''}" + (" and more" if len(found) > 5 else "")


def _record(each: PartitionFiles, form: str) -> Record:
    return {
        "partition": each.text,
        "values": dict(each.values),
        "files": each.files,
        "size": each.size if form == "json" else decimal(each.size),
        "records": each.rows,
        "last_write": each.last_write,
    }
