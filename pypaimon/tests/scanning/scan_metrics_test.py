"""The counters of several scans together."""

from __future__ import annotations

from pypaimon.streaming.scanning.metrics import total_of
from pypaimon.streaming.stream_types import ScanMetrics


def test_requests_of_one_table_are_counted_once() -> None:
    one = ScanMetrics(1, 2, 3, 4, 5, {"read": 6, "abandoned": 1}, 1)
    other = ScanMetrics(10, 20, 30, 40, 50, {"read": 7, "list": 2}, 0)
    of_one_table = total_of((one, other), of_one_table=True)
    assert of_one_table == ScanMetrics(11, 22, 33, 44, 55, {"read": 7, "list": 2, "abandoned": 1}, 1)
    of_two_tables = total_of((one, other), of_one_table=False)
    assert of_two_tables == ScanMetrics(11, 22, 33, 44, 55, {"read": 13, "list": 2, "abandoned": 1}, 1)
    assert total_of((), of_one_table=False) == ScanMetrics()
