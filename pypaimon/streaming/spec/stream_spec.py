"""`StreamSpec`: all that a caller says about a stream, and how it goes over the options of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.read_scope import View
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CallerOptions, CatchUp, ConsumerOptions, OnExpired, StreamOptions
from pypaimon.streaming.paimon.internals import DataField

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate


@dataclass(frozen=True, slots=True)
class StreamSpec(CallerOptions):
    """What a builder, a group, a database, the command line or Spark asks for. `resolve` checks it against a table.

    None leaves a setting to the table's options, then to its default.

    Attributes:
        view: The view that is read, or None for the table itself.
        start: Where the stream begins.
        end_watermark: The stream ends before the first snapshot with a greater watermark.
        poll_interval_ms: Time from a poll that found nothing to the next one.
        consumer: Under which id progress is saved.
        bucket_filter: Which buckets are read.
        filter: Which rows are read: a predicate, or its text, which cannot be parsed before the columns are known.
        projection: The columns to read, fields of rows as `row.field`; None: all.
        output_names: The names under which the columns come out; None: their own.
        read_type: The fields that `with_read_type` was called with; `projection` names them.
        include_row_kind: Whether `_row_kind` comes out; None: if the stream can give -U or -D.
        blob_descriptors: Whether descriptors of blobs come instead of bytes; None: the table's option decides.
        blob_places: Directories to which descriptors may point, in addition to that of the table.
    """

    view: View | None = None
    start: Start | None = None
    end_watermark: int | None = None
    poll_interval_ms: int | None = None
    consumer: ConsumerOptions | None = None
    bucket_filter: Callable[[int], bool] | None = None
    filter: Predicate | str | None = None
    projection: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    read_type: tuple[DataField, ...] | None = None
    include_row_kind: bool | None = None
    blob_descriptors: bool | None = None
    blob_places: tuple[str, ...] | None = None

    def over(self, options: StreamOptions) -> StreamOptions:
        """The settings of the caller, and all others from `options`. A filter is not among them."""
        shared = {each.name for each in fields(StreamOptions)} & {each.name for each in fields(self)}
        given = {name: getattr(self, name) for name in shared}
        return replace(options, **{name: value for name, value in given.items() if value is not None})


def options_of_range(spec: StreamSpec, options: StreamOptions, *, kinds: bool) -> StreamOptions:
    """The settings of a stream that reads a range; the others as they are.

    A range has its own start and end, and its position is the only progress. The table's options for these are meant
    for streams that follow it and do not count, as in Java's batch reads.

    Args:
        spec: The settings of the caller.
        options: The same over the table's options.
        kinds: Whether rows come with their kinds.

    Raises:
        StreamConfigError: Another setting contradicts the range.
    """
    between, start = spec.between, spec.start
    if between is None:
        return options
    contradictions = {
        "with_start(...), unless it is a position": start is not None and start.position is None,
        "with_end(...)": spec.end is not None or spec.end_watermark is not None,
        "with_consumer_id(...)": spec.consumer is not None,
        "with_on_expired(...)": spec.on_expired is not OnExpired.FAIL,
        "with_catch_up('net')": spec.catch_up is CatchUp.NET,
        "with_follow_up_scanner(...)": spec.follow_up_scanner is not None,
    }
    for call, is_given in contradictions.items():
        if is_given:
            raise StreamConfigError(f"{between.given} says where to start and end: leave out {call}.")
    return replace(
        options,
        start=start or Start(StartMode.BETWEEN),
        between=replace(between, kinds=kinds),
        end_watermark=None,
        consumer=None,
        delay_ms=0,
    )
