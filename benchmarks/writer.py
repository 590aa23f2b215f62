"""Command: commit one row to `db.t` of a warehouse a number of times, a number of seconds apart."""

from __future__ import annotations

import sys
import time

import pyarrow as pa

from benchmarks.tables import catalog, commit


def main(warehouse: str, commits: str, seconds: str) -> None:
    """The times between two commits differ from every poll interval that anybody would choose."""
    table = catalog(warehouse).get_table("db.t")
    due = time.monotonic()
    for number in range(int(commits)):
        due += float(seconds)
        time.sleep(max(0.0, due - time.monotonic()))
        commit(table, pa.table({"id": [number]}, schema=pa.schema([("id", pa.int64())])))


if __name__ == "__main__":
    main(*sys.argv[1:])
