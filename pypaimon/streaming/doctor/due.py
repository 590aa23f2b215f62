"""What a run of maintenance would expire, found out with few requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo
from pypaimon.streaming.maintenance.automatic_tags import automatic_tags
from pypaimon.streaming.maintenance.maintain import planned_expiry
from pypaimon.streaming.maintenance.partition_expiry import PartitionExpiry
from pypaimon.streaming.maintenance.partition_files import PartitionValues, partitions_at
from pypaimon.streaming.maintenance.plan import MaintenancePlan
from pypaimon.streaming.maintenance.policy import KeepRule, KeepRules, MaintenancePolicy
from pypaimon.streaming.maintenance.roots import Picture, Roots
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.options import option_keys


def due_plans(
    table: PaimonTable,
    manager: SnapshotManager,
    latest: Snapshot,
    ids: Sequence[int],
    changelog_ids: Sequence[int],
    tags: Sequence[Tag],
    consumers: Sequence[ConsumerInfo],
    consumer_files: Iterable[str],
    now_millis: int,
) -> tuple[MaintenancePlan, MaintenancePlan]:
    """The plan of a run, and the plan of one if no consumer kept anything; both without files.

    Args:
        table: The table.
        manager: Reads snapshots. Times ascend with ids, so of a thousand snapshots ten are read.
        latest: The latest snapshot.
        ids: The ids of all snapshots, ascending.
        changelog_ids: Those of the long-lived changelogs.
        tags: The tags of the branch.
        consumers: Its consumers.
        consumer_files: The names of all files in the directory of the consumers.
        now_millis: The current time.
    """
    rules = KeepRules.of(MaintenancePolicy(), table.options)
    snapshots = _dated(ids, latest, rules.snapshots, now_millis, manager.try_get)
    changelogs = _dated(changelog_ids, latest, rules.changelogs, now_millis, manager.refreshed_changelog)
    picture = Picture(Roots(snapshots, tuple(each.snapshot for each in tags), changelogs), (), tuple(tags), {})
    held = replace(picture, consumers=tuple(consumers), consumer_files=frozenset(consumer_files))
    created, outdated = _tags(table, latest, tags, now_millis)
    partitions = _partitions(table, latest, now_millis)
    # These snapshots have no times of their own, by which automatic tags could be due.
    plain = table.copy({option_keys.TAG_AUTOMATIC_CREATION.name: "none"})

    def plan(seen: Picture) -> MaintenancePlan:
        found = planned_expiry(plain, seen, now_millis)
        names = tuple(dict.fromkeys(found.tags + outdated))
        null = option_keys.PARTITION_DEFAULT_NAME.of(table.options)
        return replace(found, tags=names, created_tags=created, partitions=partitions, null_text=null)

    return plan(held), plan(picture)


def _tags(
    table: PaimonTable, latest: Snapshot, tags: Sequence[Tag], now_millis: int
) -> tuple[tuple[Tag, ...], tuple[str, ...]]:
    """The automatic tags that are due by the latest snapshot, which is so if any are; those that are too many."""
    rule = automatic_tags(table)
    if rule is None:
        return (), ()
    return rule.new_tags(table, (latest,), tags, now_millis), rule.outdated(tags, ())


def _partitions(table: PaimonTable, latest: Snapshot, now_millis: int) -> tuple[PartitionValues, ...]:
    """The partitions that a run would drop. Reads manifests if the table's partitions expire at all."""
    now = table.zone.local(datetime.fromtimestamp(now_millis / 1000, timezone.utc))
    expiry = PartitionExpiry.of(table, None, now)
    if expiry is None:
        return ()
    return tuple(each.values for each in expiry.due(partitions_at(table, table.new_directory(), latest)))


def _dated(
    ids: Sequence[int],
    latest: Snapshot,
    rule: KeepRule | None,
    now_millis: int,
    read: Callable[[int], Snapshot | None],
) -> tuple[Snapshot, ...]:
    """Snapshots of these ids, whose times are just old enough to expire, or just not."""
    if rule is None:
        return tuple(replace(latest, id=number) for number in ids)
    youngest = now_millis - rule.millis

    def time(number: int) -> int:
        snapshot = latest if number == latest.id else read(number)
        # A snapshot that is missing is a finding of another check.
        return youngest if snapshot is None else snapshot.time_millis

    old = bisect_left(ids, youngest, key=time) if len(ids) > rule.least else 0
    times = (youngest - 1 if index < old else youngest for index in range(len(ids)))
    return tuple(replace(latest, id=number, time_millis=each) for number, each in zip(ids, times, strict=True))
