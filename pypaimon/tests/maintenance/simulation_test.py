"""Maintenance in a simulated world: others, faults and kills at every request, and invariants at every step."""

from __future__ import annotations

import pytest

from support.groups.invariants import BrokenLawError
from support.maintenance.mutants import MUTANTS, Mutant
from support.maintenance.stage import Stage, played
from support.maintenance.weather import KILLED, WEATHERS
from support.maintenance.world import live
from support.samples import SOAK, sample_seed, some

SEEDS = 100_000 if SOAK else 1000
BY_HISTORY = [each for each in MUTANTS if each.history is not None]
BY_CHANCE = [each for each in MUTANTS if each.history is None]
pytestmark = pytest.mark.soak


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_random_histories(part: int) -> None:
    """A failure names its seed: `support.maintenance.world.live(seed, WEATHERS[part])` repeats it."""
    for number in range(part, SEEDS, 10):
        live(sample_seed() * 1_000_000 + number, WEATHERS[part])


@pytest.mark.slow
def test_runs_that_are_killed_converge() -> None:
    """Killed at random requests of random plans, again and again; at last a run ends, and nothing is lost or left."""
    killed, number = 0, 0
    while killed < (500 if SOAK else 20):
        killed += live(sample_seed() * 1_000_000 + number, KILLED).laws.seen["killed"]
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize("mutant", some("maintenance mutants", BY_CHANCE, 4), ids=lambda mutant: mutant.what)
def test_a_protection_that_is_missing_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    with pytest.raises(BrokenLawError, match=rf"seed \d+: ({'|'.join(mutant.laws)}): "):
        for seed in range(1000):
            live(seed, mutant.weather)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", BY_HISTORY, ids=lambda mutant: mutant.what)
def test_a_missing_protection_spoils_a_history(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mutant.history is not None
    played(mutant.history, Stage(mutant.options, None))
    mutant.patch(monkeypatch)
    with pytest.raises(BrokenLawError, match=rf"\A({'|'.join(mutant.laws)}): "):
        played(mutant.history, Stage(mutant.options, None))
