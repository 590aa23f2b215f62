"""`paimon-stream copy`: copies tables into others, exactly once, run after run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import click
from rich.console import Console

from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.cli.messages import say
from pypaimon.streaming.cli.options import Service, grouped, option
from pypaimon.streaming.cli.output import Record, print_result
from pypaimon.streaming.cli.progress_bars import LoadBar
from pypaimon.streaming.cli.tables import TableSource, configure, on_table, pairs, patiently, refuse_without
from pypaimon.streaming.cli.tables_of_pattern import (
    TableChoice,
    TablesOfPattern,
    refuse_failed,
    refuse_for_pattern,
    say_event,
)
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.copying.copy_stream import copy_stream
from pypaimon.streaming.databases.builder import DatabaseStreamBuilder
from pypaimon.streaming.databases.copy import DatabaseTarget, copy_database
from pypaimon.streaming.databases.duckdb_database import DuckDBDatabase
from pypaimon.streaming.databases.paimon_database import PaimonDatabase
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream
from pypaimon.streaming.doctor.findings import count
from pypaimon.streaming.maintenance.commit_maintenance import When
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import TableNotExistException
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.targets.paimon_target import copied_schema
from pypaimon.streaming.writing.builder import stream_write_builder
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter

OnDrop = Literal["keep", "drop"]
S = TypeVar("S", bound=BlockingDatabaseStream | BlockingBatchStream)
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class TargetDatabase:
    to_duckdb: str | None = option(
        "--to-duckdb", metavar="FILE", help="Copy the tables that a pattern names into this file of DuckDB."
    )
    to_schema: str | None = option(
        "--to-schema", metavar="NAME", help="With --to-duckdb: the schema there. [default: the database's name]"
    )
    to_warehouse: str | None = option(
        "--to-warehouse", metavar="PATH", help="Copy the tables that a pattern names into this warehouse."
    )
    to_database: str | None = option(
        "--to-database", metavar="NAME", help="With --to-warehouse: the database there. [default: the same name]"
    )
    on_drop: OnDrop | None = option(
        "--on-drop",
        type=click.Choice(["keep", "drop"]),
        help="With a pattern: what to do with the copy of a table that is dropped. [default: keep]",
    )
    drop_columns: bool = option(
        "--drop-columns", is_flag=True, help="With --to-duckdb: also drop columns that are dropped in the source."
    )

    @property
    def text(self) -> str:
        """The place, for messages."""
        if self.to_duckdb is not None and self.to_warehouse is not None:
            raise click.UsageError("--to-warehouse does not go with --to-duckdb")
        if self.to_warehouse is not None:
            refuse_without("--to-duckdb", {"--to-schema": self.to_schema, "--drop-columns": self.drop_columns})
            return self.to_warehouse
        refuse_without("--to-warehouse", {"--to-database": self.to_database})
        if self.to_duckdb is None:
            raise click.UsageError("where to copy the tables? Give --to-duckdb FILE or --to-warehouse PATH")
        return self.to_duckdb

    @contextmanager
    def opened(self, source: TableSource, database: str, maintain: bool) -> Iterator[DatabaseTarget]:
        """The place, opened for the tables of a database."""
        if self.to_warehouse is not None:
            options = {**source.catalog_options, "warehouse": self.to_warehouse}
            catalog = replace(source, catalog_options=options).catalog()
            when: When = "auto" if maintain else "off"
            on_drop = self.on_drop or "keep"
            yield PaimonDatabase(catalog, self.to_database or database, on_drop=on_drop, maintain=when)
            return
        refuse_without("--to-warehouse", {"--maintain": maintain})
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise click.UsageError("--to-duckdb needs a package: pip install 'pypaimon-streaming[duckdb]'") from error
        with duckdb.connect(self.text) as connection:
            schema = self.to_schema or database
            yield DuckDBDatabase(connection, schema, on_drop=self.on_drop or "keep", drop_columns=self.drop_columns)


@dataclass(frozen=True)
class TargetTable:
    target_warehouse: str | None = option(
        "--target-warehouse", metavar="PATH", help="The warehouse of TARGET. [default: the catalog of SOURCE]"
    )
    create: bool = option("--create", is_flag=True, help="Create TARGET like SOURCE, if it does not exist.")
    create_option: tuple[str, ...] = option(
        "--create-option", metavar="KEY=VALUE", multiple=True, help="With --create: an option of the new table."
    )
    replaces: bool = option(
        "--replace", is_flag=True, help="Replace rows of TARGET that no run with this --commit-user has written."
    )


@dataclass(frozen=True)
class Copied:
    follow: bool = option(
        "--follow/--until-latest", default=False, help="Copy each further change as it comes. [default: until-latest]"
    )
    filter_text: str | None = option("--filter", metavar="SQL", help="Rows that match: \"status = 'paid' AND v > 3\".")
    columns: str | None = option("--columns", metavar="A,B", help="Only these columns.")
    on_expired: Literal["fail", "full"] | None = option(
        "--on-expired", type=click.Choice(["fail", "full"]), help="Start over if the next snapshot has expired."
    )
    commit_user: str | None = option(
        "--commit-user", metavar="NAME", help="Under whom to commit. [default: copy-of-SOURCE]"
    )
    maintain: bool = option(
        "--maintain", is_flag=True, help="Also do what is due of paimon-stream maintain in tables of Paimon."
    )


@dataclass(frozen=True)
class CopyService(Service):
    as_json: bool = option("--json", is_flag=True, help="Print at the end as JSON what was copied.")


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
@grouped("choice", TableChoice)
@grouped("database", TargetDatabase)
@grouped("table", TargetTable)
@grouped("copied", Copied)
@grouped("service", CopyService)
def copy(
    source: TableSource,
    target: str | None,
    choice: TableChoice,
    database: TargetDatabase,
    table: TargetTable,
    copied: Copied,
    service: CopyService,
) -> None:
    """Copy the table SOURCE into the table TARGET: its rows first, then every change, with its kind.

    The progress of the copy is saved in TARGET, in the commits of its rows. So each run continues where the last one
    ended, or crashed, and no row is lost or duplicated. The first run takes an empty TARGET, or replaces its rows with
    --replace.

    'db.orders_*' stands for the tables that it matches, including those that are created later: each is copied to one
    of the same name, which is created. An error of one table stops that one alone (exit code 1).
    """
    pattern = TablesOfPattern.of(source, choice)
    if pattern is not None:
        refuse_for_pattern(
            pattern,
            {
                "TARGET": target,
                "--target-warehouse": table.target_warehouse,
                "--create": table.create,
                "--create-option": table.create_option,
                "--replace": table.replaces,
                "--filter": copied.filter_text,
                "--columns": copied.columns,
                "--commit-user": copied.commit_user,
            },
        )
        _copy_tables(pattern, database, copied, service)
        return
    for each in fields(database):
        if getattr(database, each.name):
            flag = f"--{each.name.replace('_', '-')}"
            names = source.name.partition(".")[0]
            raise click.UsageError(f"{flag} goes with the tables of a database: give SOURCE as '{names}.*'")
    if target is None:
        raise click.UsageError(f"where to copy {source.name}? Give TARGET")
    if "." not in target:
        raise click.UsageError(f"{target!r} names no database: give TARGET as database.table")
    if not table.create:
        refuse_without("--create", {"--create-option": table.create_option})
    _copy_table(source, target, table, copied, service)


def _copy_table(source: TableSource, target: str, wanted: TargetTable, copied: Copied, service: CopyService) -> None:
    place = replace(source, name=target, table_options={}, patient=False)
    if wanted.target_warehouse is not None:
        place = replace(place, catalog_options={**source.catalog_options, "warehouse": wanted.target_warehouse})
    user = copied.commit_user or f"copy-of-{source.name}"
    changes = pairs(wanted.create_option, "--create-option")

    def run() -> Record:
        table = source.load()
        builder = configure(source.builder(table), None, copied.filter_text, copied.columns)
        if not copied.follow:
            builder.with_end(latest=True)
        if copied.on_expired == "full":
            builder.with_on_expired("full")
        service.set_poll_interval(builder)
        # A source that cannot be copied is refused before a table is created for it.
        spec_for_copy(resolved(builder), None)
        created = wanted.create and _create(table, builder.read_type(), target, place.catalog(), changes)
        written = place.load()
        writes = stream_write_builder(written).with_commit_user(user)
        if copied.maintain:
            writes.with_maintenance("auto")
        with writes.open_sync() as writer:
            done = _copy(builder, writer, wanted.replaces, copied.follow)
            return {"source": source.name, "target": target, "created": created, **done}

    done = patiently(run) if service.retry else run()
    held = "" if done["next"] is None else f"; it holds {source.name} before snapshot {done['next']}"
    text = f"{source.name} -> {target}: {count(int(str(done['commits'])), 'commit')}{held}"
    print_result(done, text, "json" if service.as_json else "text")


def _copy_tables(pattern: TablesOfPattern, place: TargetDatabase, copied: Copied, service: CopyService) -> None:
    target = place.text
    if not pattern.names(service.retry) and not copied.follow:
        click.echo(f"no table matches {pattern.text}", err=True)

    def configure(builder: DatabaseStreamBuilder) -> None:
        builder.with_each_table(configure_each).with_on_event(say_event)
        if not copied.follow:
            builder.with_end(latest=True)
        service.set_poll_interval(builder)

    def configure_each(builder: StreamReadBuilder) -> None:
        if copied.on_expired is not None:
            builder.with_on_expired(copied.on_expired)

    def run() -> DatabasePosition:
        running = Running[BlockingDatabaseStream]()
        catalog, database = pattern.source.catalog(), pattern.database
        with place.opened(pattern.source, database, copied.maintain) as tables, on_sigterm(running.stop):
            try:
                position = copy_database(
                    catalog,
                    database,
                    tables,
                    include=pattern.include,
                    exclude=pattern.exclude,
                    configure=configure,
                    on_open=running.opened,
                )
                running.check_end(copied.follow)
            except KeyboardInterrupt:
                say("interrupted; the next run continues where this one ended")
                raise
        refuse_failed({} if running.stream is None else dict(running.stream.failed))
        return position

    position = patiently(run) if service.retry else run()
    held = {name: each.position for name, each in sorted(position.tables.items()) if pattern.matches(name)}
    following = {name: None if each is None else each.snapshot for name, each in held.items()}
    record: Record = {"source": pattern.text, "target": target, "next": following}
    print_result(
        record, f"{pattern.text} -> {target}: {count(len(held), 'table')}", "json" if service.as_json else "text"
    )


def _create(table: WritableTable, columns: Sequence[Any], name: str, catalog: Any, changes: Mapping[str, str]) -> bool:
    try:
        catalog.get_table(name)
    except TableNotExistException:
        schema = copied_schema(table.table_schema, columns, changes)
    else:
        return False
    catalog.create_database(name.partition(".")[0], True)
    catalog.create_table(name, schema, False)
    return True


def _copy(builder: StreamReadBuilder, writer: BlockingStreamWriter, replaces: bool, follow: bool) -> Record:
    before = -1 if writer.last_committed is None else writer.last_committed
    running = Running[BlockingBatchStream]()
    with on_sigterm(running.stop), _bar(writer):
        try:
            copy_stream(builder, writer, replace=replaces, on_open=running.opened)
            running.check_end(follow)
        except KeyboardInterrupt:
            say("interrupted; the next run continues where this one ended")
            raise
    position, last = writer.position, writer.last_committed
    return {
        "commits": 0 if last is None else last - before,
        "next": None if position is None else position.snapshot,
        "commit_user": writer.commit_user,
    }


@contextmanager
def _bar(writer: BlockingStreamWriter) -> Iterator[None]:
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
                bar.show(f"{commits:,} commits, before snapshot {position.snapshot:,}")

    with LoadBar(console) as bar:
        thread = BackgroundThread(show, "paimon-copy-bar", ended.set)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Running(Generic[S]):
    def __init__(self) -> None:
        self.stream: S | None = None
        self._stopped = False

    def opened(self, stream: S) -> None:
        self.stream = stream
        if self._stopped:
            stream.stop()

    def stop(self) -> None:
        """End after the plan under way."""
        self._stopped = True
        if self.stream is not None:
            self.stream.stop()

    def check_end(self, follow: bool) -> None:
        """Raise KeyboardInterrupt if the copy was stopped, and was to end at the latest snapshot instead."""
        if self._stopped and not follow:
            raise KeyboardInterrupt
