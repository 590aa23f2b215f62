"""`PlanExecution`: carries a plan out, in the order that `maintain` describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError, Seen
from pypaimon.streaming.maintenance.branch_files import MAIN
from pypaimon.streaming.maintenance.earliest_hint import EarliestHint
from pypaimon.streaming.maintenance.expiry_planner import EXPIRED
from pypaimon.streaming.maintenance.kept_changelogs import keep_changelogs
from pypaimon.streaming.maintenance.needed_files import NeededFiles, kept_roots
from pypaimon.streaming.maintenance.plan import PLAN_PREFIX, MaintenancePlan, plan_text, plans_of_runs
from pypaimon.streaming.maintenance.references import TableFile, unreferenced
from pypaimon.streaming.maintenance.retention_pin import is_own_pin
from pypaimon.streaming.maintenance.roots import Picture, of_branch
from pypaimon.streaming.maintenance.tag_writer import TagWriter, warn_of_callbacks
from pypaimon.streaming.maintenance.tags import Tag, success_path, tags_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory


class PlanExecution:
    """The execution of one plan.

    Args:
        table: The table.
        directory: Its files.
        needed: Finds out which files are needed.
        picture: The table as it was when the plan was made.
        plan: What is created and deleted.
    """

    def __init__(
        self,
        table: PaimonTable,
        directory: TableDirectory,
        needed: NeededFiles,
        picture: Picture,
        plan: MaintenancePlan,
    ) -> None:
        self._table = table
        self._directory = directory
        self._needed = needed
        self._picture = picture
        self._plan = plan
        self._store = directory.store
        self._consumers = consumers_of(directory)
        self._home = branch_directory(table.path, directory.branch)
        self._name = f"{PLAN_PREFIX}{uuid4()}"

    def run(self, resumed: Sequence[TableFile]) -> None:
        """Carry the plan out.

        Args:
            resumed: Files of earlier plans, which are deleted too.

        Raises:
            MaintenanceConflictError: Something has appeared that needs what is to be deleted; nothing was deleted.
            StoreError: The store failed (retriable).
        """
        if self._plan.tags or self._plan.created_tags:
            warn_of_callbacks(self._table)
        path = f"{self._consumers.directory}/{self._name}"
        try:
            self._run(path, resumed)
        except Exception:
            self._leave_no_branch(path)
            raise
        self._leave_no_branch(path)

    def _run(self, path: str, resumed: Sequence[TableFile]) -> None:
        picture, plan = self._picture, self._plan
        hint = EarliestHint(self._directory, f"{self._home}/snapshot/EARLIEST", plan.earliest_id)
        self._store.write_atomic(path, plan_text(plan.files, self._table.path))
        hidden = [each for each in plan.snapshot_ids if each < picture.own.visible_id]
        expired = [each.name for each in picture.consumers if each.name.text in plan.consumers]
        try:
            if hidden:
                # They go first: nobody finds them as long as the hint leads to a snapshot that follows none.
                self._check_unchanged()
                kept = [each for each in plan.kept_changelog_ids if each in hidden]
                keep_changelogs(self._directory, kept)
                self._store.delete_all(self._snapshot_paths(hidden))
            if plan.snapshot_ids and plan.earliest_id is not None and self._is_alone():
                hint.move(picture.own.visible_id or picture.own.snapshots[0].id)
            seen = {name: self._consumers.look(name) for name in expired}
            self._check_unchanged()
            self._create_tags()
            self._mark_expired(seen)
        except Exception:
            # An interrupted process leaves all as a killed one does, because a request of it may still be under way.
            hint.move_back()
            self._store.delete(path)
            raise
        for each in picture.consumers:
            if each.name.text in plan.consumers:
                self._consumers.delete(each.name)
        for path_of in self._tag_paths():
            self._store.delete_all([path_of(name) for name in plan.deleted_tags])
        self._expire_changelogs()
        self._expire_visible(hint, self._snapshot_paths(each for each in plan.snapshot_ids if each not in hidden))
        newly_needed, now = self._needed.newly_needed((kept_roots(picture, plan), *picture.others))
        files = unreferenced([*plan.files, *resumed], newly_needed)
        self._store.delete_all([each.path for each in files])
        self._delete_revived_changelogs(now)
        self._store.delete(path)

    def _leave_no_branch(self, path: str) -> None:
        """Delete what this run has written into a branch that was deleted meanwhile: the branch would seem to be there.

        Raises:
            MaintenanceConflictError: The branch is gone.
        """
        if self._directory.branch == MAIN or self._directory.exists():
            return
        hints = (f"{self._home}/{what}/{hint}" for what in ("snapshot", "changelog") for hint in ("EARLIEST", "LATEST"))
        changelogs = (f"{self._home}/changelog/changelog-{number}" for number in self._plan.kept_changelog_ids)
        created = [each.name for each in self._plan.created_tags]
        tags = (path_of(name) for path_of in self._tag_paths() for name in created)
        self._store.delete_all([path, *hints, *changelogs, *tags])
        raise MaintenanceConflictError(self._plan.table, f"branch {self._directory.branch!r} was deleted meanwhile")

    def _expire_visible(self, hint: EarliestHint, paths: Sequence[str]) -> None:
        """Delete snapshots, the newest one first if this run has moved the hint.

        Readers believe the hint once the snapshot before it is gone. From then on they find none of the others. If
        another run may move the hint, it may be believed at any moment or not at all: then the oldest one goes first,
        each after the other, so that readers find no gap either way.
        """
        if hint.is_moved and paths:
            hint.check()
            self._store.delete_all(paths[-1:])
            hint.advance()
            self._store.delete_all(paths[:-1])
        elif paths:
            for each in paths:
                self._store.delete(each)
            hint.advance()

    def _snapshot_paths(self, ids: Iterable[int]) -> list[str]:
        return [f"{self._home}/snapshot/snapshot-{number}" for number in ids]

    def _tag_paths(self) -> tuple[Callable[[str], str], ...]:
        """The files of a tag by its name."""
        return self._directory.tag_path, partial(success_path, self._directory)

    def _create_tags(self) -> None:
        writer = TagWriter(self._table, self._directory)
        try:
            for tag in self._plan.created_tags:
                writer.write(tag, replace=tag.name in self._plan.tags)
        except ChangedFileError as error:
            raise MaintenanceConflictError(self._plan.table, "a tag was created meanwhile") from error

    def _mark_expired(self, seen: Mapping[ConsumerName, tuple[Consumer, Seen] | None]) -> None:
        """Change the files of expired consumers before they are deleted, so that a reader that saves finds it out."""
        for name, found in seen.items():
            if found is None:
                continue
            consumer, content = found
            with suppress(ChangedFileError):
                self._consumers.replace(name, replace(consumer, owner=EXPIRED), content)
            now = self._consumers.read(name)
            if now is not None and now.owner != EXPIRED:
                raise MaintenanceConflictError(self._plan.table, f"consumer {name.text!r} has saved meanwhile")

    def _expire_changelogs(self) -> None:
        plan = self._plan
        directory = f"{self._home}/changelog"
        late = set(plan.kept_changelog_ids)
        keep_changelogs(self._directory, plan.kept_changelog_ids)
        if late:
            self._store.write_atomic(f"{directory}/LATEST", str(max(late)).encode())
        if plan.changelog_ids:
            left = {each.id for each in self._picture.own.changelogs} - set(plan.changelog_ids) | late
            if left:
                self._store.write_atomic(f"{directory}/EARLIEST", str(min(left)).encode())
            else:
                self._store.delete_all([f"{directory}/EARLIEST", f"{directory}/LATEST"])
            self._store.delete_all([f"{directory}/changelog-{number}" for number in plan.changelog_ids])

    def _delete_revived_changelogs(self, now: Picture) -> None:
        """Delete changelogs that a slower run has written again after nothing kept their files any more."""
        if self._plan.changelog_ids:
            known = {each.id for each in now.own.changelogs}
            there = self._table.new_directory().snapshots.list_changelog_ids()
            late = [number for number in self._plan.changelog_ids if number in there and number not in known]
            self._store.delete_all([f"{self._home}/changelog/changelog-{number}" for number in late])

    def _is_alone(self) -> bool:
        """Whether there is no plan of another run, which may have moved the hint.

        Of two runs that write their plans before they look, at least one sees the other.

        Raises:
            MaintenanceConflictError: A rollback may restore an expired snapshot. The hint would show it, with a gap
                after it. Such a call writes a pin, and looks for plans before it does anything.
        """
        listed = self._store.list_written(self._consumers.directory)
        known = {each.name for each in self._picture.consumers}
        if any(is_own_pin(each) and each not in known for each in self._consumers.names(listed=listed)):
            raise MaintenanceConflictError(self._plan.table, "a rollback or copy was begun meanwhile")
        return plans_of_runs(listed) == [self._name]

    def _check_unchanged(self) -> None:
        """Find out whether something has appeared that needs what is to be deleted."""
        picture, plan = self._picture, self._plan
        directory = self._table.new_directory()
        names = ("main", *directory.branch_names())
        if {*names} != {*picture.tag_names}:
            raise MaintenanceConflictError(plan.table, "a branch was created or deleted meanwhile")
        for name in names:
            if name == directory.branch and plan.tags:
                # One that was replaced has the same name.
                is_same = [*map(_contents, tags_of(directory))] == [*map(_contents, picture.tags)]
            else:
                is_same = tuple(of_branch(directory, name).tag_names()) == picture.tag_names[name]
            if not is_same:
                raise MaintenanceConflictError(plan.table, "a tag was created, replaced or deleted meanwhile")
        known = {each.name.text: each.next_snapshot for each in picture.consumers}
        for info in self._consumers.infos():
            late = info.name.text in plan.consumers and info not in picture.consumers
            # It is new, or was reset to an earlier snapshot.
            earlier = info.name.text not in known or info.next_snapshot < known[info.name.text]
            if late or (earlier and plan.earliest_id is not None and info.next_snapshot <= plan.earliest_id):
                raise MaintenanceConflictError(plan.table, f"consumer {info.name.text!r} has saved meanwhile")
        last = picture.own.snapshots[-1] if picture.own.snapshots else None
        there = None if last is None else directory.snapshots.refreshed(last.id)
        if last is not None and (there is None or there.fingerprint != last.fingerprint):
            raise MaintenanceConflictError(plan.table, "the table was rolled back meanwhile")


def _contents(tag: Tag) -> tuple[str, str, datetime | None]:
    return tag.name, tag.snapshot.fingerprint, tag.expires
