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
    "a tag of a branch": "Java asks only the tags of main when it expires snapshots of any branch.",
    "after a lost tag of a branch": "Java asks the tags of the branch when it expires long-lived changelogs. If it has "
    "lost manifests of one, by the rule before, it leaves the changelogs after it, with their files.",
    "came back": "A rollback as latest adds files again. Java deletes what commits in between have deleted, unless a "
    "tag holds it.",
    "until its deletion expires": "Without a producer Java keeps the data files of a long-lived changelog until that "
    "of the commit expires that has deleted them.",
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
        returned: The files that commits of an old state have added again.
        orphaned: The files that branches needed when they were deleted.
    """

    branch: str
    before: Left
    theirs: Left
    ours: Left
    appeared: int | None = None
    returned: frozenset[str] = frozenset()
    orphaned: frozenset[str] = frozenset()

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
        branch, what, name = _parts(path)
        if branch != self.branch or what == "tag":
            return None
        if path in self.theirs.small:
            return self._rule_of_their_changelog(int(name)) if what == "changelog" else None
        return self._rule_of_our_snapshot(int(name)) if what == "snapshot" else self._rule_of_our_changelog(int(name))

    def _rule_of_our_snapshot(self, number: int) -> str | None:
        if number == self._before_consumer:
            return "before a consumer"
        return "a consumer that appeared" if self._has_appeared_at(number) else None

    def _rule_of_our_changelog(self, number: int) -> str | None:
        following = self._path("snapshot", number + 1)
        is_newest = number == max(self._ids("changelog", self.ours))
        if is_newest and following in self.ours.small - self.theirs.small:
            # The newest one always stays; Java's is a later one.
            return self._rule_of_our_snapshot(number + 1)
        if number == self._before_consumer and self._path("snapshot", number) not in self.before.small:
            return "before a consumer"
        return "a consumer that appeared" if self._has_appeared_at(number) else None

    def _rule_of_their_changelog(self, number: int) -> str | None:
        if self._path("snapshot", number) in self.ours.small:
            return self._rule_of_our_snapshot(number)
        tags = {self.before.tagged[path]: path for path in self.before.tagged if _parts(path)[0] == self.branch}
        nearest = max((each for each in tags if each < number), default=None)
        if self.branch == MAIN or nearest is None:
            return None
        lost = self.before.needs[tags[nearest]] - self.theirs.files
        return "after a lost tag of a branch" if any(each.startswith("manifest-") for each in lost) else None

    @property
    def _before_consumer(self) -> int:
        return self.before.consumers[self.branch] - 1

    def _has_appeared_at(self, number: int) -> bool:
        return self.appeared is not None and number >= self.appeared - 1

    def _ids(self, what: str, left: Left) -> list[int]:
        roots = Roots.of(left.small, self.branch)
        return [each for each in roots.changes if self._path(what, each) in left.small]

    def _path(self, what: str, number: int) -> str:
        home = "" if self.branch == MAIN else f"branch/branch-{self.branch}/"
        return f"{home}{what}/{what}-{number}"

    def _files(self) -> Iterator[tuple[str, str | None]]:
        for name in sorted(self.ours.files - self.theirs.files):
            yield f"{name} of {sorted(self.ours.needers(name))} is left only by us", self._rule_of_ours(name)
        for name in sorted(self.theirs.files - self.ours.files):
            yield f"{name} of {sorted(self.before.needers(name))} is left only by Java", self._rule_of_theirs(name)

    def _rule_of_ours(self, name: str) -> str | None:
        needers = self.ours.needers(name)
        if needers and needers <= self.ours.small - self.theirs.small:
            return self._rule_of_small(min(needers))
        elsewhere = {each for each in needers if _parts(each)[0] != self.branch}
        if needers & self.theirs.small & elsewhere:
            return "another branch"
        if self.branch != MAIN and any(_parts(each)[:2] == (self.branch, "tag") for each in needers):
            return "a tag of a branch"
        return "came back" if name in self.returned and needers & self.theirs.small else None

    def _rule_of_theirs(self, name: str) -> str | None:
        needers = self.before.needers(name)
        if not needers and name in self.orphaned:
            return "a deleted branch"
        kept = {_place(path): path for path in self.theirs.small - self.ours.small if _parts(path)[1] == "changelog"}
        if needers and {*map(_place, needers)} <= kept.keys():
            return self._rule_of_small(kept[_place(min(needers))])
        # Nothing may need it even before, if Java has expired the table once already.
        return "until its deletion expires" if name in self.theirs.deleted else None

    @staticmethod
    def _owner(is_ours: bool) -> str:
        return "us" if is_ours else "Java"


def _parts(path: str) -> tuple[str, str, str]:
    """The branch of a snapshot, changelog or tag, which of them it is, and its number or name."""
    directory, _, file = path.rpartition("/")
    what = directory.rpartition("/")[2]
    branch = path.split("/")[1].removeprefix("branch-") if path.startswith("branch/") else MAIN
    return branch, what, file.removeprefix(f"{what}-")


def _place(path: str) -> tuple[str, str]:
    """A snapshot has the place of its changelog."""
    branch, what, name = _parts(path)
    return branch, f"tag {name}" if what == "tag" else name
