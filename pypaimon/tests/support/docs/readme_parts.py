"""What the README takes from elsewhere, made anew by `make readme`: the picture of the demo, the measured figures."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections import deque
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.demo import Writer, create_table, follow
from support.repository import ROOT

README, BENCHMARKS, PICTURE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "demo.svg"
RIVALS = ROOT / "docs" / "rivals.md"
BEGIN, END = "<!-- figures of docs/rivals.md and docs/benchmarks.md, by `make readme` -->\n", "<!-- end of figures -->"
SHOWN = (
    "HTTP requests, one new snapshot, extra fast",
    "40 snapshots behind, 20 ms per request",
    "first plan, deduplicate",
)
"""Measures."""
PEERS = {
    "pypaimon": "times pypaimon 2.1",
    "native reader": "its native reader",
    "pyarrow": "pyarrow",
}
"""The columns: beside whom, and what stands above them."""


class Recorder:
    """A screen of the demo that keeps its last lines, to draw them."""

    def __init__(self, height: int) -> None:
        self._lines: deque[Text] = deque(maxlen=height)
        self._status = Text("")

    def line(self, text: str, style: str = "") -> None:
        self._lines.append(Text(text, style=style))

    def status(self, text: str) -> None:
        self._status = Text(text, style="bold cyan")

    def close(self) -> None:
        return

    def svg(self) -> str:
        """The lines, and the status below them; fonts are those of who looks at it."""
        console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        for text in (*self._lines, self._status):
            console.print(text)
        drawing = console.export_svg(title="make demo")
        return re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL) + "\n"


def picture(seconds: float) -> str:
    screen = Recorder(height=20)
    with tempfile.TemporaryDirectory() as warehouse:
        table = create_table(warehouse)
        with stream_write_builder(table).open_sync() as opened:
            asyncio.run(follow(table, Writer(table, opened, interval=0.3), seconds, screen))
    return screen.svg()


def figures(page: str) -> str:
    """Rows of docs/benchmarks.md as the README's table, and below it the goals that were missed."""
    lines = (line for line in page.splitlines() if line.startswith("|"))
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines][2:]
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]
    table = [["", "this library", *PEERS.values()], ["---", *["---:"] * (1 + len(PEERS))]]
    for measure in SHOWN:
        found = {row[2]: row for row in rows if row[0] == measure}
        if not found:
            raise LookupError(f"docs/benchmarks.md has no row '{measure}'; see SHOWN")
        (_, ours, *_), *_ = found.values()
        table.append([measure, ours, *(found[peer][4] if peer in found else "-" for peer in PEERS)])
    failed = {
        name: f"{name}: {ours}{f', {ratio} {beside}' if ratio else ''} ({goal}){missed.removeprefix('missed')}"
        for name, ours, beside, _, ratio, goal, missed in rows
        if missed
    }
    barred = sum(": " in last for last in {row[0]: row[6] for row in rows if row[6]}.values())
    known = {row[0] for row in rows if row[5]}
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in table)
    why = f"; {barred} of these goals cannot be met, for the reason that follows" if barred else ""
    text = f"Missed: {len(failed)} of {len(known)} measures with a goal, which stands in brackets{why}"
    listed = "".join(f"<li>{each}</li>" for each in failed.values())
    return f"{drawn}\n\n<details><summary>{text}</summary><ul>{listed}</ul></details>\n"


def rivals(page: str) -> str:
    """Rows per second of processor time, of each side that reads, out of docs/rivals.md."""
    found: dict[str, dict[str, str]] = {}
    for title, table in re.findall(r"^## Read: (.+)\n\n((?:\|.+\n)+)", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]
        found[title] = {row[0]: row[3] for row in rows}
    if not found:
        raise LookupError("docs/rivals.md has no table of reading")
    sides = [side for side in next(iter(found.values())) if not side.endswith(", whole")]
    table = [["rows per second of processor time", *sides], ["---", *["---:"] * len(sides)]]
    table += [[title, *(rates[side] for side in sides)] for title, rates in found.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def with_figures(readme: str) -> str:
    head, _, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert end, f"README.md lacks {BEGIN.strip()} or {END}"
    shown = figures(BENCHMARKS.read_text(encoding="utf-8"))
    return head + BEGIN + rivals(RIVALS.read_text(encoding="utf-8")) + "\n" + shown + end + tail


if __name__ == "__main__":
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(seconds=8), encoding="utf-8")
