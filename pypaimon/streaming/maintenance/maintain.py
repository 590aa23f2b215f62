"""`run_once`: expire what a table's options no longer keep, and delete the files that nothing needs.

Automatic tags that are due are created first. `TableRun` also deletes and replaces tags at a user's request.

The order makes every step repeatable, and lets no reader find a snapshot whose files are gone:

1. If the policy asks for that, the table is compacted. Then everything is planned. What cannot be read stops the run
   before anything is deleted. Then partitions expire, which is a commit like others, and what else `preparation` holds.
2. The plan is written to a file, so that a later run can finish it.
3. The hint to the earliest snapshot is moved, so that nobody begins below it. If there is the plan of another run,
   which may have done that, the hint is moved after the snapshots are deleted, the oldest one first.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain

from pypaimon.streaming.consumers.consumer_manager import consumers_of, last_write
from pypaimon.streaming.errors import CorruptTableError, MaintenanceConflictError
from pypaimon.streaming.maintenance.branch_files import MAIN, is_being_created, needs_nothing
from pypaimon.streaming.maintenance.expiry_planner import ExpiryPlanner
from pypaimon.streaming.maintenance.needed_files import NeededFiles, candidates_of, kept_roots
from pypaimon.streaming.maintenance.orphans import OldFiles
from pypaimon.streaming.maintenance.plan import MaintenancePlan, MaintenanceReport, plans_of_runs, unfinished_plans
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from pypaimon.streaming.maintenance.policy import KeepRules, MaintenancePolicy
from pypaimon.streaming.maintenance.preparation import Compact, Preparation
from pypaimon.streaming.maintenance.protected_positions import check_protected
from pypaimon.streaming.maintenance.references import PackedFiles, TableFile, unreferenced
from pypaimon.streaming.maintenance.roots import Picture, of_branch, picture_of
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.known_options import refuse_misspelled_keys

_ATTEMPTS = 5
_LONGEST_SECONDS = 900
"""How long the plan of a run that was killed may look like that of one that is running."""


def run_once(
    table: PaimonTable,
    policy: MaintenancePolicy,
    seen: SeenFiles | None = None,
    *,
    dry_run: bool = False,
    compact: Compact | None = None,
) -> MaintenanceReport:
    """`maintain` of `table_maintenance`, to which compaction is a parameter.

    Args:
        table: The table.
        policy: What to keep.
        seen: What earlier calls have read, and this one does not read again unless it has changed.
        dry_run: As there.
        compact: Compacts the table, unless this is a dry run; None: it is not compacted.
    """
    # A misspelled option would be ignored, and what it is to keep would go.
    refuse_misspelled_keys(table.options)
    rules = KeepRules.of(policy, table.options)
    check_protected(table.new_directory(), policy.protect)
    preparation = Preparation(table, policy)
    if compact is not None:
        preparation.compact(compact)

    def report() -> MaintenanceReport:
        directory, now = table.new_directory(), time.time()
        planner = ExpiryPlanner(table, rules, policy.protected_ids, now)
        run = TableRun(table, directory, planner.plan, rules.orphans_before(now), seen)
        return run.report(dry_run, preparation.run)

    done = preparation.noted(repeated(report))
    done.log()
    return done


def planned_expiry(table: PaimonTable, picture: Picture, now_millis: int) -> MaintenancePlan:
    """What a run would expire by the options of a table, without the files, which the run itself finds."""
    rules = KeepRules.of(MaintenancePolicy(), table.options)
    return ExpiryPlanner(table, rules, (), now_millis / 1000).plan(picture)


def repeated(run: Callable[[], MaintenanceReport]) -> MaintenanceReport:
    """Run, again if others change what is protected meanwhile.

    Raises:
        MaintenanceConflictError: They kept changing it (retriable).
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(MaintenanceConflictError):
            return run()
    return run()


class TableRun:
    """One attempt: a new picture of the table, a plan, and its execution.

    Args:
        table: The table.
        directory: Its files, of which nothing has been read yet.
        plan: Plans what is created and deleted of a table as it was read, without the files that nothing needs then.
        orphans_before: Files that nothing names go if they are older than this; None: they stay.
        seen: The snapshots and tags that earlier runs have read.
    """

    def __init__(
        self,
        table: PaimonTable,
        directory: TableDirectory,
        plan: Callable[[Picture], MaintenancePlan],
        orphans_before: datetime | None = None,
        seen: SeenFiles | None = None,
    ) -> None:
        self._table = table
        self._directory = directory
        self._plan = plan
        self._orphans_before = orphans_before
        self._seen = SeenFiles() if seen is None else seen

    def report(self, dry_run: bool = False, prepare: Callable[[], None] = lambda: None) -> MaintenanceReport:
        """Run.

        Args:
            dry_run: Delete nothing.
            prepare: Changes the table after the plan is made, and before anything of it is deleted.

        Raises:
            MaintenanceConflictError: Something has appeared that needs what is to be deleted (retriable).
            CorruptTableError: A file that decides what is needed is damaged or missing; nothing was deleted.
            StoreError: The store failed (retriable).
        """
        # Old files are listed before what names files: a commit that comes between cannot name them any more.
        old = self._old_files()
        needed_files = NeededFiles(self._table, self._directory, self._seen)
        picture = picture_of(self._directory, self._seen)
        plan = self._plan(picture)
        # The files of plans that an earlier run did not finish. Which of them are still needed is found out again.
        consumers = consumers_of(self._directory).directory
        unfinished = unfinished_plans(self._directory.store, consumers, picture.consumer_files, self._table.path)
        resumed: tuple[TableFile, ...] = ()
        running: set[str] = set()
        candidates = chain(candidates_of(self._table, self._directory, picture, plan), old)
        first = next(candidates, None)
        if first is not None or unfinished:
            needed = needed_files.of((kept_roots(picture, plan), *picture.others))
            plan = replace(plan, files=unreferenced(chain(() if first is None else (first,), candidates), needed))
            planned = {each.path for each in plan.files}
            left = (each for files in unfinished.values() for each in files if each.path not in planned)
            resumed = unreferenced(left, needed)
            running = self._running(
                [
                    path
                    for path, files in unfinished.items()
                    if plans_of_runs([path.rpartition("/")[2]]) or len(unreferenced(files, needed)) < len(files)
                ]
            )
            # A million names take much memory, which the deletion needs.
            del needed, old, candidates
        if not dry_run:
            prepare()
            if resumed or not plan.is_empty:
                PlanExecution(self._table, self._directory, needed_files, picture, plan).run(resumed)
            for path in unfinished:
                if path not in running:
                    self._directory.store.delete(path)
        return MaintenanceReport(plan, dry_run, len(resumed))

    def _old_files(self) -> PackedFiles:
        if self._orphans_before is None:
            return PackedFiles(())
        names = (MAIN, *self._directory.branch_names())
        for name in names:
            branch = of_branch(self._directory, name)
            # One that is being created has its tag before its schemas, and needs nothing else yet.
            is_new = branch.exists() or is_being_created(self._directory, name)
            if not (is_new or needs_nothing(branch) or branch.exists()):
                if name not in (MAIN, *self._directory.branch_names()):
                    raise MaintenanceConflictError(self._table.name, f"branch {name!r} was deleted meanwhile")
                where = f"{branch_directory(self._table.path, name)}/schema"
                detail = "holds no schema, so that it is not known what the branch needs, and no orphan is deleted"
                raise CorruptTableError(where, detail)
        homes = [branch_directory(self._table.path, name) for name in names]
        return PackedFiles(OldFiles(self._directory.store, self._table.paths, self._orphans_before).of_table(homes))

    def _running(self, plans: Sequence[str]) -> set[str]:
        """The plans among these that another run may be carrying out: the young ones.

        A rollback, and a writer of tags, look for them. Files that are gone do not say that their run has ended: it may
        still delete a snapshot, also one whose files a tag keeps, or that this run has deleted and a rollback restores.
        """
        if not plans:
            return set()
        oldest = datetime.fromtimestamp(time.time() - _LONGEST_SECONDS, timezone.utc)
        statuses = self._directory.store.list_written(consumers_of(self._directory).directory)
        written = {
            path: last_write(statuses[path.rpartition("/")[2]]) for path in plans if path.rpartition("/")[2] in statuses
        }
        return {path for path, when in written.items() if when is not None and when > oldest}
