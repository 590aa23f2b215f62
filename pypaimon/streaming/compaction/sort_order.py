"""`SortOrder`: the order in which a compaction writes rows, if it is not that of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from pypaimon.streaming.compaction.curves import WordRange, Words, hilbert, zorder
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge.external_sort import sorted_records
from pypaimon.streaming.merge.ordering import is_ordered
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import choice, list_of
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_kinds import SortStrategy
from pypaimon.streaming.paimon.write_internals import BucketMode

_LEAST_MEMORY = 1 << 20
_PLACE = "\0place "
"""Names of the columns with the place on a curve. No column of a table begins with this character."""


@dataclass(frozen=True, slots=True)
class SortOrder:
    """An order of rows by one or more columns."""

    columns: tuple[str, ...]
    strategy: SortStrategy  # Not `AUTO`
    var_length_bytes: int  # Leading bytes of a text that the z-order considers
    memory_bytes: int  # Memory of a sort

    @staticmethod
    def of(table: PaimonTable, what: str, columns: Sequence[str], strategy: SortStrategy) -> SortOrder:
        """The order of a table by columns.

        Args:
            what: The argument or the option that names the columns, for errors.

        Raises:
            StreamConfigError: A column does not exist, is named twice or is a partition column, or its values have no
                order.
        """
        fields = {field.name: field for field in table.fields}
        for name in columns:
            if name not in fields:
                raise StreamConfigError(f"{what}: {table.name} has no column '{name}'. It has {', '.join(fields)}.")
            if name in table.partition_keys:
                raise StreamConfigError(f"{what}: '{name}' has one value in each partition, leave it out.")
            kind = fields[name].type
            if holds_blobs(kind) or not is_ordered(arrow_type(kind)):
                raise StreamConfigError(f"{what}: column '{name}' is {kind}, whose values have no order, leave it out.")
        if not columns or len(set(columns)) < len(columns):
            raise StreamConfigError(f"{what}: expected different columns, got {', '.join(columns) or 'none'}.")
        options = table.options
        return SortOrder(
            tuple(columns),
            strategy.chosen(len(columns)),
            option_keys.ZORDER_VAR_LENGTH_CONTRIBUTION.of(options),
            max(_LEAST_MEMORY, option_keys.SORT_SPILL_BUFFER_SIZE.of(options)),
        )

    @staticmethod
    def on_request(table: PaimonTable, columns: Sequence[str], strategy: SortStrategy) -> SortOrder:
        """The order that a caller of `compact` asks for. Raises UnsupportedTableError if such a table has an order of
        its own, and otherwise as `of`.
        """
        name = table.name
        if table.is_primary_key_table:
            raise UnsupportedTableError(f"order_by: {name} has a primary key, by which its files are sorted.")
        if table.bucket_mode != BucketMode.BUCKET_UNAWARE:
            raise UnsupportedTableError(
                f"order_by: {name} has buckets (its option 'bucket' is {table.total_buckets}), whose rows stay in the "
                "order in which they were written."
            )
        if option_keys.CLUSTERING_INCREMENTAL.of(table.options):
            raise UnsupportedTableError(
                f"order_by: {name} has '{option_keys.CLUSTERING_INCREMENTAL}', so that each compaction sorts by "
                f"'{option_keys.CLUSTERING_COLUMNS}'. Compact it without order_by."
            )
        _check_without_row_ids(table, "order_by")
        return SortOrder.of(table, "order_by", columns, strategy)

    @staticmethod
    def of_clustering(table: PaimonTable) -> SortOrder | None:
        """The order of the table's own options; None: it has no `clustering.incremental`.

        Raises:
            UnsupportedTableError: Such a table is not clustered.
            StreamConfigError: As `of`.
        """
        options, key = table.options, option_keys.CLUSTERING_INCREMENTAL
        if not key.of(options):
            return None
        if table.is_primary_key_table:
            raise UnsupportedTableError(f"{table.name} has '{key}' and a primary key, by which its files are sorted.")
        if table.bucket_mode != BucketMode.BUCKET_UNAWARE:
            ordered, vectors = option_keys.BUCKET_APPEND_ORDERED, option_keys.DELETION_VECTORS_ENABLED
            if ordered.of(options) or vectors.of(options):
                raise UnsupportedTableError(
                    f"{table.name} has '{key}' and buckets: set '{ordered}' to 'false', and do not set '{vectors}'."
                )
        _check_without_row_ids(table, f"'{key}'")
        strategy = option_keys.CLUSTERING_STRATEGY.of(options)
        return SortOrder.of(table, f"'{option_keys.CLUSTERING_COLUMNS}'", clustering_columns(options), strategy)

    @staticmethod
    def of_keyed_files(table: PaimonTable) -> SortOrder | None:
        """The order of the files above level 0 of a table with a primary key, if it is not that of the key
        (`pk-clustering-override`); None otherwise. Raises StreamConfigError as `of`.
        """
        if not table.traits.clustered:
            return None
        columns = clustering_columns(table.options)
        return SortOrder.of(table, f"'{option_keys.CLUSTERING_COLUMNS}'", columns, SortStrategy.ORDER)

    def sorted(
        self, batches: Iterable[pa.RecordBatch], sample: Callable[[Sequence[str]], pa.Table]
    ) -> Iterator[pa.RecordBatch]:
        """The same rows in this order, nulls first. Rows of one place stay in their order. More than fits into the
        memory is sorted in temporary files.

        Args:
            sample: Returns some of the rows, with the given columns.
        """
        if self.strategy is SortStrategy.ORDER:
            yield from sorted_records(batches, self.columns, self.memory_bytes)
            return
        if self.strategy is SortStrategy.ZORDER:
            places = partial(zorder, var_length_bytes=self.var_length_bytes)
        else:
            some = sample(self.columns)
            places = partial(hilbert, ranges=[WordRange.of(some[name]) for name in self.columns])
        placed = (self._placed(batch, places) for batch in batches)
        first = next(placed, None)
        if first is None:
            return
        keys = [name for name in first.schema.names if name.startswith(_PLACE)]
        for batch in sorted_records(chain([first], placed), keys, self.memory_bytes):
            yield batch.drop_columns(keys)

    def _placed(self, batch: pa.RecordBatch, places: Callable[[list[pa.Array]], list[Words]]) -> pa.RecordBatch:
        for number, word in enumerate(places([batch.column(name) for name in self.columns])):
            # Signed numbers in the same order.
            place = (word ^ np.uint64(1 << 63)).view(np.int64)
            batch = batch.append_column(f"{_PLACE}{number}", pa.array(place))
        return batch


def sort_request(
    call: str, order_by: str | Sequence[str] | None, strategy: str
) -> Callable[[PaimonTable], SortOrder] | None:
    """The order of a table that a call with these arguments asks for, as a function of the table; None: none.

    Raises:
        StreamConfigError: There is no such strategy, it is given without columns, or the columns are not names.
    """
    chosen = choice(SortStrategy, f"{call}: strategy", strategy)
    if order_by is None:
        if chosen is not SortStrategy.AUTO:
            raise StreamConfigError(f"{call}: strategy={strategy!r} sorts by columns: give them as order_by=[...].")
        return None
    columns = (order_by,) if isinstance(order_by, str) else list_of(str, f"{call}: order_by", order_by, "columns")
    return partial(SortOrder.on_request, columns=columns, strategy=chosen)


def clustering_columns(options: TableOptions) -> tuple[str, ...]:
    """The columns of `clustering.columns`."""
    given = option_keys.CLUSTERING_COLUMNS.of(options) or ""
    return tuple(name.strip() for name in given.split(",") if name.strip())


def _check_without_row_ids(table: PaimonTable, what: str) -> None:
    for key in (option_keys.ROW_TRACKING_ENABLED, option_keys.DATA_EVOLUTION_ENABLED):
        if key.of(table.options):
            raise UnsupportedTableError(f"{what}: {table.name} has '{key}', and ids of rows follow their positions.")
