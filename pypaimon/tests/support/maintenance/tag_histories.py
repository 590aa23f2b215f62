"""Histories of tags and branches in which a maintainer built like Java's loses what is needed; see `histories`."""

from __future__ import annotations

from pypaimon.streaming import MaintenancePolicy
from support.maintenance.simulated_table import ROOT, Value, parsed
from support.maintenance.stage import Stage


def tag_of_a_branch(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.tag("kept", stage.commit("x", branch="b"), "b")
    stage.compact("a x", "y", "b")
    stage.commit("z", branch="b")
    stage.expire(branch="b")


def branch_of_a_deleted_tag(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.compact("a", "c")
    stage.commit("d")
    stage.expire()
    stage.delete_tag("t")


def branch_of_a_renamed_tag(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.tag("renamed", 1)
    stage.untag("t")
    stage.compact("a", "c")
    stage.commit("d")
    stage.expire()
    stage.delete_tag("renamed")


def compaction_in_a_branch(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.untag("t")
    stage.compact("a", "c", "b")
    stage.commit("d", branch="b")
    stage.expire(branch="b")


def fork_of_a_branch(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.commit("c", branch="b")
    stage.expire(branch="b")


def merged_branch(stage: Stage) -> None:
    """Main has got the files of a branch, which compacts and expires them."""
    stage.tag("t", stage.commit("a"))
    stage.branch("b", "t")
    stage.untag("t")
    stage.commit("x", branch="b")
    stage.commit("x")
    stage.compact("x", "y", "b")
    stage.commit("z", branch="b")
    stage.expire(branch="b")


def fast_forward_hides(stage: Stage) -> None:
    """The hint of the branch hides the older snapshots of main from expiry."""
    for name in "abc":
        stage.commit(name)
    stage.tag("t", 3)
    stage.branch("b", "t")
    stage.commit("d", branch="b")
    stage.commit("e", branch="b")
    two = MaintenancePolicy(min_snapshots=2, max_snapshots=2)
    stage.expire(two, "b")
    stage.fast_forward("b")
    stage.expire(two)
    stage.check_kept(2)


def damaged_neighbour(stage: Stage) -> None:
    stage.tag("first", stage.commit("a"))
    stage.tag("second", stage.commit("b"))
    stage.compact("a b", "c")
    stage.commit("d")
    stage.expire()
    stage.spoil(f"manifest/{_read(stage, 'first')['deltaManifestList']}")
    stage.delete_tag("second")


def damaged_tag(stage: Stage) -> None:
    """What is left of its lists only deletes a file that an earlier tag holds."""
    stage.tag("first", stage.commit("a"))
    stage.tag("second", stage.compact("a", "b"))
    stage.commit("a", "b", kind="OVERWRITE")
    stage.tag("third", stage.compact("a", "c"))
    stage.commit("d")
    stage.expire()
    stage.lose(f"manifest/{_read(stage, 'third')['baseManifestList']}")
    stage.delete_tag("third")


def unreadable_tag(stage: Stage) -> None:
    _tagged(stage)
    stage.spoil("tag/tag-t")
    stage.expire()


def forbidden_tag(stage: Stage) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Access denied")

    _tagged(stage)
    stage.when("read", "/tag/tag-t", refuse, times=99)
    stage.expire()


def missing_at_first_sight(stage: Stage) -> None:
    def miss() -> None:
        raise FileNotFoundError(2, "No such object")

    _tagged(stage)
    stage.when("read", "/tag/tag-t", miss)
    stage.expire()


def skipped_tag(stage: Stage) -> None:
    _tagged(stage)
    stage.expire()


def middle_tag(stage: Stage) -> None:
    stage.tag("left", stage.commit("a"))
    stage.tag("middle", stage.commit("b"))
    stage.tag("right", stage.commit("c"))
    stage.compact("a b c", "d")
    stage.commit("e")
    stage.expire()
    stage.delete_tag("middle")


def _tagged(stage: Stage) -> None:
    stage.tag("t", stage.commit("a"))
    stage.compact("a", "b")
    stage.commit("c")


def _read(stage: Stage, name: str) -> Value:
    return parsed(stage.objects.get(f"{ROOT}/tag/tag-{name}") or b"")
