"""Which snapshots and long-lived changelogs expire. Java's rules: docs/java-semantics.md#maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pypaimon.streaming.maintenance.policy import KeepRule
from pypaimon.streaming.metadata.snapshots import Snapshot

_NO_ID = 2**63


@dataclass(frozen=True, slots=True)
class Protection:
    """What keeps snapshots from expiring.

    Attributes:
        kind: `consumer`, or `position` for what the caller named.
        name: The consumer, or the position.
        next_snapshot: The snapshot that it reads next. The one before it is kept too, because its fingerprint shows
            whether the table was rolled back meanwhile.
        changelog_only: Whether it keeps only changelogs, not the snapshots with them.
    """

    kind: str
    name: str
    next_snapshot: int
    changelog_only: bool = False

    @property
    def first_kept(self) -> int:
        """The first snapshot that is kept."""
        return self.next_snapshot - 1


def expired_snapshots(
    snapshots: Sequence[Snapshot],
    rule: KeepRule,
    protections: Sequence[Protection],
    now_millis: int,
    limit: int,
    visible_id: int = 0,
) -> tuple[Snapshot, ...]:
    """The snapshots that expire, ascending.

    Counts are counts of existing snapshots, so that gaps stop nothing. The age of a snapshot is that of the next one:
    until then it was the latest.

    Args:
        snapshots: All snapshots, ascending.
        rule: How many are kept, and how long.
        protections: What keeps them in any case.
        now_millis: The current time.
        limit: How many may expire at most.
        visible_id: The earliest snapshot that readers find. Earlier ones are left of a run that was killed: they go at
            any age.
    """
    first_kept = min((each.first_kept for each in protections if not each.changelog_only), default=_NO_ID)
    hidden = [each for each in snapshots if each.id < visible_id]
    visible = snapshots[len(hidden) :]
    forced = len(visible) - rule.most
    found = [each for each in hidden if each.id < first_kept]
    if len(found) < len(hidden):
        return tuple(found[:limit])
    for index, each in enumerate(visible[: max(0, len(visible) - rule.least)]):
        if each.id >= first_kept:
            break
        if index >= forced and visible[index + 1].time_millis >= now_millis - rule.millis:
            break
        found.append(each)
    return tuple(found[:limit])


def expired_changelogs(
    changelogs: Sequence[Snapshot],
    latest_id: int,
    rule: KeepRule | None,
    protections: Sequence[Protection],
    now_millis: int,
    limit: int,
) -> tuple[Snapshot, ...]:
    """The long-lived changelogs that expire, ascending; the newest one stays, as in Java.

    Args:
        changelogs: All of them, ascending.
        latest_id: The latest snapshot: changelogs and snapshots are counted together.
        rule: How many are kept, and how long; None: the table keeps none any more, so that all go.
        protections: What keeps them in any case.
        now_millis: The current time.
        limit: How many may expire at most.
    """
    first_kept = min((each.first_kept for each in protections), default=latest_id)
    unprotected = [each for each in changelogs[:limit] if each.id < first_kept]
    if rule is None:
        return tuple(unprotected)
    found: list[Snapshot] = []
    for each in unprotected:
        if each is changelogs[-1] or each.id >= latest_id - rule.least + 1:
            break
        if each.id >= latest_id - rule.most + 1 and each.time_millis >= now_millis - rule.millis:
            break
        found.append(each)
    return tuple(found)
