"""`Backoff`: pauses that double, differ, and end with the attempts or the time."""

from __future__ import annotations

import random

from pypaimon.streaming.concurrency.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_no_further() -> None:
    backoff = Backoff(first_pause=1.0, longest_pause=10.0)
    greatest = [backoff.pause(failures, lambda: 1.0) for failures in (1, 2, 3, 4, 5, 6, 100_000)]
    assert greatest == [1, 2, 4, 8, 10, 10, 10]
    assert [backoff.pause(failures, lambda: 0.0) for failures in (1, 2, 5)] == [0.5, 1, 5]


def test_pauses_of_many_readers_differ() -> None:
    chance = random.Random(1).random
    pauses = {Backoff(longest_pause=3.0).pause(20, chance) for _ in range(50)}
    assert len(pauses) > 40 and all(1.5 <= pause <= 3.0 for pause in pauses)


def test_tries_end_with_the_attempts_and_pause_between_them() -> None:
    slept: list[float] = []
    backoff = Backoff(attempts=4, first_pause=1.0, longest_pause=2.0, jitter=(1.0, 1.0))
    assert list(backoff.tries(slept.append)) == [0, 1, 2, 3]
    assert slept == [1.0, 2.0, 2.0]


def test_no_attempt_is_made_after_the_timeout() -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    backoff = Backoff(first_pause=1.0, longest_pause=60.0, jitter=(1.0, 1.0), timeout=10.0)
    # After 0, 1, 3, 7 and 15 seconds; the last pause began in time.
    assert list(backoff.tries(sleep, lambda: now)) == [0, 1, 2, 3, 4]


def test_without_limits_tries_never_end() -> None:
    tries = Backoff(first_pause=0.0, longest_pause=0.0).tries()
    assert [next(tries) for _ in range(100)] == list(range(100))
