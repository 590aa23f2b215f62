"""What the README takes from elsewhere, made anew by `make readme`: the picture of the demo, the measured figures."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections import deque

from repository import ROOT
from rich.console import Console
from rich.text import Text

from pypaimon.streaming.demo import Writer, create_table, follow

README, BENCHMARKS, PICTURE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "demo.svg"
BEGIN, END = "<!-- figures of docs/benchmarks.md, by `make readme` -->\n", "<!-- end of figures -->"
SHOWN = [
    ("HTTP requests, idle poll", "pypaimon"),
    ("HTTP requests, one new snapshot", "pypaimon"),
    ("HTTP requests, one new snapshot, extra fast", "pypaimon"),
    ("40 snapshots behind, 20 ms per request", "pypaimon"),
    ("read append", "pypaimon"),
    ("read append", "pyarrow"),
    ("read primary-key follow-ups", "pypaimon"),
    ("read changelog", "pypaimon"),
    ("first plan, deduplicate", "pypaimon"),
]
"""A measure, and the beginning of what it is measured beside."""


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
    """The demo, run for so long, as SVG."""
    screen = Recorder(height=20)
    with tempfile.TemporaryDirectory() as warehouse:
        table = create_table(warehouse)
        asyncio.run(follow(table, Writer(table, interval=0.3), seconds, screen))
    return screen.svg()


def figures() -> str:
    """Rows of docs/benchmarks.md as the README's table."""
    lines = BENCHMARKS.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    table = ["| | this library | beside it | |", "| --- | ---: | ---: | ---: |"]
    for measure, beside in SHOWN:
        found = [row for row in rows if row[0] == measure and row[2].startswith(beside)]
        if len(found) != 1:
            raise LookupError(f"docs/benchmarks.md has {len(found)} rows '{measure}' beside {beside}; see SHOWN")
        name, ours, other, value, ratio, *_ = found[0]
        table.append(f"| {name} | {ours} | {value} ({other}) | {ratio} |")
    return "\n".join(table) + "\n"


def with_figures(readme: str) -> str:
    """The README with the figures of now."""
    head, _, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert end, f"README.md lacks {BEGIN.strip()} or {END}"
    return head + BEGIN + figures() + end + tail


if __name__ == "__main__":
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(seconds=8), encoding="utf-8")
