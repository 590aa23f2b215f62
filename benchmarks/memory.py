"""Command: replay a table from its second snapshot; prints by how many MB memory grew after the 200th plan."""

from __future__ import annotations

import sys

import psutil

from benchmarks.tables import catalog
from pypaimon.streaming import EndOfScan, stream_read_builder

SETTLED = 200


def main(warehouse: str, name: str) -> None:
    """Read everything; the allocators have settled after some plans."""
    process = psutil.Process()
    builder = stream_read_builder(catalog(warehouse).get_table(name)).with_catch_up("replay").with_start(snapshot_id=2)
    scan, read = builder.with_end(latest=True).new_streaming_scan(), builder.new_read()
    settled = highest = plans = 0
    try:
        while True:
            plan = scan.plan()
            if plan is None:
                continue
            read.to_arrow(plan.splits())
            plans += 1
            used = process.memory_info().rss
            settled = used if plans == SETTLED else settled
            highest = max(highest, used)
    except EndOfScan:
        sys.stdout.write(f"{(highest - settled) / 1e6:.3f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
