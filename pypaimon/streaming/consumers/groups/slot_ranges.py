"""Slots as text: `0-15,40`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
MOST_SLOTS = 100_000


def slots_to_text(slots: Iterable[int]) -> str:
    """Slots as ranges, ascending."""
    parts: list[list[int]] = []
    for slot in sorted(slots):
        if parts and parts[-1][1] == slot - 1:
            parts[-1][1] = slot
        else:
            parts.append([slot, slot])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def slots_of_text(text: object) -> list[int]:
    """Read what `slots_to_text` made.

    Raises:
        ValueError: It is no list of ranges that ascends.
    """
    slots: list[int] = []
    for part in str(text).split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not (slots[-1] if slots else -1) < first <= last < MOST_SLOTS:
            raise ValueError(f"slots: expected ranges such as 0-15,40, got {text!r}")
        slots.extend(range(first, last + 1))
    return slots
