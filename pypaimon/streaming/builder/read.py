"""`StreamTableRead`: what a stream planned as rows, by its own constructor or by the builder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.builder.assembly import StreamAssembly, followed, read_parts
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.options.stream_options import DEFAULT_IO_TIMEOUT
from pypaimon.streaming.read_internals import TableRead
from pypaimon.streaming.reading.read import StreamRead, made_read

if TYPE_CHECKING:
    import pypaimon.streaming.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.filter_internals")


class StreamTableRead(StreamRead, TableRead):
    """Reads what a stream planned.

    A subclass of pypaimon's `TableRead`, made by `StreamReadBuilder.new_read()`, or with the arguments of that class.
    Columns are those of the read schema, with pypaimon's Arrow types; before them stands `_row_kind` (`+I`, `-U`, `+U`,
    `-D`) where row kinds are included. Rows are in the order of the splits, and in stored order in each of them.
    Reading keeps no state: a split may be read again, also after an error.

    All reading methods raise:
        PositionExpiredError: A data file is gone, and so is its snapshot.
        CorruptTableError: A data file is damaged, or missing though its snapshot is there.
        SchemaChangedError: A value does not fit the type that is read.
        UnsupportedTableError: A file has a format, or a split a mode, that cannot be read.

    Args:
        table: pypaimon's table.
        predicate: As `with_filter`.
        read_type: As `with_read_type`; None: all columns.
        include_row_kind: As `with_include_row_kind`.
        output_projection: pypaimon's: names and paths of the columns that come out, in the place of `read_type`.
        limit: None: a stream has no greatest number of rows.

    Raises:
        StreamConfigError: Arguments or table options contradict each other, or a stream has no such thing.
        UnsupportedTableError: The table, or one of its options, cannot be streamed.
        TableChangedError: The table is gone.
    """

    def __init__(
        self,
        table: Any,
        predicate: filter_internals.Predicate | None,
        read_type: Iterable[DataField] | None,
        include_row_kind: bool = False,
        output_projection: Any = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None:
            raise StreamConfigError(f"limit={limit!r}: a stream hands out every row; stop it after as many as you want")
        # TableRead's own __init__ refuses merge options, also where nothing is merged.
        settings = StreamAssembly(table)
        settings.with_filter(predicate).with_include_row_kind(include_row_kind)
        if output_projection is not None:
            settings.with_projection({name: ".".join(path) for name, path in output_projection.columns})
        elif read_type is not None:
            settings.with_read_type(read_type)
        super().__init__(followed(settings), DEFAULT_IO_TIMEOUT, read_parts(settings))


def new_read(settings: StreamAssembly) -> StreamTableRead:
    """A read with the settings of a builder as they are now; errors as `StreamReadBuilder.new_read`."""
    return made_read(StreamTableRead, followed(settings), settings._given.io_timeout, read_parts(settings))
