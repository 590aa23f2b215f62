"""Histories in which a maintainer built like Java's loses what is needed, or stops for ever: one for each known defect.

Each is as short as its defect. Numbers are those of Java's issues; `Mxx` is the invariant that breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.metadata.entry_kind import EntryKind
from support.crash.crashing_file_io import Killed
from support.maintenance.race_histories import (
    branch_goes,
    branch_goes_before_a_plan,
    branch_goes_before_its_changelogs,
    branch_goes_before_its_hint,
    branch_goes_before_its_schemas,
    changelog_comes_back,
    changelog_of_a_restored_snapshot,
    changelogs_of_a_killed_run,
    cleaner_after_a_killed_branch,
    cleaner_in_a_new_branch,
    comes_back_beside_its_branch,
    commit_in_a_deleted_branch,
    copy_fails,
    expires_beside_its_branch,
    fork_expires,
    hint_of_a_finished_plan,
    hint_of_a_killed_run,
    hint_of_two_runs,
    hints_of_two_runs,
    replacement_fails,
    replacement_in_a_run,
    replacement_killed,
    replacement_never_finished,
    rollback_as_latest_in_a_rollback,
    rollback_behind_a_second_run,
    rollback_behind_the_same_run,
    rollback_killed_during_a_run,
    slow_changelog_of_a_compaction,
    tag_goes,
    tag_of_a_branch_goes,
    tag_of_lost_history,
    two_rollbacks,
)
from support.maintenance.simulated_table import ROOT, Entry, parsed, upgraded
from support.maintenance.stage import Stage
from support.maintenance.tag_histories import (
    branch_of_a_deleted_tag,
    branch_of_a_renamed_tag,
    compaction_in_a_branch,
    damaged_neighbour,
    damaged_tag,
    fast_forward_hides,
    forbidden_tag,
    fork_of_a_branch,
    merged_branch,
    middle_tag,
    missing_at_first_sight,
    skipped_tag,
    tag_of_a_branch,
    unreadable_tag,
)

PRODUCED = {"changelog_producer": "input"}
_COUNTS = {
    "changelog__num_retained__max": "9", "snapshot__num_retained__max": "1", "snapshot__num_retained__min": "1",
    "changelog__num_retained__min": "1",
}  # fmt: skip
DECOUPLED = {**PRODUCED, **_COUNTS}


@dataclass(frozen=True)
class History:
    """A history.

    Attributes:
        name: What Java does, with the number of the issue if it has one.
        breaks: The invariant that Java breaks, and of what.
        play: What happens.
        options: Of the table.
        refused: Whether this library refuses to maintain such a table; otherwise it does.
        forgets: Rules that Java has by now, and did not have then.
        judges_order: Whether it counts that Java deletes files before the snapshots that name them.
    """

    name: str
    breaks: str
    play: Callable[[Stage], None]
    options: dict[str, str] = field(default_factory=dict)
    refused: bool = False
    forgets: tuple[str, ...] = ()
    judges_order: bool = False


# ---- Order, and what comes meanwhile


def files_before_snapshots(stage: Stage) -> None:
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.expire()


def tag_meanwhile(stage: Stage) -> None:
    """It is written in time: the snapshot is still there afterwards."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")

    def tag() -> None:
        if stage.objects.get(f"{ROOT}/snapshot/snapshot-1") is not None:
            stage.tag("late", 1)

    stage.when("delete", "", tag)
    stage.expire()


def consumer_meanwhile(stage: Stage) -> None:
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.when("read", "/manifest/", lambda: stage.consume("late", 2))
    stage.expire()


def cleaner_meanwhile(stage: Stage) -> None:
    """Snapshot 1 was listed, and expires before it is read; its successor was not listed."""
    stage.commit("a")
    stage.pass_days(3)

    def change() -> None:
        stage.commit("b")
        stage.actors.remove(f"{ROOT}/snapshot/snapshot-1")

    stage.when("read", "/snapshot/snapshot-1", change)
    stage.clean()


# ---- Files that come back


def added_again(stage: Stage) -> None:
    stage.commit("a")
    stage.commit("b")
    stage.compact("a b", "c")
    stage.commit("d")
    stage.commit("a b", "c d", kind="OVERWRITE")
    stage.expire(MaintenancePolicy(min_snapshots=2, max_snapshots=2))


def added_again_without_its_tag(stage: Stage) -> None:
    """A rollback as latest, whose tag goes while a snapshot is there that deletes the files."""
    stage.tag("rollback-to-as-latest", stage.commit("a"))
    stage.commit("b")
    stage.compact("a b", "c")
    stage.commit("a", "c", kind="OVERWRITE")
    stage.delete_tag("rollback-to-as-latest")
    stage.expire()


def added_before_deleted(stage: Stage) -> None:
    """A file that only changes its level, whose new entry comes first."""
    stage.commit("a")
    before = stage.file("a")
    entries = [Entry(EntryKind.ADD, upgraded(before)), Entry(EntryKind.DELETE, before)]
    stage.commit(kind="COMPACT", entries=entries)
    stage.commit("b")
    stage.expire()


def rollback_killed(stage: Stage) -> None:
    """To a tag whose snapshot has expired: a process dies before the last write."""
    stage.tag("t", stage.commit("a"))
    stage.commit("b")
    stage.expire()

    def kill() -> None:
        raise Killed

    stage.when("write", "/snapshot/snapshot-1", kill)
    try:
        stage.roll_back("t")
    except Killed:
        stage.laws.seen["killed"] += 1


# ---- Counts, gaps, positions


def gap_at_the_end(stage: Stage) -> None:
    for name in "abcdefghijkl":
        stage.commit(name)
    for number in range(4, 10):
        stage.lose(f"snapshot/snapshot-{number}")
    policy = MaintenancePolicy(min_snapshots=1, max_snapshots=1, expire_limit=5)
    for _ in range(4):
        stage.expire(policy)
    stage.check_kept(1)


def keep_none(stage: Stage) -> None:
    stage.commit("a")
    stage.commit("b")
    stage.expire(None, min_snapshots=0)


def position_without_a_file(stage: Stage) -> None:
    """A checkpoint elsewhere reads from snapshot 2 on: Java has no place to say that."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.laws.held["checkpoint"] = 1
    stage.expire(MaintenancePolicy(min_snapshots=1, max_snapshots=1, protect=(2,)))


def fingerprint_of_a_position(stage: Stage) -> None:
    """The snapshot before the one that is read next shows whether the table was rolled back meanwhile."""
    stage.commit("a")
    stage.commit("b")
    stage.commit("c")
    stage.consume("c", 3)
    stage.expire()


def idle_writer(stage: Stage) -> None:
    stage.commit("a")
    stage.commit("b")
    stage.actors.put(f"{ROOT}/consumer/sink-writer", b"{}")
    stage.consume("writer", 1)
    stage.pass_days(3)
    stage.expire_consumers()


# ---- Changelogs and the cleaner


def changelog_without_manifests(stage: Stage) -> None:
    """One changelog has lost its list: the rest of them is needed all the same."""
    for name in "abc":
        stage.commit(name)
    stage.expire()
    lost = stage.objects.get(f"{ROOT}/changelog/changelog-1") or b"{}"
    stage.lose(f"manifest/{parsed(lost)['changelogManifestList']}")
    stage.laws.forget(f"{ROOT}/changelog/changelog-1")
    stage.pass_days(3)
    stage.clean()


def changelog_of_data_files(stage: Stage) -> None:
    """Without a producer a changelog is the data files of its commit, which the deletion of a tag takes away."""
    stage.tag("t", stage.commit("a"))
    stage.compact("a", "b")
    stage.commit("c")
    stage.expire()
    stage.delete_tag("t")


def cleaner_of_main(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("x", branch="b")
    stage.pass_days(3)
    stage.clean()


def cleaner_of_an_old_listing(stage: Stage) -> None:
    """The store answers with a listing that lacks the newest snapshot."""
    stage.commit("a")
    stage.commit("b")
    stage.pass_days(3)
    stage.hide("snapshot", "snapshot-2")
    stage.clean()


def never_committed(stage: Stage) -> None:
    """Only garbage: it goes."""
    stage.actors.put(f"{ROOT}/bucket-0/data-of-nobody", b"data")
    stage.pass_days(3)
    stage.clean()
    stage.check_rest(1)


def half_expired(stage: Stage) -> None:
    """Java was killed: the oldest snapshot has no data files and no delta any more. It was hidden before."""
    for names in ("a", "b", "c"):
        stage.commit(names)
    stage.compact("a b c", "d")
    stage.commit("e")
    stage.actors.put(f"{ROOT}/snapshot/EARLIEST", b"3")
    stage.actors.remove(f"{ROOT}/snapshot/snapshot-2")
    stage.laws.forget(f"{ROOT}/snapshot/snapshot-1")
    stage.lose("manifest/manifest-list-0002")
    stage.pass_days(3)
    stage.clean()
    stage.expire()
    stage.clean()
    stage.check_rest(1)


HISTORIES = (
    History("6978: files go first", "M1: .*/data-a, .*snapshot-1", files_before_snapshots, judges_order=True),
    History("7710: references are listed once", "M1: .*, of .*snapshot-2", cleaner_meanwhile),
    History("9867: the tags of main count for every branch", "M1: .*/data-x, .*tag-kept", tag_of_a_branch),
    History("6272: a branch was made of a deleted tag", "M1: .*/data-a, .*branch-b", branch_of_a_deleted_tag),
    History("8854: a branch was made of a renamed tag", "M1: .*/data-a, .*branch-b", branch_of_a_renamed_tag),
    History("6479: a neighbour of the tag is damaged", "M1: .*/data-a, .*tag-first", damaged_neighbour, refused=True),
    History("6479: the tag is damaged", "M1: .*/data-a, .*tag-first", damaged_tag),
    History("5229: a damaged tag counts as missing", "M1: .*/data-a, .*tag-t", unreadable_tag, refused=True),
    History(
        "5237: a tag that may not be read counts as missing", "M1: .*/data-a, .*tag-t", forbidden_tag, refused=True
    ),
    History("9851: what is missing at first sight is not there", "M1: .*/data-a, .*tag-t", missing_at_first_sight),
    History("4743: a gap at the end stops expiry for ever", "M7: snapshots", gap_at_the_end),
    History("9533: a position without a file holds nothing", "M5: .*checkpoint", position_without_a_file),
    History("10088: no snapshot is kept", "M4: .*snapshot-2", keep_none, PRODUCED, refused=True),
    History(
        "7429: one changelog without a list hides the others",
        "M2: .*, of .*changelog-2",
        changelog_without_manifests,
        DECOUPLED,
        refused=True,
        forgets=("one by one",),
    ),
    History("3650: what comes meanwhile is not seen", "M1: .*/data-a, .*tag-late", tag_meanwhile),
    History("a file that came back goes", "M1: .*/data-[ab], .*snapshot-5", added_again),
    History("a file that came back goes with its tag", "M1: .*/data-a, .*snapshot-4", added_again_without_its_tag),
    History("a file that was added before it was deleted goes", "M1: .*/data-a, .*snapshot-3", added_before_deleted),
    History("a tag between the snapshots", "M1: .*/data-a, .*tag-t", skipped_tag, forgets=("tags",)),
    History("neighbours of a tag", "M1: .*/data-[ab], .*tag-(left|right)", middle_tag, forgets=("neighbours",)),
    History("a branch compacts files of main", "M1: .*/data-a, .*t/snapshot/snapshot-1", compaction_in_a_branch),
    History(
        "a branch expires its fork's changelog",
        "M1: .*/changelog-.*t/snapshot/snapshot-1",
        fork_of_a_branch,
        PRODUCED,
    ),
    History("main has the files of a branch", "M1: .*/data-x, .*t/snapshot/snapshot-2", merged_branch),
    History("the hint of a branch hides what main has", "M7: snapshots", fast_forward_hides),
    History("a rollback to a tag leaves no snapshot", "M4: .*no snapshot is left", rollback_killed),
    History("a consumer comes meanwhile", "M5: .*snapshot-[12] goes, which late", consumer_meanwhile),
    History("the snapshot before a position goes", "M5: .*snapshot-2 goes, which c needs", fingerprint_of_a_position),
    History("the consumer of an idle writer expires", "M5: consumer writer goes", idle_writer),
    History("a changelog of data files loses them", "M2: .*/data-a, .*changelog-1", changelog_of_data_files, _COUNTS),
    History("the cleaner looks at main only", "M1: .*/data-x, .*branch-b", cleaner_of_main, forgets=("branches",)),
    History("an old listing lacks a snapshot", "M1: .*/data-b, .*snapshot-2", cleaner_of_an_old_listing, refused=True),
)
"""What a maintainer built like Java's fails, and this library does not."""

HARMLESS = (
    History("a table that was never committed to", "", never_committed),
    History("a snapshot that has expired by half", "", half_expired),
    History(
        "the newest changelog of a killed run stays",
        "",
        changelogs_of_a_killed_run,
        {**DECOUPLED, "changelog__num_retained__max": "2"},
    ),
    History("two runs hide other snapshots", "", hints_of_two_runs),
    History("a changelog comes back without its files", "", changelog_comes_back, DECOUPLED),
    History("the changelog of a restored snapshot stays", "", changelog_of_a_restored_snapshot, DECOUPLED),
    History("the changelog of a compaction is kept twice", "", slow_changelog_of_a_compaction, DECOUPLED),
    History("the store fails in a fast-forward", "", copy_fails, refused=True),
    History("a snapshot expires that a branch has too", "", expires_beside_its_branch, PRODUCED),
    History("a snapshot comes back that a branch has too", "", comes_back_beside_its_branch, PRODUCED),
    History("two runs hide the same snapshots", "", hint_of_two_runs),
    History("the plan of a killed run is deleted before its snapshots", "", hint_of_a_finished_plan),
    History("a run is killed before another moves the hint back", "", hint_of_a_killed_run),
    History("a rollback is killed during a run", "", rollback_killed_during_a_run),
    History("a rollback is killed before it deletes a tag", "", tag_of_lost_history, refused=True),
    History("a branch goes while it is maintained", "", branch_goes, refused=True),
    History("a branch goes before its hint is written", "", branch_goes_before_its_hint, refused=True),
    History(
        "a branch goes before its changelogs are kept", "", branch_goes_before_its_changelogs, DECOUPLED, refused=True
    ),
    History("a writer commits while its branch is deleted", "", commit_in_a_deleted_branch),
    History("a branch goes before a plan is written", "", branch_goes_before_a_plan),
    History("a branch goes before its schemas are listed", "", branch_goes_before_its_schemas),
    History("a cleaner meets a branch that is being created", "", cleaner_in_a_new_branch),
    History("a cleaner meets a branch whose creator was killed", "", cleaner_after_a_killed_branch),
    History("a tag goes while a branch is made of it", "", tag_goes, refused=True),
    History("a fork expires before a fast-forward", "", fork_expires, refused=True),
    History("a branch replaces what a run expires", "", replacement_in_a_run, refused=True),
    History("the store fails while a branch replaces everything", "", replacement_fails, refused=True),
    History("a process dies while a branch replaces everything", "", replacement_killed),
    History("nobody finishes the replacement of everything", "", replacement_never_finished),
    History("two rollbacks at once", "", two_rollbacks, refused=True),
    History("a rollback as latest ends inside of a rollback", "", rollback_as_latest_in_a_rollback),
    History("a second run ends inside of a run, before a rollback", "", rollback_behind_a_second_run, refused=True),
    History("two runs expire the same before a rollback", "", rollback_behind_the_same_run, refused=True),
    History("a tag of a branch goes in a fast-forward", "", tag_of_a_branch_goes),
)
"""What looks like damage, and what random histories have found."""
