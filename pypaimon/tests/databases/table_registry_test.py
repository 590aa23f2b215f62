"""What is registry of the tables of a database between an event and its telling: looks in between change nothing."""

from __future__ import annotations

from pypaimon.streaming.databases.jobs import OpenJob
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.table_registry import FailedTable, Listed, TableRegistry


def opened(registry: TableRegistry, *names: str) -> None:
    """They are opened by now, whatever they are."""
    for name in names:
        registry.was_opened(name)


def test_a_renamed_table_is_not_missing_again_before_that_is_reported() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"renamed"}, 0.0)
    assert registry.former_name("1") == "b"
    opened(registry, "renamed")
    for _ in range(2):
        assert registry.listed({"renamed"}, 0.0).dropped == []
    assert not registry.is_settled and not registry.has_missing and registry.place_of("b") is None
    _, place = registry.forget("b")
    registry.places["renamed"] = place or TablePosition("?")
    opened(registry, "renamed")
    assert registry.listed({"renamed"}, 0.0).dropped == [] and registry.places == {"renamed": TablePosition("1")}
    assert registry.former_name("1") is None


def test_a_drop_is_reported_once_however_many_polls_come_before_that() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"failed"}, 0.0)
    opened(registry, "failed")
    registry.failed["failed"] = FailedTable(ValueError())
    assert registry.listed(set(), 0.0).dropped == ["b", "failed"]
    assert registry.listed(set(), 0.0).dropped == []
    for name in ("b", "failed"):
        registry.forget(name)
    assert registry.listed(set(), 0.0).dropped == [] and registry.is_settled


def test_another_table_under_the_name_of_a_renamed_one_stands_nowhere() -> None:
    registry = TableRegistry({"b": TablePosition("1")})
    registry.listed({"b", "renamed"}, 0.0)
    registry.is_replaced("b")
    assert registry.former_name("1") == "b"
    assert registry.place_of("b") is None
    # Its own opening may be under way still: what it replaced is settled with the telling.
    registry.listed({"b", "renamed"}, 0.0)
    registry.forget("b")
    opened(registry, "b", "renamed")
    assert registry.is_settled


def test_a_table_is_not_dropped_before_it_is_looked_for_under_every_new_name() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "renamed"}, 0.0)
    registry.is_there("a", "2")
    registry.is_replaced("a")
    seen = OpenJob("a", False, since=registry.rounds)
    registry.listed({"a", "renamed"}, 0.0)
    assert not registry.is_settled_elsewhere(seen, "2"), "the next look may have begun before it was seen"
    registry.listed({"a", "renamed"}, 0.0)
    assert not registry.is_settled_elsewhere(seen, "2"), "nobody knows what the new name stands for"
    registry.is_there("renamed", "1")
    assert not registry.is_settled_elsewhere(seen, "2"), "the new name stands for it"
    assert registry.is_settled_elsewhere(OpenJob("renamed", True, since=1), "1")
    assert registry.former_name("1") == "a"


def test_a_table_that_two_listings_lack_may_have_the_new_name_of_the_second() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed(set(), 0.0)
    assert registry.listed({"renamed"}, 0.0).dropped == []
    assert registry.former_name("1") == "a"


def test_of_tables_that_have_exchanged_their_names_one_goes_first() -> None:
    registry = TableRegistry({"a": TablePosition("1"), "b": TablePosition("2")})
    registry.listed({"a", "b"}, 0.0)
    registry.is_there("a", "2")
    registry.is_replaced("a")
    for _ in range(2):
        registry.listed({"a", "b"}, 0.0)
    assert not registry.is_settled_elsewhere(OpenJob("a", False, since=1), "2")
    registry.is_there("b", "1")
    registry.is_replaced("b")
    assert registry.is_settled_elsewhere(OpenJob("a", False, since=1), "2")
    assert registry.former_name("2") == "b"


def failed(registry: TableRegistry, *names: str) -> None:
    opened(registry, *names)
    registry.failed.update((name, FailedTable(ValueError())) for name in names)


def asked(listed: Listed) -> list[str]:
    return [each.name for each in listed.openings]


def test_a_drop_is_reported_although_parked_tables_are_opened_all_the_time() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "p", "q"}, 0.0)
    opened(registry, "a")
    failed(registry, "p", "q")
    assert asked(registry.listed({"p", "q"}, 100.0)) == ["p", "q"], "the table may have either name by now"
    failed(registry, "p")
    listed = registry.listed({"p", "q"}, 200.0)
    assert (asked(listed), listed.dropped) == (["p"], []), "another opening is not complete yet"
    failed(registry, "q")
    listed = registry.listed({"p", "q"}, 300.0)
    assert (asked(listed), listed.dropped) == (["q"], ["a"]) and "p" in registry.opening


def test_a_drop_does_not_wait_for_tables_that_are_created_later_or_are_known() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a"}, 0.0)
    opened(registry, "a")
    registry.listed({"starting"}, 0.0)
    registry.is_there("starting", "2")
    assert registry.listed({"starting", "next"}, 0.0).dropped == [], "the table may have the new name"
    opened(registry, "next")
    assert registry.listed({"starting", "later"}, 0.0).dropped == ["a"]
    assert registry.opening.keys() == {"starting", "later"}


def test_a_table_is_looked_for_under_a_name_that_was_being_opened_when_it_went_missing() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "p"}, 0.0)
    opened(registry, "a")
    registry.listed({"p"}, 0.0)
    # What the name had when that began may be a table that was dropped since.
    failed(registry, "p")
    listed = registry.listed({"p"}, 0.1)
    assert (asked(listed), listed.dropped) == (["p"], [])
    registry.is_there("p", "1")
    assert registry.listed({"p"}, 0.2).dropped == []
    assert registry.former_name("1") == "a"


def test_a_name_that_comes_back_may_have_a_table_that_is_missing() -> None:
    registry = TableRegistry({"a": TablePosition("1"), "b": TablePosition("2")})
    registry.listed(set(), 0.0)
    assert registry.listed({"a"}, 0.0).dropped == []
    registry.is_there("a", "2")
    registry.is_replaced("a")
    assert registry.listed({"a"}, 0.0).dropped == []
    assert registry.former_name("2") == "b"


def test_what_replaced_a_table_is_settled_although_parked_tables_are_opened_all_the_time() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "p"}, 0.0)
    failed(registry, "p")
    registry.is_there("a", "2")
    registry.is_replaced("a")
    seen = OpenJob("a", False, since=registry.rounds)
    assert asked(registry.listed({"a", "p"}, 100.0)) == ["p"]
    assert asked(registry.listed({"a", "p"}, 200.0)) == []
    assert not registry.is_settled_elsewhere(seen, "2"), "the former table may have the name"
    failed(registry, "p")
    assert asked(registry.listed({"a", "p"}, 300.0)) == ["p"]
    assert registry.is_settled_elsewhere(seen, "2")


def test_a_parked_table_is_opened_after_pauses_and_for_each_missing_table() -> None:
    registry = TableRegistry({"a": TablePosition("1")})
    registry.listed({"a", "p"}, 0.0)
    opened(registry, "a")
    failed(registry, "p")

    def are_asked(now: float, *names: str) -> list[str]:
        found = asked(registry.listed({"p", *names}, now))
        opened(registry, *found)
        return [name for name in found if name != "a"]

    assert are_asked(0.0, "a") == ["p"]
    assert are_asked(0.4, "a") == []
    assert are_asked(1.0, "a") == ["p"]
    assert are_asked(1.9, "a") == []
    assert are_asked(1.9) == ["p"]
    assert are_asked(1.9) == []
    assert are_asked(61.0) == ["p"]


def test_a_table_that_is_being_opened_is_not_opened_twice() -> None:
    registry = TableRegistry(None)
    registry.listed({"p"}, 0.0)
    failed(registry, "p")
    registry.listed({"p"}, 0.0)
    assert registry.retried("p") is None and registry.errors == {}
    failed(registry, "p")
    opening = registry.retried("p")
    assert opening is not None and opening.is_new and "p" in registry.opening
