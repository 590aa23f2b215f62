"""`paimon-stream tail`: the rows of a table and then its changes, until it is interrupted or caught up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

import click
from rich.console import Console

from pypaimon.streaming.batches.commit_columns import with_fields
from pypaimon.streaming.batches.run_forever import waiting_out
from pypaimon.streaming.builder.chain_tables import followed_table
from pypaimon.streaming.cli.catching_up import CatchingUp
from pypaimon.streaming.cli.output import console
from pypaimon.streaming.cli.rows import FORMATS, row_writer
from pypaimon.streaming.cli.settings import configure, save_progress, stream_options
from pypaimon.streaming.cli.tables import TableSource, on_table
from pypaimon.streaming.cli.tables_of_pattern import TablesOfPattern, pattern_options
from pypaimon.streaming.cli.tail_group import check_alone, tail_group
from pypaimon.streaming.cli.tail_tables import tail_tables
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES, OnExpired, Unmatched

OnExpiredWord = Literal["fail", "earliest", "latest", "full"]
UnmatchedWord = Literal["delete", "drop"]
_BATCH_BYTES = 1 << 20


@click.command(
    epilog="""\b
Examples:
  paimon-stream tail db.orders -w /data/warehouse
  paimon-stream tail db.orders --start latest --filter "status = 'paid'" --columns order_id,amount
  paimon-stream tail db.orders --start 2h --until-latest --format json | jq .amount
  paimon-stream tail db.orders --until-latest --format arrow > orders.arrows
  paimon-stream tail db.orders --start earliest -n 10
  paimon-stream tail db.orders --group loaders --format json
  paimon-stream tail 'db.orders_*' --exclude '.*_old' --start latest --format json
"""
)
@on_table
@pattern_options
@stream_options
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--commits", is_flag=True, help="Add `_snapshot_id` and `_commit_time` to each row (json, csv, arrow).")
@click.option("--until-latest", is_flag=True, help="End at the snapshot that is the latest now.")
@click.option("--rows", "-n", "most", type=click.IntRange(1), metavar="N", help="End after N rows.")
@click.option(
    "--on-expired",
    type=click.Choice([each.value for each in OnExpired]),
    help="Where to go on if what comes next has expired. [default: fail]",
)
@click.option(
    "--unmatched",
    type=click.Choice([each.value for each in Unmatched]),
    default=Unmatched.DELETE.value,
    show_default=True,
    help="What becomes of a record that --filter leaves out, where only a delete says that its row is gone.",
)
@click.option(
    "--blob-place",
    "blob_places",
    metavar="PATH",
    multiple=True,
    help="A directory in which blobs may lie. [default: the file system of the table]",
)
@click.option("--group", metavar="ID", help="Share the table with the other members of this group.")
@click.option("--member", metavar="NAME", help="Name of this member, with --group. [default: one of its own]")
@click.option("--retry", is_flag=True, help="Wait out errors that may pass, for as long as they last.")
@click.option("--poll", type=click.FloatRange(0.01), metavar="SECONDS", help="Pause between polls. [default: 1]")
def tail(
    source: TableSource,
    include: str | None,
    exclude: str | None,
    start: str | None,
    filter_text: str | None,
    columns: str | None,
    consumer_id: str | None,
    form: str,
    commits: bool,
    until_latest: bool,
    most: int | None,
    on_expired: OnExpiredWord | None,
    unmatched: UnmatchedWord,
    blob_places: tuple[str, ...],
    group: str | None,
    member: str | None,
    retry: bool,
    poll: float | None,
) -> None:
    """Print the rows of TABLE, then every change of it.

    Each row comes with its kind: +I inserted, -U before an update, +U after it, -D deleted; `_row_kind` in json, csv
    and arrow. With --consumer-id progress is saved, and the next run goes on there; where -n ends in the midst of a
    plan, all of it comes again. Ctrl-C ends it.

    'db.orders_*' stands for the tables that it matches, those that come later too: a first column, `_table` in json,
    says of which table a row is. An error of one table ends that one alone (exit code 1), and what may pass is always
    waited out.

    With --group this is one of the processes that share the table: it prints what it has of it, goes on where a member
    before has confirmed, and leaves the group when it ends.
    """
    if group is not None:
        others = {"--consumer-id": consumer_id, "--commits": commits, "--retry": retry}
        check_alone({**others, "--include": include, "--exclude": exclude})
    elif member is not None:
        raise click.UsageError("--member goes with --group")
    pattern = TablesOfPattern.of(source, include, exclude)
    if pattern is not None:
        of_one_table = {"--filter": filter_text, "--columns": columns, "--commits": commits, "--group": group}
        tail_tables(
            pattern,
            of_one_table,
            start=start,
            consumer_id=consumer_id,
            form=form,
            until_latest=until_latest,
            most=most,
            on_expired=on_expired,
            blob_places=blob_places,
            retry=retry,
            poll=poll,
        )
        return
    if commits and form == "table":
        raise click.UsageError("--commits goes with --format json, csv or arrow; a table shows snapshots anyway")
    table = source.load(retry)
    builder = configure(source.builder(table), start, filter_text, columns, unmatched).with_include_row_kind(True)
    builder.with_blob_places(blob_places or None)
    if until_latest:
        builder.with_end(latest=True)
    if on_expired is not None:
        builder.with_on_expired(on_expired)
    if poll is not None:
        builder.with_poll_interval_ms(max(1, round(poll * 1000)))
    if group is not None:
        tail_group(builder, group, member, form=form, most=most, batch_bytes=_BATCH_BYTES)
        return
    save_progress(builder, consumer_id)
    schema = builder.new_read().schema
    schema = with_fields(schema) if commits else schema
    latest = TableDirectory.of(followed_table(table)[0]).snapshots.latest_id
    # Who wants few rows needs none that were read ahead.
    ahead = DEFAULT_READ_AHEAD_BYTES if most is None else 0
    with (
        builder.open_sync(read_ahead_bytes=ahead, batch_bytes=_BATCH_BYTES, commit_columns=commits) as stream,
        on_sigterm(stream.stop),
        _bar(form) as (stdout, bar),
        closing(row_writer(form, schema, stdout)) as writer,
    ):
        for batch in waiting_out(stream) if retry else stream:
            for rows in batch.data.to_batches():
                writer.write(batch, rows.slice(0, most))
                if most is not None and (most := most - rows.num_rows) <= 0:
                    return
            status = stream.status
            if batch.is_last:
                bar.reached(batch.snapshot_id, status.rows, latest)
            else:
                bar.rows(status.rows, status.scan.records)


@contextmanager
def _bar(form: str) -> Iterator[tuple[Console, CatchingUp]]:
    """stdout, and a bar on the terminal where it does not mix with rows that go there without rich."""
    stdout, stderr = console(), Console(stderr=True)
    terminal = stdout if stdout.is_terminal and form == "table" else stderr
    mixed = stdout.is_terminal and form != "table"
    with CatchingUp(terminal if terminal.is_terminal and not mixed else None) as bar:
        yield stdout, bar
