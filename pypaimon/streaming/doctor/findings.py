"""`Finding` and `Diagnosis`: what the checks report about a table; and numbers in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any


class Level(str, Enum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a table.

    Attributes:
        level: OK: as expected. NOTE: worth knowing. WARNING: will be a problem later. PROBLEM: is a problem now.
        text: The fact, in one sentence.
        advice: What to do about it; empty if nothing needs to be done.
        facts: The fact for programs: names, ids, counts.
        check: Name of the check that reports it.
    """

    level: Level
    text: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    check: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of all checks of a table.

    Attributes:
        table: Name of the table.
        findings: The findings, in the order of the checks.
        requests: The number of requests that were made, by kind.
    """

    table: str
    findings: tuple[Finding, ...]
    requests: Mapping[str, int]

    @property
    def is_healthy(self) -> bool:
        """Whether no finding is a problem. There may be warnings."""
        return all(finding.level is not Level.PROBLEM for finding in self.findings)


def count(number: int, what: str) -> str:
    """A number of things, in words: `1 file`, `2,000 branches`."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def age(millis: float) -> str:
    """A duration in words: `5 s`, `2:05:00`, `3 days, 1:00:00`."""
    seconds = max(0, round(millis / 1000))
    return f"{seconds} s" if seconds < 60 else str(timedelta(seconds=seconds))


def size(number: float) -> str:
    """A number of bytes in words: `3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def names(found: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    known = list(found)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
