"""Random histories of live Java and this library, expired by Java in one copy and here in the other.

The same files are left, but for what a rule names. `make differential` and `make soak` run the same tests with more
histories; the machine needs Maven and a JDK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

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
        for _ in range(2):
            branch = drawn.choice([MAIN, MAIN, *twins.branches()])
            if not twins.ids(branch):
                twins.write(branch)
            meanwhile = drawn.choice(twins.ids(branch)) if drawn.random() < 0.15 else None
            theirs_is_whole = expire_both(twins, branch, meanwhile)
            # Each goes on where the other one has expired.
            if theirs_is_whole and drawn.random() < 0.5:
                twins.go_on_with_java()
            else:
                twins.go_on()
            twins.live(6)
        twins.remove()


def expire_both(twins: TwinTable, branch: str, meanwhile: int | None) -> bool:
    """Compare what Java and this library leave. Returns whether Java has left what its snapshots and tags need."""
    before = twins.left()
    assert not before.lost
    # Nothing names such files, so no expiry finds them: those of a tag that Java replaced, and the changelog files of
    # an overwrite ("Overwrite mode currently does not commit any changelog").
    unnamed = before.files - before.needed
    with twins.both(partial(twins.java_expires, branch)) as theirs:
        roots = Roots.of(theirs.small, branch)
        earlier = [reads(roots) for reads in (twins.java_reads, twins.ours_reads)]
        happens: Callable[[], Any] | None = None
        if meanwhile is not None:
            happens = partial(twins.put_consumer, "meanwhile", meanwhile, branch)
        twins.ours_expires(branch, happens)
        ours = twins.left()
        common = roots.common(Roots.of(ours.small, branch))
        assert [reads(common) for reads in (twins.java_reads, twins.ours_reads)] == earlier
    assert not ours.lost
    assert ours.files - unnamed == ours.needed
    assert not Comparison(branch, before, theirs, ours, meanwhile, twins.returned).unexplained(EXPLAINED)
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


def test_each_rule_explains_something() -> None:
    """After the histories of the longest form; a few do not meet each rule."""
    assert HISTORIES < 20 or RULES.keys() == EXPLAINED.keys()
