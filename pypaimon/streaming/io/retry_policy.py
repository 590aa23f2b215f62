"""`RetryPolicy`: how often and how patiently a request is repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a request is repeated.

    Attributes:
        attempts: Requests in all.
        first_delay: Seconds before the second one; doubles from then on.
        max_delay: Longest pause, in seconds.
        hung_attempts: Requests in all that may hang until they time out.
    """

    attempts: int = 5
    first_delay: float = 0.1
    max_delay: float = 5.0
    hung_attempts: int = 2

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to pause after an attempt (from 1); jittered, so that many readers do not come back together."""
        return min(self.max_delay, self.first_delay * 2.0 ** (attempt - 1)) * (0.5 + rng.random() / 2)
