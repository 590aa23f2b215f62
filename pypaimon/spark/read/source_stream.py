"""The stream that the options of a source ask for, and the parts below its scans and reads.

Spark keeps positions itself and reads in other processes, each of which imports only what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pypaimon.spark.options.tables import load_stream_table
from pypaimon.streaming.consumers.consumer_names import reader_name
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import TableHandle
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.option_key import OptionKey
from pypaimon.streaming.options.start import NAMED_STARTS
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.spec.resolve import ResolvedStream, resolve
from pypaimon.streaming.spec.spec_builder import SpecBuilder, resolved
from pypaimon.streaming.spec.stream_spec import StreamSpec
from pypaimon.streaming.spec.streamed_table import StreamedTable

if TYPE_CHECKING:
    from pypaimon.spark.options.source_options import SourceOptions
    from pypaimon.streaming.consumers.progress import Progress
    from pypaimon.streaming.planning.planned_units import KeptUnits
    from pypaimon.streaming.planning.planner import Planner
    from pypaimon.streaming.reading.read import StreamRead
    from pypaimon.streaming.scanning.lag import LagMeter


def snapshot_of_version(directory: TableDirectory, key: OptionKey[str, None], name: str) -> Snapshot:
    """The snapshot that an option names: a number is an id, unless the option is for tags.

    Raises:
        PositionExpiredError: The snapshot has expired.
        PositionBeyondLatestError: The table ends before it.
    """
    if key is not option_keys.SCAN_TAG_NAME and name.isdecimal():
        return snapshot_with_id(directory, int(name))
    found = directory.tag(name)
    if found is None:
        known = ", ".join(directory.tag_names()) or "none"
        raise StreamConfigError(f"Option '{key}' = '{name}': there is no such tag; tags are: {known}.")
    return found


def snapshot_with_id(directory: TableDirectory, snapshot_id: int) -> Snapshot:
    """The snapshot of an id.

    Raises:
        PositionExpiredError: The snapshot has expired.
        PositionBeyondLatestError: The table ends before it.
    """
    found = directory.snapshots.try_get(snapshot_id)
    if found is None:
        raise SnapshotRangeValidator(directory, with_changelogs=False, is_batch=True).absent(snapshot_id)
    return found


@contextmanager
def _option(name: str) -> Iterator[None]:
    try:
        yield
    except StreamConfigError as error:
        raise StreamConfigError(f"Option '{name}': {error}") from error


def stream_of(
    options: SourceOptions, columns: Sequence[str] | None = None, schema_id: int | None = None
) -> ResolvedStream:
    """The stream that a source's options ask for.

    Args:
        schema_id: The schema to read with; None: that of the version that the options name, else the latest one.
    """
    table, view = load_stream_table(options)
    if schema_id is None and options.version is not None:
        schema_id = snapshot_of_version(TableDirectory.of(table), *options.version).schema_id
    streamed = StreamedTable.of(table, table.newest if isinstance(table, TableHandle) else None)
    newest = resolve(streamed, StreamSpec())
    if schema_id is not None and schema_id != newest.schema.id:
        streamed = streamed.with_schema(newest.directory.reading_schema(schema_id))
    builder = SpecBuilder(streamed, view)
    everything = resolved(builder).fields
    names = options.columns if columns is None else tuple(columns)
    if names is not None and names != tuple(field.name for field in everything):
        with _option("columns"):
            builder.with_projection(names)
    if options.filter is not None:
        from pypaimon.streaming.filtering.filter_text import parse_filter

        with _option("filter"):
            builder.with_filter(parse_filter(options.filter, everything), unmatched=options.unmatched)
    consumer_id = option_keys.CONSUMER_ID.of(options.table_options)
    if consumer_id is not None:
        with _option(option_keys.CONSUMER_ID.name):
            reader_name(consumer_id)
    if options.blob_places is not None:
        with _option("blob-places"):
            builder.with_blob_places(options.blob_places)
    if options.include_row_kind is not None:
        builder.with_include_row_kind(options.include_row_kind)
    if options.raw:
        builder.with_raw(True)
    if options.start is not None:
        if options.start not in NAMED_STARTS:
            raise StreamConfigError(
                f"Option 'start' = '{options.start}': choose one of {', '.join(NAMED_STARTS)}; or begin with "
                "'start.tag', 'scan.snapshot-id' or 'scan.timestamp'."
            )
        builder.with_start(options.start)
    if options.start_tag is not None:
        builder.with_start(tag=options.start_tag, full=options.start_full)
    if options.on_overwrite is not None:
        with _option("on-overwrite"):
            builder.with_on_overwrite(options.on_overwrite)
    if options.include_snapshot_id:
        builder.with_catch_up("replay")
    builder.with_on_expired("fail" if options.fail_on_data_loss else "earliest")
    return resolved(builder)


def refuse_chain(stream: ResolvedStream, what: str) -> None:
    """Refuse to read snapshots of one branch alone."""
    chain, identifier = stream.table.chain, stream.table.handle.identifier
    if chain is not None:
        name = f"{identifier.get_database_name()}.{identifier.get_table_name()}"
        raise UnsupportedTableError(
            f"The chain table {name} cannot be read so: {what} are of one branch. Load "
            f"'{name}$branch_{chain.delta}' or '{name}$branch_{chain.snapshot}', or read a stream."
        )


def new_read(stream: ResolvedStream, *, batch: bool = False) -> StreamRead:
    from pypaimon.streaming.reading.read import StreamRead

    return StreamRead(stream.table.followed, stream.spec.io_timeout, stream.read_parts(batch=batch))


def new_planner(
    stream: ResolvedStream,
    limits: Limits | None = None,
    last_snapshot: int | None = None,
    kept_units: KeptUnits | None = None,
    *,
    is_again: bool = False,
) -> Planner:
    """A planner of the stream.

    Args:
        last_snapshot: The last one that is planned; it is in the table.
        is_again: Whether it plans what was planned before, whatever the delay and the greatest watermark say now.
    """
    options = replace(stream.options, limits=limits or Limits())
    if is_again:
        # Where the state is read depends on whether there is a delay or a watermark; nothing is beyond these ones.
        watermark = None if options.end_watermark is None else sys.maxsize
        options = replace(options, delay_ms=-options.delay_ms, end_watermark=watermark)
    if last_snapshot is not None:
        options = replace(options, end=End(snapshot_id=last_snapshot, exists=True))
    return stream.new_planner(stream.directory, options, kept_units)


def new_lag_meter(stream: ResolvedStream) -> LagMeter:
    from pypaimon.streaming.scanning.lag import LagMeter

    return LagMeter(stream.directory, new_planner(stream), stream.clock)


def new_progress(stream: ResolvedStream) -> Progress | None:
    with _option(option_keys.CONSUMER_ID.name):
        return stream.new_progress(stream.directory)
