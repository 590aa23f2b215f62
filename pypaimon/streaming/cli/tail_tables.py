"""`paimon-stream tail 'db.*'`: the rows of several tables and then their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.cli.output import console
from pypaimon.streaming.cli.rows import RowsOfTables
from pypaimon.streaming.cli.settings import start_of
from pypaimon.streaming.cli.table_events import refuse_failed, tell_event
from pypaimon.streaming.cli.tables_of_pattern import TablesOfPattern
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.databases.builder import DatabaseStreamBuilder, stream_database
from pypaimon.streaming.model.time_zone import time_zone

FORMATS = ("table", "json")
_BATCH_BYTES = 1 << 20
_READ_AHEAD_BYTES = 64 << 20


def tail_tables(
    pattern: TablesOfPattern,
    given: Mapping[str, Any],
    *,
    start: str | None,
    consumer_id: str | None,
    form: str,
    until_latest: bool,
    most: int | None,
    on_expired: Any,
    blob_places: tuple[str, ...],
    retry: bool,
    poll: float | None,
) -> None:
    """Print the rows of all tables that a pattern names, and then their changes; see the command `tail`.

    Args:
        pattern: Which tables.
        given: Options that go with one table only, by their names; those with a value are refused.
        start: `--start`.
        consumer_id: `--consumer-id`.
        form: `--format`.
        until_latest: `--until-latest`.
        most: `--rows`.
        on_expired: `--on-expired`.
        blob_places: `--blob-place`.
        retry: `--retry`.
        poll: `--poll`.

    Raises:
        click.UsageError: An option does not go with several tables.
        TablesFailedError: Some tables could not be read, while others were.
    """
    for name, value in {**given, "--table-option": pattern.source.table_options}.items():
        if value:
            raise click.UsageError(f"{name} goes with one table, not with {pattern.text}")
    if form not in FORMATS:
        raise click.UsageError(f"--format {form} goes with one table, whose columns it names: give table or json")
    if not pattern.names(retry) and until_latest:
        click.echo(f"no table matches {pattern.text}", err=True)
    builder = _started(_builder(pattern, on_expired, blob_places, poll), start, pattern)
    if until_latest:
        builder.with_end(latest=True)
    if consumer_id is not None:
        builder.with_consumer_id(consumer_id)
    ahead = _READ_AHEAD_BYTES if most is None else 0
    writer = RowsOfTables(form, console())
    with (
        builder.on_event(tell_event).open_sync(read_ahead_bytes=ahead, batch_bytes=_BATCH_BYTES) as stream,
        on_sigterm(stream.stop),
    ):
        for batch in stream:
            for rows in batch.data.to_batches():
                writer.write(batch.table, batch, rows.slice(0, most))
                if most is not None and (most := most - rows.num_rows) <= 0:
                    refuse_failed(stream.failed)
                    return
        refuse_failed(stream.failed)


def _builder(
    pattern: TablesOfPattern, on_expired: Any, blob_places: tuple[str, ...], poll: float | None
) -> DatabaseStreamBuilder:
    def configure(each: StreamReadBuilder) -> None:
        each.with_include_row_kind(True).with_blob_places(blob_places or None)
        if on_expired is not None:
            each.with_on_expired(on_expired)

    builder = stream_database(pattern.source.catalog(), pattern.database, pattern.include, pattern.exclude)
    builder.for_each(configure)
    return builder if poll is None else builder.with_poll_interval_ms(max(1, round(poll * 1000)))


def _started(builder: DatabaseStreamBuilder, start: str | None, pattern: TablesOfPattern) -> DatabaseStreamBuilder:
    if start is None:
        return builder
    found = start_of(start, time_zone(None))
    if set(found) <= {"mode", "timestamp"}:
        return builder.with_start(**found)
    raise click.UsageError(f"--start {start} is a place in one table; for {pattern.text} give a mode, or a time")
