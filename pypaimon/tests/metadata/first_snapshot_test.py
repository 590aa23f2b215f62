"""The first snapshot of a table follows none, so nothing reads its empty base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import IncrementalDiffScanner, StreamReadBuilder, compact
from pypaimon.streaming.cli.explain import pruned
from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.write_state import write_state
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


def _pruned(handle: Any) -> Any:
    builder = StreamReadBuilder(handle).with_start("latest-full")
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
    assert plan is not None
    return pruned(handle, plan, None).manifests


@pytest.mark.parametrize(
    "read",
    [
        lambda handle: compact(handle, dry_run=True).snapshot_id,
        lambda handle: write_state(PaimonTable(handle)).snapshot,
        lambda handle: len(IncrementalDiffScanner(handle).compute_diff(1, 1)) + 1,
        _pruned,
        lambda handle: commit_batch(PaimonTable(handle), [], overwrite=True).snapshot_id and 1,
    ],
    ids=["compaction", "writer", "difference", "explanation", "commit"],
)
def test_nobody_asks_for_the_base_of_the_first_snapshot(tmp_path: Path, read: Callable[[Any], int]) -> None:
    table = Table(tmp_path, bucket="2", bucket_key="k").commit_each([1])
    (table.path / "manifest" / table.snapshot(1)["baseManifestList"]).unlink()
    assert read(table.handle()) == 1
