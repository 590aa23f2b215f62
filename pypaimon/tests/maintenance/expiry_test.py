"""Which snapshots and changelogs expire: counts, ages, protections, gaps, limits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pypaimon.streaming.maintenance.expiry import Protection, expired_changelogs, expired_snapshots
from pypaimon.streaming.maintenance.policy import KeepRule
from pypaimon.streaming.metadata.snapshots import Snapshot

HOUR = 3_600_000
NOW = 1_700_000_000_000
ANY = Snapshot.from_json(
    json.dumps(
        {
            "id": 1,
            "schemaId": 0,
            "baseManifestList": "base",
            "deltaManifestList": "delta",
            "commitUser": "u",
            "commitIdentifier": 1,
            "commitKind": "APPEND",
            "timeMillis": NOW,
        }
    )
)


def snapshots(*hours_ago: float, first: int = 1, missing: tuple[int, ...] = ()) -> list[Snapshot]:
    """Snapshots with consecutive ids, except for missing ones, committed so many hours ago."""
    made = (
        replace(ANY, id=first + index, time_millis=NOW - int(hours * HOUR)) for index, hours in enumerate(hours_ago)
    )
    return [each for each in made if each.id not in missing]


def expired(
    given: list[Snapshot], least: int = 1, most: int = 100, *protections: Protection, limit: int = 100
) -> list[int]:
    rule = KeepRule(least, most, HOUR)
    return [each.id for each in expired_snapshots(given, rule, protections, NOW, limit)]


@pytest.mark.parametrize(
    ("hours", "least", "most", "ids"),
    [
        ((5, 4, 3, 0.5, 0.1), 1, 100, [1, 2]),
        ((5, 4, 3, 2.9, 2.8), 1, 100, [1, 2, 3, 4]),
        ((5, 4, 3, 2.9, 2.8), 3, 100, [1, 2]),
        ((0.5, 0.4, 0.3, 0.2, 0.1), 1, 2, [1, 2, 3]),
        ((0.5, 0.4), 1, 100, []),
        ((5,), 1, 1, []),
        ((), 1, 1, []),
    ],
    ids=["the next one's age counts", "old", "at least three", "at most two", "young", "the latest", "none"],
)
def test_counts_and_ages(hours: tuple[float, ...], least: int, most: int, ids: list[int]) -> None:
    assert expired(snapshots(*hours), least, most) == ids


def test_the_age_is_that_of_the_next_snapshot() -> None:
    """A snapshot was the latest one until the next one came."""
    assert expired(snapshots(5, 1.001)) == [1]
    assert expired(snapshots(5, 0.999)) == []


def test_an_old_snapshot_behind_a_young_one_stays() -> None:
    """Clocks differ; expiry stops at the first snapshot that stays, so that it never leaves a gap."""
    assert expired(snapshots(5, 0.5, 4, 3, 2)) == []


def test_a_protection_keeps_its_snapshot_and_the_one_before() -> None:
    reads_4 = Protection("consumer", "c", 4)
    assert expired(snapshots(9, 8, 7, 6, 5), 1, 1, reads_4) == [1, 2]
    assert expired(snapshots(9, 8, 7, 6, 5), 1, 1, reads_4, Protection("position", "1", 1)) == []


def test_a_protection_of_changelogs_keeps_no_snapshot() -> None:
    only = Protection("consumer", "c", 2, changelog_only=True)
    assert expired(snapshots(9, 8, 7, 6, 5), 1, 1, only) == [1, 2, 3, 4]


def test_a_gap_stops_nothing_and_does_not_count() -> None:
    """Java stops for ever at a gap that an interrupted run has left."""
    given = snapshots(9, 8, 7, 6, 5, 4, missing=(2, 3))
    assert expired(given, 2) == [1, 4]


def test_a_limit_bounds_a_run() -> None:
    assert expired(snapshots(9, 8, 7, 6, 5), 1, 1, limit=2) == [1, 2]
    assert expired(snapshots(9, 8, 7, 6, 5), 1, 1, limit=0) == []


@pytest.mark.parametrize(
    ("rule", "first", "ids"),
    [
        (KeepRule(1, 100, HOUR), 1, [1, 2]),
        (KeepRule(1, 6, 100 * HOUR), 1, [1]),
        (KeepRule(7, 100, HOUR), 1, []),
        (None, 1, [1, 2, 3]),
    ],
    ids=["by age, and the newest stays", "by count", "at least seven", "none is kept any more"],
)
def test_changelogs(rule: KeepRule | None, first: int, ids: list[int]) -> None:
    """Three long-lived changelogs of a table whose latest snapshot is 7."""
    found = expired_changelogs(snapshots(9, 8, 7, first=first), 7, rule, (), NOW, 100)
    assert [each.id for each in found] == ids


def test_a_protection_keeps_changelogs() -> None:
    reads_2 = Protection("consumer", "c", 3, changelog_only=True)
    found = expired_changelogs(snapshots(9, 8, 7), 7, None, (reads_2,), NOW, 100)
    assert [each.id for each in found] == [1]
