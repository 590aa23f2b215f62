"""Command: run all measurements, print the table, write docs/benchmarks.md and its charts."""

from __future__ import annotations

import argparse
import compileall
import logging
import os
import platform
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

from benchmarks import (
    charts,
    compacting,
    feeds,
    following,
    large_plans,
    latency,
    live_tables,
    measuring,
    other_load,
    planning,
    reading,
    reading_lines,
    rust_peer,
    spark_runs,
    spark_source,
    targets,
    writing,
)

AREAS = {
    "reading": reading.figures,
    "planning": planning.figures,
    "large_plans": large_plans.figures,
    "following": following.figures,
    "latency": latency.figures,
    "writing": writing.figures,
    "compaction": compacting.figures,
    "targets": targets.figures,
    "live": live_tables.figures,
    "feeds": feeds.figures,
    "spark": spark_source.figures,
}
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REPORT = DOCS / "benchmarks.md"
CHARTS = {measuring.PEER: "benchmarks-pypaimon.svg", None: "benchmarks-others.svg"}


def main() -> None:
    """Run what is named, everything by default; the report is written of a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("areas", nargs="*", choices=[*AREAS, []], help="what to measure; default: everything")
    chosen = parser.parse_args().areas or list(AREAS)
    logging.disable(logging.WARNING)
    for name in ("streaming", "spark"):
        # As pip does with what it installs: else each process compiles what it imports where Python keeps nothing.
        compileall.compile_dir(ROOT / "pypaimon" / name, quiet=1)
    figures: list[measuring.Figure] = []
    begin = time.monotonic()
    disturbed: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen:
            others = other_load.OtherLoad()
            found = AREAS[name](Path(directory) / name)
            cores = others.cores()
            disturbed += other_load.disturbed(found, cores)
            sys.stdout.write(f"{measuring.plain(found)}\n{name}: other programs kept {cores:.2f} cores busy\n\n")
            sys.stdout.flush()
            figures += found
    seconds = time.monotonic() - begin
    sys.stdout.write(f"{len(figures)} figures in {seconds:.0f} s\n")
    if len(chosen) == len(AREAS):
        REPORT.write_text(report(figures, seconds, disturbed))
        for name, picture in pictures(figures).items():
            (DOCS / name).write_text(picture)


def pictures(figures: list[measuring.Figure]) -> dict[str, str]:
    """The charts of a run by file name: compared with pypaimon, and with all others."""
    peers = [each for each in figures if each.peer_name == measuring.PEER]
    others = [
        each
        for each in figures
        if each.peer_name in (reading_lines.PYARROW, reading_lines.NATIVE_PEER, rust_peer.name())
    ]
    return {
        CHARTS[measuring.PEER]: charts.ratios(peers, f"times better than {measuring.PEER}"),
        CHARTS[None]: charts.ratios(others, "times as fast as pyarrow and pypaimon-rust"),
    }


def report(figures: list[measuring.Figure], seconds: float, disturbed: list[str]) -> str:
    """The page of documentation for a run.

    Args:
        figures: Of all areas.
        seconds: How long it took.
        disturbed: Measures that were taken while other programs ran.
    """
    day = datetime.now(timezone.utc).date().isoformat()
    host = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, {measuring.PEER}"
    quiet = "Nothing else ran on the machine."
    if disturbed:
        quiet = f"""While these rows were measured, other programs kept more than {other_load.QUIET} cores busy:
{"; ".join(disturbed)}.
Times on the clock (catching up, stalls, commit to rows, Spark's rates) suffer from that, processor time hardly."""
    return f"""# Benchmarks

Requests, speed and memory, compared with other readers and writers.

Written by `make bench` on {day}, in {seconds:.0f} s; not edited by hand.
Machine: {host}; {versions}.
All sides of a row ran in the same run, on the same tables, by turns and warm. A ratio says how many times better ours
is. pypaimon's native reader is its own stream with `scan.native-plan.enabled` and `read.native.enabled`, on
pypaimon-rust.
{quiet}

![Ratios to pypaimon](benchmarks-pypaimon.svg)

![Ratios to pyarrow and pypaimon-rust](benchmarks-others.svg)

{measuring.markdown(figures)}
- Requests are counted by an S3 server on the same machine, with the table's own FileIO and one manifest per commit.
- Where requests take {following.LATENCY_MS} ms in a comparison with pypaimon, every call of the FileIO sleeps that long
  in addition to the local disk. In other rows an S3 server in its own process answers after that time, with at most
  {latency.MEGABYTES_PER_SECOND} MB/s per connection, and the extra `fast` is used.
- Rows and entries per second are per second of processor time, of all threads together; where requests take
  {latency.LATENCY_MS} ms, by the clock. Ratios to pyarrow and
  pypaimon-rust are medians over rounds in which both sides ran one right after the other.
- Catching up is bound by the processor here, which the server shares.
- pyarrow is `ParquetFile.read()` of the same files and columns; both decode on as many threads as Arrow has.
- Shredded maps have the storage layout `shared-shredding`: 6 out of 50 keys in each row, 8 columns.
- Large plans are made in processes of their own, whose imports count as memory; splits are made, the objects of
  their files are not.
- Of 20 snapshots behind, one request each (with `fast`) or two to a file are what is read; five more are the hint
  LATEST, the last snapshot of the window once more, and the snapshot before, once for the window and once for each of
  the two that come alone before it. The first three are needed by any window, so that 6.15 and 3.15 are the least. To
  begin it earlier would save one, and cost every stream that is caught up one at each pair of commits.
- Planning makes the objects of all files that are kept, when the files of a split are asked for; pypaimon-rust keeps
  them on its own side. Where only splits are asked for, their rows and bytes, planning is about three times as fast.
  Two fifths of what objects take is Python's garbage collector.
- All splits of a plan are made with it: 100,000 take 0.6 s of 2.9 s, and no memory at the highest, which is reached
  before, when the entries are put in order.
- Spark's rates are by the clock, medians of {spark_runs.ROUNDS} rounds in which all sides take their turn, with the
  same files; the Python sources have the same tasks too. Ready-made batches are one cached batch, handed out again and
  again: they are never decoded, so that where all cores are busy nothing that reads files is as fast. The same files
  through pyarrow are what a Python source can reach. A batch read begins with its start, which is part of it.
- Starts of queries are processor time of all processes together, medians of {spark_source.START_ROUNDS} rounds, for the
  first query of {spark_source.FIRST_ROUNDS}: pyspark out of its zip file, pyarrow, then this library and pypaimon in
  the process that is asked for the columns, in that which plans and, for the first query, in each worker.
- pypaimon's streams replay here too: its own catch-up, a difference of two states, gives other rows than Java's, so
  that it would not be the same work.
"""


if __name__ == "__main__":
    main()
