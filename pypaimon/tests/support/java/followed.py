"""A stream that begins with the empty table and continues after every step of a history, next to Java's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.corpus.cases import Read, Scenario, _read
from support.corpus.compare import Difference
from support.corpus.outcome import End
from support.corpus.runner import Run, settings_for
from support.java.histories import History
from support.java.live import LiveJava
from support.java.verdict import compare, scenario_of
from support.java.writer import Written


class Followed:
    """Both streams of one table, opened once the table is there, and anew after each rollback.

    Both read in the schema that they were opened with, however it changes under them (`on_schema_change="ignore"`,
    which is what Java's core does). A rollback takes snapshots away that both have read: Java does not see that, ours
    must end.
    """

    def __init__(self, java: LiveJava, history: History, warehouse: Path, tally: Tally) -> None:
        self._java = java
        self._written = Written(warehouse, ())
        self._options = {"scan.mode": ("latest", "latest-full")[len(history.steps) % 2]}
        self._altered = any(what == "alter" for what, _ in history.steps)
        self._tally = tally
        self._pair: _Pair | None = None
        self._latest = 0
        self._findings: list[Finding] = []

    def advance(self) -> None:
        """Both streams read what the step before this call left."""
        latest = max(self._written.snapshots(), default=0)
        if self._pair is not None and latest < self._latest:
            self._end(End.BEYOND_LATEST)
        self._latest = latest
        if self._pair is None:
            self._pair = _Pair.opened(self._java, self._written.warehouse, self._options)
        self._java.call("poll", name="live")
        self._pair.run.advance()

    def close(self) -> None:
        if self._pair is not None:
            self._end(None)

    def findings(self) -> Iterator[Finding]:
        return iter(self._findings)

    def _end(self, wanted: End | None) -> None:
        """Compares and closes the pair; `wanted` is how ours must end now, where that is not as Java."""
        assert self._pair is not None
        pair, self._pair = self._pair, None
        answer = self._java.call("unfollow", name="live")
        if wanted is not None:
            pair.run.advance()
        pair.run.finish()
        self._tally.reads += 1
        had = pair.run.outcome()
        try:
            read = pair.read(answer)
        except ValueError:
            error = answer["end"]["error"]
            self._tally.unreadable[f"{error['class']}: {error['message'][:120]} at {error['trace'][:1]}"] += 1
            return
        java = read.java if wanted is None else replace(read.java, end=wanted)
        if self._altered and had.failure is not None and "SchemaChangedError" in had.failure.names:
            self._tally.unheld += 1
            plans = tuple(java.plans_with_rows()[: len(had.plans_with_rows())])
            java = replace(java, plans=plans, end=End.WAITING, final_next=had.final_next)
            had = replace(had, failure=None, end=End.WAITING)
        found = compare(java, had, pair.scenario, read)[1]
        if found:
            self._findings.append(Finding({"options": self._options}, "followed step by step", tuple(found)))


@dataclass(frozen=True, slots=True)
class _Pair:
    scenario: Scenario
    options: dict[str, str]
    run: Run

    @staticmethod
    def opened(java: LiveJava, warehouse: Path, options: dict[str, str]) -> _Pair:
        scenario = scenario_of(warehouse, java.call("schema"))
        java.call("follow", name="live", options=options)
        read = _live(scenario, options, {"plans": [], "end": "waiting"})
        run = Run(scenario, read, replace(settings_for(scenario, read), on_schema_change="ignore"), warehouse)
        run.open()
        return _Pair(scenario, options, run)

    def read(self, answer: dict[str, Any]) -> Read:
        return _live(self.scenario, self.options, answer)


def _live(scenario: Scenario, options: dict[str, str], answer: dict[str, Any]) -> Read:
    return _read({"name": "live", "restore": None, "options": options, **answer}, scenario.fields)


@dataclass(slots=True)
class Tally:
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
