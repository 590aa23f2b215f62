"""Random histories of live Java, expired by Java in one copy and here in the other: the same files are left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import maintain
from support.java.live import LiveJava
from support.samples import SOAK, seeded
from support.tables.named_files import files_of, needed_files

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

KEYED = {"bucket": "2"}
LONG_LIVED = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "6"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {"bucket": "1", "bucket-key": "k"}),
    "append without buckets": ([], {}),
    "keyed": (["k"], KEYED),
    "input": (["k"], {**KEYED, "changelog-producer": "input"}),
    "lookup": (["k"], {**KEYED, "changelog-producer": "lookup"}),
    "full-compaction": (["k"], {**KEYED, "changelog-producer": "full-compaction"}),
    "vectors": (["k"], {**KEYED, "deletion-vectors.enabled": "true"}),
    "dynamic buckets": (["k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "indexes": ([], {"file-index.bloom-filter.columns": "k", "file-index.in-manifest-threshold": "1 b"}),
    "partitioned": (["p", "k"], KEYED),
    "long-lived changelogs": (["k"], {**KEYED, "changelog-producer": "input", **LONG_LIVED}),
    "another directory": (["k"], {**KEYED, "data-file.path-directory": "data"}),
    "other formats": (["k"], {**KEYED, "file.format": "orc", "manifest.format": "orc"}),
}
PRODUCTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "long-lived changelogs, append": ([], {"bucket": "1", "bucket-key": "k", **LONG_LIVED}),
    "long-lived changelogs, keyed": (["k"], {**KEYED, **LONG_LIVED}),
    "long-lived changelogs, lookup": (["k"], {**KEYED, "changelog-producer": "lookup", **LONG_LIVED}),
    "lookup, vectors": (["k"], {**KEYED, "changelog-producer": "lookup", "deletion-vectors.enabled": "true"}),
    "first row": (["k"], {**KEYED, "changelog-producer": "lookup", "merge-engine": "first-row"}),
    "dynamic buckets, partitioned": (["p", "k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "indexes, keyed": (
        ["k"],
        {**KEYED, "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
    ),
}
"""What of these goes together."""
HISTORIES = 100 if SOAK else 1
"""Histories of each kind: 2,000 in the long form."""
LIVES = {"maintain": 14, "maintain on": 6} if SOAK else {"maintain": 9, "maintain on": 4}
"""Steps before each of the runs."""
KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}


class Twins:
    """A table that Java writes, and its copy; Java expires the one, and this library the other."""

    def __init__(self, java: LiveJava, directory: Path, kind: str) -> None:
        self.java = java
        self.warehouses = {who: directory / who for who in ("java", "ours")}
        keys, options = {**KINDS, **PRODUCTS}[kind]
        fields = [["k", "BIGINT NOT NULL"], ["p", "INT NOT NULL"], ["v", "INT"]]
        java.call(
            "create", warehouse=str(self.warehouses["java"]), fields=fields,
            partition_keys=["p"] if "p" in keys else [], primary_keys=keys,
            options={"snapshot.expire.limit": "0", "tag.time-expire-enabled": "false", **options},
        )  # fmt: skip
        self.tags: list[str] = []
        # Java deletes changelog files that a branch names, and the next run here leaves such a table alone.
        self.branching = not {"changelog-producer", *LONG_LIVED} & options.keys()

    def live(self, random: random.Random, steps: int) -> None:
        """Let things happen."""
        for _ in range(steps):
            what = random.choice(["write"] * 5 + ["compact", "compact", "overwrite", "tag"])
            rows = [["+I", random.randrange(9), random.randrange(2), random.randrange(99)] for _ in range(4)]
            if what in ("write", "overwrite"):
                self.java.call(what, flushes=[rows])
            elif what == "compact":
                self.java.call("compact", full=random.random() < 0.5, options={})
            elif what == "tag" and (ids := self._ids()):
                self.tags.append(f"t{len(self.tags)}")
                self.java.call("tag", name=self.tags[-1], snapshot=random.choice(ids))
                if self.branching and random.random() < 0.5:
                    self.table("java").branch_manager().create_branch(f"b-{self.tags[-1]}", self.tags[-1])

    def expire(self) -> None:
        """Copy the table, and expire both."""
        shutil.rmtree(self.warehouses["ours"], ignore_errors=True)
        shutil.copytree(self.warehouses["java"], self.warehouses["ours"])
        # What a writer of Java removes behind a commit is bounded; here it is all that is due.
        self.java.call("expire", options={**KEPT, "snapshot.expire.limit": "1000"})
        maintain(self.table("ours").copy({**KEPT, "snapshot.expire.limit": "1000"}))

    def path(self, who: str) -> Path:
        return self.warehouses[who] / "d.db" / "t"

    def table(self, who: str) -> Any:
        return CatalogFactory.create({"warehouse": str(self.warehouses[who])}).get_table("d.t")

    def small(self, who: str) -> set[str]:
        """The snapshots, changelogs and tags, by their paths."""
        path = self.path(who)
        found = (each for name in ("snapshot", "changelog", "tag") for each in (path / name).glob("*-*"))
        return {str(each.relative_to(path)) for each in found}

    def _ids(self) -> list[int]:
        return [int(path.name[9:]) for path in (self.path("java") / "snapshot").glob("snapshot-*")]


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in PRODUCTS)])
def test_the_files_that_are_left_are_those_of_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    for number in range(HISTORIES):
        twins = Twins(java, tmp_path / str(number), kind)
        for name, steps in LIVES.items():
            twins.live(seeded(f"{name} {kind} {number}"), steps)
            # An overwrite of Java leaves the changelog files that its writers make, since it commits none
            # ("Overwrite mode currently does not commit any changelog"). Nothing names them, so no expiry finds them.
            unnamed = files_of(twins.path("java")) - needed_files(twins.path("java"))
            twins.expire()
            assert twins.small("ours") == twins.small("java")
            left = files_of(twins.path("ours"))
            assert left - unnamed == needed_files(twins.path("ours"))
            # Java keeps, besides, the changelog manifests of tagged snapshots, whose changelog files it deletes.
            assert left <= files_of(twins.path("java"))
