"""Java's assigner and ours go on from each other's index files: the same hash of every type of key, one bucket each."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.java.live import LiveJava
from support.java.twins import write
from support.java.values import value
from support.tables.handles import batch_table

pytestmark = pytest.mark.java

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "STRING", "VARCHAR(5)", "BYTES", "FLOAT", "DOUBLE"),
    *("DECIMAL(10, 2)", "DECIMAL(25, 2)", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)"),
)
ROWS = 12


@pytest.mark.parametrize("all_types", [True, False])
def test_keys_that_one_has_written_are_known_to_the_other(java: LiveJava, tmp_path: Path, all_types: bool) -> None:
    types = TYPES if all_types else ("STRING",)
    fields = [[f"k{number}", f"{each} NOT NULL"] for number, each in enumerate(types)]
    options = {"bucket": "-1", "write-only": "true", "dynamic-bucket.target-row-num": "2"}
    java.call(
        "create", warehouse=str(tmp_path), fields=[*fields, ["v", "INT"]], partition_keys=[],
        primary_keys=[name for name, _ in fields], options=options,
    )  # fmt: skip
    drawn = {tuple(_key(types, number)): number for number in range(4 * ROWS)}
    keys = list(drawn)[:ROWS]

    def rows(first: int, end: int, number: int) -> list[Any]:
        return [[["+I", *keys[each % len(keys)], number] for each in range(first, end)]]

    def ours(first: int, end: int, number: int) -> None:
        table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
        write(table, rows(first, end, number), f"ours-{number}", None)

    def javas(first: int, end: int, number: int) -> None:
        java.call("write", flushes=rows(first, end, number), assigns=True)

    sizes = []
    for number, (turn, first, end) in enumerate(
        [(ours, 0, 5), (javas, 3, 8), (ours, 0, 8), (javas, 0, 9), (ours, 2, 12), (javas, 0, 12)]
    ):
        turn(first, min(end, len(keys)), number)
        sizes.append(_hashes(tmp_path))
    counts = [min(each, len(keys)) for each in (5, 8, 8, 9, 12, 12)]
    assert [sum(each.values()) for each in sizes] == counts
    assert sizes[-1] == Counter({bucket: min(2, len(keys) - 2 * bucket) for bucket in range((len(keys) + 1) // 2)})
    reply = java.call("read", options={"scan.mode": "latest-full"})
    held = [row for split in reply["plans"][0]["splits"] for row in split["rows"]]
    assert sorted(row[-1] for row in held) == [5] * len(keys)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    assert batch_table(table)["v"].to_pylist() == [5] * len(keys)


def _key(types: tuple[str, ...], number: int) -> list[Any]:
    return [value(f"{each} NOT NULL", random.Random(f"{each} {number}"), False) for each in types]


def _hashes(warehouse: Path) -> Counter[int]:
    """How many keys each bucket has, by its index file."""
    directory = TableDirectory.of(CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t"))
    state = TableState(directory, directory.snapshots.get_latest_snapshot())
    return Counter({each["_BUCKET"]: each["_ROW_COUNT"] for each in state.index})
