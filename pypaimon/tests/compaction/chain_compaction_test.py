"""The branches of chain tables are compacted, and a delete stays, because it deletes rows of the other branch."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pypaimon.streaming import compact, stream_read_builder
from pypaimon.streaming.compaction.partition_rescale import rescale
from pypaimon.streaming.errors import UnsupportedTableError
from support.samples import SOAK, sample_seed
from support.tables.chain_tables import DELTA, MERGED, SNAPSHOT, ChainTable, Change, read_all, two_regions
from support.tables.handles import read_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def changes(rng: Random, branch: str, sequence: int) -> list[Change]:
    kinds = ["+I"] if branch == SNAPSHOT else ["+I", "+U", "-D", "-D"]
    days = range(3) if branch == SNAPSHOT else range(2, 6)
    return [(rng.choice(kinds), "eu", rng.choice(days), rng.randrange(6), sequence) for _ in range(rng.randrange(1, 8))]


@pytest.mark.parametrize("seed", range(40 if SOAK else 3))
def test_the_chain_reads_the_same_before_and_after(tmp_path: Path, seed: int) -> None:
    rng = Random(f"{sample_seed()} {seed}")
    chain = ChainTable(tmp_path, **{"num-sorted-run.compaction-trigger": "2", "write-only": "true"})
    made = 0
    for sequence in range(12):
        branch = rng.choice([SNAPSHOT, DELTA])
        # One change for each key: those of a commit have the same sequence.
        chain.commit(branch, {each[3]: each for each in changes(rng, branch, sequence)}.values())
        if rng.random() < 0.5:
            compacted = rng.choice([SNAPSHOT, DELTA])
            if not (chain.branch_path(compacted) / "snapshot").exists():
                continue
            before = chain.latest(compacted)["id"]
            made += len(compact(chain.branch(compacted), full=rng.random() < 0.5).new_snapshot_ids)
            assert chain.latest(compacted)["id"] >= before
        for options in ({}, MERGED):
            first = read_all(chain.builder(**options))[:1]
            assert [rows for _, rows in first] == [chain.first_plan(merged=bool(options))]
    assert made


@pytest.mark.parametrize("seed", range(40 if SOAK else 1))
def test_a_delete_stays_next_to_deletion_vectors(tmp_path: Path, seed: int) -> None:
    """Readers see compacted rows only, and the deletes among them."""
    rng = Random(f"{sample_seed()} vectors {seed}")
    few = {"compaction.max-size-amplification-percent": "10000", "compaction.size-ratio": "0"}
    chain = ChainTable(tmp_path, **few, **{"deletion-vectors.enabled": "true", "write-only": "true"})
    # So many that what follows is not worth to be compacted with them.
    chain.commit(DELTA, [("-D" if key % 2 else "+I", "eu", day, key, 0) for day in range(2, 6) for key in range(300)])
    compact(chain.branch(DELTA), full=True)
    marked = 0
    for sequence in range(1, 8):
        branch = DELTA if sequence == 1 else rng.choice([SNAPSHOT, DELTA])
        chain.commit(branch, {each[3]: each for each in changes(rng, branch, sequence)}.values())
        # The first one is never full, so that it marks rows.
        assert compact(chain.branch(branch), full=rng.random() < 0.3 and sequence > 1).new_snapshot_ids
        marked += "indexManifest" in chain.latest(branch)
        for options in ({}, MERGED):
            first = read_all(chain.builder(**options))[:1]
            assert [rows for _, rows in first] == [chain.first_plan(merged=bool(options))]
    assert marked


def test_streams_of_the_delta_branch_get_no_change_twice(tmp_path: Path) -> None:
    chain = two_regions(tmp_path)
    builder = stream_read_builder(chain.branch(DELTA)).with_start("earliest").with_end(latest=True)
    before = [(row["_row_kind"], row["day"], row["k"]) for row in read_with(builder)]
    assert ("-D", 100, 3) in before
    assert compact(chain.branch(DELTA), full=True).new_snapshot_ids
    builder = stream_read_builder(chain.branch(DELTA)).with_start("earliest").with_end(latest=True)
    assert [(row["_row_kind"], row["day"], row["k"]) for row in read_with(builder)] == before
    assert not compact(chain.branch(DELTA), full=True).compacted


def test_what_would_lose_deletes_is_refused(tmp_path: Path) -> None:
    chain = two_regions(tmp_path)
    with pytest.raises(UnsupportedTableError, match="is a chain table: its deletes"):
        rescale(chain.branch(DELTA), 3)
