"""Bucket keys that a filter allows: all of them or none, never some."""

from __future__ import annotations

import pytest
from pypaimon.common.predicate import Predicate

from pypaimon.streaming.filtering.bucket_selection import MAX_KEYS, candidate_keys
from pypaimon.streaming.internals import AtomicType, DataField

KEYS = [DataField(0, "a", AtomicType("INT")), DataField(1, "b", AtomicType("INT"))]


@pytest.mark.parametrize(("left", "right"), [(MAX_KEYS, 1), (MAX_KEYS // 2, 2), (MAX_KEYS + 1, 1), (40, 40)])
def test_more_keys_than_are_looked_at_are_any(left: int, right: int) -> None:
    """A part of them would drop buckets that hold matching rows."""
    parts = [Predicate("in", None, name, list(range(count))) for name, count in (("a", left), ("b", right))]
    found = candidate_keys(Predicate("and", None, None, parts), KEYS)
    wanted = frozenset((a, b) for a in range(left) for b in range(right))
    assert found == (wanted if left * right <= MAX_KEYS else None)
