"""`Batch` and `BlockingBatch`: rows of one plan with their kinds and origin, which the caller confirms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.html_tables import MOST_COLUMNS, MOST_ROWS, html_table
from pypaimon.streaming.lazy_imports import LazyModule, naming_extra
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.row_kinds import DELETE, NAMES, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.read_scope import ReadScope
from pypaimon.streaming.paimon.internals import DataField, TableSchema
from pypaimon.streaming.reading.read import polars_frame

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
    import pandas  # type: ignore[import-untyped, unused-ignore]
    import polars
else:
    duckdb, pandas, polars = LazyModule("duckdb"), LazyModule("pandas"), LazyModule("polars")


_BEFORE, _AFTER, _DELETED = NAMES[UPDATE_BEFORE], NAMES[UPDATE_AFTER], NAMES[DELETE]

R = TypeVar("R", bound="BatchRows")


class BatchRows:
    """The rows of a batch and their origin. Immutable.

    Args:
        commit: Confirms the batch; blocks or is awaited as its stream does.
    """

    def __init__(self, chunk: BatchChunk, commit: Callable[[], Any]) -> None:
        assert chunk.data is not None
        self._chunk = chunk
        self._commit = commit

    @property
    def data(self) -> pa.Table:
        """The rows. `_row_kind` is the first column if row kinds are included."""
        return self._chunk.data

    @property
    def kinds(self) -> pa.ChunkedArray:
        """The kind of each row, `+I -U +U -D`; always `+I` in a stream without row kinds."""
        if ROW_KIND in self.data.schema.names:
            return self.data.column(ROW_KIND)
        return pa.chunked_array([row_kinds.constant(row_kinds.INSERT, self.num_rows)])

    @property
    def rows(self) -> pa.Table:
        """The rows without their kinds."""
        return self.data.drop_columns([ROW_KIND]) if ROW_KIND in self.data.schema.names else self.data

    @property
    def _moves_keys(self) -> bool:
        """Whether the plan is an overwrite after which keys may be in other buckets."""
        return any(split.keys_move for split in self._chunk.plan.splits())

    @property
    def _scope(self) -> ReadScope:
        return self._chunk.scope.get()

    @property
    def _own(self) -> frozenset[str]:
        """Columns that a transform of a copy made."""
        return self._chunk.own

    @property
    def _fields(self) -> dict[str, DataField]:
        """The fields of the table that the columns of the rows are, by the names of the columns."""
        return {name: field for name, field in self._chunk.fields.get().items() if name not in self._chunk.own}

    def _with_rows(
        self: R,
        data: pa.Table,
        schema: TableSchema,
        own: frozenset[str],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> R:
        """This batch after a transform of a copy.

        Args:
            names: New names of columns, by the old ones.
        """
        fields = {names.get(name, name): field for name, field in self._chunk.fields.get().items()}
        other = copy(self)
        other._chunk = replace(self._chunk, data=data, schema=schema, own=own, fields=Lazy.of(fields))
        return other

    def update_pairs(self) -> pa.Table:
        """One row per change, updates with the row before and after: `_row_kind`, `before`, `after`.

        The last two are structs of the columns of `rows`: +I and -D have one and a null, +U has both. A -U and a +U are
        one update if they follow each other and have the same primary key; a batch never ends between them. Tables may
        store either without its partner: such a -U has only `before`, such a +U only `after`.

        Raises:
            StreamConfigError: The stream has row kinds, but not all columns of the primary key under their own names.
        """
        refuse_other_keys(self.schema, self._fields)
        return paired(self.rows, self.kinds, self.schema.primary_keys if ROW_KIND in self.data.schema.names else ())

    @property
    def num_rows(self) -> int:
        """The number of rows.

        0 only for an empty full state in the middle of a stream (see `begins_state`), or for the end of a plan whose
        rows were all given (see `is_last`).
        """
        return int(self.data.num_rows)

    @property
    def snapshot_id(self) -> int:
        """The snapshot of the rows; the last one of a collapsed or net plan."""
        return self._chunk.plan.snapshot_id

    @property
    def kind(self) -> PlanKind:
        """Whether the rows are the full state or changes."""
        return self._chunk.plan.kind

    @property
    def commit_time(self) -> datetime:
        """When the snapshot was committed (aware, UTC)."""
        return self._chunk.plan.commit_time

    @property
    def watermark(self) -> int | None:
        """The watermark of the snapshot in epoch milliseconds; None if it has no watermark."""
        return self._chunk.plan.watermark

    @property
    def schema(self) -> TableSchema:
        """Paimon's schema with which the rows were read, as pypaimon's `TableSchema`, with all columns of the table.

        `data.schema` is Arrow's schema of the columns of this batch.
        """
        return self._chunk.schema or self._chunk.plan.schema

    @property
    def begins_state(self) -> bool:
        """Whether a full state begins with this batch: earlier batches are void, so empty the target.

        That is the case at the start of a stream that reads the state of its table first, and in its middle where
        `with_on_expired(...)` restarts it. The following batches add to the state, also those of later plans into which
        `with_limits(...)` cuts it.
        """
        return self._chunk.begins_state

    @property
    def is_first(self) -> bool:
        """Whether this is the beginning of its plan."""
        return self._chunk.first

    @property
    def is_last(self) -> bool:
        """Whether this is the end of its plan.

        A plan of many bytes, or one whose next rows are late, comes as several batches. If no more rows come, the last
        one is empty.
        """
        return self._chunk.last

    @property
    def position(self) -> Position | None:
        """Where a restart continues after this batch; None: at the configured start.

        That is after its plan if the batch is the last of it, else before its plan, which comes again as a whole.
        """
        return self._chunk.position

    @property
    def plan_before(self) -> Position | None:
        """Position before the plan of this batch: after the last plan with rows, or at the start of the stream.

        None if the start had not been found.
        """
        return self._chunk.before

    @property
    def plan_after(self) -> Position:
        """Position after the plan of this batch."""
        return self._chunk.plan.position

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """`data` for consumers of Arrow's PyCapsules: `polars.DataFrame(batch)`, `pyarrow.table(batch)`."""
        return self.data.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """As `num_rows`."""
        return self.num_rows

    def __bool__(self) -> bool:
        """Always true, also without rows, so that `while batch := ...` does not end at an empty state."""
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts, with the kind of each under `_row_kind` if kinds are included."""
        for batch in self.data.to_batches():
            yield from batch.to_pylist()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts, as iteration gives them."""
        return list(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas data frame."""
        return self.data.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars data frame; maps become lists of key and value."""
        return polars_frame(self.data.to_batches(), self.data.schema)

    def to_duckdb(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """Register the rows with DuckDB under a name. Returns the connection, by default a new one in memory."""
        with naming_extra("to_duckdb", {"duckdb": "duckdb"}):
            import duckdb
        database = connection or duckdb.connect(database=":memory:")
        database.register(name, self.data)
        return database

    def __repr__(self) -> str:
        end = "" if self.is_last else ", more to come"
        return f"{type(self).__name__}({self.num_rows} rows, {self.kind.value} of snapshot {self.snapshot_id}{end})"

    def _repr_html_(self) -> str:
        names = self.data.column_names
        first = self.data.slice(0, MOST_ROWS).select(range(min(len(names), MOST_COLUMNS)))
        columns = (["null" if value is None else value for value in column.to_pylist()] for column in first.columns)
        rows = zip(*columns, strict=True)
        return html_table(repr(self), names, rows, self.num_rows)


class Batch(BatchRows):
    """Rows of an asynchronous stream."""

    async def commit(self) -> None:
        """Confirm this batch and all before it, and save progress under the consumer id.

        Progress is kept by plans: the last batch of a plan confirms its rows, earlier ones only the plans before.

        Raises:
            StreamConfigError: The stream has no consumer id.
            ConsumerConflictError: Another reader has taken over; nothing was written.
        """
        await self._commit()


class BlockingBatch(BatchRows):
    """Rows of a blocking stream."""

    def commit(self) -> None:
        """As `Batch.commit`; blocks."""
        self._commit()


def refuse_other_keys(schema: TableSchema, fields: Mapping[str, DataField]) -> None:
    """Refuse rows in which the name of a key column is that of another column: changes would go to other rows.

    Args:
        fields: The fields of the table that the columns of the rows are, by the names of the columns.

    Raises:
        StreamConfigError: A projection has given the name away, or keeps it although the columns were renamed since.
    """
    ids = {field.name: field.id for field in schema.fields}
    names = {field.id: field.name for field in schema.fields}
    for key in schema.primary_keys:
        if key in ids and key in fields and fields[key].id != ids[key]:
            raise StreamConfigError(
                f"the primary key of the table has the column {key!r}, and {key!r} of the rows is another one, "
                f"{names.get(fields[key].id, 'a field of a row')!r}: give key columns their own names in "
                "with_projection(...)"
            )


def paired(rows: pa.Table, kinds: pa.ChunkedArray, keys: Sequence[str]) -> pa.Table:
    """One row per change: `_row_kind`, and the structs `before` and `after`, each with all columns or null.

    Args:
        keys: Columns of the primary key: a -U and the next +U are one change if these are equal.

    Raises:
        StreamConfigError: The rows lack a column of the key.
    """
    if missing := [key for key in keys if key not in rows.column_names]:
        raise StreamConfigError(
            f"updates are paired by the primary key, and the rows lack {', '.join(missing)}: "
            "add it to with_projection(...) under its own name"
        )
    names = np.asarray(kinds.to_pylist(), dtype=object)
    pairs = _pairs(rows, names, keys)
    begins = np.delete(np.arange(len(names)), pairs + 1)
    is_pair = np.isin(begins, pairs)
    has_before = np.isin(names[begins], (_BEFORE, _DELETED))
    has_after = is_pair | ~has_before
    values = pa.chunked_array(
        [batch.to_struct_array() for batch in rows.to_batches()], type=pa.struct(list(rows.schema))
    )
    return pa.table(
        {
            ROW_KIND: pa.array(np.where(is_pair, _AFTER, names[begins]), type=pa.string()),
            "before": values.take(pa.array(begins, mask=~has_before)),
            "after": values.take(pa.array(begins + is_pair, mask=~has_after)),
        }
    )


def _pairs(rows: pa.Table, names: npt.NDArray[np.object_], keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Index of the first row of each pair."""
    pairs = np.flatnonzero((names[:-1] == _BEFORE) & (names[1:] == _AFTER))
    for key in keys if len(pairs) else ():
        before, after = (rows.column(key).take(pa.array(at)).combine_chunks() for at in (pairs, pairs + 1))
        same = pc.equal(before, after)
        # For Arrow NaN differs from itself, for Java's keys it does not.
        if pa.types.is_floating(before.type):
            same = pc.or_(same, pc.and_(pc.is_nan(before), pc.is_nan(after)))
        pairs = pairs[same.to_numpy(zero_copy_only=False)]
    return pairs
