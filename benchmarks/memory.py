"""Command: read a table batch by batch; prints by how many MB the highest memory grew after some steps.

`catch-up` replays it from its second snapshot, `first-plan` reads its full state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.tables import catalog
from pypaimon.streaming import EndOfScan, stream_read_builder


def main(warehouse: str, name: str, what: str, steps: str) -> None:
    """Read everything; the allocators have settled after this many steps."""
    process = psutil.Process()
    settled = highest = number = 0
    table = catalog(warehouse).get_table(name)
    for number, _ in enumerate(_plans(table) if what == "catch-up" else _batches(table)):
        highest = max(highest, process.memory_info().rss)
        settled = highest if number <= int(steps) else settled
    assert number > int(steps)
    sys.stdout.write(f"{(highest - settled) / 1e6:.3f}\n")


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
