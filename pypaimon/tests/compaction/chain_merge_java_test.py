"""Java reads a chain table as before after a merge of ours, and goes on as after its own INSERT OVERWRITE."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamReadBuilder, compact, stream_read_builder
from pypaimon.streaming.compaction import compact_chain_table
from support.java.live import LiveJava
from support.samples import SOAK, sample_seed
from support.tables.handles import read_with

pytestmark = [pytest.mark.java, pytest.mark.soak]

Row = list[Any]
Partition = tuple[str, str]

SNAPSHOT, DELTA = "snapshot", "delta"
BRANCHES = (None, SNAPSHOT, DELTA)
TIMES, PATTERN = "partition.timestamp-formatter", "partition.timestamp-pattern"
KINDS: dict[str, tuple[list[str], dict[str, str], list[list[Partition]]]] = {
    "a chain of days for each region": (
        ["region", "dt"],
        {PATTERN: "$dt", TIMES: "yyyyMMdd", "chain-table.chain-partition-keys": "dt"},
        [[("eu", f"202601{day:02}"), ("us", f"202601{day:02}")] for day in range(1, 5)],
    ),
    "one chain of hours": (
        ["dt", "hh"],
        {PATTERN: "$dt $hh", TIMES: "yyyyMMdd HH"},
        [[("20260131", "22")], [("20260131", "23")], [("20260201", "00")], [("20260201", "02")], [("20260202", "01")]],
    ),
}
"""Partition columns, options, and the partitions that are written one after the other."""
OVERWRITES = {"streaming-read-overwrite": "true", "scan.mode": "from-snapshot", "scan.snapshot-id": "1"}


class JavaChain:
    """A chain table that Java has made and writes, with values of several types."""

    def __init__(self, java: LiveJava, warehouse: Path, rng: Random, keys: list[str], options: dict[str, str]) -> None:
        self._java, self._rng, self._warehouse, self._keys = java, rng, warehouse, keys
        self.path = warehouse / "d.db" / "t"
        self._sequence = 0
        fields = [
            *([key, "STRING NOT NULL"] for key in keys), ["k", "INT NOT NULL"], ["n", "BIGINT"],
            ["v", "STRING"], ["amount", "DECIMAL(20, 3)"], ["at", "TIMESTAMP(6)"],
        ]  # fmt: skip
        java.call(
            "create", warehouse=str(warehouse), fields=fields, partition_keys=keys,
            primary_keys=[*keys, "k"],
            options={
                "bucket": "2", "bucket-key": "k", "write-only": "true", "chain-table.enabled": "true",
                "sequence.field": "n", **options,
            },
        )  # fmt: skip
        for name in BRANCHES[1:]:
            java.call("branch", name=name)
        for branch in BRANCHES:
            changes = [["set", f"scan.fallback-{name}-branch", name] for name in BRANCHES[1:]]
            java.call("alter", changes=changes, branch=branch)

    def write(self, branch: str, partition: Partition) -> None:
        rows = []
        for key in self._rng.sample(range(12), 8):
            self._sequence += 1
            kind = self._rng.choice(["+I", "+U", "-D"]) if branch == DELTA else "+I"
            number = self._sequence
            values = [f"v{number}", f"{number}.125", f"2026-01-01T00:00:00.{number:06}"]
            rows.append([kind, *partition, key, number, *values])
        self._java.call("write", branch=branch, flushes=[rows[:3], rows[3:]])

    def rows(self, branch: str | None = None, kept: Callable[[Row], bool] = lambda row: True) -> list[str]:
        """Java's batch read, of the chain if no branch is named."""
        answer = self._java.call("rows", branch=branch)
        return sorted(json.dumps(row) for row in answer["rows"] if kept(row))

    def named(self, partition: Partition) -> dict[str, str]:
        return dict(zip(self._keys, partition, strict=True))

    def overwrite(self, partition: Partition) -> None:
        """What a user of Java does: INSERT OVERWRITE of the partition by its own rows."""
        rows = [json.loads(row) for row in self.rows(kept=lambda row: row[:2] == list(partition))]
        self._java.call(
            "overwrite", branch=SNAPSHOT, partition=self.named(partition),
            flushes=[[["+I", *row] for row in rows]],
        )  # fmt: skip

    def javas_stream(self) -> list[str]:
        """What Java's stream of the snapshot branch hands out, overwrites too."""
        answer = self._java.call("read", branch=SNAPSHOT, options=OVERWRITES)
        assert answer["end"] == "waiting", answer
        return sorted(
            json.dumps(row) for plan in answer["plans"] for split in plan["splits"] for row in split["rows"]
        )  # fmt: skip

    def our_streams(self) -> list[list[str]]:
        """What streams of ours hand out: of the chain, merged and not, and of the snapshot branch with overwrites."""
        table = self.table()
        branch = self.table(SNAPSHOT).copy({"streaming-read-overwrite": "true"})
        return [
            _read(stream_read_builder(table), with_kinds=False),
            _read(stream_read_builder(table.copy({"chain-table.streaming.merge-snapshot": "true"})), with_kinds=False),
            _read(stream_read_builder(branch).with_start("earliest"), with_kinds=True),
        ]

    def table(self, branch: str | None = None) -> Any:
        catalog = CatalogFactory.create({"warehouse": str(self._warehouse)})
        return catalog.get_table("d.t" if branch is None else f"d.t$branch_{branch}")


def _read(builder: StreamReadBuilder, *, with_kinds: bool) -> list[str]:
    found = read_with(builder.with_include_row_kind(with_kinds).with_end(latest=True))
    return sorted(json.dumps(list(row.values()), default=str) for row in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40 if SOAK else 1))
def test_java_goes_on_as_after_its_own_insert_overwrite(java: LiveJava, tmp_path: Path, kind: str, seed: int) -> None:
    rng = Random(f"{sample_seed()} {seed} {kind}")
    keys, options, (first, *others) = KINDS[kind]
    chain, saved = JavaChain(java, tmp_path / "warehouse", rng, keys, options), tmp_path / "saved"
    chain.write(rng.choice([SNAPSHOT, DELTA]), first[0])
    for written in others:
        for partition in written:
            chain.write(DELTA, partition)
        if rng.random() < 0.5:
            compact(chain.table(DELTA), full=True)
        merged, before = rng.choice(written), chain.rows()
        # The same table twice: Java overwrites the partition, then ours merges it.
        shutil.copytree(chain.path, saved)
        chain.overwrite(merged)
        javas = chain.rows(), chain.rows(SNAPSHOT), chain.javas_stream(), chain.our_streams()
        shutil.rmtree(chain.path)
        saved.rename(chain.path)
        has_rows = any(json.loads(row)[:2] == list(merged) for row in before)
        assert len(compact_chain_table(chain.table(), chain.named(merged)).new_snapshot_ids) == has_rows
        assert chain.rows() == before
        assert (chain.rows(), chain.rows(SNAPSHOT), chain.javas_stream(), chain.our_streams()) == javas
        if rng.random() < 0.3:
            java.call("compact", branch=SNAPSHOT, full=True, options={"write-only": "false"})
            assert chain.rows() == before
    last = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    for branch in BRANCHES[1:]:
        java.call("expire", branch=branch, options=last)
    assert chain.rows() == before
    # An INSERT OVERWRITE of the delta branch takes the partition out of the snapshot branch.
    row = [*merged, 99, 10**6, "new", "1.000", "2026-02-01T00:00"]
    java.call("overwrite", branch=DELTA, partition=chain.named(merged), flushes=[[["+I", *row]]])
    assert not [each for each in chain.rows(SNAPSHOT) if json.loads(each)[:2] == list(merged)]
    before = chain.rows()
    assert [each for each in before if json.loads(each)[:3] == [*merged, 99]]
    assert compact_chain_table(chain.table(), chain.named(merged)).new_snapshot_ids
    assert chain.rows() == before
