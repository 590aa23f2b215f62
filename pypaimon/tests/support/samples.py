"""What tests draw at random: the same samples in every run, and others with another `TEST_SEED`."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
VARIABLE = "TEST_SEED"
SEED = 20_261_126
"""The seed of `make test`. `make soak` draws another one each time and prints it."""
SOAK = os.environ.get("SOAK", "0") not in ("", "0")
"""Whether tests run in their long form: `make soak`."""


def sample_seed() -> int:
    """The seed of this run, the same in each of its processes.

    Raises:
        ValueError: `TEST_SEED` is not an integer.
    """
    return int(os.environ.get(VARIABLE) or SEED)


def how_to_repeat() -> str:
    """The line that tells how to draw the samples of this run again."""
    return f"samples are drawn with {VARIABLE}={sample_seed()}"


def seeded(name: str) -> random.Random:
    """Random numbers for one use; another name gives other numbers."""
    return random.Random(f"{sample_seed()} {name}")


def is_drawn(name: str, one_in: int) -> bool:
    """Whether a name is in the sample. Each name is drawn on its own, so new names do not change the sample."""
    return one_in == 1 or seeded(name).randrange(one_in) == 0


def examples(count: int) -> int:
    """How many examples of a property are drawn: a quarter of these, all of them in the long form."""
    return count if SOAK else max(1, count // 4)


def every(nth: int, of: Sequence[T]) -> Sequence[T]:
    """Each `nth` of these, the first and the last among them; all of them in the long form."""
    return of if SOAK or not of else [*of[:-1][::nth], of[-1]]


def some(name: str, of: Sequence[T], count: int) -> list[T]:
    """`count` of these, in their order; all of them in the long form."""
    if SOAK:
        return list(of)
    drawn = seeded(name).sample(range(len(of)), count)
    return [of[index] for index in sorted(drawn)]
