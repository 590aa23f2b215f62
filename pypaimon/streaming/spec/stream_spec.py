"""`StreamSpec`: all that a caller says about a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from pypaimon.streaming.internals import DataField
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import CallerOptions, ConsumerOptions, StreamOptions
from pypaimon.streaming.options.views import View

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate


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
