"""What a test draws at random: another sample with each commit, and the same one as often as it is asked for."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

VARIABLE = "TEST_SEED"
T = TypeVar("T")
WITHOUT_HISTORY = 0


@cache
def commit_seed() -> int:
    """`TEST_SEED` where it is set, else a number made of the commit that is checked out; 0 without git or its history.

    It is the same in every process of a run.

    Raises:
        ValueError: `TEST_SEED` is no integer.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return int(given)
    command = ["git", "rev-parse", "--verify", "HEAD"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return WITHOUT_HISTORY
    return int(found.stdout[:8], 16) if found.returncode == 0 else WITHOUT_HISTORY


def how_to_repeat() -> str:
    """How a run is told to draw what this one drew."""
    return f"samples are drawn by commit; {VARIABLE}={commit_seed()} draws these again"


def seeded(name: str) -> random.Random:
    """Random numbers of the commit for one use, which the name tells from others; `how_to_repeat` is printed."""
    print(how_to_repeat())
    return random.Random(f"{commit_seed()} {name}")


def is_drawn(name: str, one_in: int) -> bool:
    """Whether a name is in the sample of this commit: each is in one of `one_in` commits, whatever the others are."""
    digest = hashlib.sha256(f"{commit_seed()} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % one_in == 0


def some(name: str, of: Sequence[T], count: int) -> list[T]:
    """So many of these, others with each commit, in their order; all in the long form (`SOAK`)."""
    if os.environ.get("SOAK"):
        return list(of)
    drawn = random.Random(f"{commit_seed()} {name}").sample(range(len(of)), count)
    return [of[index] for index in sorted(drawn)]
