"""`StreamTableRead`: reads planned rows. In a module of its own, since pypaimon's reads import pandas and polars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.options.stream_options import DEFAULT_IO_TIMEOUT
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.paimon.read_internals import TableRead
from pypaimon.streaming.reading.read import StreamRead, made_read
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import SpecBuilder, resolved
from pypaimon.streaming.spec.streamed_table import StreamedTable

if TYPE_CHECKING:
    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")


class StreamTableRead(StreamRead, TableRead):
    """Reads the rows of planned splits.

    A subclass of pypaimon's `TableRead`, made by `StreamReadBuilder.new_read()`, or with the arguments of that class.
    Columns are those of the read schema, with pypaimon's Arrow types, after `_row_kind` (`+I`, `-U`, `+U`, `-D`) if row
    kinds are included. Rows are in the order of the splits, and in stored order in each of them. A read has no state: a
    split may be read again, also after an error.

    All reading methods raise:
        PositionExpiredError: A data file and its snapshot are gone.
        CorruptTableError: A data file is damaged, or missing although its snapshot exists.
        SchemaChangedError: A value does not fit the type that is read.
        UnsupportedTableError: A file has a format, or a split a mode, that cannot be read.

    Args:
        table: pypaimon's table.
        predicate: As `with_filter`.
        read_type: As `with_read_type`; None: all columns.
        include_row_kind: As `with_include_row_kind`.
        output_projection: pypaimon's names and paths of the output columns, instead of `read_type`.
        limit: Must be None.

    Raises:
        StreamConfigError: Arguments or table options contradict each other, or a stream does not support them.
        UnsupportedTableError: The table, or one of its options, cannot be streamed.
        TableChangedError: The table is gone.
    """

    def __init__(
        self,
        table: ReadableTable,
        predicate: filter_internals.Predicate | pc.Expression | str | None,
        read_type: Iterable[DataField] | None,
        include_row_kind: bool = False,
        output_projection: Any = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None:
            raise StreamConfigError(f"limit={limit!r}: a stream gives every row; stop it after the rows that you need")
        # TableRead's own __init__ refuses merge options, even if nothing is merged.
        builder = SpecBuilder(StreamedTable.of(table))
        builder.with_filter(predicate).with_include_row_kind(include_row_kind)
        if output_projection is not None:
            builder.with_projection({name: ".".join(path) for name, path in output_projection.columns})
        elif read_type is not None:
            builder.with_read_type(read_type)
        stream = resolved(builder)
        super().__init__(stream.table.followed, DEFAULT_IO_TIMEOUT, stream.read_parts())


def new_read(stream: ResolvedStream) -> StreamTableRead:
    return made_read(StreamTableRead, stream.table.followed, stream.spec.io_timeout, stream.read_parts())
