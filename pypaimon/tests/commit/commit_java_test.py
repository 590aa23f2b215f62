"""Java reads what is committed here, and goes on writing, compacting and expiring: manifests, compactions, upgrades."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.java.live import LiveJava
from support.java.shared_table import Shared

pytestmark = pytest.mark.java

MERGED_AT = 30


def test_java_continues_after_our_commits_and_we_after_its(java: LiveJava, tmp_path: Path) -> None:
    shared = Shared(java, tmp_path, keyed=True)
    shared.javas((1, "java"))
    first = shared.ours((100, "first"), (101, "first"))
    for number in range(MERGED_AT):
        shared.ours((number, f"ours {number}"))
    assert shared.manifests() < MERGED_AT // 2
    shared.check()
    # A file that is moved to the top level under its name.
    shared.compacted(0, first.new_files, [replace(file, level=5) for file in first.new_files])
    shared.ours((100, "again"))
    shared.javas((2, "java again"), (200, "java"))
    shared.check()
    shared.java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    shared.check()
    shared.java.call("compact", full=True, options={"write-only": "false"})
    shared.check()
    shared.ours((3, "after Java's compaction"))
    shared.check()


def test_a_compaction_of_ours_changes_nothing_for_javas_streams(java: LiveJava, tmp_path: Path) -> None:
    shared = Shared(java, tmp_path, keyed=False)
    before = [shared.ours((number, "ours")) for number in range(3)]
    after = shared.written(*((number, "ours") for number in range(3)))
    shared.javas((7, "java"))
    files = [file for message in before for file in message.new_files]
    shared.compacted(0, files, [replace(file, file_source=1) for file in after.new_files])
    shared.javas((8, "java"))
    shared.check()
    reply = shared.java.call("read", options={"scan.mode": "from-snapshot", "scan.snapshot-id": "2"})
    rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    assert sorted(int(row[-2]) for row in rows) == [1, 2, 7, 8]
    shared.java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    shared.ours((9, "ours"))
    shared.check()
