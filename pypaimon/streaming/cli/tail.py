"""`paimon-stream tail`: the rows of a table, or of several, and then their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import click
from rich.console import Console

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.batches.run_forever import waiting_out
from pypaimon.streaming.cli.options import Service, grouped, option
from pypaimon.streaming.cli.output import console
from pypaimon.streaming.cli.progress_bars import CatchUpBar
from pypaimon.streaming.cli.rows import FORMATS, RowsOfTables, row_writer
from pypaimon.streaming.cli.tables import ReadSettings, TableSource, configure, on_view, save_progress, start_of
from pypaimon.streaming.cli.tables_of_pattern import (
    TableChoice,
    TablesOfPattern,
    refuse_failed,
    refuse_for_pattern,
    say_event,
)
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.databases.builder import DatabaseStreamBuilder, database_stream_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.system_columns import with_commit_fields
from pypaimon.streaming.model.time_zone import time_zone
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES, OnExpired, Unmatched
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.streamed_table import followed_table

B = TypeVar("B", bound=BlockingBatch)
_FORMATS_OF_TABLES = ("table", "json")
_BATCH_BYTES = 1 << 20
_READ_AHEAD_BYTES_OF_TABLES = 64 << 20


class _Stoppable(Protocol):
    @property
    def is_stopping(self) -> bool: ...


@dataclass(frozen=True)
class Output:
    form: str = option("--format", "-f", type=click.Choice(FORMATS), default="table", show_default=True)
    commits: bool = option(
        "--commits", is_flag=True, help="Add `_snapshot_id` and `_commit_time` to each row (json, csv, arrow)."
    )
    until_latest: bool = option(
        "--until-latest/--follow", default=True, help="Whether to end at the latest snapshot. [default: until-latest]"
    )
    most: int | None = option("--rows", "-n", type=click.IntRange(1), metavar="N", help="End after N rows.")

    def check_end(self, stream: _Stoppable) -> None:
        """Raise KeyboardInterrupt if a SIGTERM has ended the stream, and rows that were asked for may be missing."""
        if stream.is_stopping and (self.until_latest or self.most is not None):
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Policies:
    on_expired: Literal["fail", "earliest", "latest", "full"] | None = option(
        "--on-expired",
        type=click.Choice([each.value for each in OnExpired]),
        help="Where to continue if the next snapshot has expired. [default: fail]",
    )
    unmatched: Literal["delete", "drop"] | None = option(
        "--unmatched",
        type=click.Choice([each.value for each in Unmatched]),
        help="What happens to a record that --filter leaves out, if only a delete can show that its row is gone. "
        "[default: delete]",
    )
    blob_places: tuple[str, ...] = option(
        "--blob-place",
        metavar="PATH",
        multiple=True,
        help="A directory from which blobs may be read. [default: the file system of the table]",
    )

    def apply(self, builder: StreamReadBuilder) -> None:
        """Set them, but for `--unmatched`, which belongs to the filter."""
        builder.with_include_row_kind(True).with_blob_places(self.blob_places or None)
        if self.on_expired is not None:
            builder.with_on_expired(self.on_expired)


@dataclass(frozen=True)
class Membership:
    group: str | None = option("--group", metavar="ID", help="Share the table with the other members of this group.")
    member: str | None = option(
        "--member", metavar="NAME", help="Name of this member, with --group. [default: a generated one]"
    )


@click.command(
    epilog="""\b
Examples:
  paimon-stream tail db.orders -w /data/warehouse
  paimon-stream tail db.orders --follow --start latest --filter "status = 'paid'" --columns order_id,amount
  paimon-stream tail db.orders --start 2h --format json | jq .amount
  paimon-stream tail db.orders --format arrow > orders.arrows
  paimon-stream tail db.orders --start earliest -n 10
  paimon-stream tail db.orders --follow --group loaders --format json
  paimon-stream tail 'db.orders_*' --follow --exclude '.*_old' --start latest --format json
"""
)
@on_view
@grouped("choice", TableChoice)
@grouped("reading", ReadSettings)
@grouped("output", Output)
@grouped("policies", Policies)
@grouped("membership", Membership)
@grouped("service", Service)
def tail(
    source: TableSource,
    choice: TableChoice,
    reading: ReadSettings,
    output: Output,
    policies: Policies,
    membership: Membership,
    service: Service,
) -> None:
    """Print the rows of TABLE, and with --follow then every change of it.

    Each row comes with its kind: +I inserted, -U before an update, +U after it, -D deleted; `_row_kind` in json, csv
    and arrow. With --consumer-id progress is saved, and the next run continues there; if -n ends inside a plan, the
    whole plan comes again. Ctrl-C ends it.

    'db.orders_*' stands for the tables that it matches, including those that are created later: a first column,
    `_table` in json, names the table of a row. An error of one table ends that one alone (exit code 1), and errors that
    may pass are always waited out.

    With --group this is one of the processes that share the table: it prints the rows of its own slots, continues where
    their last owner has confirmed, and leaves the group when it ends.
    """
    if membership.group is not None:
        _refuse_in_group(
            {
                "--consumer-id": reading.consumer_id,
                "--commits": output.commits,
                "--retry": service.retry,
                "--include": choice.include,
                "--exclude": choice.exclude,
            }
        )
    elif membership.member is not None:
        raise click.UsageError("--member goes with --group")
    if policies.unmatched is not None and reading.filter_text is None:
        raise click.UsageError("--unmatched goes with --filter")
    pattern = TablesOfPattern.of(source, choice)
    if pattern is not None:
        of_one = {"--filter": reading.filter_text, "--columns": reading.columns, "--commits": output.commits}
        refuse_for_pattern(pattern, {**of_one, "--group": membership.group})
        _tail_tables(pattern, reading, output, policies, service)
        return
    if output.commits and output.form == "table":
        raise click.UsageError("--commits goes with --format json, csv or arrow; a table shows snapshots anyway")
    table = source.load(service.retry)
    builder = configure(
        source.builder(table), reading.start, reading.filter_text, reading.columns, policies.unmatched or "delete"
    )
    policies.apply(builder)
    if output.until_latest:
        builder.with_end(latest=True)
    service.set_poll_interval(builder)
    if membership.group is not None:
        _tail_group(builder, membership.group, membership.member, output)
        return
    save_progress(builder, reading.consumer_id)
    _tail_table(builder, output, service.retry, TableDirectory.of(followed_table(table)[0]).snapshots.latest_id)


def _tail_table(builder: StreamReadBuilder, output: Output, retry: bool, latest: Callable[[], int | None]) -> None:
    schema = builder.new_read().schema
    schema = with_commit_fields(schema) if output.commits else schema
    # Rows that are read ahead would be wasted if few rows are wanted.
    ahead = DEFAULT_READ_AHEAD_BYTES if output.most is None else 0
    opened = builder.open_sync(read_ahead_bytes=ahead, batch_bytes=_BATCH_BYTES, commit_columns=output.commits)
    with (
        opened as stream,
        on_sigterm(stream.stop),
        _bar(output.form) as (stdout, bar),
        closing(row_writer(output.form, schema, stdout)) as writer,
    ):
        for batch in _printed(waiting_out(stream) if retry else stream, writer.write, output.most):
            status = stream.status
            if batch.is_last:
                bar.reached(batch.snapshot_id, status.rows, latest)
            else:
                bar.rows(status.rows, status.scan.records)
    output.check_end(stream)


def _tail_tables(
    pattern: TablesOfPattern, reading: ReadSettings, output: Output, policies: Policies, service: Service
) -> None:
    if output.form not in _FORMATS_OF_TABLES:
        raise click.UsageError(
            f"--format {output.form} goes with one table, whose columns it names: give table or json"
        )
    if not pattern.names(service.retry) and output.until_latest:
        click.echo(f"no table matches {pattern.text}", err=True)
    builder = database_stream_builder(pattern.source.catalog(), pattern.database, pattern.include, pattern.exclude)
    builder.with_each_table(policies.apply)
    service.set_poll_interval(builder)
    _set_start(builder, reading.start, pattern)
    if output.until_latest:
        builder.with_end(latest=True)
    if reading.consumer_id is not None:
        builder.with_consumer_id(reading.consumer_id)
    ahead = _READ_AHEAD_BYTES_OF_TABLES if output.most is None else 0
    writer = RowsOfTables(output.form, console())
    with (
        builder.with_on_event(say_event).open_sync(read_ahead_bytes=ahead, batch_bytes=_BATCH_BYTES) as stream,
        on_sigterm(stream.stop),
    ):
        for _ in _printed(stream, lambda batch, rows: writer.write(batch.table, batch, rows), output.most):
            pass
        refuse_failed(stream.failed)
    output.check_end(stream)


def _set_start(builder: DatabaseStreamBuilder, start: str | None, pattern: TablesOfPattern) -> None:
    if start is None:
        return
    found = start_of(start, time_zone(None))
    if not set(found) <= {"mode", "timestamp"}:
        raise click.UsageError(f"--start {start} is a place in one table; for {pattern.text} give a mode, or a time")
    builder.with_start(**found)


def _tail_group(builder: StreamReadBuilder, group: str, member: str | None, output: Output) -> None:
    """Print the rows and changes of a member's slots, and on standard error which slots these are.

    Rows are confirmed when the next batch is asked for. At the end the member leaves the group.
    """
    stderr = Console(stderr=True)

    def show(what: str, slots: tuple[int, ...]) -> None:
        stderr.print(f"{what} {', '.join(map(str, slots))}", highlight=False)

    shared = builder.new_group(
        group,
        member=member,
        on_assigned=partial(show, "assigned slots"),
        on_revoked=partial(show, "gives up slots"),
        on_lost=partial(show, "lost slots"),
    )
    schema = builder.new_read().schema
    with (
        shared.open_sync(read_ahead_bytes=0, batch_bytes=_BATCH_BYTES) as stream,
        on_sigterm(stream.stop),
        closing(row_writer(output.form, schema, console())) as writer,
    ):
        for _ in _printed(stream, writer.write, output.most):
            pass
    output.check_end(stream)


def _refuse_in_group(given: dict[str, object]) -> None:
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} does not go with --group")


def _printed(batches: Iterable[B], write: Callable[[B, Any], object], most: int | None) -> Iterator[B]:
    for batch in batches:
        for rows in batch.data.to_batches():
            write(batch, rows.slice(0, most))
            if most is not None and (most := most - rows.num_rows) <= 0:
                return
        yield batch


@contextmanager
def _bar(form: str) -> Iterator[tuple[Console, CatchUpBar]]:
    """stdout, and a bar on the terminal, unless it would mix with rows that are written there without rich."""
    stdout, stderr = console(), Console(stderr=True)
    terminal = stdout if stdout.is_terminal and form == "table" else stderr
    mixed = stdout.is_terminal and form != "table"
    with CatchUpBar(terminal if terminal.is_terminal and not mixed else None) as bar:
        yield stdout, bar
