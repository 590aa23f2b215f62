"""Command: read a table step by step; prints by how many MB the highest memory grew.

`catch-up` replays it from its second snapshot: since a fifth of them was read. `first-plan` reads its full state: in
the second half of its batches. In the first one Arrow's allocator takes more pages, although as many bytes are used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.tables import catalog
from pypaimon.streaming import EndOfScan, stream_read_builder


def main(warehouse: str, name: str, what: str) -> None:
    """Read everything."""
    process = psutil.Process()
    table = catalog(warehouse).get_table(name)
    steps = _plans(table) if what == "catch-up" else _batches(table)
    used = [process.memory_info().rss for _ in steps]
    settled = used[len(used) // 5] if what == "catch-up" else max(used[: len(used) // 2])
    sys.stdout.write(f"{(max(used) - settled) / 1e6:.3f}\n")


def _plans(table: Any) -> Iterator[None]:
    builder = stream_read_builder(table).with_catch_up("replay").with_start(snapshot_id=2).with_end(latest=True)
    scan, read = builder.new_streaming_scan(), builder.new_read()
    try:
        while True:
            plan = scan.plan()
            if plan is not None:
                read.to_arrow(plan.splits())
                yield
    except EndOfScan:
        return


def _batches(table: Any) -> Iterator[None]:
    builder = stream_read_builder(table)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    for _ in builder.new_read().iter_batches(plan.splits()):
        yield


if __name__ == "__main__":
    main(*sys.argv[1:])
