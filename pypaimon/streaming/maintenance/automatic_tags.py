"""The tags that a table's options ask for: which are due, and which are too many.

Java's rules: docs/java-semantics.md#maintenance. The state is in the tags themselves, so that a run that was killed is
continued by the next one, also by Java.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.maintenance.tag_writer import new_tag
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.time_zone import TimeZone, time_zone
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.auto_tags import AutoTags
from pypaimon.streaming.options.option_key import OptionKey, TableOptions

_EPOCH = datetime(1970, 1, 1)
_BATCH = re.compile(r"batch-write-\d{4,}-\d\d-\d\d")


class AutomaticTags(ABC):
    """The tags that a table's options ask for.

    Attributes:
        retention: How long each is kept; None: until it is deleted.
    """

    retention: timedelta | None

    @abstractmethod
    def due(self, snapshots: Sequence[Snapshot], tags: Sequence[Tag], now_millis: int) -> dict[str, Snapshot]:
        """The tags that are due, by their names, without those that would have expired by now.

        Args:
            snapshots: The snapshots, ascending.
            tags: All tags. One that is due replaces another of its name.
            now_millis: The current time.

        Raises:
            StreamConfigError: The newest snapshot with an automatic tag has two.
        """

    @abstractmethod
    def is_idle(self, names: Collection[str], latest: Snapshot) -> bool:
        """Whether nothing is due for certain, by the names of all tags and the latest snapshot alone."""

    def next_due_millis(self, names: Collection[str]) -> int | None:
        """Before which moment no commit makes a tag due, by the names of all tags; None: that is not known."""
        return None

    @abstractmethod
    def surplus(self, tags: Sequence[Tag]) -> tuple[str, ...]:
        """The oldest of these tags, by their snapshots, if there are too many.

        Raises:
            StreamConfigError: The snapshot of one of them has two.
        """

    @abstractmethod
    def is_automatic(self, name: str) -> bool:
        """Whether a tag has the name of an automatic one."""

    def new_tags(
        self, table: PaimonTable, snapshots: Sequence[Snapshot], tags: Sequence[Tag], now_millis: int
    ) -> tuple[Tag, ...]:
        """The tags to create: those that are due, without those of which newer ones make too many. See `due`."""
        due = self.due(snapshots, tags, now_millis).items()
        created = [new_tag(table, name, snapshot) for name, snapshot in due]
        surplus = self.surplus(_with_new(tags, created))
        return tuple(each for each in created if each.name not in surplus)

    def outdated(self, tags: Sequence[Tag], created: Sequence[Tag]) -> tuple[str, ...]:
        """Names of the tags that are too many once others are created, or that are replaced by them."""
        gone = {*self.surplus(_with_new(tags, created)), *(each.name for each in created)}
        return tuple(each.name for each in tags if each.name in gone)


def _with_new(tags: Sequence[Tag], created: Sequence[Tag]) -> list[Tag]:
    """The tags after some are created, of which one may replace another of its name."""
    return list({each.name: each for each in (*tags, *created)}.values())


@dataclass(frozen=True)
class PeriodTags(AutomaticTags):
    """Tags of the first snapshot after each period (`tag.automatic-creation` = `process-time` or `watermark`).

    Attributes:
        names: The names and the length of the periods.
        by_watermark: The time of a snapshot is its watermark, otherwise its commit time.
        zone: The zone of local times.
        delay: How long after the end of its period a tag is created.
        completes: Whether periods without a snapshot get tags too.
        most: How many of these tags are kept; None: all.
        retention: How long each is kept; None: until it is deleted.
    """

    names: AutoTags
    by_watermark: bool
    zone: TimeZone
    delay: timedelta
    completes: bool
    most: int | None
    retention: timedelta | None

    def due(self, snapshots: Sequence[Snapshot], tags: Sequence[Tag], now_millis: int) -> dict[str, Snapshot]:
        """See the base class."""
        names = {each.name for each in tags}
        newest = self._newest(tags)
        last = -1 if newest is None else newest.snapshot.id
        following = None if newest is None else self._time(newest.name) + self.names.period
        found: dict[str, Snapshot] = {}
        for each in snapshots:
            time = self._local_time(each) if each.id > last else None
            if time is None or (following is not None and time - self.delay < following + self.names.period):
                continue
            begin = following if self.completes and following is not None else self.names.ended(time)
            name = self.names.name(begin)
            if name not in names and not _is_over(each, self.retention, now_millis):
                names.add(name)
                found[name] = each
            following = begin + self.names.period
        return found

    def is_idle(self, names: Collection[str], latest: Snapshot) -> bool:
        """See the base class."""
        times = [time for name in names if (time := self.names.time(name)) is not None]
        time = self._local_time(latest)
        return time is None or (bool(times) and time - self.delay < max(times) + 2 * self.names.period)

    def next_due_millis(self, names: Collection[str]) -> int | None:
        """See the base class."""
        times = [time for name in names if (time := self.names.time(name)) is not None]
        if self.by_watermark or not times:
            return None
        due = max(times) + 2 * self.names.period + self.delay
        return self.zone.millis((due - _EPOCH) // timedelta(milliseconds=1))

    def surplus(self, tags: Sequence[Tag]) -> tuple[str, ...]:
        """See the base class."""
        if self.most is None:
            return ()
        by_snapshot = self._by_snapshot(tags)
        old = sorted(by_snapshot)[: max(0, len(by_snapshot) - self.most)]
        return tuple(_only(by_snapshot[number]).name for number in old)

    def is_automatic(self, name: str) -> bool:
        """See the base class."""
        return self.names.time(name) is not None

    def _newest(self, tags: Sequence[Tag]) -> Tag | None:
        by_snapshot = self._by_snapshot(tags)
        return _only(by_snapshot[max(by_snapshot)]) if by_snapshot else None

    def _by_snapshot(self, tags: Sequence[Tag]) -> dict[int, list[Tag]]:
        found: defaultdict[int, list[Tag]] = defaultdict(list)
        for each in tags:
            if self.is_automatic(each.name):
                found[each.snapshot.id].append(each)
        return found

    def _time(self, name: str) -> datetime:
        time = self.names.time(name)
        assert time is not None
        return time

    def _local_time(self, snapshot: Snapshot) -> datetime | None:
        return _local_time(self.zone, snapshot.watermark if self.by_watermark else snapshot.time_millis)


@dataclass(frozen=True)
class BatchTags(AutomaticTags):
    """A tag of the latest snapshot for each day (`tag.automatic-creation` = `batch`).

    Attributes:
        fixed_name: The name of the only tag; None: one per day.
        zone: The zone of the days.
        most: How many of these tags are kept; None: all. Java also counts, and deletes, tags of users.
        retention: How long each is kept; None: until it is deleted.
    """

    fixed_name: str | None
    zone: TimeZone
    most: int | None
    retention: timedelta | None

    def due(self, snapshots: Sequence[Snapshot], tags: Sequence[Tag], now_millis: int) -> dict[str, Snapshot]:
        """See the base class."""
        if not snapshots or _is_over(snapshots[-1], self.retention, now_millis):
            return {}
        name, latest = self._name(snapshots[-1]), snapshots[-1]
        there = next((each for each in tags if each.name == name), None)
        return {} if there is not None and there.snapshot.is_same_commit(latest) else {name: latest}

    def is_idle(self, names: Collection[str], latest: Snapshot) -> bool:
        """See the base class."""
        return False

    def surplus(self, tags: Sequence[Tag]) -> tuple[str, ...]:
        """See the base class."""
        if self.most is None:
            return ()
        own = sorted(
            (each for each in tags if self.is_automatic(each.name)), key=lambda tag: (tag.snapshot.id, tag.name)
        )
        return tuple(each.name for each in own[: max(0, len(own) - self.most)])

    def is_automatic(self, name: str) -> bool:
        """See the base class."""
        return name == self.fixed_name or (self.fixed_name is None and _BATCH.fullmatch(name) is not None)

    def _name(self, latest: Snapshot) -> str:
        return self.fixed_name or f"batch-write-{_local_time(self.zone, latest.time_millis):%Y-%m-%d}"


def automatic_tags(table: PaimonTable) -> AutomaticTags | None:
    """The automatic tags of a table; None if its options ask for none.

    Raises:
        StreamConfigError: An option cannot be read, or the delay is not less than the period.
    """
    options = table.options
    mode = option_keys.TAG_AUTOMATIC_CREATION.of(options)
    most = option_keys.TAG_NUM_RETAINED_MAX.of(options)
    if mode == "none":
        return None
    retained = option_keys.TAG_DEFAULT_TIME_RETAINED.of(options)
    retention = None if retained is None else timedelta(milliseconds=retained)
    if mode == "batch":
        return BatchTags(option_keys.TAG_BATCH_CUSTOMIZED_NAME.of(options), table.zone, most, retention)
    by_watermark = mode == "watermark"
    names, delay = AutoTags(options), timedelta(milliseconds=option_keys.TAG_CREATION_DELAY.of(options))
    if delay >= names.period:
        raise StreamConfigError(
            f"{table.name}: automatic tags are created {delay} after their period, which must be less than the period, "
            f"{names.period}.",
            option=option_keys.TAG_CREATION_DELAY.name,
        )
    key = option_keys.SINK_WATERMARK_TIME_ZONE if by_watermark else option_keys.SINK_PROCESS_TIME_ZONE
    completes = option_keys.TAG_AUTOMATIC_COMPLETION.of(options)
    return PeriodTags(names, by_watermark, _zone(key, options) or table.zone, delay, completes, most, retention)


def _zone(key: OptionKey[str, None] | OptionKey[str, str], options: TableOptions) -> TimeZone | None:
    name = key.of(options)
    try:
        return None if name is None else time_zone(name)
    except ValueError as error:
        raise StreamConfigError(f"Option '{key}': {error}.", option=key.name) from None


def _is_over(snapshot: Snapshot, retention: timedelta | None, now_millis: int) -> bool:
    """Whether a tag that was created with its snapshot would have expired by now.

    Without this rule a table without commits would get its last tag again whenever it has expired.
    """
    return retention is not None and snapshot.time_millis + retention // timedelta(milliseconds=1) < now_millis


def _local_time(zone: TimeZone, millis: int | None) -> datetime | None:
    return None if millis is None else _EPOCH + timedelta(milliseconds=zone.wall_millis(millis))


def _only(tags: Sequence[Tag]) -> Tag:
    """The only automatic tag of a snapshot. Which one stands for it if there are two is not known."""
    if len(tags) > 1:
        names = "' and '".join(sorted(each.name for each in tags))
        raise StreamConfigError(
            f"Snapshot {tags[0].snapshot.id} has two automatic tags, '{names}'.", advice="Delete or rename one of them."
        )
    return tags[0]
