"""What the comparison with live Java found, and how much it looked at."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from support.corpus.compare import Difference


@dataclass(slots=True)
class Tally:
    """What was compared so far."""

    histories: int = 0
    steps: int = 0
    reads: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unheld: int = 0
    unreadable: Counter[str] = field(default_factory=Counter)

    def most_common(self) -> list[str]:
        """What Java refused or could not read, most often first."""
        counters = (self.refused, self.unreadable)
        return [f"{count} x {text}" for counter in counters for text, count in counter.most_common(5)]

    def __str__(self) -> str:
        return (
            f"{self.histories} histories, {self.steps} steps ({self.refused.total()} refused by Java), "
            f"{self.reads} reads ({self.unreadable.total()} that Java could not do, {self.unheld} that met "
            f"values too large for the followed schema), {self.rows} rows of Java's"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A read that is not as wanted.

    Attributes:
        variant: Settings of ours that must not change the rows, or None for the read beside Java's.
    """

    setup: dict[str, Any]
    variant: str | None
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = [f"read {json.dumps(self.setup)} {self.variant or ''}"]
        for each in self.differences:
            lines += [f"  {each.what}: {each.text}", *(f"      {line}" for line in each.lines[-60:])]
        return "\n".join(lines)
