"""`paimon-stream files`: the data files of a table, and what a compaction would take of them."""

from __future__ import annotations

from functools import partial

import click
from rich.filesize import decimal

from pypaimon.streaming.cli.compact import (
    Chosen,
    counted,
    files_text,
    partition_options,
    partition_record,
    skipped_text,
)
from pypaimon.streaming.cli.output import Record, format_option, show
from pypaimon.streaming.cli.tables import TableSource, null_text, on_table, retry_option
from pypaimon.streaming.compaction.table_files import BucketFiles, TableFiles, table_files
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.filtering.partition_texts import partition_text

_COLUMNS = ("partition", "bucket", "files", "size", "records", "levels", "sorted_runs", "due")


@click.command(
    epilog="""\b
Examples:
  paimon-stream files db.orders
  paimon-stream files db.orders --where "day >= '2026-11-01'" --full
  paimon-stream files db.orders --format json
"""
)
@on_table
@partition_options
@click.option("--full", is_flag=True, help="What compact --full would take. [default: what is due]")
@format_option
@retry_option
def files(source: TableSource, chosen: Chosen, full: bool, form: str) -> None:
    """Show the data files of TABLE, a bucket per line: how many, their size, and what a compaction would take of them.

    `levels` has files by level, `sorted_runs` what a reader merges (of tables with a primary key), `due` the files that
    paimon-stream compact would take now. Reads metadata alone.
    """
    table = source.load()
    found = table_files(table, full=full, **chosen)
    record = partial(_row, null=null_text(table)) if form == "table" else _record
    show([record(each, found) for each in found.buckets], _COLUMNS, form, f"{source.name} has no such data files")
    if form == "table" and found.buckets:
        click.echo(f"{source.name}: {_summary(found)}")


def _row(each: BucketFiles, _: TableFiles, null: str) -> Record:
    levels = " ".join(f"{level}:{files.files}" for level, files in each.levels.items())
    counts = each.files.files, decimal(each.files.bytes), each.files.rows, levels
    runs = "" if each.sorted_runs is None else each.sorted_runs
    due = "" if each.due is None else each.due.files
    values = (partition_text(each.partition, null), each.bucket, *counts, runs, due)
    return dict(zip(_COLUMNS, values, strict=True))


def _record(each: BucketFiles, found: TableFiles) -> Record:
    return {
        "table": found.table,
        "snapshot": found.snapshot_id,
        "partition": partition_record(each.partition),
        "bucket": each.bucket,
        **counted(each.files),
        "levels": {str(level): counted(files) for level, files in each.levels.items()},
        "sorted_runs": each.sorted_runs,
        "due": None if each.due is None else counted(each.due),
        "not_compacted": found.not_compacted,
    }


def _summary(found: TableFiles) -> str:
    text = f"{files_text(found.files)} in {count(len(found.buckets), 'bucket')} at snapshot {found.snapshot_id}"
    if found.not_compacted is not None:
        return f"{text}; not compacted here: {found.not_compacted}"
    text += f"; {files_text(found.due)} would be compacted" if found.due.files else "; nothing is due"
    return text + skipped_text(found.skipped)
