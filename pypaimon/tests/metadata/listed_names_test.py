"""Names that manifest lists lead to: found once, up to a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pypaimon.streaming.metadata.listed_names import ListedNames, Names


class Finder:
    """Finds two names for each key, and knows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find(self, keys: list[str]) -> Iterator[Names]:
        for key in keys:
            self.asked.append(key)
            yield f"{key}1", f"{key}2"


def test_each_key_is_asked_for_once() -> None:
    names, finder = ListedNames(), Finder()
    assert names.get("x", ["a", "b", "a"], finder.find) == [("a1", "a2"), ("b1", "b2"), ("a1", "a2")]
    assert names.get("x", ["b", "c"], finder.find) == [("b1", "b2"), ("c1", "c2")]
    assert finder.asked == ["a", "b", "c"]
    assert names.get("y", ["a"], lambda keys: [("other",) for _ in keys]) == [("other",)]
    assert names.get("x", ["d"], lambda keys: [()]) == names.get("x", ["d"], finder.find) == [()]


def test_the_last_used_ones_stay_within_the_bound() -> None:
    names, finder = ListedNames(10), Finder()
    names.get("x", ["a", "b", "c", "d", "a"], finder.find)
    assert names.held <= 10
    assert names.get("x", ["huge"], lambda keys: [tuple("abcdefghijklm")]) == [tuple("abcdefghijklm")]
    assert names.held <= 10
    finder.asked.clear()
    names.get("x", ["d", "a"], finder.find)
    assert finder.asked == ["a"]


def test_what_was_found_before_an_error_is_known() -> None:
    def missing(keys: list[str]) -> Iterator[Names]:
        yield ("a1",)
        raise FileNotFoundError(keys[1])

    names, finder = ListedNames(), Finder()
    with pytest.raises(FileNotFoundError, match="b"):
        names.get("x", ["a", "b"], missing)
    assert names.get("x", ["a", "b"], finder.find) == [("a1",), ("b1", "b2")]
