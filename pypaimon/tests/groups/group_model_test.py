"""Groups in a world where everything goes wrong: no row is lost, and each rule is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from support.groups.invariants import BrokenLawError
from support.groups.mutants import MUTANTS, Mutant
from support.groups.world import Weather, play
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]

HISTORIES = 2500 if SOAK else 30
ROUNDS = 40 if SOAK else 1
MOST_TRIES = 100
"""Histories within which a mutant has to be found."""
FOUND_BY = {"members are missed after the watcher's session": 17}
"""Where to look first for the mutants that only a late history finds."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_invariants_hold_in_any_weather(round: int) -> None:
    """A failure names its history: `play(number)` of `support.groups.world` replays it."""
    draws = seeded(f"groups {round}")
    seen: Counter[str] = Counter()
    for _ in range(HISTORIES):
        seen += play(draws.randrange(1 << 40)).laws.seen
    assert seen["handed out"] > 10 * HISTORIES
    assert seen["fencings"] > HISTORIES / 4 and seen["refused"] > HISTORIES


@pytest.mark.parametrize("mixed", [False, True], ids=["equal sessions", "longer and shorter sessions"])
def test_in_good_weather_no_member_is_fenced_and_nothing_is_refused_for_long(mixed: bool) -> None:
    calm = Weather(faults=0.0001, slow=0, disturbances=0, pauses=False, sessions=5, mixed=mixed)
    for seed in range(8 if mixed else 4):
        seen = play(seed, calm).laws.seen
        assert not seen["fencings"] and not seen["zombies"] and seen["handed out"] > 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_every_rule_is_needed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    seeds = sorted(range(MOST_TRIES), key=lambda seed: seed != FOUND_BY.get(mutant.what))
    assert any(_broken(seed, mutant.weather).startswith(mutant.laws) for seed in seeds)


def _broken(seed: int, weather: Weather) -> str:
    """The broken invariant of a history; empty if there is none."""
    try:
        play(seed, weather)
    except BrokenLawError as broken:
        return str(broken)
    return ""
