"""First plans of tables with very many files, buckets or partitions: processor time and memory of a process.

As a command it plans one table and prints processor seconds, MB at the highest, and the number of splits.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.measuring import Figure, highest_memory
from benchmarks.tables import SCHEMA, catalog, commit, create, multiply_entries, some_rows
from pypaimon.streaming import EndOfScan, stream_read_builder

FILES, PARTITIONS, BUCKETS = 1_000_000, 100, 1000
MANY_PARTITIONS = 20_000
PART = 100
RUNS = 3


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    _make(directory, "files", FILES, PARTITIONS, BUCKETS)
    _make(directory, "partitions", MANY_PARTITIONS, MANY_PARTITIONS, 1)
    seconds, memory = _measured(directory, "files", PARTITIONS * BUCKETS)
    rate = FILES / seconds
    whole, _ = _measured(directory, "partitions", MANY_PARTITIONS)
    cut, _ = _measured(directory, "partitions", MANY_PARTITIONS, PART)
    what = f"plan of {FILES:,} files in {PARTITIONS * BUCKETS:,} buckets"
    return [
        Figure(f"{what}, all kept", rate, "entries/s", "300,000/s", rate >= 300_000, more_is_better=True),
        Figure(f"{what}, memory of the process", memory, "MB", "1,000 MB", memory <= 1000),
        Figure(f"plan of {MANY_PARTITIONS:,} partitions", whole, "s", "1 s", whole <= 1),
        Figure(f"plans of {MANY_PARTITIONS:,} partitions, {PART} in each", cut, "s", "2 s", cut <= 2),
    ]


def _make(directory: Path, name: str, files: int, partitions: int, buckets: int) -> None:
    """A primary-key table `db.<name>` whose one snapshot has this many files."""
    schema = pa.schema([pa.field("p", pa.int32(), nullable=False), *SCHEMA])
    row = some_rows(1).add_column(0, schema.field(0), pa.array([0], pa.int32()))
    options = {"bucket": str(buckets)}
    table = create(catalog(directory), name, schema, partition_keys=["p"], primary_keys=["p", "id"], options=options)
    commit(table, row)
    multiply_entries(table, files, partitions, buckets)


def _measured(directory: Path, name: str, buckets: int, part: int = 0) -> tuple[float, float]:
    """Processor seconds, the median of some runs, and MB at the highest."""
    command = [sys.executable, "-m", "benchmarks.large_plans", str(directory), name, str(part)]
    runs = []
    for _ in range(RUNS):
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds, memory, splits = map(float, printed.split())
        assert splits == buckets
        runs.append((seconds, memory))
    return median(seconds for seconds, _ in runs), max(memory for _, memory in runs)


def main(warehouse: str, name: str, part: str) -> None:
    """Plan a table, as a whole or a number of splits at once."""
    table = catalog(warehouse).get_table(f"db.{name}")
    builder = stream_read_builder(table).with_end(latest=True)
    if int(part):
        builder.with_limits(max_splits=int(part))
    begin = time.process_time()
    splits = 0
    with builder.new_streaming_scan() as scan:
        try:
            while (plan := scan.plan()) is not None:
                splits += len(plan.splits())
        except EndOfScan:
            pass
    sys.stdout.write(f"{time.process_time() - begin} {highest_memory()} {splits}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
