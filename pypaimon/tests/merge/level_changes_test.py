"""What a compaction finds of changes, key by key, against a model that goes record by record."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.merge.engines.engine import Deduplicate, FirstRow
from pypaimon.streaming.merge.level_changes import ChangeRule, merge_levels
from pypaimon.streaming.model.system_columns import LEVEL, SEQUENCE_NUMBER, VALUE_KIND
from support.samples import examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.int64()), (SEQUENCE_NUMBER, pa.int64()), (VALUE_KIND, pa.int8()), (LEVEL, pa.int32())]
)
OUTPUT, TOP = 3, 5
Record = tuple[int, int, int, int]
"""Key, value, number, kind."""


def batch(records: list[Record], level: int) -> pa.RecordBatch:
    rows = [dict(zip(SCHEMA.names, (*record, level), strict=True)) for record in sorted(records)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


@st.composite
def buckets(draw: st.DrawFn) -> dict[str, list[list[Record]] | dict[int, list[Record]]]:
    """Files of level 0 and levels above; the older a record the higher it lies."""
    keys = st.lists(st.integers(0, 6), unique=True, max_size=5)
    number = 0
    above: dict[int, list[Record]] = {}
    for level in sorted(draw(st.sets(st.integers(1, TOP))), reverse=True):
        kinds = [0] if level == TOP else [0, 2, 3]
        above[level] = []
        for key in draw(keys):
            number += 1
            above[level].append((key, draw(st.integers(0, 2)), number, draw(st.sampled_from(kinds))))
    first = []
    for _ in range(draw(st.integers(0, 3))):
        file = []
        for key in draw(keys):
            number += 1
            file.append((key, draw(st.integers(0, 2)), number, draw(st.sampled_from([0, 1, 2, 3]))))
        first.append(file)
    return {"first": first, "above": above}


def runs_of(bucket: Any) -> list[list[pa.RecordBatch]]:
    found = [[batch(file, 0)] for file in bucket["first"]]
    return found + [[batch(records, level)] for level, records in bucket["above"].items()]


def result(bucket: Any, engine: Any, rule: ChangeRule) -> tuple[dict[int, tuple[int, int]], list[tuple[int, ...]]]:
    records: dict[int, tuple[int, int]] = {}
    changes: list[tuple[int, ...]] = []
    for found in merge_levels(runs_of(bucket), engine, rule):
        for row in found.records.to_pylist():
            assert row["k"] not in records
            records[row["k"]] = row["v"], row[VALUE_KIND]
        changes += [(row["k"], row["v"], row[SEQUENCE_NUMBER], row[VALUE_KIND]) for row in found.changes.to_pylist()]
    return records, changes


def by_key(bucket: Any) -> dict[int, list[tuple[int, Record]]]:
    """(level, record) of each key, oldest first."""
    found: dict[int, list[tuple[int, Record]]] = defaultdict(list)
    for file in bucket["first"]:
        for record in file:
            found[record[0]].append((0, record))
    for level, records in bucket["above"].items():
        for record in records:
            found[record[0]].append((level, record))
    for records in found.values():
        records.sort(key=lambda each: each[1][2])
    return dict(sorted(found.items()))


def adds(record: Record | None) -> bool:
    return record is not None and record[3] in (0, 2)


def changed(before: Record | None, after: Record, deduplicate: bool) -> list[tuple[int, ...]]:
    """Java's changes of one key."""
    if before is None or not adds(before):
        return [(*after[:3], 0)] if adds(after) else []
    if not adds(after):
        return [(*before[:3], 3)]
    if deduplicate and before[1] == after[1]:
        return []
    return [(*before[:3], 1), (*after[:3], 2)]


@settings(max_examples=examples(160))
@given(buckets(), st.booleans())
def test_lookup(bucket: Any, deduplicate: bool) -> None:
    rule = ChangeRule(OUTPUT, by_lookup=True, compared=("k", "v") if deduplicate else None)
    records, changes = result(bucket, Deduplicate(("k",)), rule)
    expected: dict[int, tuple[int, int]] = {}
    told: list[tuple[int, ...]] = []
    for key, found in by_key(bucket).items():
        if all(level > OUTPUT for level, _ in found):
            continue
        lowest = min((level for level, _ in found if level), default=None)
        before = next((record for level, record in found if level == lowest), None)
        after = found[-1][1]
        expected[key] = after[1], after[3]
        if any(level == 0 for level, _ in found):
            told += changed(before, after, deduplicate)
    assert (records, changes) == (expected, told)


@settings(max_examples=examples(160))
@given(buckets(), st.booleans())
def test_full_compaction(bucket: Any, deduplicate: bool) -> None:
    rule = ChangeRule(TOP, by_lookup=False, compared=("k", "v") if deduplicate else None)
    records, changes = result(bucket, Deduplicate(("k",)), rule)
    expected: dict[int, tuple[int, int]] = {}
    told: list[tuple[int, ...]] = []
    for key, found in by_key(bucket).items():
        before = next((record for level, record in found if level == TOP), None)
        after = found[-1][1]
        expected[key] = after[1], after[3]
        if before is None or len(found) > 1:
            told += changed(before, after, deduplicate)
    assert (records, changes) == (expected, told)


@settings(max_examples=examples(160))
@given(buckets())
def test_first_row(bucket: Any) -> None:
    inserts = {
        "first": [[(*record[:3], 0) for record in file] for file in bucket["first"]],
        "above": {level: [(*record[:3], 0) for record in found] for level, found in bucket["above"].items()},
    }
    records, changes = result(inserts, FirstRow(("k",)), ChangeRule(OUTPUT, by_lookup=True, keeps_first=True))
    expected: dict[int, tuple[int, int]] = {}
    told: list[tuple[int, ...]] = []
    for key, found in by_key(inserts).items():
        inputs = [(level, record) for level, record in found if level <= OUTPUT]
        there = any(level > OUTPUT for level, _ in found)
        compacted = any(level for level, _ in inputs)
        if not inputs or (there and not compacted):
            continue
        first = inputs[0][1]
        expected[key] = first[1], 0
        if not compacted:
            told.append((*first[:3], 0))
    assert (records, changes) == (expected, told)


def test_keys_that_are_only_above_give_no_changes() -> None:
    bucket = {"first": [[(1, 1, 2, 0)]], "above": {TOP: [(7, 1, 1, 0)]}}
    assert result(bucket, Deduplicate(("k",)), ChangeRule(OUTPUT, by_lookup=True)) == ({1: (1, 0)}, [(1, 1, 2, 0)])


@pytest.mark.parametrize("by_lookup", [True, False])
def test_no_runs(by_lookup: bool) -> None:
    assert list(merge_levels([], Deduplicate(("k",)), ChangeRule(OUTPUT, by_lookup=by_lookup))) == []
