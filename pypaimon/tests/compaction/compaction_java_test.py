"""Java goes on with what was compacted here: it reads, writes, compacts, expires, and its streams see no change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pypaimon.streaming import compact, stream_read_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.java.live import OTHER_JARS, LiveJava
from support.java.shared_table import Shared

pytestmark = pytest.mark.java

VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, dict[str, str]] = {
    "keyed": {},
    "append": {},
    "vectors": VECTORS,
    "clustered": VECTORS | {"pk-clustering-override": "true", "clustering.columns": "name"},
}
FEW = {"num-sorted-run.compaction-trigger": "3", "compaction.min.file-num": "3", "num-levels": "6"}


@pytest.mark.parametrize("kind", KINDS)
def test_java_continues_after_our_compactions(java: LiveJava, tmp_path: Path, kind: str) -> None:
    keyed = kind != "append"
    shared = Shared(java, tmp_path, keyed=keyed, **KINDS[kind])
    made = 0
    for turn in range(12):
        shared.ours((turn % 5, f"ours {turn}"), (50 + turn, "ours"))
        shared.javas((turn % 4, f"java {turn}"), (100 + turn, "java"))
        report = compact(shared.table.copy(FEW), full=turn == 7)
        made += len(report.new_snapshot_ids)
        shared.check()
        if turn in (5, 9):
            shared.java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
            shared.check()
        # Compactions of Java 1.4 find no key that is in a clustered file.
        if turn == 10 and keyed and (kind != "clustered" or OTHER_JARS):
            shared.java.call("compact", full=True, options={"write-only": "false"})
            shared.check()
    assert made > 3
    latest = TableDirectory.of(shared.table).snapshots.get_latest_snapshot()
    assert latest is not None
    reply = java.call("read", options={"scan.mode": "from-snapshot", "scan.snapshot-id": str(latest.id - 2)})
    assert reply["end"] == "waiting", reply


def test_java_expires_what_was_merged_and_keeps_the_rows(java: LiveJava, tmp_path: Path) -> None:
    options = {"changelog-producer": "lookup", "precommit-compact": "true", "bucket": "3"}
    shared = Shared(java, tmp_path, keyed=True, **options)
    for turn in range(6):
        shared.javas(*((key, f"java {turn}") for key in range(turn, turn + 9)))
        assert compact(shared.table, full=True).new_snapshot_ids
        shared.check()
    assert len(merged(shared)) == 6
    last = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    shared.java.call("expire", options=last)
    shared.check()
    assert len(merged(shared)) == 1


def merged(shared: Shared) -> list[Path]:
    root = Path(str(shared.table.table_path))
    assert not list(root.rglob("changelog-*.parquet"))
    return list(root.rglob("compacted-changelog-*"))


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_java_continues_after_postponed_rows_were_distributed(java: LiveJava, tmp_path: Path, producer: str) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "2", "changelog-producer": producer}
    shared = Shared(java, tmp_path, keyed=True, **options, **{"num-sorted-run.compaction-trigger": "3"})
    for turn in range(5):
        shared.ours((turn % 3, f"ours {turn}"), (50 + turn, "ours"))
        shared.javas((10 + turn % 3, f"java {turn}"), (100 + turn, "java"))
        compact(shared.table, full=turn == 3)
        shared.check()
        if turn == 3:
            # Java compacts real buckets under their number.
            java.call("compact", full=True, options={"write-only": "false", "bucket": "2"})
            shared.check()
    everything = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    reply = java.call("read", options=everything)
    assert reply["end"] == "waiting", reply
    theirs = [
        (row[0], int(row[-2]), row[-1]) for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]
    ]
    builder = stream_read_builder(shared.table).with_start("earliest").with_end(latest=True).with_include_row_kind()
    with builder.open_sync() as stream:
        ours = [(row["_row_kind"], row["id"], row["name"]) for batch in stream for row in batch.data.to_pylist()]
    assert sorted(ours) == sorted(theirs)
