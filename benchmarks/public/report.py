"""Tables of a run: for a terminal, and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.measuring import text
from benchmarks.public.engines import Cost, medians
from benchmarks.public.python_sides import OURS

HEAD = ["", "seconds", "processor seconds", "rows per processor second", "memory", "times the processor time of ours"]


@dataclass(frozen=True)
class Section:
    """One table.

    Attributes:
        title: Above it.
        head: Names of its columns.
        lines: Its cells.
        note: Below it.
    """

    title: str
    head: list[str]
    lines: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        """For the page."""
        ruler = ["---", *["---:"] * (len(self.head) - 1)]
        drawn = "\n".join(f"| {' | '.join(line)} |" for line in (self.head, ruler, *self.lines))
        return f"## {self.title}\n\n{drawn}\n" + (f"\n{self.note}\n" if self.note else "")

    def plain(self) -> str:
        """For a terminal."""
        lines = [self.head, *self.lines]
        widths = [max(len(line[index]) for line in lines) for index in range(len(self.head))]
        drawn = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([self.title, *drawn, self.note]).rstrip()


def compared(title: str, costs: dict[str, list[Cost]], rows: int, note: str = "") -> Section:
    """What the same work cost each side, medians over rounds; ratios are medians of those of a round."""
    lines = []
    for side, rounds in costs.items():
        found = medians(rounds)
        ratio = median(each.processor / ours.processor for each, ours in zip(rounds, costs[OURS], strict=True))
        # A short form may give less than the start of a job that is taken off.
        rate = f"{text(rows / found.processor / 1e6)} M" if found.processor > 0 else "-"
        times = "" if side == OURS else f"{text(ratio)} x"
        seconds = [text(found.seconds), text(found.processor)]
        lines.append([side, *seconds, rate, f"{found.memory:,.0f} MB", times])
    return Section(title, HEAD, lines, note)
