"""What is registry of the tables of a database between an event and its telling: looks in between change nothing."""

from __future__ import annotations

from pypaimon.streaming.databases.jobs import OpenJob
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.table_registry import FailedTable, TableRegistry


def opened(registry: TableRegistry, *names: str) -> None:
    """They are opened by now, whatever they are."""
    registry.opening.difference_update(names)


def test_a_renamed_table_is_not_missing_again_before_that_is_reported() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"renamed"})
    assert registry.former_name("1") == "b"
    opened(registry, "renamed")
    for _ in range(2):
        assert registry.listed({"renamed"}).dropped == []
    assert not registry.is_settled and not registry.has_missing and registry.place_of("b") is None
    _, place = registry.forget("b")
    registry.places["renamed"] = place or TablePosition("?")
    opened(registry, "renamed")
    assert registry.listed({"renamed"}).dropped == [] and registry.places == {"renamed": TablePosition("1")}
    assert registry.former_name("1") is None


def test_a_drop_is_reported_once_however_many_polls_come_before_that() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"failed"})
    opened(registry, "failed")
    registry.failed["failed"] = FailedTable(ValueError())
    assert registry.listed(set()).dropped == ["b", "failed"]
    assert registry.listed(set()).dropped == []
    for name in ("b", "failed"):
        registry.forget(name)
    assert registry.listed(set()).dropped == [] and registry.is_settled


def test_another_table_under_the_name_of_a_renamed_one_stands_nowhere() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"b", "renamed"})
    registry.is_replaced("b")
    assert registry.former_name("1") == "b"
    assert registry.place_of("b") is None
    # Its own opening may be under way still: what it replaced is settled with the telling.
    registry.listed({"b", "renamed"})
    registry.forget("b")
    opened(registry, "b", "renamed")
    assert registry.is_settled


def test_a_table_is_not_dropped_before_it_is_looked_for_under_every_new_name() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "renamed"})
    registry.is_there("a", "2")
    registry.is_replaced("a")
    seen = OpenJob("a", False, since=registry.rounds)
    registry.listed({"a", "renamed"})
    assert not registry.is_settled_elsewhere(seen, "2"), "the next look may have begun before it was seen"
    registry.listed({"a", "renamed"})
    assert not registry.is_settled_elsewhere(seen, "2"), "nobody knows what the new name stands for"
    registry.is_there("renamed", "1")
    assert not registry.is_settled_elsewhere(seen, "2"), "the new name stands for it"
    assert registry.is_settled_elsewhere(OpenJob("renamed", True, since=1), "1")
    assert registry.former_name("1") == "a"


def test_a_table_that_two_listings_lack_may_have_the_new_name_of_the_second() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed(set())
    assert registry.listed({"renamed"}).dropped == []
    assert registry.former_name("1") == "a"


def test_of_tables_that_have_exchanged_their_names_one_goes_first() -> None:
    registry = TableRegistry({"a": TablePosition("1"), "b": TablePosition("2")})
    registry.listed({"a", "b"})
    registry.is_there("a", "2")
    registry.is_replaced("a")
    for _ in range(2):
        registry.listed({"a", "b"})
    assert not registry.is_settled_elsewhere(OpenJob("a", False, since=1), "2")
    registry.is_there("b", "1")
    registry.is_replaced("b")
    assert registry.is_settled_elsewhere(OpenJob("a", False, since=1), "2")
    assert registry.former_name("2") == "b"
