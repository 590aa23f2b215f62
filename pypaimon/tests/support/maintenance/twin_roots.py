"""What a table holds: its snapshots, tags and changelogs, and the files that they need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAIN = "main"


@dataclass(frozen=True)
class Left:
    """What is there after an operation.

    Attributes:
        small: The snapshots, changelogs and tags, by their paths in the table.
        files: The names of all other files.
        needs: What each of the former needs; empty if one of their manifests is missing.
        lost: What is needed and missing.
        deleted: The data files that commits have deleted whose long-lived changelogs no producer made, or will make.
        consumers: The first snapshot that a consumer of each branch reads next.
        tagged: The snapshot of each tag.
    """

    small: frozenset[str]
    files: frozenset[str]
    needs: dict[str, set[str]]
    lost: frozenset[str]
    deleted: frozenset[str]
    consumers: dict[str, int]
    tagged: dict[str, int]

    @property
    def needed(self) -> set[str]:
        """All that is needed."""
        return set().union(*self.needs.values())

    def needers(self, name: str) -> set[str]:
        """The snapshots, tags and changelogs that need a file."""
        return {root for root, names in self.needs.items() if name in names}


@dataclass(frozen=True)
class Roots:
    """The snapshots, tags and changelogs of a branch.

    Attributes:
        branch: Its name.
        snapshots: Their ids.
        tags: Their names.
        changes: Ids of the snapshots and of the changelogs.
    """

    branch: str
    snapshots: list[int]
    tags: list[str]
    changes: list[int]

    @staticmethod
    def of(small: Iterable[str], branch: str) -> Roots:
        """Those among some paths in a table."""
        home = "" if branch == MAIN else f"branch/branch-{branch}/"
        found: dict[str, list[str]] = {"snapshot": [], "tag": [], "changelog": []}
        for each in small:
            what, _, name = each.removeprefix(home).rpartition("/")
            if each.startswith(home) and what in found:
                found[what].append(name.removeprefix(f"{what}-"))
        snapshots = sorted(map(int, found["snapshot"]))
        return Roots(branch, snapshots, sorted(found["tag"]), sorted({*snapshots, *map(int, found["changelog"])}))

    def among(self, found: dict[str, Any]) -> dict[str, Any]:
        """What was read of these."""
        parts = {"snapshot": self.snapshots, "tag": self.tags, "changes": self.changes}
        names = {f"{what} {each}" for what, each_of in parts.items() for each in each_of}
        return {name: rows for name, rows in found.items() if name in names}

    def common(self, other: Roots) -> Roots:
        """What both have."""
        return Roots(
            self.branch,
            sorted({*self.snapshots} & {*other.snapshots}),
            sorted({*self.tags} & {*other.tags}),
            sorted({*self.changes} & {*other.changes}),
        )
