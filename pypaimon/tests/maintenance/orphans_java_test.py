"""Orphans are cleaned, and missing files forgotten, next to live Java 1.4: the same ones, but for what a rule names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.maintenance import remove_missing_files
from support.java.live import LiveJava
from support.maintenance.twin_kinds import KINDS
from support.maintenance.twin_roots import MAIN, Roots
from support.maintenance.twin_table import TwinTable
from support.samples import seeded, some

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

DAY = 86_400
WRITTEN = [name for name, kind in KINDS.items() if kind.written_here and kind.compacted_here]
CLEAN = MaintenancePolicy(min_snapshots=100_000, expire_limit=0, expire_tags=False, orphan_age=timedelta(days=2))
ONLY_OURS = {
    "external/": "Such a directory may belong to several tables.",
    ".managed.blob": "No manifest names the files of blobs that rows refer to. Java 1.4 does not know them.",
    "snapshot/note": "Only names with which a writer of temporary files begins are taken, of whatever directory.",
    "/_SUCCESS": "A mark of a partition that is done.",
}
"""Parts of the paths of what stays here and goes in Java, and why."""
ONLY_JAVAS = {
    "tag/.": "What a writer of tags has left; Java looks for such files where snapshots and changelogs are.",
    "consumer/.": "What a consumer has left, as that.",
}


def planted(twins: TwinTable) -> Iterator[Path]:
    """Files that nothing names, where writers, readers and users leave them."""
    homes = [path for path in twins.root.rglob("bucket-*") if path.is_dir()]
    for number, home in enumerate(homes):  # names are unique in a table
        for name in (f"data-{number}.parquet", f"data-{number}.parquet.index", f"{number}.managed.blob"):
            yield home / name
    if twins.kind.is_partitioned:
        yield from {home.parent / "_SUCCESS" for home in homes}
    names = (
        "manifest/manifest-left-0",
        "manifest/manifest-list-left-0",
        "index/index-left-0",
        "statistics/stat-left-0",
    )
    yield from (twins.path / name for name in names)
    for branch in (MAIN, *twins.branches()):
        for name in ("snapshot/.snapshot-99.x.tmp", "snapshot/note", "tag/.tag-x.tmp", "consumer/.consumer-x.tmp"):
            yield twins.home(branch) / name


def all_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", some("orphans", list(KINDS), 2))
def test_orphans_are_cleaned_as_by_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    drawn = seeded(f"orphans {kind}")
    twins = TwinTable(java, tmp_path, KINDS[kind], drawn)
    twins.live(14)
    twins.write(MAIN)
    left = [*planted(twins)]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("nothing")
    young = {path.with_name(f"{path.name}-young") for path in left}
    old = time.time() - 3 * DAY
    for path in twins.root.rglob("*"):
        os.utime(path, (old, old))
    for path in young:
        path.write_text("a commit may still name it")
    before = all_files(twins.root)
    needed = twins.left()
    with twins.both(lambda: java.call("remove_orphans", older_than=round(1000 * (time.time() - 2 * DAY)))):
        roots = Roots.of(needed.small, MAIN)
        rows = [twins.java_reads(roots), twins.ours_reads(roots)]
        maintain(twins.handle(), CLEAN)
        ours, theirs = all_files(twins.root), all_files(twins.root.parent / "aside" / "java")
        assert [twins.java_reads(roots), twins.ours_reads(roots)] == rows
    assert not twins.left().lost and {str(path.relative_to(twins.root)) for path in young} <= ours & theirs
    assert not [each for each in ours - theirs if not any(part in each for part in ONLY_OURS)]
    assert not [each for each in theirs - ours if not any(part in each for part in ONLY_JAVAS)]
    stays = {each for each in before - theirs if any(part in each for part in ONLY_OURS)}
    assert ours - theirs == stays
    # Nothing else is left that nothing needs.
    outside = {path.rpartition("/")[2] for path in before if "external/" in path}
    assert twins.left().files - needed.needed - outside <= {path.name for path in (*left, *young) if path.exists()}
    twins.go_on_with_java()
    assert not twins.left().lost
    maintain(twins.handle(), CLEAN)
    assert all_files(twins.root) == ours & theirs


@pytest.mark.parametrize("kind", some("missing", WRITTEN, 2))
def test_missing_files_are_forgotten_as_by_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    drawn = seeded(f"missing {kind}")
    twins = TwinTable(java, tmp_path, KINDS[kind], drawn)
    twins.live(8)
    for _ in range(3):
        twins.write(MAIN)
    needed = {name for name in twins.live_files() if name.endswith((".parquet", ".orc"))}
    live = {path.name: path for path in twins.root.rglob("data-*") if path.name in needed}
    gone = sorted(drawn.sample(sorted(live), 2))
    for name in gone:
        live[name].unlink()
    found: list[str] = []
    with twins.both(lambda: found.extend(java.call("remove_missing")["missing"])):
        report = remove_missing_files(twins.handle())
        ours = twins.live_files()
        rows = twins.java_reads(Roots(MAIN, twins.ids()[-1:], [], twins.ids()[-1:]))
    missing = sorted(path.rpartition("/")[2] for path in report.paths)
    assert missing == sorted(path.rpartition("/")[2] for path in found)
    assert missing == gone
    twins.go_on_with_java()
    theirs = twins.live_files()
    assert {each for each in ours if each.startswith("data-")} == {each for each in theirs if each.startswith("data-")}
    assert twins.java_reads(Roots(MAIN, twins.ids()[-1:], [], twins.ids()[-1:])) == rows
    assert remove_missing_files(twins.handle()).snapshot_id is None
