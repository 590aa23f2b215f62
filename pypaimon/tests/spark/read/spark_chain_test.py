"""Chain tables by the source for Spark, without Spark: batches cut inside the first plan, and read again."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError, UnsupportedTableError
from support.spark.driver import Driver, Offset, batch_tasks
from support.tables.chain_tables import DELTA, MERGED, SNAPSHOT, ChainTable, two_regions

pytestmark = pytest.mark.slow


def given(chain: ChainTable, **more: str) -> dict[str, str]:
    """What the source is told."""
    spelled = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    return {"warehouse": str(chain.path.parents[1]), "table": "db.t", **spelled}


def short(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Kind, region, day, key and value of rows, sorted."""
    return sorted((row[0], row[1], row[2], row[3], row[5]) for row in rows)


@pytest.mark.parametrize("options", [{}, MERGED], ids=["apart", "merged"])
def test_batches_inside_the_first_plan_are_the_same_in_another_process(tmp_path: Path, options: dict[str, str]) -> None:
    chain = two_regions(tmp_path)
    wanted = chain.first_plan(merged=bool(options))
    driver = Driver(given(chain, maxRowsPerTrigger="1", **options))
    offsets: list[Offset] = [driver.initial()]
    batches = []
    while (end := driver.latest(offsets[-1])) != offsets[-1]:
        batches.append(driver.rows(offsets[-1], end))
        offsets.append(end)
    assert len(batches) > 2
    assert short([row for batch in batches for row in batch]) == wanted
    chain.commit(SNAPSHOT, [("+I", "eu", 300, 1, 6)])
    chain.commit(DELTA, [("+I", "eu", 301, 6, 7)])
    again = Driver(given(chain, **options))
    assert [again.rows(*pair) for pair in itertools.pairwise(offsets)] == batches
    assert short(again.rows(offsets[0], offsets[-1])) == wanted
    assert short(again.rows(offsets[-1], again.latest(offsets[-1]))) == [("+I", "eu", 301, 6, "v7")]


def test_an_empty_delta_branch_is_followed_after_the_first_plan(tmp_path: Path) -> None:
    chain = ChainTable(tmp_path)
    chain.commit(SNAPSHOT, [("+I", "eu", 1, key, 1) for key in range(3)])
    driver = Driver(given(chain))
    start, end = driver.first()
    assert short(driver.rows(start, end)) == chain.first_plan()
    chain.commit(DELTA, [("-D", "eu", 2, 1, 2)])
    driver = Driver(given(chain))
    assert short(driver.rows(end, driver.latest(end))) == [("-D", "eu", 2, 1, "v2")]


def test_states_and_ranges_are_refused_by_name(tmp_path: Path) -> None:
    chain = two_regions(tmp_path)
    for more in ({}, {"incremental-between": "0,1"}, {"scan.snapshot-id": "1"}):
        with pytest.raises((UnsupportedTableError, StreamConfigError), match=r"hain table.*'db\.t\$branch_Delta'"):
            list(batch_tasks(given(chain, **more)))
