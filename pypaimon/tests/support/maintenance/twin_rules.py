"""Where this library leaves other files than Java 1.4: each rule with its reason, and the files that it explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from support.maintenance.twin_roots import MAIN, Left, Roots

RULES = {
    "before a consumer": "The fingerprint of the snapshot before the next one of a consumer shows whether the table "
    "was rolled back. It stays as a snapshot, and so the newest long-lived changelog is one below.",
    "a consumer that appeared": "It has saved after the plan was made, before anything was deleted.",
    "another branch": "Java judges by the snapshots of the branch that expires, and by the tags of main.",
    "a tag of a branch": "Java asks only the tags of main, for all branches.",
    "came back": "A rollback as latest adds files again. Java deletes what commits in between have deleted, unless a "
    "tag holds it.",
    "until its deletion expires": "Without a producer Java keeps the data files of a long-lived changelog until that "
    "of the commit expires that has deleted them.",
    "changelogs of a branch": "Java counts the long-lived changelogs of a branch by the latest snapshot of main.",
    "a deleted branch": "Java leaves the files of a deleted branch, which maintenance here takes.",
}


@dataclass(frozen=True)
class Comparison:
    """What an expiry of Java and one of this library have left of the same table.

    Attributes:
        branch: The branch that expired.
        before: What there was.
        theirs: What Java has left.
        ours: What this library has left.
        appeared: The next snapshot of a consumer that has saved meanwhile.
        may_return: Whether an old state has been committed again.
    """

    branch: str
    before: Left
    theirs: Left
    ours: Left
    appeared: int | None = None
    may_return: bool = False

    def unexplained(self, tally: Counter[str]) -> list[str]:
        """Count the rules that explain the differences, and give what none explains."""
        found = []
        for what, rule in (*self._small(), *self._files()):
            if rule is None:
                found.append(what)
            else:
                tally[rule] += 1
        return found

    def _small(self) -> Iterator[tuple[str, str | None]]:
        for path in sorted(self.ours.small ^ self.theirs.small):
            yield f"{path} is left only by {self._owner(path in self.ours.small)}", self._rule_of_small(path)

    def _rule_of_small(self, path: str) -> str | None:
        home = "" if self.branch == MAIN else f"branch/branch-{self.branch}/"
        what, _, number = path.removeprefix(home).partition("/")[2].rpartition("-")
        if not path.startswith(home) or what not in ("snapshot", "changelog"):
            return None
        first = self.before.consumers[self.branch] - 1
        if self.appeared is not None and int(number) >= self.appeared - 1 - (what == "changelog"):
            return "a consumer that appeared"
        here = {("snapshot", first), ("changelog", first), ("changelog", first - 1)}
        if (what, int(number)) in (here if path in self.ours.small else {("changelog", first)}):
            return "before a consumer"
        if self.branch != MAIN and what == "changelog" and self._latest(MAIN) != self._latest(self.branch):
            return "changelogs of a branch"
        return None

    def _latest(self, branch: str) -> int:
        return max(Roots.of(self.before.small, branch).snapshots, default=0)

    def _files(self) -> Iterator[tuple[str, str | None]]:
        for name in sorted(self.ours.files - self.theirs.files):
            yield f"{name} of {sorted(self.ours.needers(name))} is left only by us", self._rule_of_ours(name)
        for name in sorted(self.theirs.files - self.ours.files):
            yield f"{name} of {sorted(self.before.needers(name))} is left only by Java", self._rule_of_theirs(name)

    def _rule_of_ours(self, name: str) -> str | None:
        needers = self.ours.needers(name)
        if needers and needers <= self.ours.small - self.theirs.small:
            return self._rule_of_small(min(needers))
        own = "branch/branch-" + self.branch if self.branch != MAIN else ""
        elsewhere = {each for each in needers if self._branch_of(each) != self.branch}
        if needers & self.theirs.small & elsewhere:
            return "another branch"
        if own and any(each.startswith(f"{own}/tag/") for each in needers):
            return "a tag of a branch"
        return "came back" if self.may_return and needers & self.theirs.small else None

    def _rule_of_theirs(self, name: str) -> str | None:
        needers = self.before.needers(name)
        if not needers:
            return "a deleted branch"
        kept = {_number(path): path for path in self.theirs.small - self.ours.small if "changelog/" in path}
        if {*map(_number, needers)} <= kept.keys():
            return self._rule_of_small(kept[_number(min(needers))])
        return "until its deletion expires" if name in self.theirs.deleted else None

    @staticmethod
    def _branch_of(path: str) -> str:
        return path.split("/")[1].removeprefix("branch-") if path.startswith("branch/") else MAIN

    @staticmethod
    def _owner(is_ours: bool) -> str:
        return "us" if is_ours else "Java"


def _number(path: str) -> str:
    return path.rpartition("-")[2]
