"""`Pruner`: which manifests and files a filter can drop without losing a row, or a version of one.

Java's rules: docs/java-semantics.md#filters-and-pruning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.bucket_selection import BucketFunction, bucket_function, candidate_keys
from pypaimon.streaming.filtering.filters import split_and
from pypaimon.streaming.filtering.statistics import EncodedStats, Mask, PartitionValues, evaluate
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

Scan = Literal["full", "delta", "changelog"]
KNOWLEDGE = ("partition", "bucket", "key", "value", "index")
"""What may be known of a file: partition, bucket, statistics of its keys and other columns, its embedded index."""
_Numbers = npt.NDArray[np.int64]
_Source = tuple[frozenset[str], EncodedStats | PartitionValues]
_COLUMNS = [
    *"partition bucket total_buckets row_count first_row_id schema_id level value_stats_cols write_cols".split(),
    *("file_name", "embedded_index"),
    *(f"{kind}_{part}" for kind in ("key", "value") for part in ("min", "max", "nulls")),
]


class Pruner:
    """Drops manifests and files that cannot hold a row that the stream delivers.

    Partition, bucket and key statistics can always be used. Value statistics can be used on append tables; on
    primary-key tables in `full`, for whole buckets, and in `changelog` of the producers lookup and full-compaction. If
    a row that fails the filter must still be delivered as a delete (`delta`, `changelog` of the producer input, the
    pending bucket -2), only AND-parts that name nothing but key and partition columns are used. With data evolution,
    files of the same rows are dropped together, if none of them can match for some column. An embedded index is used
    where statistics of its columns may be. A missing statistic, an unknown type and an unreadable index never drop a
    file.

    Args:
        schema_of: The schema of an id, for files that were written with another one.
        by: What to use, a prefix of `KNOWLEDGE`; anything but all of it only to explain what drops files.
    """

    def __init__(
        self,
        schema: TableSchema,
        schema_of: Callable[[int], TableSchema],
        predicate: Predicate | None,
        by: Sequence[str] = KNOWLEDGE,
    ) -> None:
        self._schema = schema
        self._schema_of = schema_of
        self._predicate = predicate
        self._by = by
        self._indexed = option_keys.FILE_INDEX_READ_ENABLED.of(schema.options)
        self._fields = {field.name: field for field in schema.fields}
        self._on_keys, _ = split_and(predicate, [*schema.primary_keys, *schema.partition_keys])
        self._bucket_keys = {
            id(each): candidate_keys(each, schema.logical_bucket_key_fields)
            for each in (predicate, self._on_keys)
            if each is not None and bucket_function(schema) is not None
        }

    @cached_property
    def _traits(self) -> TableTraits:
        return TableTraits.of(self._schema)

    def manifests(self, manifests: pa.Table) -> pa.BooleanArray:
        """Which manifests (MANIFEST_SCHEMA) can hold an entry that `entries` keeps, by their partition statistics."""
        predicate = self._on_keys if self._schema.primary_keys else self._predicate
        if predicate is None or not self._schema.partition_keys:
            return pa.array(np.ones(manifests.num_rows, dtype=bool))
        columns = {field.id: field for field in self._schema.fields if field.name in self._schema.partition_keys}
        stats = EncodedStats(
            minimum=_column(manifests, "partition_min"),
            maximum=_column(manifests, "partition_max"),
            nulls=_column(manifests, "partition_nulls"),
            rows=pc.add(_column(manifests, "num_added_files"), _column(manifests, "num_deleted_files")),
            arity=len(columns),
            slots={self._fields[name].id: slot for slot, name in enumerate(self._schema.partition_keys)},
            fields=columns,
        )
        partition = frozenset(self._schema.partition_keys)
        return pa.array(evaluate(predicate, manifests.num_rows, self._leaf([(partition, stats)])))

    def entries(self, entries: pa.Table, scan: Scan) -> pa.BooleanArray:
        """Which entries (ENTRY_SCHEMA) can hold a row that the stream delivers.

        The ADD and the DELETE entry of a file are always kept or dropped together. For `full`, all entries of a
        (partition, bucket) must be in one call, after the level rule of the first plan has been applied; most files
        are dropped if only live entries are given.

        Args:
            scan: `full`: files that are merged to a state. `delta`: records as written, and files that are merged to
                find changes. `changelog`: changelog files.
        """
        everywhere = np.ones(entries.num_rows, dtype=bool)
        if self._predicate is None:
            return pa.array(everywhere)
        entries = entries.select(_COLUMNS)
        if not self._traits.primary_key:
            keep = self._matching(entries, everywhere, self._predicate, values=not self._traits.data_evolution)
            if self._traits.data_evolution and "value" in self._by:
                keep = keep & self._by_same_rows(entries, self._predicate)
        elif scan == "changelog" and self._traits.producer.complete:
            keep = self._matching(entries, everywhere, self._predicate, values=True)
        elif scan != "full":
            keep = self._matching(entries, everywhere, self._on_keys)
        else:
            pending = _numbers(entries, "bucket") == POSTPONE_BUCKET
            merged = self._matching(entries, ~pending, self._predicate)
            keep = self._matching(entries, pending, self._on_keys) | self._whole_buckets(entries, merged)
        return pa.array(keep)

    def _matching(self, entries: pa.Table, among: Mask, predicate: Predicate | None, values: bool = False) -> Mask:
        if predicate is None:
            return among
        by_statistics = partial(self._by_statistics, values=values and "value" in self._by)
        tests: dict[str, Callable[[pa.Table, Predicate], Mask]] = {
            "partition": self._by_partition,
            "bucket": self._by_bucket,
            "key": by_statistics,
            "index": partial(self._by_index, values=values),
        }
        for what, test in tests.items():
            if what in self._by and among.any():
                rest = entries if among.all() else entries.filter(pa.array(among))
                among = _and(among, test(rest, predicate))
        return among

    def _by_partition(self, entries: pa.Table, predicate: Predicate) -> Mask:
        return evaluate(predicate, entries.num_rows, self._leaf(self._partition_source(entries)))

    def _by_bucket(self, entries: pa.Table, predicate: Predicate) -> Mask:
        keep = np.ones(entries.num_rows, dtype=bool)
        keys = self._bucket_keys.get(id(predicate))
        if keys is None:
            return keep
        buckets, totals, schemas = (_numbers(entries, name) for name in ("bucket", "total_buckets", "schema_id"))
        for schema_id in np.unique(schemas):
            function = self._bucket_function(int(schema_id))
            if function is None:
                continue
            of_schema = (schemas == schema_id) & (buckets >= 0) & (totals > 0)
            for total in np.unique(totals[of_schema]):
                # Only files with this number of buckets are judged: they stay if a key hashes to their bucket.
                hit = {function(key, int(total)) for key in keys}
                keep &= ~(of_schema & (totals == total)) | np.isin(buckets, list(hit))
        return keep

    def _by_statistics(self, entries: pa.Table, predicate: Predicate, values: bool) -> Mask:
        """By partition, key statistics (primary-key tables) and, where allowed, value statistics."""
        keep = np.ones(entries.num_rows, dtype=bool)
        if not values and not self._traits.primary_key:
            return keep
        for rows, group in _groups(entries, values):
            sources = self._partition_source(group)
            file_schema = self._file_schema(group["schema_id"][0].as_py())
            if self._traits.primary_key:
                keys = [name for name in file_schema.primary_keys if name not in file_schema.partition_keys]
                sources.append((frozenset(self._schema.primary_keys), _stats(group, "key", file_schema, keys)))
            if values:
                sources.append((frozenset(self._fields), _stats(group, "value", file_schema, _value_columns(group))))
            keep[rows] = evaluate(predicate, group.num_rows, self._leaf(sources))
        return keep

    def _by_index(self, entries: pa.Table, predicate: Predicate, values: bool = True) -> Mask:
        """By embedded indexes of all columns, or of keys alone if values may not be used."""
        looked_at = predicate if values else self._on_keys
        indexed = self._indexed and entries["embedded_index"].null_count < entries.num_rows
        if looked_at is None or not indexed:
            return np.ones(entries.num_rows, dtype=bool)
        # Late, because pyroaring is slow to import and few tables have indexes.
        from pypaimon.streaming.filtering.index_filter import by_embedded_indexes

        return by_embedded_indexes(entries, looked_at, self._schema, self._file_schema)

    def _by_same_rows(self, entries: pa.Table, predicate: Predicate) -> Mask:
        """By values, for files with columns of the same rows: the values of a column may be in any of them."""
        same_rows = _same_rows(entries)
        count = int(same_rows.max(initial=-1)) + 1
        has_all_rows = _has_all(same_rows, entries)
        layouts = []
        for rows, group in _groups(entries, values=True):
            file_schema = self._file_schema(group["schema_id"][0].as_py())
            written = group["write_cols"][0].as_py()
            held = {field.id for field in file_schema.fields if written is None or field.name in written}
            stats = _stats(group, "value", file_schema, _value_columns(group))
            layouts.append((same_rows[rows], has_all_rows[rows], held, stats, group))

        def by_index(group: pa.Table, part: Predicate) -> Mask | bool:
            return self._by_index(group, part) if "index" in self._by else True

        def leaf(part: Predicate) -> Mask | bool:
            field = self._fields.get(str(part.field))
            if field is None or holds_blobs(field.type) or field.name in self._schema.partition_keys:
                return True
            found, held_everywhere = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
            for numbers, of_all, held, stats, group in layouts:
                if field.id in held:
                    held_everywhere[numbers[of_all]] = True
                    by_statistics = np.broadcast_to(stats.may_hold(part, field), len(numbers))
                    found[numbers[by_statistics & by_index(group, part)]] = True
            # A column is null in rows for which no file holds it.
            return found | ~held_everywhere if part.method == "isNull" else found

        return evaluate(predicate, count, leaf)[same_rows]

    def _whole_buckets(self, entries: pa.Table, among: Mask) -> Mask:
        """By values, where versions of a key are merged: a single file may be dropped only if no other has its keys.

        So single files are dropped from buckets of one level above 0, or of one file. Other buckets are dropped as a
        whole, if none of their files matches, and only if merging does not make rows that are in no file: partial
        updates and aggregation do, unless deletion vectors have removed the older versions, except on level 0.
        """
        predicate = self._predicate
        if predicate is None or "value" not in self._by or not among.any():
            return among
        rest = entries.filter(pa.array(among))
        matches = self._by_statistics(rest, predicate, values=True)
        if "index" in self._by and matches.any():
            matches = _and(matches, self._by_index(rest.filter(pa.array(matches)), predicate))
        partitions = _column(rest, "partition").dictionary_encode().indices.to_numpy().astype(np.int64)
        # One number per (partition, bucket): the partition's code, then 32 bits of the bucket, which may be negative.
        _, groups = np.unique(partitions << 32 | _numbers(rest, "bucket") & 0xFFFFFFFF, return_inverse=True)
        levels, sizes = _numbers(rest, "level"), np.bincount(groups)
        lowest, highest = np.full(len(sizes), np.iinfo(np.int64).max), np.zeros(len(sizes), dtype=np.int64)
        np.minimum.at(lowest, groups, levels)
        np.maximum.at(highest, groups, levels)
        # Per bucket: no key can be in two files; and (`whole`) at least one file matches.
        distinct_keys = (sizes <= 1) | ((lowest == highest) & (lowest > 0))
        whole = np.bincount(groups, weights=matches) > 0
        if self._traits.merge_engine.combines:
            whole |= (lowest == 0) if self._traits.deletion_vectors else True
        return _and(among, np.where(distinct_keys[groups], matches, whole[groups]))

    def _partition_source(self, entries: pa.Table) -> list[_Source]:
        keys = self._schema.partition_keys
        return [(frozenset(keys), PartitionValues.of(_column(entries, "partition"), keys))] if keys else []

    def _leaf(self, sources: Sequence[_Source]) -> Callable[[Predicate], Mask | bool]:
        def may_hold(leaf: Predicate) -> Mask | bool:
            result: Mask | bool = True
            for names, source in sources:
                if leaf.field in names and leaf.field in self._fields:
                    result = np.logical_and(result, source.may_hold(leaf, self._fields[leaf.field]))
            return result

        return may_hold

    def _file_schema(self, schema_id: int) -> TableSchema:
        return self._schema if schema_id == self._schema.id else self._schema_of(schema_id)

    def _bucket_function(self, schema_id: int) -> BucketFunction | None:
        """The bucket function of files of that schema; None if their buckets cannot be compared with the keys."""
        schema = self._file_schema(schema_id)
        fixed = (bucket := TableTraits.of(schema).bucket) > 0 or bucket == POSTPONE_BUCKET
        written, read = (
            [(field.id, str(field.type).split(" NOT NULL")[0]) for field in each.logical_bucket_key_fields]
            for each in (schema, self._schema)
        )
        return bucket_function(schema) if fixed and written == read else None


def _same_rows(entries: pa.Table) -> _Numbers:
    """A number for each entry, from 0, which entries of a bucket share if their row ids overlap."""
    partition = _column(entries, "partition").dictionary_encode().indices.to_numpy().astype(np.int64)
    bucket = _numbers(entries, "bucket")
    first = pc.fill_null(_column(entries, "first_row_id"), -1).to_numpy().astype(np.int64)
    order = np.lexsort((first, bucket, partition))
    apart = np.ones(len(order), dtype=bool)
    apart[1:] = (np.diff(partition[order]) != 0) | (np.diff(bucket[order]) != 0)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = row_ranges(first[order], _numbers(entries, "row_count")[order], apart)
    return numbers


def _has_all(same_rows: _Numbers, entries: pa.Table) -> Mask:
    first = pc.fill_null(_column(entries, "first_row_id"), -1).to_numpy().astype(np.int64)
    counts = _numbers(entries, "row_count")
    lowest, highest = np.full(len(first), np.iinfo(np.int64).max), np.full(len(first), -1)
    np.minimum.at(lowest, same_rows, first)
    np.maximum.at(highest, same_rows, first + counts)
    return np.asarray((first == lowest[same_rows]) & (first + counts == highest[same_rows]), dtype=bool)


def _and(among: Mask, rest: Mask) -> Mask:
    """`among` without the entries that fail; `rest` has one value for each entry of `among`."""
    kept = among.copy()
    kept[among] = rest
    return kept


def _groups(entries: pa.Table, values: bool) -> Iterator[tuple[_Numbers, pa.Table]]:
    keys = [pc.cast(_column(entries, "schema_id"), pa.string())]
    if values:
        keys += [pc.binary_join(_column(entries, name), "\0") for name in ("value_stats_cols", "write_cols")]
    # The layout of each entry as one text. The separators are control characters; null differs from an empty list.
    joined = pc.binary_join_element_wise(*keys, "\n", null_handling="replace", null_replacement="\1")
    codes = joined.dictionary_encode()
    numbers = codes.indices.to_numpy()
    for code in range(len(codes.dictionary)):
        rows = np.flatnonzero(numbers == code)
        yield rows, entries if len(rows) == entries.num_rows else entries.take(pa.array(rows))


def _value_columns(group: pa.Table) -> list[str] | None:
    for name in ("value_stats_cols", "write_cols"):
        if (columns := group[name][0].as_py()) is not None:
            return list(columns)
    return None


def _stats(
    group: pa.Table, kind: Literal["key", "value"], schema: TableSchema, columns: list[str] | None
) -> EncodedStats:
    fields = {field.id: field for field in schema.fields}
    ids = {field.name: field.id for field in schema.fields}
    names = list(ids) if columns is None else columns
    return EncodedStats(
        minimum=_column(group, f"{kind}_min"),
        maximum=_column(group, f"{kind}_max"),
        nulls=_column(group, f"{kind}_nulls"),
        rows=_column(group, "row_count"),
        arity=len(names),
        slots={ids[name]: slot for slot, name in enumerate(names) if name in ids},
        fields=fields,
    )


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _numbers(table: pa.Table, name: str) -> _Numbers:
    numbers: _Numbers = table[name].to_numpy().astype(np.int64)
    return numbers


def row_ranges(first: _Numbers, count: _Numbers, apart: npt.NDArray[np.bool_]) -> _Numbers:
    """Number the ranges of overlapping files of data evolution, from 0, given the first row id of each file, ascending
    except where a file is set apart; -1 without row ids.
    """
    starts = np.ones(len(first), dtype=bool)
    # The last row id of the range so far; -1 without row ids.
    reach = -1
    for index, (begin, rows) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        if not apart[index] and 0 <= begin <= reach:
            starts[index] = False
            reach = max(reach, begin + rows - 1)
        else:
            reach = begin + rows - 1 if begin >= 0 else -1
    return np.cumsum(starts, dtype=np.int64) - 1
