"""`fast_forward`: makes the history of a branch that of the branch that it was created from, usually main.

The order: own commits of main since the fork are deleted, the newest first (`truncation`); then schemas, tags,
long-lived changelogs and at last the snapshots of the branch are copied, ascending. A process that dies leaves main at
the fork, at a later one of its own snapshots, or at one of the branch; the same call finishes it. Without a common
snapshot the whole history is replaced. That has a pin of its own, by which the next call knows that it has begun.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.commit.publishing import NotPublishedError, Publisher, TakenError, publisher_of
from pypaimon.streaming.errors import MaintenanceConflictError, StoreError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.branch_files import (
    branch_home,
    existing_branch,
    is_same_schema,
    known_snapshots,
    last_common,
    schema_files,
    schema_path,
)
from pypaimon.streaming.maintenance.overtaken import Overtaken, overtaken_by
from pypaimon.streaming.maintenance.retention_pin import pinned, pinned_before
from pypaimon.streaming.maintenance.roots import of_branch
from pypaimon.streaming.maintenance.tags import tags_of
from pypaimon.streaming.maintenance.truncation import LaterFiles, forget_latest, later_files, listed_snapshots, truncate
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_LOG = StreamLog(__name__)
_PURPOSE, _REPLACEMENT = "fast-forward", "replacement"


@dataclass(frozen=True, slots=True)
class FastForwardReport:
    """What a fast-forward did, or would do.

    Attributes:
        table: Name of the table.
        branch: The branch whose history the table has now.
        fork_id: The last snapshot that both had; None: they had none in common.
        copied_snapshots: Ids of the snapshots that were copied, ascending.
        lost_snapshots: Ids of the table's own snapshots since the fork, which were deleted.
        lost_changelogs: Ids of its long-lived changelogs since the fork, which were deleted.
        lost_tags: Names of its tags of such snapshots, or that the branch has for another snapshot.
        lost_schemas: Ids of its schemas that the branch does not have.
        overtaken: The consumers, groups and writers whose progress is beyond the fork.
        dry_run: Whether nothing was changed.
    """

    table: str
    branch: str
    fork_id: int | None
    copied_snapshots: tuple[int, ...] = ()
    lost_snapshots: tuple[int, ...] = ()
    lost_changelogs: tuple[int, ...] = ()
    lost_tags: tuple[str, ...] = ()
    lost_schemas: tuple[int, ...] = ()
    overtaken: tuple[Overtaken, ...] = ()
    dry_run: bool = False


def fast_forward(
    table: WritableTable, branch: str, *, discard_own_commits: bool = False, dry_run: bool = False
) -> FastForwardReport:
    """Give a table the snapshots, tags and schemas of one of its branches. Blocks. The branch stays.

    Snapshots from before the fork stay, as do consumers. Nobody should write into either branch meanwhile. A call
    that fails or is killed is finished by the same call.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, usually on main.
        branch: The branch.
        discard_own_commits: Delete what the table has got since the fork and the branch does not have. Otherwise that
            is refused, as it should be: those rows are in no other snapshot.
        dry_run: Change nothing.

    Raises:
        StreamConfigError: There is no such branch, it has no snapshot, or the table has own commits since the fork.
        UnsupportedTableError: Older snapshots need a schema whose id the branch has for another schema.
        CorruptTableError: A tag is damaged; nothing was changed.
        MaintenanceConflictError: Maintenance is running, somebody has committed meanwhile, or the store gave an old
            listing (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("fast_forward: table", table))
    directory = given.new_directory()
    existing_branch("fast_forward", directory, branch)
    if branch == directory.branch:
        raise StreamConfigError(f"fast_forward: the table was loaded on branch {branch!r}. Load it on another branch.")
    run = _FastForward(given, directory, of_branch(directory, branch))
    report = run.report(discard_own_commits, dry_run)
    if not dry_run:
        manager = given.handle.branch_manager()
        if given.is_managed_by_catalog:
            directory.store.call("catalog", given.path, lambda _: manager.fast_forward(branch))
        else:
            run.execute()
        text = "%(table)s: fast-forwarded to branch %(branch)s; %(copied)d snapshots were copied"
        _LOG.info("fast_forwarded", text, table=given.name, branch=branch, copied=len(report.copied_snapshots))
    return report


class _FastForward:
    """A fast-forward of a branch to another one, as both were when it was made."""

    def __init__(self, table: PaimonTable, own: TableDirectory, other: TableDirectory) -> None:
        self._table = table
        self._own, self._other = own, other
        self._snapshots = {each.id: each for each in listed_snapshots(own)}
        self._new = {each.id: each for each in listed_snapshots(other)}
        if not self._new:
            raise StreamConfigError(f"fast_forward: branch {other.branch!r} has no snapshot.")
        self._tags, self._new_tags = tags_of(own), tags_of(other)
        self._schemas, self._new_schemas = schema_files(own), schema_files(other)
        self._fork = last_common(
            known_snapshots(self._snapshots.values(), self._tags),
            known_snapshots(self._new.values(), self._new_tags),
        )
        # Whether an earlier call, which has not ended, has replaced a part of a history of which nothing stays.
        self._is_begun = self._fork is not None and pinned_before(other, _REPLACEMENT) is not None
        # What stays: the snapshots up to the fork
        fork = 0 if self._fork is None else self._fork
        self._kept = [number for number in self._snapshots if number <= fork and not self._is_left_over(number)]
        self._last_kept = max(self._kept, default=0)
        # Without a common snapshot, tags and changelogs from before the branch stay, as in Java.
        nothing_common = self._fork is None or self._is_begun
        self._others_after = min(self._new) - 1 if nothing_common else fork

    # ---- What it does

    def report(self, discard: bool, dry_run: bool) -> FastForwardReport:
        """What it does; checks that it may."""
        self._check_schemas()
        lost = later_files(self._own, self._last_kept, self._others_after)
        lost_tags = tuple(dict.fromkeys((*self._lost(lost.tags), *self._renamed_tags())))
        report = FastForwardReport(
            self._table.name,
            self._other.branch,
            self._fork,
            tuple(self._copied),
            lost.snapshots,
            lost.changelogs,
            lost_tags,
            tuple(self._lost_schemas),
            overtaken_by(self._own, self._last_kept) if lost.snapshots else (),
            dry_run,
        )
        if not discard and (what := _described(report)):
            raise StreamConfigError(
                f"fast_forward: {self._own.branch} has changed since it had a snapshot in common with branch "
                f"{self._other.branch!r}, and would lose {what}.",
                advice="If that is intended: discard_own_commits=True.",
                option="discard_own_commits",
            )
        return report

    def _is_left_over(self, number: int) -> bool:
        """Whether a snapshot should have been replaced by an earlier call, which has not ended."""
        new = self._new.get(number)
        return self._is_begun and (new is None or not self._snapshots[number].is_same_commit(new))

    @property
    def _copied(self) -> list[int]:
        return [
            number for number in self._new if number > self._last_kept or (self._is_begun and number not in self._kept)
        ]

    def _lost(self, names: Iterable[str]) -> list[str]:
        """The tags that the branch does not have in the same way."""
        theirs = {each.name: each.snapshot for each in self._new_tags}
        ours = {each.name: each.snapshot for each in self._tags}
        same = {name for name in ours.keys() & theirs.keys() if ours[name].is_same_commit(theirs[name])}
        return [name for name in names if name not in same]

    def _renamed_tags(self) -> list[str]:
        """Tags that stay, but are replaced by one of the branch of the same name."""
        theirs = {each.name for each in self._new_tags}
        return self._lost(each.name for each in self._tags if each.name in theirs)

    @property
    def _lost_schemas(self) -> list[int]:
        greatest = max(self._new_schemas, default=-1)
        return [
            number
            for number, data in self._schemas.items()
            if number > greatest or not is_same_schema(self._new_schemas.get(number, data), data)
        ]

    def _check_schemas(self) -> None:
        after = self._others_after
        tagged = [each.snapshot for each in self._tags if each.snapshot.id <= after]
        needed = max((each.schema_id for each in (*map(self._snapshots.__getitem__, self._kept), *tagged)), default=-1)
        lost = [number for number in self._lost_schemas if number <= needed]
        if lost:
            raise UnsupportedTableError(
                f"fast_forward: older snapshots or tags of {self._own.branch} need its schema {lost[0]}, and branch "
                f"{self._other.branch!r} has another one, or none. Delete those tags, or copy the rows instead."
            )

    # ---- Execution

    def execute(self) -> None:
        """Do it."""
        first = min(self._copied, default=max(self._new))
        is_replaced = self._is_begun or not self._kept
        # A run that takes a new snapshot for the old one of its id would delete it.
        last = min((*self._snapshots, *self._new)) if is_replaced else self._last_kept
        purpose = _REPLACEMENT if is_replaced else _PURPOSE
        with pinned(self._own, last, _PURPOSE), pinned(self._other, first, purpose, stays=is_replaced):
            if not is_replaced:
                self._execute_after_kept()
            elif self._kept:
                self._finish_replacement()
            else:
                self._replace_all()

    def _execute_after_kept(self) -> None:
        there = self._own.snapshots.refreshed(self._last_kept)
        if there is None or not there.is_same_commit(self._snapshots[self._last_kept]):
            raise MaintenanceConflictError(self._table.name, f"snapshot {self._last_kept} expired meanwhile")
        if later_files(self._own, self._last_kept, self._others_after) != LaterFiles():
            truncate(self._own, self._last_kept, self._others_after)
        self._copy_others()
        self._copy(self._copied)

    def _replace_all(self) -> None:
        """Replace a history of which nothing stays. There is a snapshot at any moment."""
        publisher = self._publisher()
        rest = sorted(self._new)
        if not self._snapshots:
            self._copy_others()
            self._copy(rest)
            return
        # One of the old snapshots stays until one of the new ones is there, which must not seem to follow it.
        old = min(self._snapshots)
        truncate(self._own, old, self._others_after)
        self._copy_others()
        if old in self._new:
            pivot = old
            self._own.store.write_atomic(self._own.snapshots.get_snapshot_path(old), self._stored(old))
        else:
            pivot = rest[-1] if rest[-1] != old + 1 else rest[0]
            self._publish(publisher, pivot)
            self._own.store.delete(self._own.snapshots.get_snapshot_path(old))
        self._copy_around(publisher, pivot)

    def _finish_replacement(self) -> None:
        """Continue what `_replace_all` has begun: one of the new snapshots is there."""
        if later_files(self._own, self._last_kept, self._others_after) != LaterFiles():
            truncate(self._own, self._last_kept, self._others_after)
        for number in filter(self._is_left_over, self._snapshots):
            self._own.store.delete(self._own.snapshots.get_snapshot_path(number))
        self._copy_others()
        self._copy_around(self._publisher(), min(self._kept))

    def _copy_around(self, publisher: Publisher, pivot: int) -> None:
        """Copy the snapshots before one that is there, the newest first, and those after it."""
        for number in (number for number in sorted(self._new, reverse=True) if number < pivot):
            self._publish(publisher, number)
        self._copy([number for number in sorted(self._new) if number > pivot and number not in self._kept])

    def _copy_others(self) -> None:
        """Copy what is not a snapshot, and delete what must not be there meanwhile."""
        store = self._own.store
        for number in reversed(self._lost_schemas):
            if number not in self._new_schemas:
                store.delete(schema_path(self._own, number))
        for number, data in self._new_schemas.items():
            if self._schemas.get(number) != data:
                store.write_atomic(schema_path(self._own, number), data)
        for each in self._new_tags:
            (tag,) = store.read_many([self._other.tag_path(each.name)])
            # One that was deleted meanwhile is not copied.
            if tag is not None:
                store.write_atomic(self._own.tag_path(each.name), tag)
        self._copy_changelogs()
        # The snapshots may begin after a gap. `_copy` writes the hint once they are there.
        forget_latest(self._own)

    def _copy_changelogs(self) -> None:
        """Copy the long-lived changelogs of snapshots since the fork that have expired in the branch."""
        numbers = [each for each in self._other.snapshots.list_changelog_ids() if each > self._others_after]
        if not numbers:
            return
        store, home = self._own.store, f"{branch_home(self._own, self._own.branch)}/changelog"
        source = f"{branch_home(self._own, self._other.branch)}/changelog"
        for number in numbers:
            store.write_atomic(f"{home}/changelog-{number}", store.read(f"{source}/changelog-{number}"))
        there = self._own.snapshots.list_changelog_ids()
        store.write_atomic(f"{home}/EARLIEST", str(there[0]).encode())
        store.write_atomic(f"{home}/LATEST", str(there[-1]).encode())

    def _copy(self, numbers: Iterable[int]) -> None:
        """Copy snapshots ascending, then set the hints."""
        publisher = self._publisher()
        for number in numbers:
            self._publish(publisher, number)
        self._own.forget()
        ids = self._own.snapshots.list_ids()
        store, home = self._own.store, f"{branch_home(self._own, self._own.branch)}/snapshot"
        store.write_atomic(f"{home}/EARLIEST", str(self._first_without_gap(ids)).encode())
        store.write_atomic(f"{home}/LATEST", str(ids[-1]).encode())

    def _first_without_gap(self, ids: list[int]) -> int:
        """The first snapshot from which on all changes can be read.

        The branch may have expired snapshots since the fork. A reader that looks for one of them learns from the hint
        that it has expired. Without a gap this is the first snapshot of all: Java copies the hint of the branch, which
        hides the older ones.
        """
        there = {*ids, *self._own.snapshots.list_changelog_ids()}
        first = ids[-1]
        while first - 1 in there:
            first -= 1
        return max(first, ids[0])

    def _publisher(self) -> Publisher:
        publisher = publisher_of(self._table, self._own)
        publisher.prepare()
        return publisher

    def _publish(self, publisher: Publisher, number: int) -> None:
        """Copy a snapshot, unless another one has its id by now."""
        value: dict[str, Any] = json.loads(self._stored(number))
        failed: Exception | None = None
        try:
            done = publisher.publish(None, value, list)
        except TakenError:
            done = False
        except NotPublishedError as error:
            raise StoreError(f"Snapshot {number} could not be copied: {error.__cause__}") from error.__cause__
        except OSError as error:
            # The copy may be there all the same.
            done, failed = False, translated(self._own.snapshots.get_snapshot_path(number), error)
        if not done:
            there = self._own.snapshots.refreshed(number)
            if there is None and failed is not None:
                raise failed
            if there is None or not there.is_same_commit(self._new[number]):
                raise MaintenanceConflictError(self._table.name, f"snapshot {number} was committed meanwhile")

    def _stored(self, number: int) -> bytes:
        (data,) = self._own.store.read_many([self._other.snapshots.get_snapshot_path(number)])
        if data is None:
            raise MaintenanceConflictError(self._table.name, f"snapshot {number} of the branch was deleted meanwhile")
        return data


def _described(report: FastForwardReport) -> str:
    """What would be lost, in words; empty if nothing would be."""
    found = (
        ("snapshot", report.lost_snapshots),
        ("changelog", report.lost_changelogs),
        ("tag", report.lost_tags),
        ("schema", report.lost_schemas),
    )
    return ", ".join(
        f"{what}{'' if len(names) == 1 else 's'} {', '.join(map(str, names))}" for what, names in found if names
    )
