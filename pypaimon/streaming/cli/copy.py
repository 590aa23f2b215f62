"""`paimon-stream copy`: tables into other ones, exactly once, run after run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import click
from rich.console import Console

from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.copy_start import start_for_copy
from pypaimon.streaming.cli.copy_tables import OnDrop, PlaceOfTables, Running, copy_tables
from pypaimon.streaming.cli.loading import LoadingBar
from pypaimon.streaming.cli.output import Record, tell
from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.cli.settings import configure
from pypaimon.streaming.cli.tables import TableSource, on_table, pairs, patiently
from pypaimon.streaming.cli.tables_of_pattern import TablesOfPattern, pattern_options
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.copying.copy_stream import copy_stream_sync
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.internals import TableNotExistException
from pypaimon.streaming.targets.copy_schema import copied_schema
from pypaimon.streaming.writing.builder import stream_write_builder
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter

_LOOK_SECONDS = 0.25


@click.command(
    epilog="""\b
Examples:
  paimon-stream copy db.orders db.orders_copy --create
  paimon-stream copy db.orders archive.orders --target-warehouse s3://archive/warehouse --follow --retry
  paimon-stream copy db.orders db.paid --create --filter "status = 'paid'" --columns id,status
  paimon-stream copy 'db.*' --to-duckdb warehouse.duckdb --exclude '.*_old' --follow
"""
)
@partial(on_table, metavar="SOURCE")
@click.argument("target", required=False)
@pattern_options
@click.option("--to-duckdb", metavar="FILE", help="Copy the tables that a pattern names into this file of DuckDB.")
@click.option("--to-schema", metavar="NAME", help="With --to-duckdb: the schema there. [default: the database's name]")
@click.option("--to-warehouse", metavar="PATH", help="Copy the tables that a pattern names into this warehouse.")
@click.option("--to-database", metavar="NAME", help="With --to-warehouse: the database there. [default: the same name]")
@click.option(
    "--on-drop",
    type=click.Choice(["keep", "drop"]),
    help="With a pattern: what becomes of the copy of a table that is dropped. [default: keep]",
)
@click.option("--drop-columns", is_flag=True, help="With --to-duckdb: drop columns too that are dropped in the source.")
@click.option("--target-warehouse", metavar="PATH", help="Where TARGET lies. [default: the catalog of SOURCE]")
@click.option("--create", is_flag=True, help="Make TARGET like SOURCE, if it is not there.")
@click.option("--create-option", metavar="KEY=VALUE", multiple=True, help="With --create: an option of the new table.")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Replace rows of TARGET that no run with this --commit-user has written.",
)
@click.option("--follow", is_flag=True, help="Go on with each change that comes. [default: end at the latest snapshot]")
@click.option("--filter", "filter_text", metavar="SQL", help="Rows that match: \"status = 'paid' AND v > 3\".")
@click.option("--columns", metavar="A,B", help="Only these columns.")
@click.option("--on-expired", type=click.Choice(["fail", "full"]), help="Begin anew if what comes next has expired.")
@click.option("--commit-user", metavar="NAME", help="Under whom to commit. [default: copy-of-SOURCE]")
@click.option("--retry", is_flag=True, help="Wait out errors that may pass, for as long as they last.")
@click.option("--poll", type=click.FloatRange(0.01), metavar="SECONDS", help="Pause between polls. [default: 1]")
@click.option("--json", "as_json", is_flag=True, help="Tell at the end as JSON what was copied.")
def copy(
    source: TableSource,
    target: str | None,
    include: str | None,
    exclude: str | None,
    to_duckdb: str | None,
    to_schema: str | None,
    to_warehouse: str | None,
    to_database: str | None,
    on_drop: OnDrop | None,
    drop_columns: bool,
    target_warehouse: str | None,
    create: bool,
    create_option: tuple[str, ...],
    replaces: bool,
    follow: bool,
    filter_text: str | None,
    columns: str | None,
    on_expired: str | None,
    commit_user: str | None,
    retry: bool,
    poll: float | None,
    as_json: bool,
) -> None:
    """Copy the table SOURCE into the table TARGET: its rows first, then every change, with its kind.

    Where the copy stands is noted in TARGET, in the commits that hold its rows. So each run goes on where the last one
    ended, or died, and nothing is lost or twice. The first run takes an empty TARGET, or replaces its rows with
    --replace.

    'db.orders_*' stands for the tables that it matches, those that come later too: each is copied to one of the same
    name, which is made. An error of one table stops that one alone (exit code 1).
    """
    pattern = TablesOfPattern.of(source, include, exclude)
    if pattern is not None:
        _refuse(
            {
                "TARGET": target,
                "--target-warehouse": target_warehouse,
                "--create": create,
                "--create-option": create_option,
                "--replace": replaces,
                "--filter": filter_text,
                "--columns": columns,
                "--commit-user": commit_user,
                "--table-option": source.table_options,
            },
            f"goes with one table, not with {pattern.text}",
        )
        tables = PlaceOfTables(to_duckdb, to_schema, to_warehouse, to_database, on_drop or "keep", drop_columns)
        copy_tables(pattern, tables, follow=follow, on_expired=on_expired, retry=retry, poll=poll, as_json=as_json)
        return
    of_tables = {
        "--to-duckdb": to_duckdb,
        "--to-schema": to_schema,
        "--to-warehouse": to_warehouse,
        "--to-database": to_database,
        "--on-drop": on_drop,
        "--drop-columns": drop_columns,
    }
    database = source.name.partition(".")[0]
    _refuse(of_tables, f"goes with the tables of a database: give SOURCE as '{database}.*'")
    if target is None:
        raise click.UsageError(f"where to copy {source.name}? Give TARGET")
    if "." not in target:
        raise click.UsageError(f"{target!r} names no database: give TARGET as database.table")
    if source.view is not None:
        raise click.UsageError(f"a view cannot be copied: give SOURCE without '${source.view}'")
    place = replace(source, name=target, table_options={}, patient=False)
    if target_warehouse is not None:
        place = replace(place, catalog_options={**source.catalog_options, "warehouse": target_warehouse})
    user = commit_user or f"copy-of-{source.name}"
    changes = pairs(create_option, "--create-option")

    def run() -> Record:
        table = source.load()
        builder = configure(source.builder(table), None, filter_text, columns)
        if not follow:
            builder.with_end(latest=True)
        if on_expired == "full":
            builder.with_on_expired("full")
        if poll is not None:
            builder.with_poll_interval_ms(max(1, round(poll * 1000)))
        # What cannot be copied is refused before a table is made for it.
        start_for_copy(builder, None)
        created = create and _create(table, builder.read_type(), target, place.catalog(), changes)
        written = place.load()
        with stream_write_builder(written).with_commit_user(user).open_sync() as writer:
            return {"source": source.name, "target": target, "created": created, **_copied(builder, writer, replaces)}

    done = patiently(run) if retry else run()
    stands = "" if done["next"] is None else f"; it holds {source.name} before snapshot {done['next']}"
    text = f"{source.name} -> {target}: {count(int(str(done['commits'])), 'commit')}{stands}"
    tell(done, text, "json" if as_json else "text")


def _refuse(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} {why}")


def _create(table: Any, columns: Sequence[Any], name: str, catalog: Any, changes: Mapping[str, str]) -> bool:
    """Make a table that can hold columns of another one, unless there is one of that name; whether it was made."""
    try:
        catalog.get_table(name)
    except TableNotExistException:
        schema = copied_schema(table.table_schema, columns, changes)
    else:
        return False
    catalog.create_database(name.partition(".")[0], True)
    catalog.create_table(name, schema, False)
    return True


def _copied(builder: StreamReadBuilder, writer: BlockingStreamWriter, replaces: bool) -> Record:
    before = -1 if writer.last_committed is None else writer.last_committed
    running = Running[BlockingBatchStream]()
    with on_sigterm(running.stop), _bar(writer):
        try:
            copy_stream_sync(builder, writer, replace=replaces, on_open=running.opened)
        except KeyboardInterrupt:
            say("interrupted; the next run goes on where this one ended")
            raise
    position, last = writer.position, writer.last_committed
    return {
        "commits": 0 if last is None else last - before,
        "next": None if position is None else position.snapshot,
        "commit_user": writer.commit_user,
    }


@contextmanager
def _bar(writer: BlockingStreamWriter) -> Iterator[None]:
    """What is committed, shown on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    first = writer.last_committed
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(_LOOK_SECONDS):
            last, position = writer.last_committed, writer.position
            if last is not None and position is not None:
                commits = last - (-1 if first is None else first)
                bar.shows(f"{commits:,} commits, before snapshot {position.snapshot:,}")

    with LoadingBar.on(console) as bar:
        thread = threading.Thread(target=show, name="paimon-copy-bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
