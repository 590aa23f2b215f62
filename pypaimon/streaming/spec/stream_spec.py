"""`StreamSpec`: all that a caller says about a stream, and how it goes over the options of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.field_paths import find
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.options.arguments import list_of, typed
from pypaimon.streaming.options.read_scope import View
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CallerOptions, CatchUp, ConsumerOptions, OnExpired, StreamOptions
from pypaimon.streaming.paimon.internals import DataField, DataType, RowType

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from pypaimon.streaming.paimon.filter_internals import Predicate


def projected_columns(projection: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The output names, if a mapping gives them, and the columns."""
    if not isinstance(projection, Mapping):
        columns = list_of(str, "with_projection", projection, "column names, or a mapping")
        if len(set(columns)) != len(columns):
            raise StreamConfigError(f"with_projection: a column is named twice in {list(columns)}")
        return None, columns
    if not projection:
        raise StreamConfigError("with_projection({}): the mapping is empty, so rows would have no columns")
    for name, column in projection.items():
        if not typed(str, "with_projection: a name", name) or name == row_kinds.ROW_KIND_FIELD.name:
            raise StreamConfigError(f"with_projection: a column cannot be called {name!r}")
        if "(" in typed(str, f"with_projection: column {name!r}", column):
            raise StreamConfigError(f"with_projection: {column!r}: a stream reads columns, not expressions of them")
    return tuple(projection), tuple(projection.values())


def read_type_paths(read_type: Sequence[DataField]) -> tuple[str, ...]:
    """The columns of a read type; rows are given as their fields (`row.field`)."""
    names = [field.name for field in read_type]
    if len(set(names)) != len(names):
        raise StreamConfigError(f"with_read_type: a column is named twice in {names}")
    return tuple(path for field in read_type for path in _leaves(field))


def _leaves(field: DataField) -> Iterator[str]:
    if isinstance(field.type, RowType) and field.type.fields:
        for inner in field.type.fields:
            yield from (f"{field.name}.{path}" for path in _leaves(inner))
    else:
        yield field.name


def check_types(read_type: Sequence[DataField], columns: Sequence[DataField], where: str = "") -> None:
    # By name, as in pypaimon, whose fields may come from an older schema of the table.
    for field in read_type:
        path = find(field.name, columns)
        if path is None:
            known = ", ".join(each.name for each in columns)
            raise StreamConfigError(f"with_read_type: there is no column {where + field.name!r}; columns: {known}")
        found = path[-1].type
        if isinstance(found, RowType) and isinstance(field.type, RowType):
            check_types(field.type.fields, found.fields, f"{where}{field.name}.")
        elif _nullable(field.type) != _nullable(found):
            raise StreamConfigError(
                f"with_read_type: column {where + field.name!r} is {found}, not {field.type}: a stream reads columns "
                "with the types of the table"
            )


def _nullable(data_type: DataType) -> str:
    return str(data_type).removesuffix(" NOT NULL")


def check_names(what: str, names: Iterable[str], known: set[str]) -> None:
    """Raises if a name is neither a column nor a field in one (`row.field`)."""
    for name in names:
        if name not in known and name.split(".")[0] not in known:
            raise StreamConfigError(f"{what}: there is no column {name!r}; columns: {', '.join(sorted(known))}")


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
        filter: Which rows are read: a predicate, or a text or an expression, which are translated once the columns are
            known.
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
    filter: Predicate | pc.Expression | str | None = None
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
