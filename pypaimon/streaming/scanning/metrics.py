"""`ScanMetrics`: the counters of a scan, as one plain value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pypaimon.streaming.model.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanSize:
    """The size of a plan: splits, physical records and bytes of their files."""

    splits: int
    records: int
    bytes: int

    @staticmethod
    def of(plan: Plan) -> PlanSize:
        """The size of a plan. Counting may take long, because a plan may hold a million files."""
        splits = plan.splits()
        return PlanSize(len(splits), sum(each.row_count for each in splits), sum(each.file_size for each in splits))


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

    def with_plan(self, size: PlanSize) -> ScanMetrics:
        """The counters with one more plan."""
        return replace(
            self,
            plans=self.plans + 1,
            splits=self.splits + size.splits,
            records=self.records + size.records,
            bytes=self.bytes + size.bytes,
        )

    def with_poll(self) -> ScanMetrics:
        """The counters with one more poll that found nothing."""
        return replace(self, idle_polls=self.idle_polls + 1)

    def with_requests(self, requests: Mapping[str, int]) -> ScanMetrics:
        """The counters with the requests of the table handle."""
        return replace(self, requests=dict(requests), abandoned_requests=requests["abandoned"])


def total_of(of_scans: Iterable[ScanMetrics], *, of_one_table: bool) -> ScanMetrics:
    """The counters of several scans together. Those of one table handle share its requests already."""
    scans = list(of_scans)
    kinds = {kind for each in scans for kind in each.requests}
    add: Callable[[list[int]], int] = max if of_one_table else sum
    requests = {kind: add([each.requests.get(kind, 0) for each in scans]) for kind in kinds}
    names = ("plans", "splits", "records", "bytes", "idle_polls")
    counters = {name: sum(getattr(each, name) for each in scans) for name in names}
    return ScanMetrics(**counters, requests=requests, abandoned_requests=requests.get("abandoned", 0))
