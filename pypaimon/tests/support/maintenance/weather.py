"""How bad a simulated world is, and what tables there are."""

from __future__ import annotations

from dataclasses import dataclass

_KEPT = {"snapshot__num_retained__min": "1", "changelog__num_retained__min": "1"}
EXPIRES_CONSUMERS = {"changelog_producer": "input", "consumer__expiration_time": "1 d"}
KINDS: tuple[dict[str, str], ...] = (
    {"changelog_producer": "input"},
    {},
    {"changelog_producer": "input", "changelog__num_retained__max": "8", "snapshot__num_retained__max": "3", **_KEPT},
    {"changelog__num_retained__max": "6", "snapshot__num_retained__max": "2", **_KEPT},
    EXPIRES_CONSUMERS,
)


@dataclass(frozen=True)
class Weather:
    """How bad the world is.

    Attributes:
        faults: Share of requests of maintenance that fail, or whose answers are lost.
        kills: Share of requests at which it is killed.
        others: Share of requests before which others do something.
        nested: Share of requests before which another run begins.
        operations: Share of requests before which a user rolls back, or changes tags and branches.
        stale: Share of listings of snapshots that lack the newest one.
        skew: By how many seconds clocks differ.
        rounds: The most runs of a history before it comes to rest.
        twice: Share of histories in which the run at rest is repeated.
        kinds: The options of tables.
        java: Share of requests before which a maintainer like Java's expires snapshots, in tables in which it loses
            nothing: without branches, and without states that came back.
    """

    faults: float = 0.02
    kills: float = 0.008
    others: float = 0.08
    nested: float = 0.008
    operations: float = 0.006
    stale: float = 0.01
    skew: float = 120.0
    rounds: int = 2
    twice: float = 0.25
    kinds: tuple[dict[str, str], ...] = KINDS
    java: float = 0.0


_SHORT_LIVED = tuple(each for each in KINDS if "changelog__num_retained__max" not in each)
BESIDE_JAVA = Weather(java=0.02, operations=0.0, rounds=3, kinds=_SHORT_LIVED)
KILLED = Weather(kills=0.05, faults=0.02)
WEATHERS = (
    *(Weather() for _ in range(3)),
    BESIDE_JAVA,
    Weather(operations=0.05, others=0.12),
    Weather(nested=0.03, kills=0.01),
    Weather(kills=0.03),
    Weather(others=0.2, kills=0.002, nested=0.01),
    Weather(nested=0.03, operations=0.03),
    Weather(stale=0.1, operations=0.03),
)
"""In which random histories are simulated, in turn."""
