"""Slots of a group: each row is in one of them, wherever it comes from, and a bucket of a partition in one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.options.slot_rule import DividedBy, SlotRule, SlotSet
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.spec.spec_builder import resolved, set_spec
from support.tables.handles import catalog_with_database, read_with, write_by_stream

pytestmark = pytest.mark.slow

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64())]
)
KINDS: dict[str, tuple[list[str], list[str], dict[str, str], int, DividedBy]] = {
    "fixed": ([], ["k"], {"bucket": "3"}, 3, DividedBy.BUCKET),
    "fixed append": ([], [], {"bucket": "5", "bucket-key": "k"}, 5, DividedBy.BUCKET),
    "partitions": (["p"], ["p", "k"], {"bucket": "3"}, 66, DividedBy.PARTITION_AND_BUCKET),
    "dynamic": ([], ["k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}, 64, DividedBy.PARTITION_AND_BUCKET),
    "postponed": ([], ["k"], {"bucket": "-2"}, 64, DividedBy.PARTITION_AND_BUCKET),
    "unaware": ([], [], {"bucket": "-1"}, 64, DividedBy.FILE),
    "unaware partitions": (["p"], [], {"bucket": "-1"}, 64, DividedBy.FILE),
    "evolving": (
        [],
        [],
        {"bucket": "-1", "row-tracking.enabled": "true", "data-evolution.enabled": "true"},
        1,
        DividedBy.NOTHING,
    ),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(tmp_path: Path, kind: str) -> Any:
    partitions, keys, options, _, _ = KINDS[kind]
    catalog = catalog_with_database(tmp_path)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, partitions or None, keys or None, options), False)
    for commit in range(3):
        rows = [{"k": key, "p": f"p{key % 4}", "v": commit} for key in range(commit * 7, commit * 7 + 12)]
        write_by_stream(catalog.get_table("db.t"), pa.Table.from_pylist(rows, COLUMNS))
    return catalog.get_table("db.t")


def of_slots(builder: StreamReadBuilder, slots: SlotSet) -> StreamReadBuilder:
    return set_spec(builder, replace(resolved(builder).spec, slots=slots))


def records(builder: StreamReadBuilder) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in read_with(builder.with_end(latest=True)))


@pytest.mark.parametrize("start", ["latest-full", pytest.param("earliest", marks=pytest.mark.nightly)])
def test_slots_are_disjoint_and_whole(tmp_path: Path, kind: str, start: Any) -> None:
    table = written(tmp_path, kind)

    def builder() -> StreamReadBuilder:
        return stream_read_builder(table).with_start(start).with_limits(max_rows=3)

    stream = resolved(builder())
    rule = SlotRule.of(stream.traits, stream.schema)
    assert (rule.count, rule.by) == KINDS[kind][3:]
    even = records(of_slots(builder(), SlotSet(rule, frozenset(range(0, rule.count, 2)))))
    odd = records(of_slots(builder(), SlotSet(rule, frozenset(range(1, rule.count, 2)))))
    whole = records(builder())
    assert whole and even + odd == whole
    if rule.by is not DividedBy.FILE and rule.count > 1:
        assert len(even) < len(whole)


def test_a_bucket_of_a_partition_is_in_one_slot_and_neighbours_in_the_next(tmp_path: Path) -> None:
    table = written(tmp_path, "partitions")
    rule = SlotRule.of(TableTraits.of(table.table_schema), table.table_schema)
    slots = [rule.of_bucket(("p1",), bucket) for bucket in range(3)]
    assert slots == [(int(slots[0] or 0) + bucket) % rule.count for bucket in range(3)]
    assert rule.of_bucket((None,), 0) != rule.of_bucket(("",), 0)
    stream = stream_read_builder(table).with_start("earliest").with_filter("p = 'p1'")
    first = of_slots(stream.copy(), SlotSet(rule, frozenset(slot for slot in slots if slot is not None)))
    assert records(first) == records(stream.copy())
    others = frozenset(slot for slot in range(rule.count) if slot not in slots)
    assert not records(of_slots(stream.copy(), SlotSet(rule, others)))


def test_the_slot_of_a_bucket_stays_for_positions_of_groups_are_kept_by_it() -> None:
    rule = SlotRule(64, DividedBy.PARTITION_AND_BUCKET)
    assert [rule.of_bucket(("1.50", "ä"), bucket) for bucket in (-2, 3, 60)] == [7, 12, 5]
