"""What tests draw at random: the same samples in every run, and others with another `TEST_SEED`."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_HISTORIES = "DIFFERENTIAL_HISTORIES"
_KIND = "DIFFERENTIAL_KIND"
IS_DIFFERENTIAL = _HISTORIES in os.environ
"""Whether random histories next to live Java are run in their long form: `make differential`."""
VARIABLE = "TEST_SEED"
SEED = 20_261_126
"""The seed of `make test`. `make soak` draws another one each time and prints it."""
IS_LONG = int(os.environ.get(_HISTORIES) or 0) >= 2000
"""Whether they are so many that the best code that a JVM's compilers can make pays."""
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


def drawn_kinds(name: str, of: Sequence[T], short: int) -> list[T]:
    """The kinds of tables of random histories: `short` of them; in the long form all, or the one that KIND names."""
    if IS_DIFFERENTIAL:
        return [kind for kind in of if os.environ.get(_KIND, "") in ("", kind)]
    return seeded(name).sample(list(of), short)


def histories(short: int, kinds: int = 1) -> int:
    """How many random histories each of some kinds has: `short` together, or as many as N of `make differential`."""
    return max(1, int(os.environ.get(_HISTORIES, short)) // max(1, kinds))
