"""Maintenance in a simulated world: others, faults and kills at every request, and invariants at every step."""

from __future__ import annotations

import pytest

from support.groups.invariants import BrokenLawError
from support.maintenance.mutants import MUTANTS, Mutant
from support.maintenance.world import Weather, live
from support.samples import SOAK, sample_seed, some

FOUND = (125, 131, 422, 1625)
"""Seeds that have found faults: hints moved back past a gap, two runs with other limits, a changelog of a snapshot."""
SEEDS = 100_000 if SOAK else 80
KILLED = Weather(kills=0.05, faults=0.02)
pytestmark = pytest.mark.soak


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_random_histories(part: int) -> None:
    """A failure names its seed: `support.maintenance.world.live(seed)` repeats it."""
    for number in range(part, SEEDS, 10):
        live(sample_seed() * 1_000_000 + number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_histories_that_have_found_faults(seed: int) -> None:
    live(seed)


@pytest.mark.slow
def test_runs_that_are_killed_converge() -> None:
    """Killed at random requests of random plans, again and again; at last a run ends, and nothing is lost or left."""
    killed, number = 0, 0
    while killed < (500 if SOAK else 20):
        killed += live(sample_seed() * 1_000_000 + number, KILLED).laws.seen["killed"]
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize("mutant", some("maintenance mutants", MUTANTS, 3), ids=lambda mutant: mutant.what)
def test_a_protection_that_is_missing_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    with pytest.raises(BrokenLawError, match=rf"seed \d+: ({'|'.join(mutant.laws)}): "):
        for seed in range(1000):
            live(seed, mutant.weather)
