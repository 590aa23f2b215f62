"""Command: run all measurements, print the table, write docs/benchmarks.md and its charts."""

from __future__ import annotations

import argparse
import compileall
import logging
import os
import platform
import sys
import tempfile
import textwrap
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
    maintaining,
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
    "maintenance": maintaining.figures,
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
        CHARTS[measuring.PEER]: charts.ratios(peers, f"times better than {measuring.PEER_VERSION}"),
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
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, {measuring.PEER_VERSION}"
    quiet = "Nothing else ran on the machine."
    if disturbed:
        rows = textwrap.fill(f"{'; '.join(disturbed)}.", 110)
        quiet = f"""While these rows were measured, other programs kept more than {other_load.QUIET} cores busy:
{rows}
Times on the clock (catching up, stalls, commit to rows, Spark's rates) suffer from that, processor time hardly."""
    return f"""# Benchmarks

Requests, speed and memory, compared with other readers and writers. [Flink and Java](rivals.md) are apart.

Figures of `make bench` on {day}, in {seconds:.0f} s, on {host}; {versions}.
All sides of a row ran on the same tables, by turns and warm. A ratio says how many times better ours is. The native
reader is pypaimon's stream with `scan.native-plan.enabled` and `read.native.enabled`, on pypaimon-rust.
{quiet}

![Ratios to pypaimon](benchmarks-pypaimon.svg)

![Ratios to pyarrow and pypaimon-rust](benchmarks-others.svg)

{measuring.markdown(figures)}
- An S3 server on the same machine counts the requests of the table's own FileIO, with one manifest per commit.
- Requests take {following.LATENCY_MS} ms by a pause in every call of the FileIO if pypaimon is the peer, in other
  rows by an S3 server with at most {latency.MEGABYTES_PER_SECOND} MB/s per connection, read by the extra `fast`.
- Rates are per second of processor time of all threads; on the clock where requests take {latency.LATENCY_MS} ms, for
  feeds and on Spark. Ratios to pyarrow and pypaimon-rust are medians over rounds of both.
- pyarrow is `ParquetFile.read()` of the same files and columns, on as many threads.
- Shredded maps (`shared-shredding`) have 6 out of 50 keys in each row, in 8 columns.
- The memory of large plans includes imports and splits, but not the objects of their files, which are made when they
  are asked for.
- Grown memory is what the highest resident memory rises by. Until the middle of a first plan Arrow's allocator takes
  more pages, although as many bytes are used.
- Orphan cleaning is measured without the plan of a killed run, which runs in the next 15 minutes read too.
- 20 snapshots behind are 120 requests, with `fast` 60, and those that find the window. pypaimon's stream replays here
  too, because its own catch-up gives other rows.
- A goal that was missed and cannot be met carries the reason in its row. It counts as missed.
- Spark's rates are medians of {spark_runs.ROUNDS} rounds with the same files, and for Python sources the same tasks.
  Ready-made batches are one cached batch, which is never decoded. A batch read includes its start.
  Unix sockets are those of `spark.python.unix.domain.socket.enabled`, which Spark leaves off.
- Starts of queries are processor time of all processes together, medians of {spark_source.START_ROUNDS} rounds, for
  the first query of {spark_source.FIRST_ROUNDS}.
"""


if __name__ == "__main__":
    main()
