"""Figures of a run: timings taken in turns, and the table they are printed as."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

PEER = "pypaimon 2.1.0"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report.

    Attributes:
        measure: What was measured.
        ours: Our value.
        unit: Of both values.
        goal: What was aimed at, in words.
        met: Whether it was reached.
        peer: The other value, None if there is none.
        peer_name: Whose value that is.
        more_is_better: Whether a greater value is the better one (rates).
    """

    measure: str
    ours: float
    unit: str
    goal: str
    met: bool
    peer: float | None = None
    peer_name: str = PEER
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; None without a peer."""
        if self.peer is None:
            return None
        better, worse = (self.ours, self.peer) if self.more_is_better else (self.peer, self.ours)
        return better / worse if worse else None


def in_turns(candidates: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Seconds of each candidate: the median of several rounds, all candidates taking their turn in each."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: median(times) for name, times in seconds.items()}


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def text(value: float | None) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if value and abs(value) < 10:
        return f"{value:.2g}" if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}"


def rows(figures: list[Figure]) -> list[list[str]]:
    """The lines of the table; the first one names the columns."""
    head = ["measure", "ours", "beside", "value", "ratio", "goal", "met"]
    lines = [head]
    for each in figures:
        ratio = each.ratio
        lines.append(
            [
                each.measure,
                f"{text(each.ours)} {each.unit}".strip(),
                "-" if each.peer is None else each.peer_name,
                "-" if each.peer is None else f"{text(each.peer)} {each.unit}".strip(),
                "-" if ratio is None else f"{text(ratio)} x",
                each.goal,
                "yes" if each.met else "no",
            ]
        )
    return lines


def markdown(figures: list[Figure]) -> str:
    """The table as Markdown."""
    head, *lines = rows(figures)
    ruler = ["---", "---:", "---", "---:", "---:", "---", "---"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ruler, *lines]) + "\n"


def plain(figures: list[Figure]) -> str:
    """The table for a terminal."""
    lines = rows(figures)
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
