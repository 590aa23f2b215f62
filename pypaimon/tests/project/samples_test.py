"""Samples are the same in every run, others with another seed, and fair to every name."""

from __future__ import annotations

from collections import Counter

import pytest

from support import samples

NAMES = [f"table_{table}/bounded_{read}_restore_{n}" for table in range(5) for read in range(5) for n in range(8)]


@pytest.fixture(autouse=True)
def _usual_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    monkeypatch.setattr(samples, "SOAK", False)


def drawn_with(monkeypatch: pytest.MonkeyPatch, seed: int, one_in: int) -> set[str]:
    monkeypatch.setenv(samples.VARIABLE, str(seed))
    return {name for name in NAMES if samples.is_drawn(name, one_in)}


def test_the_seed_is_constant_unless_the_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples.sample_seed() == samples.SEED
    monkeypatch.setenv(samples.VARIABLE, "12")
    assert samples.sample_seed() == 12
    assert "TEST_SEED=12" in samples.how_to_repeat()


def test_a_sample_is_repeatable_and_changes_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_with(monkeypatch, 1, 4) == drawn_with(monkeypatch, 1, 4) != drawn_with(monkeypatch, 2, 4)


def test_every_name_is_drawn_with_some_seed_and_none_with_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern of the names falls in step with the sample."""
    drawn = Counter(name for seed in range(64) for name in drawn_with(monkeypatch, seed, 4))
    assert set(drawn) == set(NAMES)
    assert max(drawn.values()) < 40


def test_numbers_differ_by_use_and_are_repeatable() -> None:
    def numbers(name: str) -> list[int]:
        drawn = samples.seeded(name)
        return [drawn.randrange(10**9) for _ in range(3)]

    assert numbers("a") == numbers("a") != numbers("b")


def test_some_keep_their_order_and_the_long_form_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for seed in range(40):
        monkeypatch.setenv(samples.VARIABLE, str(seed))
        found = samples.some("letters", "abcd", 2)
        assert found == sorted(set(found)) and len(found) == 2
        drawn.add("".join(found))
    assert len(drawn) == 6
    monkeypatch.setattr(samples, "SOAK", True)
    assert samples.some("letters", "abcd", 2) == list("abcd")


def test_sweeps_keep_their_ends_and_properties_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert samples.every(3, range(1, 9)) == [1, 4, 7, 8]
    assert samples.every(3, [5]) == [5] and samples.every(3, []) == []
    assert (samples.examples(100), samples.examples(2)) == (25, 1)
    monkeypatch.setattr(samples, "SOAK", True)
    assert (list(samples.every(3, range(4))), samples.examples(100)) == ([0, 1, 2, 3], 100)
