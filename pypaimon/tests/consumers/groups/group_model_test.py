"""Groups in a world where everything goes wrong: no row is lost, and each rule is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from support.groups.invariants import BrokenLawError
from support.groups.mutants import MUTANTS, Mutant
from support.groups.world import Weather, play
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HISTORIES = 2500 if SOAK else 110
ROUNDS = 40 if SOAK else 1
MOST_TRIES = 100
"""Histories in which a mutant has to be found: fewer than a short round has."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_whatever_stores_and_members_suffer_the_laws_hold(round: int) -> None:
    """A history that breaks a law is told by its number: `play(number)` of `group_world` plays it again."""
    draws = seeded(f"groups {round}")
    seen: Counter[str] = Counter()
    for _ in range(HISTORIES):
        seen += play(draws.randrange(1 << 40)).laws.seen
    assert seen["handed out"] > 10 * HISTORIES
    assert seen["seals"] > HISTORIES / 4 and seen["refused"] > HISTORIES


@pytest.mark.parametrize("mixed", [False, True], ids=["equal sessions", "longer and shorter sessions"])
def test_in_good_weather_nobody_is_ended_and_nothing_is_refused_for_long(mixed: bool) -> None:
    calm = Weather(faults=0.0001, slow=0, disturbances=0, pauses=False, sessions=5, mixed=mixed)
    for seed in range(8 if mixed else 4):
        seen = play(seed, calm).laws.seen
        assert not seen["seals"] and not seen["zombies"] and seen["handed out"] > 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_without_a_rule_a_law_is_broken(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    assert any(_broken(seed, mutant.weather).startswith(mutant.laws) for seed in range(MOST_TRIES))


def _broken(seed: int, weather: Weather) -> str:
    """What is wrong in a history; empty: nothing."""
    try:
        play(seed, weather)
    except BrokenLawError as broken:
        return str(broken)
    return ""
