"""`maintain`: expire what a table's options no longer keep, and delete the files that nothing needs.

Automatic tags that are due are created first. `TableRun` also deletes and replaces tags at a user's request.

The order makes every step repeatable, and lets no reader find a snapshot whose files are gone:

1. Everything is planned. What cannot be read stops the run before anything is deleted. Then partitions expire, which
   is a commit like others, and what else `preparation` holds.
2. The plan is written to a file, so that a later run can finish it.
3. The hint to the earliest snapshot is moved, so that nobody begins below it.
4. Consumers, tags and branches are read again. If one has appeared, the hint moves back and the run starts over.
   Tags that are due are written now.
5. Long-lived changelogs are written, then snapshots are deleted.
6. Snapshots, tags and branches are read once more, because a tag that is written while its snapshot expires keeps the
   files. A writer of tags that looks for the snapshot again afterwards knows whether it was in time.
7. The other files are deleted.

Java deletes data files first, so that a snapshot may be found whose files are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from itertools import chain
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.commit.ledger import record_name
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerInfo, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError, Seen
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.automatic_tags import automatic_tags
from pypaimon.streaming.maintenance.earliest_hint import EarliestHint
from pypaimon.streaming.maintenance.expiry import Protection, expired_changelogs, expired_snapshots
from pypaimon.streaming.maintenance.kept_changelogs import keep_changelogs
from pypaimon.streaming.maintenance.orphans import OldFiles
from pypaimon.streaming.maintenance.plan import (
    PLAN_PREFIX,
    MaintenancePlan,
    MaintenanceReport,
    plan_text,
    unfinished_plans,
)
from pypaimon.streaming.maintenance.policy import KeepRules, MaintenancePolicy
from pypaimon.streaming.maintenance.preparation import Preparation
from pypaimon.streaming.maintenance.protected_positions import check_protected
from pypaimon.streaming.maintenance.references import (
    Candidates,
    PackedFiles,
    References,
    TableFile,
    required,
    unreferenced,
)
from pypaimon.streaming.maintenance.roots import Picture, Roots, SeenSnapshots, of_branch, picture_of
from pypaimon.streaming.maintenance.tag_writer import TagWriter
from pypaimon.streaming.maintenance.tags import Tag, success_path
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import branch_directory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_ATTEMPTS = 5
_EXPIRED = "expired"
_LOG = StreamLog(__name__)


def maintain(
    table: WritableTable, policy: MaintenancePolicy | None = None, *, dry_run: bool = False
) -> MaintenanceReport:
    """Expire partitions, snapshots, long-lived changelogs and consumers, and delete files that nothing needs. Blocks.

    Rows of streams that are still protected, of tags and of branches do not change. May run at any time, next to
    writers, compactors, readers, Java's own expiry, and itself; a run that is killed is finished by the next one.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        policy: What to keep; None: what the table's options say.
        dry_run: Delete nothing. The report says what would be deleted.

    Raises:
        StreamConfigError: An option or an argument cannot be read; nothing was deleted.
        TableChangedError: A protected position belongs to another table, or the table was rolled back since.
        CorruptTableError: A file that decides what is needed is damaged or missing; nothing was deleted.
        UnsupportedTableError: The partitions of such a table cannot expire; nothing was deleted.
        CommitFailedError: Partitions could not be dropped, or manifests not be rewritten (retriable).
        MaintenanceConflictError: Others kept changing what is protected meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("maintain: table", table))
    rules = KeepRules.of(policy or MaintenancePolicy(), given.options)
    check_protected(given.new_directory(), (policy or MaintenancePolicy()).protect)
    protected = (policy or MaintenancePolicy()).protected_ids
    preparation = Preparation(given, policy or MaintenancePolicy())
    report = report_of(lambda: TableRun(given, rules, protected, preparation.run), dry_run=dry_run)
    return preparation.noted(report)


def report_of(make_run: Callable[[], TableRun], *, dry_run: bool = False) -> MaintenanceReport:
    """Run, again if others change what is protected meanwhile.

    Raises:
        MaintenanceConflictError: They kept changing it (retriable).
    """
    for attempt in range(1, _ATTEMPTS + 1):
        run = make_run()
        try:
            return run.report(dry_run)
        except MaintenanceConflictError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def planned_expiry(table: PaimonTable, picture: Picture, now_millis: int) -> MaintenancePlan:
    """What a run would expire by the options of a table, without the files, which the run itself finds."""
    return TableRun(table, KeepRules.of(MaintenancePolicy(), table.options), (), now=now_millis / 1000).planned(picture)


class TableRun:
    """One attempt: a new picture of the table, a plan, and its execution.

    Args:
        table: The table.
        rules: What is kept.
        protected: The first snapshots that positions still read.
        prepare: Changes the table after the plan is made, and before anything of it is deleted.
        now: Seconds since the epoch; None: the wall clock.
    """

    def __init__(
        self,
        table: PaimonTable,
        rules: KeepRules,
        protected: Sequence[int],
        prepare: Callable[[], None] = lambda: None,
        now: float | None = None,
    ) -> None:
        self._table = table
        self._rules = rules
        self._protected = protected
        self._prepare = prepare
        self._directory = table.new_directory()
        self._store = self._directory.store
        self._consumers = consumers_of(self._directory)
        self._now = time.time() if now is None else now
        self._seen: SeenSnapshots = {}
        self._home = branch_directory(table.path, self._directory.branch)
        self._automatic = automatic_tags(table)

    def report(self, dry_run: bool) -> MaintenanceReport:
        # Old files are listed before what names files: a commit that comes between cannot name them any more.
        old = self._old_files()
        picture = picture_of(self._directory, self._seen)
        plan = self.planned(picture)
        unfinished = self._unfinished()
        resumed: tuple[TableFile, ...] = ()
        candidates = chain(self._candidates(picture, plan), old)
        first = next(candidates, None)
        if first is not None or unfinished:
            needed = self._needed((self._kept(picture, plan), *picture.others))
            plan = replace(plan, files=unreferenced(chain(() if first is None else (first,), candidates), needed))
            planned = {each.path for each in plan.files}
            left = (each for files in unfinished.values() for each in files if each.path not in planned)
            resumed = unreferenced(left, needed)
            # A million names take much memory, which the deletion needs.
            del needed, old, candidates
        if not dry_run:
            self._prepare()
            if resumed or not plan.is_empty:
                self._execute(picture, plan, resumed)
            for path in unfinished:
                self._store.delete(path)
        return MaintenanceReport(plan, dry_run, len(resumed))

    # ---- What the table holds

    def _old_files(self) -> PackedFiles:
        if self._rules.orphan_seconds is None:
            return PackedFiles(())
        before = datetime.fromtimestamp(max(self._now - self._rules.orphan_seconds, 0), timezone.utc)
        homes = [branch_directory(self._table.path, name) for name in ("main", *self._directory.branch_names())]
        return PackedFiles(OldFiles(self._store, self._table.paths, before).of_table(homes))

    # ---- What goes

    def planned(self, picture: Picture) -> MaintenancePlan:
        expired = self._expired_consumers(picture.consumers)
        protections = self._protections(picture.consumers, expired)
        own, rules, now = picture.own, self._rules, int(self._now * 1000)
        snapshots = expired_snapshots(own.snapshots, rules.snapshots, protections, now, rules.limit, own.visible_id)
        ids = tuple(each.id for each in snapshots)
        # The changelogs of the snapshots that expire are long-lived from now on, so that they may expire at once.
        late = snapshots if rules.changelogs is not None else ()
        changelogs = [*(each for each in own.changelogs if each.id not in ids), *late]
        latest = own.snapshots[-1].id if own.snapshots else 0
        found = expired_changelogs(changelogs, latest, rules.changelogs, protections, now, rules.limit)
        old = tuple(each.id for each in found)
        remaining = [each for each in own.snapshots[len(snapshots) :] if each.id >= own.visible_id]
        created = self._due_tags(picture)
        return MaintenancePlan(
            self._table.name,
            snapshot_ids=ids,
            changelog_ids=old,
            kept_changelog_ids=tuple(each.id for each in late if each.id not in old),
            tags=tuple(dict.fromkeys(self._expired_tags(picture.tags) + self._outdated_tags(picture, created))),
            consumers=tuple(each.name.text for each in expired),
            protections=tuple(protections),
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

    def _expired_consumers(self, consumers: Sequence[ConsumerInfo]) -> list[ConsumerInfo]:
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
            for each in consumers
            if each.owner == _EXPIRED or (each.last_save is not None and each.last_save < oldest)
        ]
        return [each for each in stale if record_name(each.name.text) not in self._consumer_files]

    def _protections(self, consumers: Sequence[ConsumerInfo], expired: Sequence[ConsumerInfo]) -> list[Protection]:
        found = [Protection("position", str(number), number) for number in self._protected]
        for each in consumers:
            if each not in expired:
                changelog_only = self._rules.changelog_only and not self._needs_snapshots(each.name)
                found.append(Protection("consumer", each.name.text, each.next_snapshot, changelog_only))
        return found

    def _needs_snapshots(self, name: ConsumerName) -> bool:
        """Whether a consumer needs snapshots even if others keep only changelogs.

        A pin protects the state that a first plan is still reading, that of a group also the first plans of its
        members, and a writer finds its commits in snapshots only.
        """
        return name.is_pin or name.group or record_name(name.text) in self._consumer_files

    @cached_property
    def _consumer_files(self) -> frozenset[str]:
        return frozenset(self._store.list_names(self._consumers.directory))

    # ---- Which files nothing needs

    def _kept(self, picture: Picture, plan: MaintenancePlan) -> Roots:
        """The roots of the branch after the plan."""
        own = picture.own
        gone, old, late = set(plan.snapshot_ids), set(plan.changelog_ids), set(plan.kept_changelog_ids)
        changelogs = {each.id: each for each in (*own.changelogs, *own.snapshots) if each.id not in old}
        long_lived = {each.id for each in own.changelogs} | late
        kept_tags = (each for each in picture.tags if each.name not in plan.tags)
        return replace(
            own,
            snapshots=tuple(each for each in own.snapshots if each.id not in gone),
            tagged=tuple(each.snapshot for each in (*kept_tags, *plan.created_tags)),
            changelogs=tuple(changelogs[number] for number in sorted(changelogs) if number in long_lived),
        )

    def _needed(self, roots: Iterable[Roots]) -> set[str]:
        references = References(self._directory.manifests)
        for each in roots:
            self._add(references, each)
        # What the entries of a large table have taken is not kept for the next ones.
        pa.default_memory_pool().release_unused()
        return references.names

    def _add(self, references: References, roots: Roots) -> None:
        try:
            references.add(roots)
        except FileNotFoundError as error:
            self._check_still_there(roots)
            raise required(error, "a snapshot, tag or changelog that stays") from error

    def _check_still_there(self, roots: Roots) -> None:
        """Another program may have expired, meanwhile, what needs a file that is missing."""
        now = picture_of(self._table.new_directory(), self._seen)
        there = {each for found in (now.own, *now.others) for each in found.marks}
        gone = next((each for each, mark in zip(roots.all, roots.marks, strict=True) if mark not in there), None)
        if gone is not None:
            raise MaintenanceConflictError(self._table.name, f"snapshot {gone.id} has expired meanwhile")

    def _candidates(self, picture: Picture, plan: MaintenancePlan) -> Iterator[TableFile]:
        candidates = Candidates(self._directory.manifests, self._table.paths)
        own = picture.own
        gone, old = set(plan.snapshot_ids), set(plan.changelog_ids)
        following = next((each for each in own.snapshots if each.id not in gone), None)
        if gone:
            yield from candidates.of_snapshots([each for each in own.snapshots if each.id in gone], following)
        if old:
            yield from candidates.of_snapshots([each for each in own.changelogs if each.id in old], None)
        # The snapshot of a tag needs the same files, if it stays.
        kept = {each.fingerprint for each in own.snapshots if each.id not in gone}
        tags = [each for each in picture.tags if each.name in plan.tags and each.snapshot.fingerprint not in kept]
        yield from candidates.of_states([each.snapshot for each in tags])

    # ---- Execution

    def _execute(self, picture: Picture, plan: MaintenancePlan, resumed: Sequence[TableFile]) -> None:
        path = f"{self._consumers.directory}/{PLAN_PREFIX}{uuid4()}"
        hint = EarliestHint(self._directory, f"{self._home}/snapshot/EARLIEST")
        self._store.write_atomic(path, plan_text(plan.files, self._table.path))
        hidden = [each for each in plan.snapshot_ids if each < picture.own.visible_id]
        expired = [each.name for each in picture.consumers if each.name.text in plan.consumers]
        try:
            if hidden:
                # They go first: nobody finds them as long as the hint leads to a snapshot that follows none.
                self._check_unchanged(picture, plan)
                kept = [each for each in plan.kept_changelog_ids if each in hidden]
                keep_changelogs(self._store, self._table.path, self._home, kept)
                self._store.delete_all(self._snapshot_paths(hidden))
            if plan.snapshot_ids and plan.earliest_id is not None:
                hint.move(plan.earliest_id, picture.own.visible_id or picture.own.snapshots[0].id)
            seen = {name: self._consumers.look(name) for name in expired}
            self._check_unchanged(picture, plan)
            self._create_tags(plan)
            self._mark_expired(plan, seen)
        except BaseException:
            hint.move_back()
            self._store.delete(path)
            raise
        for each in picture.consumers:
            if each.name.text in plan.consumers:
                self._consumers.delete(each.name)
        for path_of in (self._directory.tag_path, partial(success_path, self._directory)):
            self._store.delete_all([path_of(name) for name in plan.deleted_tags])
        self._expire_changelogs(picture, plan)
        self._expire_visible(hint, self._snapshot_paths(each for each in plan.snapshot_ids if each not in hidden))
        newly_needed, now = self._newly_needed((self._kept(picture, plan), *picture.others))
        files = unreferenced([*plan.files, *resumed], newly_needed)
        self._store.delete_all([each.path for each in files])
        self._delete_revived_changelogs(plan, now)
        self._store.delete(path)
        _LOG.info(
            "maintained",
            "%(table)s: expired %(snapshots)d snapshots and deleted %(files)d files",
            table=plan.table,
            snapshots=len(plan.snapshot_ids),
            files=len(files),
        )

    def _expire_visible(self, hint: EarliestHint, paths: Sequence[str]) -> None:
        """Delete snapshots, the newest one first.

        Readers believe the hint once the snapshot before it is gone. From then on they find none of the others.
        """
        if paths:
            hint.check()
            self._store.delete_all(paths[-1:])
            hint.restore()
            self._store.delete_all(paths[:-1])

    def _snapshot_paths(self, ids: Iterable[int]) -> list[str]:
        return [f"{self._home}/snapshot/snapshot-{number}" for number in ids]

    def _create_tags(self, plan: MaintenancePlan) -> None:
        writer = TagWriter(self._table, self._directory)
        try:
            for tag in plan.created_tags:
                writer.write(tag, replace=tag.name in plan.tags)
        except ChangedFileError as error:
            raise MaintenanceConflictError(plan.table, "a tag was created meanwhile") from error

    def _newly_needed(self, roots: Sequence[Roots]) -> tuple[set[str], Picture]:
        """What snapshots, tags, changelogs and branches need now that these roots do not hold.

        They have appeared meanwhile, or should have been deleted and are still there.
        """
        now = picture_of(self._table.new_directory(), self._seen)
        snapshots = {each.fingerprint for found in roots for each in found.snapshots}
        tagged = {each.fingerprint for found in roots for each in found.tagged}
        changelogs = {each.fingerprint for found in roots for each in found.changelogs}
        appeared = [
            replace(
                found,
                snapshots=tuple(each for each in found.snapshots if each.fingerprint not in snapshots),
                tagged=tuple(each for each in found.tagged if each.fingerprint not in tagged),
                changelogs=tuple(each for each in found.changelogs if each.fingerprint not in changelogs),
            )
            for found in (now.own, *now.others)
        ]
        return self._needed(appeared), now

    def _mark_expired(self, plan: MaintenancePlan, seen: Mapping[ConsumerName, tuple[Consumer, Seen] | None]) -> None:
        """Change the files of expired consumers before they are deleted, so that a reader that saves finds it out."""
        for name, found in seen.items():
            if found is None:
                continue
            consumer, content = found
            with suppress(ChangedFileError):
                self._consumers.replace(name, replace(consumer, owner=_EXPIRED), content)
            now = self._consumers.read(name)
            if now is not None and now.owner != _EXPIRED:
                raise MaintenanceConflictError(plan.table, f"consumer {name.text!r} has saved meanwhile")

    def _expire_changelogs(self, picture: Picture, plan: MaintenancePlan) -> None:
        directory = f"{self._home}/changelog"
        late = set(plan.kept_changelog_ids)
        keep_changelogs(self._store, self._table.path, self._home, plan.kept_changelog_ids)
        if late:
            self._store.write_atomic(f"{directory}/LATEST", str(max(late)).encode())
        if plan.changelog_ids:
            left = {each.id for each in picture.own.changelogs} - set(plan.changelog_ids) | late
            if left:
                self._store.write_atomic(f"{directory}/EARLIEST", str(min(left)).encode())
            else:
                self._store.delete_all([f"{directory}/EARLIEST", f"{directory}/LATEST"])
            self._store.delete_all([f"{directory}/changelog-{number}" for number in plan.changelog_ids])

    def _delete_revived_changelogs(self, plan: MaintenancePlan, now: Picture) -> None:
        """Delete changelogs that a slower run has written again after nothing kept their files any more."""
        if plan.changelog_ids:
            known = {each.id for each in now.own.changelogs}
            there = self._table.new_directory().snapshots.list_changelog_ids()
            late = [number for number in plan.changelog_ids if number in there and number not in known]
            self._store.delete_all([f"{self._home}/changelog/changelog-{number}" for number in late])

    def _check_unchanged(self, picture: Picture, plan: MaintenancePlan) -> None:
        """Find out whether something has appeared that needs what is to be deleted."""
        directory = self._table.new_directory()
        names = ("main", *directory.branch_names())
        if {*names} != {*picture.tag_names}:
            raise MaintenanceConflictError(plan.table, "a branch was created or deleted meanwhile")
        for name in names:
            if tuple(of_branch(directory, name).tag_names()) != picture.tag_names[name]:
                raise MaintenanceConflictError(plan.table, "a tag was created or deleted meanwhile")
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

    # ---- Plans that an earlier run did not finish

    def _unfinished(self) -> dict[str, list[TableFile]]:
        """The files of plans by the path of the plan. Which of them are still needed is found out again."""
        return unfinished_plans(self._store, self._consumers.directory, self._table.path)
