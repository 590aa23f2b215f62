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

SNAPSHOT, DELTA = "snapshot", "delta"
BRANCHES = (None, SNAPSHOT, DELTA)
DAYS = [f"202601{day:02}" for day in range(1, 8)]
REGIONS = ("eu", "us")
CHAINS = {"chain-table.chain-partition-keys": "dt"}
OVERWRITES = {"streaming-read-overwrite": "true", "scan.mode": "from-snapshot", "scan.snapshot-id": "1"}

Row = list[Any]


class JavaChain:
    """A chain table that Java has made and writes: a chain of days in each region, with values of several types.

    Attributes:
        days: The last day of each region in the delta branch.
    """

    def __init__(self, java: LiveJava, warehouse: Path, rng: Random, **options: str) -> None:
        self._java, self._rng, self._warehouse = java, rng, warehouse
        self.path = warehouse / "d.db" / "t"
        self._sequence = 0
        fields = [
            ["region", "STRING NOT NULL"], ["dt", "STRING NOT NULL"], ["k", "INT NOT NULL"], ["n", "BIGINT"],
            ["v", "STRING"], ["amount", "DECIMAL(20, 3)"], ["at", "TIMESTAMP(6)"],
        ]  # fmt: skip
        java.call(
            "create", warehouse=str(warehouse), fields=fields, partition_keys=["region", "dt"],
            primary_keys=["region", "dt", "k"],
            options={
                "bucket": "2", "bucket-key": "k", "write-only": "true", "chain-table.enabled": "true",
                "sequence.field": "n", "partition.timestamp-pattern": "$dt",
                "partition.timestamp-formatter": "yyyyMMdd", **CHAINS, **options,
            },
        )  # fmt: skip
        for name in BRANCHES[1:]:
            java.call("branch", name=name)
        for branch in BRANCHES:
            changes = [["set", f"scan.fallback-{name}-branch", name] for name in BRANCHES[1:]]
            java.call("alter", changes=changes, branch=branch)

    def write(self, branch: str, region: str, day: str, count: int = 8) -> None:
        rows = []
        for key in self._rng.sample(range(12), count):
            self._sequence += 1
            kind = self._rng.choice(["+I", "+U", "-D"]) if branch == DELTA else "+I"
            number = self._sequence
            values = [f"v{number}", f"{number}.125", f"2026-01-01T00:00:00.{number:06}"]
            rows.append([kind, region, day, key, number, *values])
        self._java.call("write", branch=branch, flushes=[rows[:3], rows[3:]])

    def rows(self, branch: str | None = None, kept: Callable[[Row], bool] = lambda row: True) -> list[str]:
        """Java's batch read, of the chain if no branch is named."""
        answer = self._java.call("rows", branch=branch)
        return sorted(json.dumps(row) for row in answer["rows"] if kept(row))

    def overwrite(self, region: str, day: str) -> None:
        """What a user of Java does: INSERT OVERWRITE of the partition by its own rows."""
        rows = [json.loads(row) for row in self.rows(kept=lambda row: row[:2] == [region, day])]
        self._java.call(
            "overwrite", branch=SNAPSHOT, partition={"region": region, "dt": day},
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


@pytest.mark.parametrize("seed", range(40 if SOAK else 3))
def test_java_goes_on_as_after_its_own_insert_overwrite(java: LiveJava, tmp_path: Path, seed: int) -> None:
    rng = Random(f"{sample_seed()} {seed}")
    chain = JavaChain(java, tmp_path / "warehouse", rng)
    saved = tmp_path / "saved"
    if rng.random() < 0.7:
        chain.write(SNAPSHOT, "eu", DAYS[0])
    for number, day in enumerate(DAYS[1:]):
        for region in REGIONS:
            if rng.random() < 0.8 or number == 0:
                chain.write(DELTA, region, day)
        if rng.random() < 0.5:
            compact(chain.table(DELTA), full=True)
        region = rng.choice(REGIONS)
        merged = max(row[1] for row in map(json.loads, _of_delta(java)) if row[0] == region)
        before = chain.rows()
        # The same table twice: Java overwrites the partition, then ours merges it.
        shutil.copytree(chain.path, saved)
        chain.overwrite(region, merged)
        javas = chain.rows(), chain.rows(SNAPSHOT), chain.javas_stream(), chain.our_streams()
        shutil.rmtree(chain.path)
        saved.rename(chain.path)
        report = compact_chain_table(chain.table(), {"region": region, "dt": merged}, overwrite=True)
        assert len(report.new_snapshot_ids) <= 1 and not report.skipped
        assert chain.rows() == before
        assert (chain.rows(), chain.rows(SNAPSHOT), chain.javas_stream(), chain.our_streams()) == javas
        if rng.random() < 0.3:
            java.call("compact", branch=SNAPSHOT, full=True, options={"write-only": "false"})
            assert chain.rows() == before
    last = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    for branch in BRANCHES[1:]:
        java.call("expire", branch=branch, options=last)
    assert chain.rows() == before


def _of_delta(java: LiveJava) -> list[str]:
    answer = java.call("rows", branch=DELTA)
    return [json.dumps(row) for row in answer["rows"]]
