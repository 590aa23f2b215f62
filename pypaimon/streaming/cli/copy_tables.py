"""`paimon-stream copy 'db.*'`: the tables of a database into others of the same names, exactly once, run after run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import click

from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.cli.output import Record, tell
from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.cli.table_events import refuse_failed, tell_event
from pypaimon.streaming.cli.tables import TableSource, patiently
from pypaimon.streaming.cli.tables_of_pattern import TablesOfPattern
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.databases.builder import DatabaseStreamBuilder
from pypaimon.streaming.databases.copy import DatabaseTarget, copy_database
from pypaimon.streaming.databases.duckdb_database import DuckDBDatabase
from pypaimon.streaming.databases.paimon_database import PaimonDatabase
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.stream import BlockingDatabaseStream
from pypaimon.streaming.doctor.findings import count

OnDrop = Literal["keep", "drop"]
S = TypeVar("S", bound=BlockingDatabaseStream | BlockingBatchStream)


@dataclass(frozen=True)
class PlaceOfTables:
    """Where the tables of a database are copied to.

    Attributes:
        file: `--to-duckdb`.
        schema: `--to-schema`.
        warehouse: `--to-warehouse`.
        database: `--to-database`.
        on_drop: `--on-drop`.
        drop_columns: `--drop-columns`.
    """

    file: str | None
    schema: str | None
    warehouse: str | None
    database: str | None
    on_drop: OnDrop
    drop_columns: bool

    @property
    def text(self) -> str:
        """It, for messages.

        Raises:
            click.UsageError: There is none, or what is given goes with another one.
        """
        if self.file is not None and self.warehouse is not None:
            raise click.UsageError("--to-warehouse does not go with --to-duckdb")
        if self.warehouse is not None:
            _check({"--to-schema": self.schema, "--drop-columns": self.drop_columns}, "--to-duckdb")
            return self.warehouse
        _check({"--to-database": self.database}, "--to-warehouse")
        if self.file is None:
            raise click.UsageError("where to copy the tables? Give --to-duckdb FILE or --to-warehouse PATH")
        return self.file

    @contextmanager
    def opened(self, source: TableSource, database: str) -> Iterator[DatabaseTarget]:
        """It, for the tables of a database.

        Args:
            source: How to get to them.
            database: Its name.

        Raises:
            click.UsageError: What it needs is not installed.
        """
        if self.warehouse is not None:
            options = {**source.catalog_options, "warehouse": self.warehouse}
            catalog = replace(source, catalog_options=options).catalog()
            yield PaimonDatabase(catalog, self.database or database, on_drop=self.on_drop)
            return
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise click.UsageError("--to-duckdb needs a package: pip install 'pypaimon-streaming[duckdb]'") from error
        with duckdb.connect(self.text) as connection:
            schema = self.schema or database
            yield DuckDBDatabase(connection, schema, on_drop=self.on_drop, drop_columns=self.drop_columns)


def _check(given: Mapping[str, object], other: str) -> None:
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} goes with {other}")


def copy_tables(
    pattern: TablesOfPattern,
    place: PlaceOfTables,
    *,
    follow: bool,
    on_expired: Any,
    retry: bool,
    poll: float | None,
    as_json: bool,
) -> None:
    """Bring other tables up to those that a pattern names, and say how many there are; see the command `copy`.

    Args:
        pattern: Which tables.
        place: Where they are copied to.
        follow: `--follow`.
        on_expired: `--on-expired`.
        retry: `--retry`.
        poll: `--poll`.
        as_json: `--json`.

    Raises:
        click.UsageError: The place is none.
        TablesFailedError: Some tables could not be copied, while others were.
    """
    target = place.text
    if not pattern.names(retry) and not follow:
        click.echo(f"no table matches {pattern.text}", err=True)

    def configure(builder: DatabaseStreamBuilder) -> None:
        builder.for_each(configure_each).on_event(tell_event)
        if not follow:
            builder.with_end(latest=True)
        if poll is not None:
            builder.with_poll_interval_ms(max(1, round(poll * 1000)))

    def configure_each(builder: StreamReadBuilder) -> None:
        if on_expired is not None:
            builder.with_on_expired(on_expired)

    def run() -> DatabasePosition:
        running = Running[BlockingDatabaseStream]()
        catalog, database = pattern.source.catalog(), pattern.database
        with place.opened(pattern.source, database) as tables, on_sigterm(running.stop):
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
            except KeyboardInterrupt:
                say("interrupted; the next run goes on where this one ended")
                raise
        refuse_failed({} if running.stream is None else dict(running.stream.failed))
        return position

    position = patiently(run) if retry else run()
    held = {name: each.position for name, each in sorted(position.tables.items()) if pattern.matches(name)}
    following = {name: None if each is None else each.snapshot for name, each in held.items()}
    record: Record = {"source": pattern.text, "target": target, "next": following}
    tell(record, f"{pattern.text} -> {target}: {count(len(held), 'table')}", "json" if as_json else "text")


class Running(Generic[S]):
    """The stream that a copy is at, which a signal handler may stop.

    Attributes:
        stream: It; None before it is open.
    """

    def __init__(self) -> None:
        self.stream: S | None = None
        self._stopped = False

    def opened(self, stream: S) -> None:
        """From here on it is this one."""
        self.stream = stream
        if self._stopped:
            stream.stop()

    def stop(self) -> None:
        """End with the plan in hand."""
        self._stopped = True
        if self.stream is not None:
            self.stream.stop()
