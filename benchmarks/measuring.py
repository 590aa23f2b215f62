"""Figures of a run: processor time taken in turns, and the table they are printed as."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PEER = "pypaimon"
PEER_VERSION = "pypaimon 2.1.0"
Clock = Callable[[Callable[[], object]], float]
"""Seconds of one run: `worked` or `timed`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report.

    Attributes:
        measure: What was measured.
        ours: Our value.
        unit: Of both values.
        goal: What was aimed at, in words; not shown if `met` is None.
        met: Whether it was reached; None where nothing was aimed at.
        peer: The other value, None if there is none.
        peer_name: Whose value that is.
        more_is_better: Whether a greater value is the better one (rates).
        limit: Why the goal cannot be met, with the arithmetic; shown if it is missed, and then it counts as missed.
    """

    measure: str
    ours: float
    unit: str
    goal: str
    met: bool | None
    peer: float | None = None
    peer_name: str = PEER
    more_is_better: bool = False
    limit: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; None without a peer."""
        if self.peer is None:
            return None
        better, worse = (self.ours, self.peer) if self.more_is_better else (self.peer, self.ours)
        return better / worse if worse else None


def in_turns(
    candidates: Mapping[str, Callable[[], object]], rounds: int = 5, clock: Clock | None = None
) -> dict[str, list[float]]:
    """Seconds of each candidate in several rounds, in each of which all take their turn; `worked` if not said."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            seconds[name].append((clock or worked)(run))
    return seconds


def compared(
    candidates: Mapping[str, Callable[[], object]], rounds: int = 9, clock: Clock | None = None
) -> tuple[float, float]:
    """Seconds of the first of two candidates, and how many times as long the second one takes.

    Both are medians over rounds: a round compares what ran one right after the other, so that a machine that becomes
    slower or faster meanwhile does not decide.
    """
    first, second = in_turns(candidates, rounds, clock).values()
    return median(first), median(b / a for a, b in zip(first, second, strict=True))


def worked(run: Callable[[], object]) -> float:
    """Processor seconds of one run, of all threads of this process."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run on the clock."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def text(value: float | None) -> str:
    """A value for people."""
    if value is None:
        return ""
    if value and abs(value) < 10:
        return f"{value:.2g}" if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}"


def rows(figures: list[Figure]) -> list[list[str]]:
    """The lines of the table; the first one names the columns."""
    head = ["measure", "ours", "peer", "value", "ratio", "goal", ""]
    lines = [head]
    for each in figures:
        ratio = each.ratio
        lines.append(
            [
                each.measure,
                f"{text(each.ours)} {each.unit}".strip(),
                "" if each.peer is None else each.peer_name,
                "" if each.peer is None else f"{text(each.peer)} {each.unit}".strip(),
                "" if ratio is None else f"{text(ratio)} x",
                "" if each.met is None else each.goal,
                "" if each.met is not False else f"missed: {each.limit}" if each.limit else "missed",
            ]
        )
    return lines


def markdown(figures: list[Figure]) -> str:
    """The table as Markdown, which names a measure once for all peers in a row."""
    head, *lines = rows(figures)
    named = [line[0] for line in lines]
    for line, above in zip(lines[1:], named, strict=False):
        line[0] = "" if line[0] == above else line[0]
    ruler = ["---", "---:", "---", "---:", "---:", "---", "---"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ruler, *lines]) + "\n"


def plain(figures: list[Figure]) -> str:
    """The table for a terminal."""
    lines = rows(figures)
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def highest_memory(pid: int | None = None) -> float:
    """MB that a process, by default this one, held at once.

    What `getrusage` says begins with what the process held that started it.
    """
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1e3
