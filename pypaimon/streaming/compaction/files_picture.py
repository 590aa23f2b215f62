"""`picture`: the data files of buckets as bars, in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pypaimon.streaming.compaction.reports import FileCount

_MOST_BARS = 40
_COLOURS = ("#e4572e", "#f3a712", "#a8c686", "#669bbc", "#29335c", "#1b2a49")
"""Of levels, from 0 up; those above have the last one."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket.

    Attributes:
        name: Its partition and number.
        levels: Its files by level.
        due: Those that a compaction would take.
    """

    name: str
    levels: Mapping[int, FileCount]
    due: FileCount

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(each.size for each in self.levels.values())


def picture(title: str, bars: Sequence[Bar], note: str | None) -> str:
    """A bar for each bucket, as long as it has bytes, cut by levels; the buckets with most files to compact first.

    Args:
        title: What stands above.
        bars: The buckets; no more than 40 are drawn, and it is said how many are not.
        note: What stands below; None: nothing.
    """
    drawn = sorted(bars, key=lambda bar: (-bar.due.files, -bar.size))[:_MOST_BARS]
    longest = max((bar.size for bar in drawn), default=0) or 1
    rows = "".join(_row(bar, longest) for bar in drawn)
    below = [f"{len(bars) - len(drawn)} more buckets"] if len(bars) > len(drawn) else []
    below += [note] if note is not None else []
    levels = sorted({level for bar in drawn for level in bar.levels})
    legend = " ".join(f'<span style="color:{_colour(level)}">&#9632;</span> level {level}' for level in levels)
    notes = "".join(f"<div>{escape(each)}</div>" for each in below)
    return f"<div><b>{escape(title)}</b> {legend}<table>{rows}</table>{notes}</div>"


def _row(bar: Bar, longest: int) -> str:
    parts = "".join(
        f'<span title="level {level}: {_words(files)}" style="display:inline-block;height:1em;'
        f'width:{30 * files.size / longest:.2f}em;background:{_colour(level)}"></span>'
        for level, files in bar.levels.items()
    )
    files = sum(bar.levels.values(), FileCount())
    due = f"{bar.due.files} to compact" if bar.due.files else ""
    cells = [escape(bar.name), parts, _words(files), due]
    return "<tr>" + "".join(f'<td style="text-align:left;white-space:nowrap">{cell}</td>' for cell in cells) + "</tr>"


def _words(files: FileCount) -> str:
    return f"{files.files:,} file{'' if files.files == 1 else 's'}, {_size(files.size)}"


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _colour(level: int) -> str:
    return _COLOURS[min(level, len(_COLOURS) - 1)]
