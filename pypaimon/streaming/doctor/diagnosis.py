"""`diagnose`: look at a table once, and tell what was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.doctor.checks import CHECKS
from pypaimon.streaming.doctor.examination import examine
from pypaimon.streaming.doctor.findings import Diagnosis


def diagnose(table: Any, clock: Clock | None = None) -> Diagnosis:
    """What a stream of a table gives, what it costs, and what threatens it. Reads metadata once, and writes nothing.

    Args:
        table: A table of pypaimon.
        clock: Where the time comes from.

    Raises:
        UnsupportedTableError: It cannot be streamed at all: it is of another format, say.
        StreamConfigError: What its options say of its kind, or of expiry, cannot be read.
        StoreError: The store kept failing (retriable).
    """
    seen = examine(table, clock)
    findings = (replace(finding, check=name) for name, check in CHECKS.items() for finding in check(seen))
    return Diagnosis(seen.table, tuple(findings), seen.requests)
