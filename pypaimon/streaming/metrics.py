"""`ScanMetrics`: what a scan has done so far, as one plain value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pypaimon.streaming.plan import Plan


@dataclass(frozen=True, slots=True)
class ScanMetrics:
    """Counters since the scan was made.

    Attributes:
        plans: Plans handed out.
        splits: Splits in them.
        records: Physical records in their files, before merging and filtering.
        bytes: Bytes of their files.
        idle_polls: Polls that found nothing new.
        requests: Requests of the table handle by kind (read, list, write, delete, retried); shared by its scans.
        abandoned_requests: Requests of the table handle that hung and were given up.
    """

    plans: int = 0
    splits: int = 0
    records: int = 0
    bytes: int = 0
    idle_polls: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    abandoned_requests: int = 0

    def with_plan(self, plan: Plan) -> ScanMetrics:
        """One plan more."""
        splits = plan.splits()
        return replace(
            self,
            plans=self.plans + 1,
            splits=self.splits + len(splits),
            records=self.records + sum(split.row_count for split in splits),
            bytes=self.bytes + sum(split.file_size for split in splits),
        )

    def with_poll(self) -> ScanMetrics:
        """One poll more that found nothing."""
        return replace(self, idle_polls=self.idle_polls + 1)

    def with_requests(self, requests: Mapping[str, int], abandoned: int) -> ScanMetrics:
        """With the requests of the table handle so far."""
        return replace(self, requests=dict(requests), abandoned_requests=abandoned)
