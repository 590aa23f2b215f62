"""`Backoff`: how often a failed call is repeated, and how long to pause before each attempt."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double up to a limit, each drawn by chance.

    Many readers fail at the same moment. With equal pauses they would also come back at the same moment, and overload
    a store that has just recovered.

    Attributes:
        attempts: Calls in total; None for no limit.
        first_pause: Seconds of the first pause.
        longest_pause: The limit of the pauses, in seconds.
        jitter: The least and the greatest share of a pause that is waited.
        timeout: Seconds after the first attempt from which no further one is made.
    """

    attempts: int | None = None
    first_pause: float = 1.0
    longest_pause: float = 60.0
    jitter: tuple[float, float] = (0.5, 1.0)
    timeout: float = math.inf

    def pause(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """Seconds to pause after this many failures in a row, from 1."""
        least, greatest = self.jitter
        # The exponent is bounded, as a float overflows in an outage of many days.
        pause = min(self.first_pause * 2.0 ** min(failures - 1, 64), self.longest_pause)
        return pause * (least + (greatest - least) * chance())

    def tries(
        self, sleep: Callable[[float], object] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> Iterator[int]:
        """The number of failures before each attempt, up to the limits. Pauses before all attempts but the first."""
        began = monotonic()
        for failures in itertools.count() if self.attempts is None else range(self.attempts):
            if failures:
                if monotonic() - began > self.timeout:
                    return
                sleep(self.pause(failures))
            yield failures
