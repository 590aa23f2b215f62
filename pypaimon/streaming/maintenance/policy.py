"""`MaintenancePolicy`: what a caller wants kept; `KeepRules`: that, completed by the options of the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.retention import changelogs_outlive

_LEAST, _MOST, _MILLIS = 10, 2**31 - 1, 3_600_000
_NO_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class MaintenancePolicy:
    """What to keep. None: as an option of the table says, which is named in parentheses with its default.

    Attributes:
        min_snapshots: The latest snapshots, which are kept at any age (`snapshot.num-retained.min`, 10); at least 1.
        max_snapshots: Snapshots that are kept at most (`snapshot.num-retained.max`, no limit).
        snapshot_age: How long other snapshots are kept (`snapshot.time-retained`, 1 hour).
        min_changelogs: As `min_snapshots`, for long-lived changelogs (`changelog.num-retained.min`).
        max_changelogs: As `max_snapshots` (`changelog.num-retained.max`).
        changelog_age: As `snapshot_age` (`changelog.time-retained`).
        expire_limit: Snapshots, and changelogs, that one run expires at most. `snapshot.expire.limit` counts only if
            the table sets it: its default of 50 is meant for the expiry after each commit.
        expire_tags: Whether tags go whose own retention has passed (`tag.time-expire-enabled`, true).
        orphan_age: Files that nothing names go if they are this old; None: they stay. At least a day, unless
            `young_orphans`: a commit that is still to come may name a younger file.
        young_orphans: Allow an `orphan_age` below a day, because no writer is running.
        protect: Positions, or ids of snapshots, from which a stream will still be read: checkpoints of Spark, progress
            in targets, saved positions. What consumer files record is protected without being named here.
    """

    min_snapshots: int | None = None
    max_snapshots: int | None = None
    snapshot_age: timedelta | None = None
    min_changelogs: int | None = None
    max_changelogs: int | None = None
    changelog_age: timedelta | None = None
    expire_limit: int | None = None
    expire_tags: bool | None = None
    orphan_age: timedelta | None = None
    young_orphans: bool = False
    protect: tuple[Position | int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("min_snapshots", "max_snapshots", "min_changelogs", "max_changelogs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise StreamConfigError(f"{name}: expected at least 1, got {value}.")
        for name in ("snapshot_age", "changelog_age", "orphan_age"):
            age = getattr(self, name)
            if age is not None and age < timedelta():
                raise StreamConfigError(f"{name}: expected a duration from 0, got {age}.")
        if self.orphan_age is not None and self.orphan_age < timedelta(days=1) and not self.young_orphans:
            raise StreamConfigError(
                f"orphan_age: {self.orphan_age} is less than a day, and a running writer may still commit such files.",
                advice="Give a day or more, or, if no writer is running, young_orphans=True as well.",
            )
        if self.expire_limit is not None and self.expire_limit < 0:
            raise StreamConfigError(f"expire_limit: expected a number from 0, got {self.expire_limit}.")

    @property
    def protected_ids(self) -> tuple[int, ...]:
        """The first snapshots that the protected positions still read."""
        return tuple(_next_of(each) if isinstance(each, Position) else each for each in self.protect)


def _next_of(position: Position) -> int:
    # A range that is one plan begins after a snapshot before `position.snapshot`, whose state is compared.
    return position.snapshot if position.since is None else position.since + 1


@dataclass(frozen=True, slots=True)
class KeepRule:
    """How many snapshots, or changelogs, are kept, and how long.

    Attributes:
        least: The latest ones that are kept at any age.
        most: How many are kept at most.
        millis: How long the others are kept.
    """

    least: int
    most: int
    millis: int


@dataclass(frozen=True, slots=True)
class KeepRules:
    """A policy completed by the options of a table.

    Attributes:
        snapshots: For snapshots.
        changelogs: For long-lived changelogs; None: the changelog of a snapshot goes with it.
        limit: Snapshots, and changelogs, that one run expires at most.
        consumer_millis: Age after the last save at which a consumer file is deleted; None: never.
        changelog_only: Whether consumers keep only long-lived changelogs (`consumer.changelog-only`).
        expire_tags: Whether tags go whose own retention has passed.
        orphan_age: Age from which a file that nothing names goes; None: all stay.
    """

    snapshots: KeepRule
    changelogs: KeepRule | None
    limit: int
    consumer_millis: int | None
    changelog_only: bool
    expire_tags: bool
    orphan_age: timedelta | None

    @staticmethod
    def of(policy: MaintenancePolicy, options: OptionValues) -> KeepRules:
        """Complete a policy.

        Raises:
            StreamConfigError: An option cannot be parsed, or fewer snapshots may be kept than must be.
        """
        snapshots = _rule("snapshot", policy.min_snapshots, policy.max_snapshots, policy.snapshot_age, options, None)
        given = (policy.min_changelogs, policy.max_changelogs, policy.changelog_age)
        outlive = changelogs_outlive(options) or any(each is not None for each in given)
        changelogs = _rule("changelog", *given, options, snapshots) if outlive else None
        limit = (
            options.integer("snapshot.expire.limit", least=0) if policy.expire_limit is None else policy.expire_limit
        )
        return KeepRules(
            snapshots,
            changelogs,
            _NO_LIMIT if limit is None else limit,
            options.duration_millis("consumer.expiration-time"),
            outlive and options.boolean("consumer.changelog-only", False),
            options.boolean("tag.time-expire-enabled", True) if policy.expire_tags is None else policy.expire_tags,
            policy.orphan_age,
        )


def _rule(
    what: str,
    least: int | None,
    most: int | None,
    age: timedelta | None,
    options: OptionValues,
    default: KeepRule | None,
) -> KeepRule:
    millis = None if age is None else age // timedelta(milliseconds=1)
    default = default or KeepRule(_LEAST, _MOST, _MILLIS)
    found = KeepRule(
        _first(least, options.integer(f"{what}.num-retained.min", least=1), default.least),
        _first(most, options.integer(f"{what}.num-retained.max", least=1), default.most),
        _first(millis, options.duration_millis(f"{what}.time-retained"), default.millis),
    )
    if found.most < found.least:
        raise StreamConfigError(
            f"At most {found.most} {what}s may be kept, but at least {found.least} must be.",
            option=f"{what}.num-retained.min",
        )
    return found


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
