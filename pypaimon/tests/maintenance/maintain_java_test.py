"""Random histories of live Java and this library, expired by Java in one copy and here in the other.

The same files are left, but for what a rule names. `make differential` and `make soak` run the same tests with more
histories; the machine needs Maven and a JDK.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.maintenance import create_branch, create_tag, rewrite_manifests
from support.java.live import LiveJava
from support.maintenance.twin_kinds import KINDS
from support.maintenance.twin_roots import MAIN, Roots
from support.maintenance.twin_rules import RULES, Comparison
from support.maintenance.twin_table import TwinTable
from support.samples import drawn_kinds, histories, seeded

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

DRAWN = sorted(drawn_kinds("kinds of twins", list(KINDS), 13))
HISTORIES = histories(1, 3 * len(DRAWN))
"""Histories of each kind: 2,000 in all if `make soak` asks for 6,000."""
"""Which kinds of tables are looked at: some in the short form."""
EXPLAINED: Counter[str] = Counter()
"""How many files each rule has explained."""


@pytest.mark.parametrize("kind", DRAWN)
def test_the_files_that_are_left_are_those_of_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    for number in range(HISTORIES):
        drawn = seeded(f"maintain {kind} {number}")
        twins = TwinTable(java, tmp_path / str(number), KINDS[kind], drawn)
        twins.live(14)
        for is_last in (False, True):
            tagged = [each for each in twins.branches() if twins.tags(each)]
            branch = drawn.choice([MAIN, MAIN, *twins.branches(), *tagged])
            if not twins.ids(branch):
                twins.write(branch)
            meanwhile = drawn.choice(twins.ids(branch)) if drawn.random() < 0.15 else None
            theirs_is_whole = expire_both(twins, branch, meanwhile, reads=is_last)
            # Each goes on where the other one has expired.
            if theirs_is_whole and drawn.random() < 0.5:
                twins.go_on_with_java()
            else:
                twins.go_on()
            twins.live(6)
        twins.remove()


def expire_both(twins: TwinTable, branch: str, meanwhile: int | None, *, reads: bool = True) -> bool:
    """Compare what Java and this library leave. Returns whether Java has left what its snapshots and tags need.

    Args:
        twins: The table.
        branch: The branch that expires.
        meanwhile: A consumer saves this snapshot after the plan is made.
        reads: Whether the rows are compared too, which takes two thirds of the time.
    """
    before = twins.left()
    assert not before.lost
    # Nothing names such files, so no expiry finds them: those of a tag that Java replaced, and the changelog files of
    # an overwrite ("Overwrite mode currently does not commit any changelog").
    unnamed = before.files - before.needed
    with twins.both(partial(twins.java_expires, branch)) as theirs:
        roots = Roots.of(theirs.small, branch)
        readers = (twins.java_reads, twins.ours_reads) if reads else ()
        earlier = [read(roots) for read in readers]
        happens: Callable[[], Any] | None = None
        if meanwhile is not None:
            happens = partial(twins.put_consumer, "meanwhile", meanwhile, branch)
        twins.ours_expires(branch, happens)
        ours = twins.left()
        common = roots.common(Roots.of(ours.small, branch))
        assert [read(common) for read in readers] == [common.among(each) for each in earlier]
    assert not ours.lost
    assert ours.files - unnamed == ours.needed
    comparison = Comparison(branch, before, theirs, ours, meanwhile, twins.returned, twins.orphaned)
    assert not comparison.unexplained(EXPLAINED)
    return not theirs.lost


def test_files_that_came_back_are_kept_here_only(java: LiveJava, tmp_path: Path) -> None:
    """Without the tag of a rollback as latest, Java deletes files that the new snapshot needs."""
    twins = TwinTable(java, tmp_path, KINDS["keyed"], seeded("came back"))
    twins.write(MAIN)
    twins.write(MAIN)
    java.call("compact", full=True, options={})
    twins.commit_again(2, with_tag=False)
    for _ in range(3):
        twins.write(MAIN)
    explained = EXPLAINED["came back"]
    assert not expire_both(twins, MAIN, None), "Java has lost files"
    assert EXPLAINED["came back"] > explained


def test_a_changelog_keeps_the_manifests_of_its_base(java: LiveJava, tmp_path: Path) -> None:
    """Also if no snapshot has them any more, because they were merged."""
    twins = TwinTable(java, tmp_path, KINDS["long-lived changelogs, keyed"], seeded("base"))
    for _ in range(3):
        twins.write(MAIN)
    assert rewrite_manifests(twins.handle()).merged
    for _ in range(3):
        twins.write(MAIN)
    assert expire_both(twins, MAIN, None)


def test_a_tag_of_a_branch_is_kept_here_only(java: LiveJava, tmp_path: Path) -> None:
    """Java asks for the tags of main, whichever branch it expires."""
    twins = TwinTable(java, tmp_path, KINDS["keyed"], seeded("tag of a branch"))
    twins.write(MAIN)
    create_tag(twins.handle(), "fork")
    create_branch(twins.handle(), "b", tag="fork")
    twins.tag_branch("b")
    explained = EXPLAINED["a tag of a branch"]
    assert not expire_both(twins, "b", None), "Java has lost files"
    assert EXPLAINED["a tag of a branch"] > explained


def test_changelogs_after_a_lost_tag_of_a_branch_are_left_by_java_only(java: LiveJava, tmp_path: Path) -> None:
    """A tag of main that is the same keeps the manifests, and then Java expires those changelogs too."""
    rule = "after a lost tag of a branch"
    for is_held in (False, True):
        name = f"lost tag {is_held}"
        twins = TwinTable(java, tmp_path / name, KINDS["long-lived changelogs"], seeded(name))
        twins.write(MAIN)
        create_tag(twins.handle(), "fork")
        create_branch(twins.handle(), "b", tag="fork")
        twins.tag_branch("b")
        if is_held:
            tagged = json.loads(next(twins.home("b").glob("tag/tag-x*")).read_text())
            (twins.path / "tag" / "tag-held").write_text(json.dumps(tagged))
        for _ in range(6):
            twins.write("b")
        explained = EXPLAINED[rule]
        expire_both(twins, "b", None)
        assert (EXPLAINED[rule] > explained) == (not is_held)


def test_each_rule_explains_something() -> None:
    """After the histories of the longest form; a few do not meet each rule."""
    assert HISTORIES < 20 or RULES.keys() == EXPLAINED.keys()
