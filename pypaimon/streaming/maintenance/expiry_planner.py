"""`ExpiryPlanner`: what expires of a table, and what is created before, by the rules of a policy and of the options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone

from pypaimon.streaming.commit.ledger import record_name
from pypaimon.streaming.consumers.consumer_manager import EXPIRED, ConsumerInfo
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.maintenance.automatic_tags import automatic_tags
from pypaimon.streaming.maintenance.expiry import Protection, expired_changelogs, expired_snapshots
from pypaimon.streaming.maintenance.plan import MaintenancePlan
from pypaimon.streaming.maintenance.policy import KeepRules
from pypaimon.streaming.maintenance.roots import Picture
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.metadata.paimon_table import PaimonTable

__all__ = ["EXPIRED", "ExpiryPlanner"]


class ExpiryPlanner:
    """Plans one run.

    Args:
        table: The table.
        rules: What is kept.
        protected: The first snapshots that positions still read.
        now: The time of the run, in seconds since the epoch.
    """

    def __init__(self, table: PaimonTable, rules: KeepRules, protected: Sequence[int], now: float) -> None:
        self._table = table
        self._rules = rules
        self._protected = protected
        self._now = now
        self._automatic = automatic_tags(table)

    def plan(self, picture: Picture) -> MaintenancePlan:
        """Plan a run on a table as it was read, without the files that are deleted."""
        expired = self._expired_consumers(picture)
        protections = self._protections(picture, expired)
        own, rules, now = picture.own, self._rules, int(self._now * 1000)
        snapshots = expired_snapshots(own.snapshots, rules.snapshots, protections, now, rules.limit, own.visible_id)
        ids = tuple(each.id for each in snapshots)
        unheld = expired_snapshots(own.snapshots, rules.snapshots, (), now, rules.limit, own.visible_id)
        # The changelogs of the snapshots that expire are long-lived from now on, so that they may expire at once.
        late = snapshots if rules.changelogs is not None else ()
        changelogs = [*(each for each in own.changelogs if each.id not in ids), *late]
        # A run that was killed may have kept the changelog of a later snapshot than those that are left.
        changelogs.sort(key=lambda each: each.id)
        latest = own.snapshots[-1].id if own.snapshots else 0
        found = expired_changelogs(changelogs, latest, rules.changelogs, protections, now, rules.limit)
        lost = (each for each in own.lost_changelogs if each.id not in ids)
        old = tuple(each.id for each in (*lost, *found))
        remaining = [each for each in own.snapshots[len(snapshots) :] if each.id >= own.visible_id]
        created = self._due_tags(picture)
        return MaintenancePlan(
            self._table.name,
            snapshot_ids=ids,
            changelog_ids=old,
            kept_changelog_ids=tuple(each.id for each in late if each.id not in old and not own.has_changelog(each)),
            tags=tuple(dict.fromkeys(self._expired_tags(picture.tags) + self._outdated_tags(picture, created))),
            consumers=tuple(each.name.text for each in expired),
            protections=tuple(protections),
            held_ids=tuple(each.id for each in unheld if each.id not in ids),
            earliest_id=remaining[0].id if remaining else None,
            latest_id=remaining[-1].id if remaining else None,
            created_tags=created,
        )

    def _due_tags(self, picture: Picture) -> tuple[Tag, ...]:
        if self._automatic is None:
            return ()
        return self._automatic.new_tags(self._table, picture.own.snapshots, picture.tags, int(self._now * 1000))

    def _outdated_tags(self, picture: Picture, created: Sequence[Tag]) -> tuple[str, ...]:
        return () if self._automatic is None else self._automatic.outdated(picture.tags, created)

    def _expired_tags(self, tags: Sequence[Tag]) -> tuple[str, ...]:
        now = datetime.fromtimestamp(self._now, timezone.utc).replace(tzinfo=None)
        now += timedelta(seconds=self._table.zone.offset(int(self._now)))
        expiring = (each.name for each in tags if each.expires is not None and each.expires < now)
        return tuple(expiring) if self._rules.expire_tags else ()

    def _expired_consumers(self, picture: Picture) -> list[ConsumerInfo]:
        """Consumers that have not saved for the time of `consumer.expiration-time`, without those of writers.

        A writer saves only when it commits. Without its consumer, snapshots expire that show which of its commits are
        in the table.
        """
        if self._rules.consumer_millis is None:
            return []
        oldest = datetime.fromtimestamp(self._now, timezone.utc) - timedelta(milliseconds=self._rules.consumer_millis)
        # A run that was killed has marked, and not deleted, what had expired.
        stale = [
            each
            for each in picture.consumers
            if each.owner == EXPIRED or (each.last_save is not None and each.last_save < oldest)
        ]
        return [each for each in stale if record_name(each.name.text) not in picture.consumer_files]

    def _protections(self, picture: Picture, expired: Sequence[ConsumerInfo]) -> list[Protection]:
        found = [Protection("position", str(number), number) for number in self._protected]
        for each in picture.consumers:
            if each not in expired:
                changelog_only = self._rules.changelog_only and not _needs_snapshots(each.name, picture.consumer_files)
                found.append(Protection("consumer", each.name.text, each.next_snapshot, changelog_only))
        return found


def _needs_snapshots(name: ConsumerName, files: Collection[str]) -> bool:
    """Whether a consumer needs snapshots even if others keep only changelogs.

    A pin protects the state that a first plan is still reading, that of a group also the first plans of its members,
    and a writer finds its commits in snapshots only.
    """
    return name.is_pin or name.group or record_name(name.text) in files
