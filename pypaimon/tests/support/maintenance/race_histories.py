"""Histories that chance has found: two runs, or a run and others, at the same table; see `histories`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.maintenance import delete_branch, rollback
from support.crash.crashing_file_io import Killed
from support.groups.invariants import BrokenLawError
from support.maintenance.operations import Operation
from support.maintenance.simulated_table import ROOT
from support.maintenance.stage import Stage
from support.maintenance.world import DAY


def hints_of_two_runs(stage: Stage) -> None:
    """One run has hidden four snapshots, and another one expires two of them, just before the first is deleted."""
    for name in "abcdef":
        stage.commit(name)
    few = MaintenancePolicy(min_snapshots=1, max_snapshots=1, expire_limit=2)
    stage.when("delete", "/snapshot/snapshot-5", lambda: stage.expire(few))
    stage.expire()


def hint_of_two_runs(stage: Stage) -> None:
    """Two runs hide the same snapshots: one is killed while it deletes them, and the other one gives up."""

    def kill() -> None:
        raise Killed

    def expire() -> None:
        stage.expire(two)
        stage.tag("t", 4)

    for name in "abcd":
        stage.commit(name)
    two = MaintenancePolicy(min_snapshots=2, max_snapshots=2)
    stage.when("delete", "/snapshot/snapshot-1", kill)
    stage.when("write", "/snapshot/EARLIEST", expire)
    stage.expire(two)
    stage.check_kept(2)


def hint_of_a_killed_run(stage: Stage) -> None:
    """A run gives up, and another one is killed just before the first one moves the hint back."""

    def kill() -> None:
        raise Killed

    def expire() -> None:
        stage.when("delete", "/snapshot/snapshot-", kill, skipped=1)
        stage.expire()

    for name in "abcdef":
        stage.commit(name)
    stage.when("write", "/snapshot/EARLIEST", lambda: stage.tag("t", 1))
    stage.when("write", "/snapshot/EARLIEST", expire, skipped=1)
    stage.expire()
    stage.check_kept(1)


def hint_of_a_finished_plan(stage: Stage) -> None:
    """A run is slow for a day. Meanwhile another one is killed, and a third one deletes its plan and two snapshots."""

    def kill() -> None:
        raise Killed

    def expire() -> None:
        stage.when("delete", "/snapshot/snapshot-", kill, skipped=1)
        stage.expire(MaintenancePolicy(min_snapshots=2, max_snapshots=2))
        stage.pass_days(1)
        stage.expire(MaintenancePolicy(min_snapshots=2, max_snapshots=2, expire_limit=2))

    for name in "abcdefgh":
        stage.commit(name)
    stage.when("write", "/consumer/maintenance-", expire)
    stage.expire()
    stage.check_kept(1)


def rollback_killed_during_a_run(stage: Stage) -> None:
    """It has restored an expired snapshot, which the hint hides that a run moves afterwards."""

    def kill() -> None:
        raise Killed

    for name in "abcde":
        stage.commit(name)
    stage.tag("t", 1)
    stage.expire(MaintenancePolicy(min_snapshots=3, max_snapshots=3))
    stage.when("delete", "/snapshot/LATEST", kill)
    stage.when("write", "/consumer/maintenance-", lambda: stage.roll_back("t"))
    stage.expire(MaintenancePolicy(min_snapshots=2, max_snapshots=2))


def tag_of_lost_history(stage: Stage) -> None:
    """A rollback is killed before it deletes the tags of the snapshots that it has deleted."""

    def kill() -> None:
        raise Killed

    for name in "abcd":
        stage.commit(name)
    stage.tag("t", 4)
    stage.when("delete", "/tag/tag-t", kill)
    stage.roll_back(snapshot=2)
    stage.roll_back("t")
    stage.commit("e")


def branch_goes(stage: Stage) -> None:
    """It is deleted while it is maintained."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c", branch="b")
    stage.when("list", "/branch", lambda: stage.actors.drop_branch("b"))
    stage.expire(branch="b")


def commit_in_a_deleted_branch(stage: Stage) -> None:
    """A writer commits while its branch is deleted: the commit is deleted too."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.when("delete", "/branch-b/snapshot/snapshot-1", lambda: stage.commit("c", branch="b"))
    stage.operate(Operation("delete a branch", lambda handle: delete_branch(handle, "b"), "b"))
    if stage.objects.names(f"{ROOT}/branch"):
        raise BrokenLawError("M7: a branch is left")


def branch_goes_before_its_hint(stage: Stage) -> None:
    """It is deleted just before a run moves its hint, or moves it back, and stays deleted."""
    stage.tag("t", stage.commit("a"))
    for skipped, name in enumerate(("b", "c")):
        stage.branch(name, "t")
        stage.commit(f"c{name}", branch=name)
        hint = f"/branch-{name}/snapshot/EARLIEST"
        if skipped:
            stage.when("write", hint, partial(stage.tag, "late", 1, name))
        stage.when("write", hint, partial(stage.actors.drop_branch, name), skipped=skipped)
        stage.expire(branch=name)
    stage.pass_days(3)
    stage.clean()
    if stage.objects.names(f"{ROOT}/branch"):
        raise BrokenLawError("M7: a branch is left")


def branch_goes_before_its_changelogs(stage: Stage) -> None:
    """It is deleted just before a run keeps its changelogs, and before it writes the hint to them."""
    for number, part in enumerate(("changelog/changelog-1", "changelog/LATEST")):
        name = f"b{number}"
        stage.tag(f"t{number}", stage.commit("a") if number == 0 else 1)
        stage.branch(name, f"t{number}")
        stage.commit("c", branch=name)
        stage.when("write", f"/branch-{name}/{part}", partial(stage.actors.drop_branch, name))
        stage.expire(branch=name)
    stage.pass_days(3)
    stage.clean()
    if stage.objects.names(f"{ROOT}/branch"):
        raise BrokenLawError("M7: a branch is left")


def branch_goes_before_a_plan(stage: Stage) -> None:
    """It is deleted just before a run writes its plan there, and the run dies: cleaners do not mind the plan."""

    def kill() -> None:
        raise Killed

    def drop() -> None:
        stage.actors.drop_branch("b")
        stage.when("list", "/branch-b/consumer", kill)

    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c", branch="b")
    stage.when("write", "/branch-b/consumer/maintenance-", drop)
    stage.expire(branch="b")
    if not stage.laws.seen["killed"]:
        raise BrokenLawError("M7: the run has not died")
    stage.pass_days(3)
    stage.clean()


def branch_goes_before_its_schemas(stage: Stage) -> None:
    """It is deleted after a cleaner has listed it: the cleaner begins again."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.pass_days(3)
    stage.when("list", "/branch-b/schema", lambda: stage.actors.drop_branch("b"))
    stage.clean()


def cleaner_in_a_new_branch(stage: Stage) -> None:
    """A cleaner looks at a branch that is being created, before the branch has a schema."""
    stage.tag("t", stage.commit("a"))
    stage.pass_days(3)
    stage.when("write", "/branch-b/schema/schema-0", stage.clean)
    stage.create_branch("b", "t")


def cleaner_after_a_killed_branch(stage: Stage) -> None:
    """The process that creates a branch dies before the branch has a schema."""

    def kill() -> None:
        raise Killed

    stage.tag("t", stage.commit("a"))
    stage.pass_days(3)
    stage.when("write", "/branch-b/schema/schema-0", kill)
    stage.create_branch("b", "t")
    stage.clean()


def tag_goes(stage: Stage) -> None:
    """It is deleted while a branch is made of it."""
    stage.tag("t", stage.commit("a"))
    stage.when("read", "/tag/tag-t", lambda: stage.untag("t"), skipped=1)
    stage.create_branch("b", "t")


def tag_of_a_branch_goes(stage: Stage) -> None:
    """It is deleted while main is fast-forwarded to its branch."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c", branch="b")
    stage.when("write", "/consumer-pypaimon-pin", lambda: stage.actors.remove(f"{ROOT}/branch/branch-b/tag/tag-t"))
    stage.fast_forward("b")


def replacement_in_a_run(stage: Stage) -> None:
    """A branch without a common snapshot replaces what a run expires; its snapshots have the same ids."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.untag("t")
    stage.commit("x", branch="b")
    for name in "cde":
        stage.commit(name)
    stage.when("delete", "t/snapshot/snapshot-2", lambda: stage.fast_forward("b"))
    stage.expire()
    stage.fast_forward("b")
    stage.check_roots()
    if stage.actors.latest() != stage.actors.latest("b"):
        raise BrokenLawError("M4: the table does not end as its branch")


def fork_expires(stage: Stage) -> None:
    """It expires just before a fast-forward pins it."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c")
    stage.when("write", "t/consumer/consumer-pypaimon-pin", stage.expire)
    stage.fast_forward("b")


def replacement_fails(stage: Stage) -> None:
    """The store fails at each copy of a branch that replaces everything."""

    def fail() -> None:
        raise ConnectionResetError(104, "connection reset by peer")

    _replace_interrupted(stage, fail)


def replacement_killed(stage: Stage) -> None:
    """The process dies at each copy of a branch that replaces everything."""

    def kill() -> None:
        raise Killed

    _replace_interrupted(stage, kill)


def replacement_never_finished(stage: Stage) -> None:
    """The process dies, and nobody calls it again: the table goes on as it was left, and its pin holds what it did."""

    def kill() -> None:
        raise Killed

    _begin_replacement(stage)
    stage.when("write", "t/snapshot/snapshot-2", kill)
    stage.fast_forward("b")
    for name in "hij":
        stage.commit(name)
        stage.expire()
        stage.check_roots()
    pins = [path for path in stage.objects.paths() if "pypaimon-pin" in path]
    if not pins:
        raise BrokenLawError("M5: the next call does not know that another one has begun")
    for path in pins:
        stage.actors.remove(path)
    stage.actors.drop_branch("b")
    stage.pass_days(3)
    stage.clean()
    stage.expire()
    stage.check_rest(1)


def two_rollbacks(stage: Stage) -> None:
    """The second one ends first, and the snapshot expires before the first one deletes anything."""
    for name in "abc":
        stage.commit(name)

    def roll_back() -> None:
        stage.roll_back(snapshot=1)
        stage.commit("d")
        stage.commit("e")
        stage.expire()

    stage.when("read", "/consumer/consumer-pypaimon-pin-rollback", roll_back)
    stage.roll_back(snapshot=1)
    stage.check_roots()
    if stage.actors.ids() != [3]:
        raise BrokenLawError(f"M4: {stage.actors.ids()} is left of commits after a rollback")


def rollback_as_latest_in_a_rollback(stage: Stage) -> None:
    """It ends while another call, for the same snapshot, deletes the later ones, and a run begins."""
    for name in "abcde":
        stage.commit(name)

    def roll_back() -> None:
        stage.operate(Operation("roll back as latest", partial(rollback, snapshot_id=2, as_latest=True)))
        stage.expire()

    stage.when("delete", "/snapshot/snapshot-5", roll_back)
    stage.roll_back(snapshot=2)
    stage.check_roots()
    if 2 not in stage.actors.ids():
        raise BrokenLawError(f"M4: {stage.actors.ids()} is left of a rollback to 2")


def rollback_behind_a_second_run(stage: Stage) -> None:
    """A run is slow. A second one finds nothing that only the first one's plan names, and then a user rolls back."""

    def roll_back() -> None:
        stage.expire(MaintenancePolicy(min_snapshots=99))
        stage.roll_back("t")

    stage.tag("t", stage.commit("a"))
    stage.commit("b")
    stage.when("delete", "/snapshot/snapshot-1", roll_back)
    stage.expire()
    stage.check_roots()


def rollback_behind_the_same_run(stage: Stage) -> None:
    """A second run has expired what a slow one is about to, and a rollback would restore it from a tag."""

    def roll_back() -> None:
        stage.expire()
        stage.roll_back("t")

    for name in "abcd":
        stage.commit(name)
    stage.tag("t", 1)
    stage.when("delete", "/snapshot/snapshot-3", roll_back)
    stage.expire()
    stage.check_roots()


def _begin_replacement(stage: Stage) -> None:
    """A branch that has no snapshot in common with main any more, and so will replace all of it."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.untag("t")
    for name in "xy":
        stage.commit(name, branch="b")
    for name in "cdefg":
        stage.commit(name)
    stage.expire()


def _replace_interrupted(stage: Stage, interrupt: Callable[[], None]) -> None:
    _begin_replacement(stage)
    for number in (3, 2, 1):
        stage.when("write", f"t/snapshot/snapshot-{number}", interrupt)
        stage.fast_forward("b")
    stage.fast_forward("b")
    if stage.actors.ids() != [1, 2, 3]:
        raise BrokenLawError(f"M3: snapshots {stage.actors.ids()} are copied")
    if pins := [path for path in stage.objects.paths() if "pypaimon-pin" in path]:
        raise BrokenLawError(f"M7: {pins} are left")


def expires_beside_its_branch(stage: Stage) -> None:
    """A snapshot that a run keeps expires meanwhile. A branch of it stays, and needs its state, not its changelog."""
    stage.commit("a")
    stage.tag("t", stage.commit("b"))
    stage.branch("b", "t", has_changelog=False)
    stage.commit("c")
    stage.commit("d")
    two = MaintenancePolicy(min_snapshots=2, max_snapshots=2)
    stage.when("read", "/manifest/", lambda: stage.expire(two))
    stage.expire(MaintenancePolicy(min_snapshots=3, max_snapshots=3))
    stage.check_roots()


def comes_back_beside_its_branch(stage: Stage) -> None:
    """A rollback of another program restores a snapshot with its changelog just before its files are deleted."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t", has_changelog=False)
    stage.commit("c")

    def restore() -> None:
        path = f"{ROOT}/snapshot/snapshot-1"
        if path not in stage.objects:
            stage.actors.put(path, stage.objects.get(f"{ROOT}/tag/tag-t") or b"")

    stage.when("list", "/branch", restore, times=9)
    stage.expire()
    stage.check_roots()


def changelogs_of_a_killed_run(stage: Stage) -> None:
    """It has kept the newest changelog, and died before it deleted earlier snapshots: that changelog stays."""

    def kill() -> None:
        raise Killed

    for name in "abcdefgh":
        stage.commit(name)
    stage.when("delete", "/snapshot/snapshot-1", kill)
    stage.expire()
    stage.pass_days(1)
    stage.expire()
    if stage.laws.changelog_ids() != [7]:
        raise BrokenLawError(f"M2: {stage.laws.changelog_ids()} are kept")


def changelog_comes_back(stage: Stage) -> None:
    """A run is killed just after it has kept a changelog that another run has expired meanwhile, with its files."""

    def kill() -> None:
        raise Killed

    def expire() -> None:
        stage.expire(MaintenancePolicy(min_snapshots=1, max_snapshots=1, min_changelogs=2, max_changelogs=2))
        stage.when("read", "/snapshot/snapshot-1", kill)

    for name in "abcdefgh":
        stage.commit(name)
    stage.when("write", "/changelog/changelog-1", expire)
    stage.expire()
    assert stage.laws.changelog_ids() == [*range(1, 8)]
    stage.pass_days(0.02)
    stage.commit("i")
    stage.expire()
    stage.check_rest(1)
    if stage.laws.changelog_ids() != [7, 8]:
        raise BrokenLawError(f"M2: {stage.laws.changelog_ids()} are kept")


def changelog_of_a_restored_snapshot(stage: Stage) -> None:
    """A fast-forward restores a snapshot without its changelog, which is long-lived: it stays, and is not replaced."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t", has_changelog=False)
    for name in "cd":
        stage.commit(name)
    stage.expire()
    stage.fast_forward("b")
    stage.pass_days(3)
    stage.expire(MaintenancePolicy(min_snapshots=1, max_snapshots=1, orphan_age=DAY))
    stage.check_roots()
    stage.commit("e")
    stage.expire()
    stage.check_roots()
    if b"changelogManifestList" not in (stage.objects.get(f"{ROOT}/changelog/changelog-1") or b""):
        raise BrokenLawError("M2: changelog 1 is lost")


def slow_changelog_of_a_compaction(stage: Stage) -> None:
    """Another run expires it first. Its changelog is complete without any file."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.when("write", "/changelog/changelog-2", stage.expire)
    stage.expire()
    if stage.laws.changelog_ids() != [1, 2]:
        raise BrokenLawError(f"M2: {stage.laws.changelog_ids()} are kept")


def copy_fails(stage: Stage) -> None:
    """The store fails while a snapshot of a branch is copied, and the answer to a later copy is lost."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c", branch="b")
    stage.commit("d", branch="b")

    def fail() -> None:
        raise ConnectionResetError(104, "connection reset by peer")

    def fail_late() -> None:
        data = stage.objects.get(f"{ROOT}/branch/branch-b/snapshot/snapshot-3") or b""
        stage.actors.put(f"{ROOT}/snapshot/snapshot-3", data)
        fail()

    stage.when("write", "t/snapshot/snapshot-2", fail)
    stage.when("write", "t/snapshot/snapshot-3", fail_late)
    for _ in range(2):
        stage.fast_forward("b")
    if stage.laws.ids(f"{ROOT}/snapshot") != [1, 2, 3]:
        raise BrokenLawError(f"M3: snapshots {stage.laws.ids(f'{ROOT}/snapshot')} are copied")
