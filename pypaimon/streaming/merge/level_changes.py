"""Merging for a compaction that writes the changelog: the records of the output level and their changes.

Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pypaimon.streaming.merge.differences import differing
from pypaimon.streaming.merge.engines.engine import MergeEngine
from pypaimon.streaming.merge.groups import Groups, Kinds, Mask, Merged, is_retract
from pypaimon.streaming.merge.merge_on_read import assemble, by_age, numbers_of, prepared
from pypaimon.streaming.merge.ordering import Ints
from pypaimon.streaming.merge.runs import Chunk, chunks, concat
from pypaimon.streaming.merge.stages import few_runs
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import LEVEL, PLACE, VALUE_KIND, WRITTEN_NUMBER

NO_ROW_LEVEL = int(np.iinfo(np.int32).max)
"""The level of records that are no longer rows. They are superseded, and mark a key as existing, but are neither merged
nor used as the row before."""
_NOWHERE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """How the changes of a compaction are found."""

    level: int
    # Whether each key with a record of level 0 is compared with its record on the lowest level above, compacted or not
    # (`changelog-producer` = `lookup`, and other tables that look up). Otherwise each key is compared with its record
    # on the output level, the highest one (`full-compaction`).
    by_lookup: bool
    keeps_first: bool = False  # Whether the first record of a key stays its row (merge engine `first-row`)
    compared: tuple[str, ...] | None = None  # The columns to compare; None: every update is a change
    # Whether a record replaces those above the output level regardless of their values, and changes are not needed. Of
    # the records above only keys and places are then used.
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Compacted:
    """The compacted records of some keys."""

    records: pa.RecordBatch
    changes: pa.RecordBatch
    # Places of the records above the output level that these replace; empty if the runs have no places
    superseded: Ints


def merge_levels(
    runs: Iterable[Iterable[pa.RecordBatch]], engine: MergeEngine, rule: ChangeRule
) -> Iterator[Compacted]:
    """Merge sorted runs of one bucket that go to a level.

    Args:
        runs: The runs of `merge_batches`, with `_LEVEL`. With `by_lookup` also the runs above the output level that may
            hold the same keys; keys that only these hold are left out. They may have `_PLACE`.

    Yields:
        Records and changes in key order, with the columns of the runs without `_LEVEL`, `_PLACE` and
        `_WRITTEN_NUMBER`. Each change has the sequence number of its record.

    Raises:
        UnsortedRunError: The records of a run are not in order.
    """
    with few_runs(runs, engine.keys, list) as few:
        for chunk in chunks(few, engine.keys):
            found = _looked_up(chunk, engine, rule) if rule.by_lookup else _on_top(chunk, engine, rule)
            if found is not None:
                yield found


def _grouped(chunk: Chunk) -> Groups:
    order, starts = chunk.by_key()
    return Groups(chunk.batch, np.arange(len(chunk.codes)) if order is None else order, starts)


def _levels(groups: Groups) -> Ints:
    return numbers_of(groups.batch, LEVEL)[groups.rows].astype(np.int64)


def _places(groups: Groups, mask: Mask) -> Ints:
    if PLACE not in groups.batch.schema.names:
        return _NOWHERE
    return numbers_of(groups.batch, PLACE)[groups.rows[mask]].astype(np.int64)


def _looked_up(chunk: Chunk, engine: MergeEngine, rule: ChangeRule) -> Compacted | None:
    groups = _grouped(chunk)
    groups = groups.where(groups.any(_levels(groups) <= rule.level))
    if not len(groups):
        return None
    groups = by_age(groups, engine)
    levels = _levels(groups)
    superseded = _places(groups, levels > rule.level)
    if rule.replaces:
        groups = groups.only(levels <= rule.level)
        levels = _levels(groups)
    new = groups.any(levels == 0)
    if rule.keeps_first:
        # A key with a record above the output level has its row there.
        compacted_before = groups.any((levels > 0) & (levels <= rule.level))
        kept = compacted_before | ~groups.any(levels > rule.level)
        inputs = groups.only(levels <= rule.level).where(kept)
        if not len(inputs):
            return None
        nothing = np.full(len(inputs), -1)
        return _compacted(inputs, engine.merge(inputs), nothing, (new & ~compacted_before)[kept], rule, own_kind=True)
    if (levels == NO_ROW_LEVEL).any():
        groups = groups.only(levels != NO_ROW_LEVEL)
        levels = _levels(groups)
    highest = np.iinfo(np.int64).max
    lowest = np.minimum.reduceat(np.where(levels > 0, levels, highest), groups.starts)
    before = groups.first((levels > 0) & (levels == lowest[groups.ids]))
    # That record is the merge of all records on the levels above it.
    merging = groups.only((levels <= 0) | (groups.positions == before[groups.ids]))
    compacted = _compacted(merging, engine.merge(merging), groups.row_of(before), new, rule)
    return replace(compacted, superseded=superseded)


def _on_top(chunk: Chunk, engine: MergeEngine, rule: ChangeRule) -> Compacted:
    groups = _grouped(chunk)
    before = groups.row_of(groups.first(_levels(groups) == rule.level))
    several = groups.sizes > 1
    # A key with one record keeps it unchanged.
    rows, kinds = groups.row_of(groups.starts), groups.kinds[groups.starts].copy()
    if not several.any():
        return _compacted(groups, Merged(kinds, rows), before, before < 0, rule)
    merged = engine.merge(prepared(groups.where(several), engine))
    rows[several], kinds[several] = merged.rows, merged.kinds
    columns = {}
    for name, made in merged.columns.items():
        if isinstance(made, pa.Array):
            source = groups.batch.column(name)
            picked = groups.row_of(groups.starts)
            picked[several] = len(source) + np.arange(len(made))
            columns[name] = pa.concat_arrays([source, made]).take(pa.array(picked))
        else:
            picked = groups.row_of(groups.starts)
            picked[several] = made
            columns[name] = picked
    return _compacted(groups, Merged(kinds, rows, columns), before, several | (before < 0), rule)


def _compacted(
    groups: Groups, merged: Merged, before: Ints, changed: Mask, rule: ChangeRule, *, own_kind: bool = False
) -> Compacted:
    batch = groups.batch
    names = [name for name in batch.schema.names if name not in (LEVEL, PLACE, WRITTEN_NUMBER)]
    count = len(groups)
    everything = np.ones(count, dtype=np.bool_)
    kinds = numbers_of(batch, VALUE_KIND)
    firsts = groups.row_of(groups.starts)
    records = assemble(batch.select(names), merged, firsts, everything, kinds, keep_deletes=True)
    there = merged.kinds >= 0
    after = np.where(there, np.cumsum(there) - 1, -1)
    added = there & ~is_retract(merged.kinds)
    existed = (before >= 0) & ~is_retract(kinds[before])
    source = concat([batch.select(names).take(pa.array(before[existed])), _plain(records)])
    old = np.where(existed, np.cumsum(existed) - 1, -1)
    new = np.where(after >= 0, after + int(existed.sum()), -1)
    updated = changed & existed & added
    if rule.compared is not None:
        updated[updated] = _differs(source, rule.compared, old[updated], new[updated])
    gone, came = changed & existed & ~added, changed & ~existed & added
    insert = merged.kinds if own_kind else np.full(count, INSERT, dtype=np.int8)
    changes = _in_key_order(
        source,
        [
            (gone, old, np.full(count, DELETE, dtype=np.int8)),
            (updated, old, np.full(count, UPDATE_BEFORE, dtype=np.int8)),
            (updated, new, np.full(count, UPDATE_AFTER, dtype=np.int8)),
            (came, new, insert),
        ],
    )
    return Compacted(records, changes, _NOWHERE)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)


def _differs(source: pa.RecordBatch, compared: Sequence[str], old: Ints, new: Ints) -> Mask:
    differs = np.zeros(len(old), dtype=np.bool_)
    for name in compared:
        differs |= differing(source.column(name), old, new)
    return differs


def _in_key_order(source: pa.RecordBatch, parts: Sequence[tuple[Mask, Ints, Kinds]]) -> pa.RecordBatch:
    """Rows of the source in the order of the groups; the rows of a group in the order of the parts."""
    groups = np.concatenate([np.flatnonzero(mask) for mask, _, _ in parts])
    rows = np.concatenate([rows[mask] for mask, rows, _ in parts])
    kinds = np.concatenate([kinds[mask] for mask, _, kinds in parts])
    order = np.argsort(groups, kind="stable")
    taken = source.take(pa.array(rows[order], pa.int64()))
    index = taken.schema.get_field_index(VALUE_KIND)
    return taken.set_column(index, VALUE_KIND, pa.array(kinds[order], pa.int8()))
