"""Command: the same work by this library and by real engines; prints tables, and writes docs/rivals.md in full size."""

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

from benchmarks import measuring, other_load
from benchmarks.public import day, engines, freshness, nexmark, reading, writing
from benchmarks.public.report import Section
from support.java.live import missing_commands

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rivals.md"
AREAS = {
    "reading": reading.sections,
    "writing": writing.sections,
    "freshness": freshness.sections,
    "nexmark": nexmark.sections,
    "day": day.sections,
}


def main() -> None:
    """Run what is named, everything by default; the page is written of a whole run in full size only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public", description=__doc__)
    parser.add_argument("areas", nargs="*", choices=[*AREAS, []], help="what to measure; default: everything")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes, 0.01 to 1; default: 1")
    parser.add_argument("--page", type=Path, help="where the page is written; default: docs/rivals.md, in full size")
    arguments = parser.parse_args()
    if not 0.01 <= arguments.scale <= 1:
        parser.error(f"argument --scale: expected 0.01 to 1, got {arguments.scale:g}")
    if missing := missing_commands():
        parser.error(f"needs Maven and a JDK 17 or newer: not found on the path: {', '.join(missing)}")
    if platform.system() != "Linux":
        parser.error("reads memory and processor time of processes from /proc, so that it runs on Linux only")
    logging.disable(logging.WARNING)
    compileall.compile_dir(ROOT / "pypaimon" / "streaming", quiet=1)
    full = arguments.scale == 1 and not arguments.areas
    run(arguments.areas or list(AREAS), arguments.scale, arguments.page or (PAGE if full else None))


def run(areas: list[str], scale: float, target: Path | None) -> None:
    """Measure, show each table as soon as it is there, and write all of them into a page, if one is given."""
    begin, others, sections = time.monotonic(), other_load.OtherLoad(), []
    with engines.engines() as sides, tempfile.TemporaryDirectory() as directory:
        sections.append(starts(sides))
        for area in areas:
            for section in AREAS[area](sides, Path(directory) / area, scale):
                sections.append(section)
                sys.stdout.write(f"{section.plain()}\n\n")
                sys.stdout.flush()
    seconds, cores = time.monotonic() - begin, others.cores()
    sys.stdout.write(f"{sections[0].plain()}\n\n{seconds:.0f} s; other programs kept {cores:.2f} cores busy\n")
    if target is not None:
        target.write_text(page(sections, seconds, cores, scale))


def starts(sides: dict[str, engines.Engine]) -> Section:
    """What it costs to start each engine, which no other table holds."""
    lines = [
        [name, measuring.text(side.started.seconds), measuring.text(side.started.processor)]
        for name, side in sides.items()
    ]
    return Section("Start of each process", ["", "seconds", "processor seconds"], lines)


def page(sections: list[Section], seconds: float, cores: float, scale: float) -> str:
    """The page of documentation for a run.

    Args:
        sections: Its tables.
        seconds: How long it took.
        cores: How many cores other programs kept busy meanwhile.
        scale: Of its sizes.
    """
    day = datetime.now(timezone.utc).date().isoformat()
    host = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, {measuring.PEER_VERSION}"
    drawn = "\n".join(section.markdown() for section in sections)
    size = "" if scale == 1 else f"This is a short form: sizes are {scale:g} of the full ones. "
    return f"""# Next to other engines

The same work by this library, by Flink and Java, and by other readers of Python.

Figures of `make bench-public` on {day}, in {seconds:.0f} s, on {host};
{versions}, Paimon 1.4.2 for Java and Flink 2.0.
All sides of a table take turns in processes that are kept: {engines.WARM} rounds warm them up, and figures are
medians of {engines.ROUNDS} more. Times and memory are of all processes of a side. JVMs have {engines.HEAP} and
all compilers. {size}Other programs kept {cores:.2f} cores busy.

Paimon's connector for Spark is not measured: its newest release is for Spark 4.0, and this library needs 4.2.

{drawn}"""


if __name__ == "__main__":
    main()
