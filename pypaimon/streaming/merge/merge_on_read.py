"""Merge-on-read: merges sorted runs to one row per key, in columns and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pypaimon.streaming.merge.engines.engine import MergeEngine
from pypaimon.streaming.merge.groups import Groups, Kinds, Mask, Merged, is_retract, take_or_null
from pypaimon.streaming.merge.ordering import Codes, Ints, KeyCodec, numeric_codes, ranks, stable_order
from pypaimon.streaming.merge.runs import Chunk, chunks
from pypaimon.streaming.merge.stages import Begin, few_runs
from pypaimon.streaming.model.system_columns import LEVEL, SEQUENCE_NUMBER, VALUE_KIND, WRITTEN_NUMBER


def merge_batches(
    runs: Iterable[Iterable[pa.RecordBatch]],
    engine: MergeEngine,
    *,
    keep_deletes: bool = False,
    keep_sequence: bool = False,
    begin: Begin = list,
) -> Iterator[pa.RecordBatch]:
    """Merge the sorted runs of one bucket, as Java's `MergeTreeReaders` with `SortMergeReader` do.

    Args:
        runs: Record batches of each run, sorted by the engine's keys. All hold the same columns: the keys, the value
            columns, `_SEQUENCE_NUMBER` (int64), `_VALUE_KIND` (int8), `_LEVEL` (int32) if the engine needs levels, and
            optionally `_WRITTEN_NUMBER` (int64), which decides between equal sequence numbers.
            The records of one key may be in several runs and batches.
        keep_sequence: Whether `_SEQUENCE_NUMBER` comes out too: that of the newest record of a row.
        begin: Called with runs before they are read, see `stages.Begin`.

    Yields:
        Batches, sorted by key, none empty: the columns of the runs without `_SEQUENCE_NUMBER`, `_WRITTEN_NUMBER` and
        `_LEVEL`. A key with one record comes out unchanged; otherwise the engine decides. Records of a key are ordered
        by the engine's sequence fields, then `_SEQUENCE_NUMBER`, `_WRITTEN_NUMBER`, and retractions first.

    Raises:
        UnsortedRunError: The records of a run are not in order.

    Memory: one batch of each run, the rest of the batch before, and the chunk that is being merged. The next batch of a
    run is read only when the one before is used up. More than `stages.MOST_RUNS` runs are merged in stages.
    """
    with few_runs(runs, engine.keys, begin) as few:
        for chunk in chunks(few, engine.keys):
            hidden = (LEVEL, WRITTEN_NUMBER) if keep_sequence else (LEVEL, WRITTEN_NUMBER, SEQUENCE_NUMBER)
            names = [name for name in chunk.batch.schema.names if name not in hidden]
            merged = _merge_chunk(chunk, engine, names, keep_deletes)
            if merged.num_rows:
                yield merged


def merge_records(batch: pa.RecordBatch, engine: MergeEngine) -> pa.RecordBatch:
    """Merge the records of a writer to one record per key, -D included, as Java's merge buffer does.

    The batch has records in any order, in the columns of `merge_batches` without `_LEVEL` and `_WRITTEN_NUMBER`.
    Returns the same columns, sorted by key, with the `_SEQUENCE_NUMBER` of the newest record of each. Raises
    UnsupportedTableError if the engine does not accept a -U or -D.
    """
    keys = [batch.column(name) for name in engine.keys]
    codec = KeyCodec(len(keys))
    codec.fit(keys)
    codes = codec.encode(keys)
    order = stable_order(codes)
    chunk = Chunk(batch.take(pa.array(order)), codes[order], (batch.num_rows,))
    merged = _merge_chunk(chunk, engine, batch.schema.names, keep_deletes=True)
    return pa.RecordBatch.from_arrays(merged.columns, schema=batch.schema)


def _merge_chunk(chunk: Chunk, engine: MergeEngine, names: list[str], keep_deletes: bool) -> pa.RecordBatch:
    order, starts = chunk.by_key()
    kinds = numbers_of(chunk.batch, VALUE_KIND)
    if len(starts) == len(chunk.codes):
        return _rows(chunk.batch.select(names), order, kinds if order is None else kinds[order], keep_deletes)
    if order is None:
        order = np.arange(len(chunk.codes))
    newest = _newest(chunk.batch, order, starts, engine)
    if newest is not None:
        return _rows(chunk.batch.select(names), newest, kinds[newest], keep_deletes)
    # Only keys with several records are merged; `several` marks them among all keys.
    sizes = np.diff(starts, append=len(order))
    several = sizes > 1
    group_sizes = sizes[several]
    groups = Groups(chunk.batch, order[np.repeat(several, sizes)], np.cumsum(group_sizes) - group_sizes)
    merged = engine.merge(prepared(groups, engine))
    return assemble(groups.batch.select(names), merged, order[starts], several, kinds, keep_deletes)


def _newest(batch: pa.RecordBatch, order: Ints, starts: Ints, engine: MergeEngine) -> Ints | None:
    """The row of the newest record of each key, if that is the result of the merge, and the records of each key are in
    order already; otherwise None.
    """
    if not engine.takes_newest or engine.sequence or engine.wants_levels:
        return None
    follows = np.ones(len(order), dtype=np.bool_)
    follows[starts] = False
    later = np.flatnonzero(follows)
    sequence = numbers_of(batch, SEQUENCE_NUMBER)
    if (sequence[order[later]] <= sequence[order[later - 1]]).any():
        return None
    newest: Ints = order[np.append(starts[1:], len(order)) - 1]
    return newest


def prepared(groups: Groups, engine: MergeEngine) -> Groups:
    """The groups as an engine merges them: by age, and without superseded levels if it needs levels."""
    groups = by_age(groups, engine)
    levels = engine.wants_levels and LEVEL in groups.batch.schema.names
    return without_superseded_levels(groups) if levels else groups


def by_age(groups: Groups, engine: MergeEngine) -> Groups:
    """The records of each group from the oldest to the newest."""
    sequence = numbers_of(groups.batch, SEQUENCE_NUMBER)[groups.rows]
    added = ~groups.retracts
    numbers = [sequence]
    if WRITTEN_NUMBER in groups.batch.schema.names:
        numbers.insert(0, numbers_of(groups.batch, WRITTEN_NUMBER)[groups.rows])
    if not engine.sequence and len(numbers) == 1:
        # Skip the sort if all adjacent records of a group are in order.
        same = groups.ids[1:] == groups.ids[:-1]
        older = (sequence[1:] < sequence[:-1]) | ((sequence[1:] == sequence[:-1]) & (added[1:] < added[:-1]))
        if not (same & older).any():
            return groups
    fields: list[Codes] = []
    for name in engine.sequence:
        codes = ranks(groups.values(name))
        # A null is the oldest in either direction.
        fields.append(codes if engine.ascending else np.where(codes == 0, np.iinfo(np.int64).min, -codes))
    # `lexsort` takes the last key as the most significant: group, sequence fields, numbers, retractions first.
    order = np.lexsort((added, *numbers, *reversed(fields), groups.ids))
    return Groups(groups.batch, groups.rows[order], groups.starts)


def without_superseded_levels(groups: Groups) -> Groups:
    """Only records of level 0 and of the lowest level above it, whose record is the merge of all on higher levels."""
    levels = numbers_of(groups.batch, LEVEL)[groups.rows].astype(np.int64)
    highest = np.iinfo(np.int64).max
    lowest = np.minimum.reduceat(np.where(levels > 0, levels, highest), groups.starts)
    kept = (levels <= 0) | (groups.positions == groups.first(levels == lowest[groups.ids])[groups.ids])
    return groups if kept.all() else groups.only(kept)


def assemble(
    batch: pa.RecordBatch, merged: Merged, firsts: Ints, several: Mask, kinds: Kinds, keep_deletes: bool
) -> pa.RecordBatch:
    """The rows of all keys: single records unchanged, groups merged."""
    rows = firsts.copy()
    rows[several] = merged.rows
    result_kinds = kinds[firsts]
    result_kinds[several] = merged.kinds
    kept = result_kinds >= 0
    if not keep_deletes:
        kept &= ~is_retract(result_kinds)
    taken = pa.array(rows[kept])
    names, arrays = [], []
    for name in batch.schema.names:
        source = batch.column(name)
        made = pa.array(result_kinds[kept]) if name == VALUE_KIND else merged.columns.get(name)
        if name != VALUE_KIND:
            if made is None:
                made = source.take(taken)
            elif isinstance(made, pa.Array):
                # Append the values that the engine made to those of the batch, so that one `take` picks from both.
                both = pa.concat_arrays([source, made])
                picked = firsts.copy()
                picked[several] = len(source) + np.arange(len(made))
                made = both.take(pa.array(picked[kept]))
            else:
                picked = firsts.copy()
                picked[several] = made
                made = take_or_null(source, picked[kept])
        names.append(name)
        arrays.append(made)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _rows(batch: pa.RecordBatch, order: Ints | None, kinds: Kinds, keep_deletes: bool) -> pa.RecordBatch:
    if keep_deletes or not is_retract(kinds).any():
        return batch if order is None else batch.take(pa.array(order))
    kept = ~is_retract(kinds)
    return batch.filter(pa.array(kept)) if order is None else batch.take(pa.array(order[kept]))


def numbers_of(batch: pa.RecordBatch, name: str) -> Codes:
    codes = numeric_codes(batch.column(name))
    assert codes is not None
    return codes
