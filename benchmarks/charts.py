"""Charts of a run as SVG: how many times better ours is, on a logarithmic scale.

A label is above its bar, so that no label is too long for the picture, and a phone shows both.
"""

from __future__ import annotations

import math
from html import escape

from benchmarks.measuring import Figure, text

_WIDTH, _VALUE, _ROW, _TOP = 500, 70, 32, 46
_COLOURS = {True: "#2a7de1", False: "#d9822b"}
_STYLE = "text{font:12px sans-serif;fill:#57606a} .value{font-weight:600}"


def ratios(figures: list[Figure], title: str) -> str:
    """A bar for each figure with a ratio: blue to the right where ours is better, else orange to the left."""
    shown = [(each, ratio) for each in figures if (ratio := each.ratio)]
    logs = [math.log10(ratio) for _, ratio in shown]
    low, high = min([0.0, *logs]), max([0.5, *logs])
    scale = (_WIDTH - _VALUE) / (high - low)
    zero = -low * scale
    several = len({each.peer_name for each, _ in shown}) > 1
    lines = [f'<text x="0" y="16" class="value">{escape(title)}</text>']
    powers = range(math.ceil(low), math.floor(high) + 1)
    lines += [_grid(zero + power * scale, f"{10.0**power:g} x", _TOP + len(shown) * _ROW) for power in powers]
    for row, ((each, ratio), log) in enumerate(zip(shown, logs, strict=True)):
        label = f"{each.measure}, {each.peer_name}" if several else each.measure
        lines.append(_bar(label, ratio, _TOP + row * _ROW, zero, log * scale))
    height = _TOP + len(shown) * _ROW + 8
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f"<style>{_STYLE}</style>", *lines, "</svg>"]) + "\n"


def _grid(x: float, label: str, bottom: int) -> str:
    line = f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 8}" y2="{bottom}" stroke="#d0d7de"/>'
    return f'{line}<text x="{x:.0f}" y="{_TOP - 11}" text-anchor="{"middle" if x else "start"}">{label}</text>'


def _bar(measure: str, ratio: float, y: int, zero: float, length: float) -> str:
    left, width = min(zero, zero + length), max(abs(length), 1.0)
    colour = _COLOURS[ratio >= 1]
    label = f'<text x="0" y="{y + 12}">{escape(measure)}</text>'
    bar = f'<rect x="{left:.1f}" y="{y + 16}" width="{width:.1f}" height="11" rx="2" fill="{colour}"/>'
    value = f'<text x="{max(zero, zero + length) + 5:.0f}" y="{y + 26}" class="value">{text(ratio)} x</text>'
    return label + bar + value
