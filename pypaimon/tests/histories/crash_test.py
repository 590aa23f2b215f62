"""Reader processes that crash or are stopped: nothing is lost, no more is repeated than is said.

Of two settings, at some steps; in the long form of all, at every step.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.crash.crash_reader import CONSUMER, FIRST, LAST, Life, Reader
from support.programs import JsonProgram
from support.samples import SOAK, some

pytestmark = [pytest.mark.slow, pytest.mark.soak]

"""Above 0: every step, and so many times as many pairs of deaths."""
PROCESSES = 2 if SOAK else 1
"""Side by side; to start one costs as much as several readers."""

Rows = list[tuple[int, int]]

PLANS = {2: {*range(10, 14), *range(20, 24)}, 3: {*range(30, 34)}, 5: {*range(50, 54)}, 6: {*range(60, 64)}}
"""The keys of each snapshot that has some for a reader; the fourth is an overwrite, and passed over."""

READERS = {
    "auto": Reader("consumer", "auto", None, "SIGKILL", prefetch=4),
    "manual": Reader("consumer", "manual", None, "SIGKILL", prefetch=0),
    "auto, a plan per file": Reader("consumer", "auto", 1, "SIGKILL", prefetch=0),
    "position": Reader("position", "auto", None, "SIGKILL", prefetch=4),
    "position, a plan per file": Reader("position", "auto", 1, "SIGKILL", prefetch=0),
    "stopped, auto": Reader("consumer", "auto", None, "SIGTERM", prefetch=0),
    "stopped, manual": Reader("consumer", "manual", None, "SIGTERM", prefetch=4),
}


class Process(JsonProgram):
    """Forks the readers of one setting, see `crash_reader`."""

    def __init__(self, directory: Path, reader: Reader) -> None:
        directory.mkdir()
        super().__init__("support.crash.crash_reader", str(directory), json.dumps(vars(reader)))

    def lives(self, deaths: list[int]) -> list[Life]:
        """What became of readers that died at these steps, one after the other, and of a last one that lived."""
        return [Life(**life) for life in self.ask(deaths)]


def rows(lives: list[Life]) -> Rows:
    return [(snapshot, key) for life in lives for snapshot, keys in life.plans for key in keys]


def check(reader: Reader, model: Rows, lives: list[Life]) -> None:
    """What the union of the sinks must be."""
    if reader.resume == "position" or reader.death == "SIGTERM":
        assert rows(lives) == model
    sunk: set[tuple[int, int]] = set()
    saved: int | None = None
    for life in lives:
        if reader.resume == "consumer":
            rest = [row for row in model if saved is None or row[0] >= saved]
            # Nothing is lost: what is before the saved position has arrived. Nothing is out of order.
            assert sunk >= set(model) - set(rest)
            assert rows([life]) == rest[: len(rows([life]))]
            saved = life.saved.get(CONSUMER)
            if life.plans:
                # Repeated are rows of its last snapshot only: asking for that one's plans confirmed all before.
                last = life.plans[-1][0]
                assert {snapshot for snapshot, _ in rows([life]) if snapshot >= (saved or FIRST)} <= {last}
        sunk.update(rows([life]))
    assert sunk == set(model)
    assert lives[-1].saved == ({CONSUMER: LAST + 1} if reader.resume == "consumer" else {})


def scenarios(steps: int, seed: str) -> list[list[int]]:
    """Deaths at every step in the long form, else at every fifteenth from a random one; and pairs of deaths."""
    rng = random.Random(seed)
    stride = 1 if SOAK else 25
    singles = [[step] for step in range(rng.randint(1, stride), steps + 1, stride)]
    pairs = [[rng.randint(1, steps), rng.randint(1, steps)] for _ in range(SOAK * steps if SOAK else 1)]
    return singles + pairs


@pytest.mark.parametrize("name", some("readers that crash", list(READERS), 2))
def test_a_reader_dies_at_any_step(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    with ExitStack() as ends:
        processes = [ends.enter_context(Process(tmp_path / str(number), reader)) for number in range(PROCESSES)]
        (undisturbed,) = processes[0].lives([])
        model = rows([undisturbed])
        assert [snapshot for snapshot, _ in model] == sorted(snapshot for snapshot, _ in model)
        assert sorted(model) == [(snapshot, key) for snapshot, keys in PLANS.items() for key in sorted(keys)]
        assert undisturbed.steps > 60

        def run(process: Process, jobs: list[list[int]]) -> tuple[int, int]:
            died = cut = 0
            for deaths in jobs:
                lives = process.lives(deaths)
                try:
                    check(reader, model, lives)
                except AssertionError as error:
                    raise AssertionError(f"deaths at steps {deaths}: {lives}") from error
                died += sum(not life.steps for life in lives)
                cut += rows(lives[:1]) != model
            return died, cut

        jobs = scenarios(undisturbed.steps, name)
        shares = [jobs[number::PROCESSES] for number in range(PROCESSES)]
        with ThreadPoolExecutor(PROCESSES) as pool:
            died, cut = map(sum, zip(*pool.map(run, processes, shares), strict=True))
        # Most steps lie before the last plan.
        assert cut >= len(jobs) * 0.6
        assert died == 0 if reader.death == "SIGTERM" else died >= len(jobs) * 0.8
