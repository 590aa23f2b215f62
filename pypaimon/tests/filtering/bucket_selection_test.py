"""Bucket keys that a filter allows: all of them or none, never some."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from pypaimon.common.predicate import Predicate

from pypaimon.streaming.filtering.bucket_selection import MAX_KEYS, candidate_keys
from pypaimon.streaming.paimon.internals import AtomicType, DataField

KEYS = [DataField(0, "a", AtomicType("INT")), DataField(1, "b", AtomicType("INT"))]


@pytest.mark.parametrize(("left", "right"), [(MAX_KEYS, 1), (MAX_KEYS // 2, 2), (MAX_KEYS + 1, 1), (40, 40)])
def test_more_keys_than_are_looked_at_are_any(left: int, right: int) -> None:
    """A part of them would drop buckets that hold matching rows."""
    parts = [Predicate("in", None, name, list(range(count))) for name, count in (("a", left), ("b", right))]
    found = candidate_keys(Predicate("and", None, None, parts), KEYS)
    wanted = frozenset((a, b) for a in range(left) for b in range(right))
    assert found == (wanted if left * right <= MAX_KEYS else None)


OF_ITS_KIND: list[tuple[str, Any, bool]] = [
    ("TINYINT", -(2**7), True),
    ("TINYINT", -(2**7) - 1, False),
    ("SMALLINT", 2**15 - 1, True),
    ("SMALLINT", 2**15, False),
    ("INT", -(2**31), True),
    ("INT", -(2**31) - 1, False),
    ("BIGINT", 2**63 - 1, True),
    ("BIGINT", 2**63, False),
    ("BOOLEAN", True, True),
    ("STRING", "x", True),
    ("DATE", date(2026, 1, 1), True),
]


@pytest.mark.parametrize(("kind", "literal", "fits"), OF_ITS_KIND)
@pytest.mark.parametrize("method", ["equal", "in"])
def test_a_literal_that_the_key_cannot_hold_is_not_a_key_and_rows_need_another(
    method: str, kind: str, literal: Any, fits: bool
) -> None:
    key = DataField(0, "a", AtomicType(kind))
    found = candidate_keys(Predicate(method, None, "a", [literal]), [key])
    assert found == (frozenset([(literal,)]) if fits else frozenset())


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        ("INT", True),
        ("INT", 1.0),
        ("BIGINT", "1"),
        ("BOOLEAN", 1),
        ("BOOLEAN", "true"),
        ("STRING", True),
        ("STRING", b"x"),
        ("DATE", datetime(2026, 1, 1)),
        ("DATE", "2026-01-01"),
    ],
)
def test_a_literal_of_another_kind_says_nothing_about_the_key(kind: str, literal: Any) -> None:
    """Which values it equals is up to the filter."""
    key = DataField(0, "a", AtomicType(kind))
    assert candidate_keys(Predicate("equal", None, "a", [literal]), [key]) is None
    assert candidate_keys(Predicate("in", None, "a", [None, literal]), [key]) is None
