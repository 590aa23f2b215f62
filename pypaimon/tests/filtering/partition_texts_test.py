"""Partitions as texts, and back."""

from __future__ import annotations

import pytest

from pypaimon.streaming.filtering.partition_texts import partition_text, partition_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("day=2026-11-21/hour=8", {"day": "2026-11-21", "hour": "8"}),
        ("day=2026-11-21,hour=8", {"day": "2026-11-21", "hour": "8"}),
        ("hour=8/day=x", {"hour": "8", "day": "x"}),
        ("day=a/b=c,d=e/hour=8", {"day": "a/b=c,d=e", "hour": "8"}),
        ("day=/hour=", {"day": "", "hour": ""}),
        ("hour=8", {"hour": "8"}),
        ("day=a/b", {"day": "a/b"}),
        ("day=x/huor=8", {"day": "x", "huor": "8"}),
        ('{"day": null}', {"day": None}),
    ],
)
def test_texts_are_split_at_the_names_of_columns(text: str, values: dict[str, str | None]) -> None:
    assert partition_values(text, ["day", "hour"]) == values


def test_a_text_and_its_values() -> None:
    values = {"day": "a,b/c=d", "hour": None}
    assert partition_text(values, "none") == "day=a,b/c=d/hour=none"
    assert partition_values(partition_text(values, "none"), ["day", "hour"]) == {**values, "hour": "none"}


@pytest.mark.parametrize("text", ["", "x", "/", "day", "day=a/hour=1/hour=2", "{", "hour=1/hour=2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"COLUMN=VALUE|twice|Expecting"):
        partition_values(text, ["day", "hour"])
