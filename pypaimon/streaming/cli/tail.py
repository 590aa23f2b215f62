"""`paimon-stream tail`: the rows of a table and then its changes, until it is interrupted or caught up."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click
from rich.console import Console

from pypaimon.streaming.builder.chain_tables import followed_table
from pypaimon.streaming.cli.catching_up import CatchingUp
from pypaimon.streaming.cli.output import console
from pypaimon.streaming.cli.rows import FORMATS, row_writer
from pypaimon.streaming.cli.settings import configure, save_progress, stream_options
from pypaimon.streaming.cli.tables import TableSource, on_table
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.scanning.scan import StreamScan


@click.command(
    epilog="""\b
Examples:
  paimon-stream tail db.orders -w /data/warehouse
  paimon-stream tail db.orders --start latest --filter "status = 'paid'" --columns order_id,amount
  paimon-stream tail db.orders --start 2h --until-latest --format json | jq .amount
  paimon-stream tail db.orders --until-latest --format arrow > orders.arrows
"""
)
@on_table
@stream_options
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--until-latest", is_flag=True, help="End at the snapshot that is the latest now.")
@click.option(
    "--blob-place",
    "blob_places",
    metavar="PATH",
    multiple=True,
    help="A directory in which blobs may lie. [default: the file system of the table]",
)
@click.option("--poll", type=click.FloatRange(0.01), metavar="SECONDS", help="Pause between polls. [default: 1]")
def tail(
    source: TableSource,
    start: str | None,
    filter_text: str | None,
    columns: str | None,
    consumer_id: str | None,
    form: str,
    until_latest: bool,
    blob_places: tuple[str, ...],
    poll: float | None,
) -> None:
    """Print the rows of TABLE, then every change of it.

    Each row comes with its kind: +I inserted, -U before an update, +U after it, -D deleted; `_row_kind` in json, csv
    and arrow. With --consumer-id progress is saved, and the next run goes on there. Ctrl-C ends it.
    """
    table = source.load()
    builder = configure(source.builder(table), start, filter_text, columns).with_include_row_kind(True)
    builder.with_blob_places(blob_places or None)
    if until_latest:
        builder.with_end(latest=True)
    if poll is not None:
        builder.with_poll_interval_ms(max(1, round(poll * 1000)))
    scan, read = save_progress(builder, consumer_id).new_streaming_scan(), builder.new_read()
    latest = TableDirectory.of(followed_table(table)[0]).snapshots.latest_id
    with scan, _terminated(scan), _bar(form) as (stdout, bar), closing(row_writer(form, read.schema, stdout)) as writer:
        for plan in scan.stream_sync():
            for batch in read.iter_batches(plan.splits()):
                writer.write(plan, batch)
                bar.rows(batch.num_rows)
            bar.reached(plan.snapshot_id, latest)


@contextmanager
def _bar(form: str) -> Iterator[tuple[Console, CatchingUp]]:
    """stdout, and a bar on the terminal where it does not mix with rows that go there without rich."""
    stdout, stderr = console(), Console(stderr=True)
    terminal = stdout if stdout.is_terminal and form == "table" else stderr
    mixed = stdout.is_terminal and form != "table"
    with CatchingUp(terminal if terminal.is_terminal and not mixed else None) as bar:
        yield stdout, bar


@contextmanager
def _terminated(scan: StreamScan) -> Iterator[None]:
    """SIGTERM ends the stream after the plan in hand, with progress saved."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def stop(*_: Any) -> None:
        scan.stop()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
