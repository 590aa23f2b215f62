"""What is known of the tables of a database between an event and its telling: looks in between change nothing."""

from __future__ import annotations

from pypaimon.streaming.databases.jobs import Opening
from pypaimon.streaming.databases.known_tables import KnownTables
from pypaimon.streaming.databases.position import TablePlace


def opened(known: KnownTables, *names: str) -> None:
    """They are opened by now, whatever they are."""
    known.opening.difference_update(names)


def test_a_renamed_table_is_not_missing_again_before_that_is_told() -> None:
    known = KnownTables({"b": TablePlace("1")})
    known.listed({"renamed"})
    assert known.former_name("1") == "b"
    opened(known, "renamed")
    for _ in range(2):
        assert known.listed({"renamed"}).dropped == []
    assert not known.is_settled and not known.has_missing and known.place_of("b") is None
    _, place = known.forget("b")
    known.places["renamed"] = place or TablePlace("?")
    opened(known, "renamed")
    assert known.listed({"renamed"}).dropped == [] and known.places == {"renamed": TablePlace("1")}
    assert known.former_name("1") is None


def test_a_drop_is_told_once_however_many_looks_come_before_its_telling() -> None:
    known = KnownTables({"b": TablePlace("1")})
    known.listed({"failed"})
    opened(known, "failed")
    known.failed["failed"] = ValueError()
    assert known.listed(set()).dropped == ["b", "failed"]
    assert known.listed(set()).dropped == []
    for name in ("b", "failed"):
        known.forget(name)
    assert known.listed(set()).dropped == [] and known.is_settled


def test_another_table_under_the_name_of_a_renamed_one_stands_nowhere() -> None:
    known = KnownTables({"b": TablePlace("1")})
    known.listed({"b", "renamed"})
    known.is_replaced("b")
    assert known.former_name("1") == "b"
    assert known.place_of("b") is None
    # Its own opening may be under way still: what it replaced is settled with the telling.
    known.listed({"b", "renamed"})
    known.forget("b")
    opened(known, "b", "renamed")
    assert known.is_settled


def test_a_table_is_not_dropped_before_it_is_looked_for_under_every_new_name() -> None:
    known = KnownTables({"a": TablePlace("1")})
    known.listed({"a", "renamed"})
    known.is_there("a", "2")
    known.is_replaced("a")
    seen = Opening("a", False, since=known.rounds)
    known.listed({"a", "renamed"})
    assert not known.is_settled_elsewhere(seen, "2"), "the next look may have begun before it was seen"
    known.listed({"a", "renamed"})
    assert not known.is_settled_elsewhere(seen, "2"), "nobody knows what the new name stands for"
    known.is_there("renamed", "1")
    assert not known.is_settled_elsewhere(seen, "2"), "the new name stands for it"
    assert known.is_settled_elsewhere(Opening("renamed", True, since=1), "1")
    assert known.former_name("1") == "a"


def test_of_tables_that_have_exchanged_their_names_one_goes_first() -> None:
    known = KnownTables({"a": TablePlace("1"), "b": TablePlace("2")})
    known.listed({"a", "b"})
    known.is_there("a", "2")
    known.is_replaced("a")
    for _ in range(2):
        known.listed({"a", "b"})
    assert not known.is_settled_elsewhere(Opening("a", False, since=1), "2")
    known.is_there("b", "1")
    known.is_replaced("b")
    assert known.is_settled_elsewhere(Opening("a", False, since=1), "2")
    assert known.former_name("2") == "b"
